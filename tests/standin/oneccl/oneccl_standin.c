/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of oneCCL's C interface that tutti calls, between processes of one machine: each rank lays what it has into
 * shared memory, waits for the others, and takes what it needs, slice by slice. It waits for ever, as oneCCL does, and
 * ends the process where ranks call different things, as oneCCL may. Reductions are the reference's.
 *
 *   TUTTI_STANDIN_ONECCL_VERSION=20210000    what it says it is
 *   TUTTI_STANDIN_ONECCL_STUCK=RANK:CALL     that rank never returns from that call, which counts from 1; 0: the making
 *   TUTTI_STANDIN_ONECCL_DIES=RANK:CALL      it is killed in it
 *   TUTTI_STANDIN_ONECCL_FAILS=RANK:CALL     it refuses it: result 11 */
#include "reference.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define SLICE 8192 /* bytes of a block that go at once */
#define MOST 16    /* ranks */
enum { OK, REFUSED = 11 };

struct id {
    char bytes[4096];
};
struct said {
    int kind, type, op, root;
    size_t count;
};
struct shared {
    _Atomic unsigned arrived;
    struct said said[MOST];
    char data[MOST][MOST][SLICE]; /* from, to */
};
struct comm {
    struct shared *shared;
    unsigned n, me, barriers, calls;
};

enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SCATTER };
static const struct {
    bool all_in, all_out, reduces, from_root, to_root;
} kinds[] = {
    [ALL_REDUCE] = {.reduces = true},
    [REDUCE] = {.reduces = true, .to_root = true},
    [BROADCAST] = {.from_root = true},
    [ALL_GATHER] = {.all_out = true},
    [REDUCE_SCATTER] = {.all_in = true, .reduces = true},
    [ALL_TO_ALL] = {.all_in = true, .all_out = true},
    [SCATTER] = {.all_in = true, .from_root = true},
};
static const enum tutti_dtype types[] = {TUTTI_INT8,   TUTTI_UINT8,   TUTTI_INT32,   TUTTI_UINT32,  TUTTI_INT64,
                                         TUTTI_UINT64, TUTTI_FLOAT16, TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_BFLOAT16};
static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_PROD, TUTTI_MAX, TUTTI_MIN};
static _Thread_local char words[100];

static bool is_now(const char *variable, const struct comm *comm)
{
    const char *text = getenv(variable);
    unsigned rank, call;
    return text && sscanf(text, "%u:%u", &rank, &call) == 2 && rank == comm->me && call == comm->calls;
}

static void obey(const struct comm *comm)
{
    if (is_now("TUTTI_STANDIN_ONECCL_DIES", comm)) raise(SIGKILL);
    while (is_now("TUTTI_STANDIN_ONECCL_STUCK", comm)) sched_yield();
}

static void barrier(struct comm *comm)
{
    const unsigned until = ++comm->barriers * comm->n;
    atomic_fetch_add(&comm->shared->arrived, 1);
    while (atomic_load(&comm->shared->arrived) < until) sched_yield();
}

/* What is of rank r for this one, of n bytes from `at` on. */
static void take(const struct comm *comm, const struct said *said, void *out, size_t n)
{
    char(*data)[MOST][SLICE] = comm->shared->data;
    const unsigned to = kinds[said->kind].all_in ? comm->me : 0;
    if (!kinds[said->kind].reduces) {
        memcpy(out, data[said->root][to], n);
        return;
    }
    const enum tutti_dtype type = types[said->type];
    const void *inputs[MOST];
    for (unsigned r = 0; r < comm->n; r++) inputs[r] = data[r][to];
    ref_reduce(type, ops[said->op], inputs, comm->n, n / ref_bytes(type), NULL, out);
}

static void slice(const struct comm *comm, const struct said *said, const char *in, char *out, size_t at, size_t n)
{
    const bool all_in = kinds[said->kind].all_in, all_out = kinds[said->kind].all_out;
    const size_t block = said->count * ref_bytes(types[said->type]);
    const bool gives = !kinds[said->kind].from_root || said->root == (int)comm->me;
    const bool takes = !kinds[said->kind].to_root || said->root == (int)comm->me;
    struct comm *changed = (struct comm *)(uintptr_t)comm;
    for (unsigned to = 0; gives && to < (all_in ? comm->n : 1); to++)
        memcpy(comm->shared->data[comm->me][to], in + to * block + at, n);
    barrier(changed);
    for (unsigned from = 0; all_out && from < comm->n; from++)
        memcpy(out + from * block + at, comm->shared->data[from][all_in ? comm->me : 0], n);
    if (!all_out && takes) take(comm, said, out + at, n);
    barrier(changed);
}

static int run(void *arg, const void *in, void *out, const struct said *said)
{
    struct comm *comm = arg;
    comm->calls++;
    if (said->type < 0 || said->type >= (int)(sizeof types / sizeof *types) || said->op < 0 ||
        said->op >= (int)(sizeof ops / sizeof *ops) || is_now("TUTTI_STANDIN_ONECCL_FAILS", comm)) {
        snprintf(words, sizeof words, "the stand-in refuses call %u", comm->calls);
        return REFUSED;
    }
    obey(comm);
    comm->shared->said[comm->me] = *said;
    barrier(comm);
    for (unsigned r = 0; r < comm->n; r++)
        if (memcmp(&comm->shared->said[r], said, sizeof *said) != 0) abort();
    const size_t bytes = said->count * ref_bytes(types[said->type]);
    for (size_t at = 0; at < bytes; at += SLICE)
        slice(comm, said, in, out, at, bytes - at < SLICE ? bytes - at : SLICE);
    barrier(comm); /* what was said may be said anew */
    return OK;
}

#define SAID(...)                                                                                                      \
    struct said said;                                                                                                  \
    memset(&said, 0, sizeof said);                                                                                     \
    __VA_ARGS__;                                                                                                       \
    said.count = count, said.type = type;                                                                              \
    (void)stream

/* ---- the interface ---- */

API int onecclAllReduce(void *in, void *out, size_t count, int type, int op, void *comm, void *stream);
int onecclAllReduce(void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    SAID(said.kind = ALL_REDUCE, said.op = op);
    return run(comm, in, out, &said);
}
API int onecclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream);
int onecclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream)
{
    SAID(said.kind = REDUCE, said.op = op, said.root = root);
    return run(comm, in, out, &said);
}
API int onecclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream);
int onecclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    SAID(said.kind = BROADCAST, said.root = root);
    return run(comm, in, out, &said);
}
API int onecclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream);
int onecclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    SAID(said.kind = ALL_GATHER);
    return run(comm, in, out, &said);
}
API int onecclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream);
int onecclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    SAID(said.kind = REDUCE_SCATTER, said.op = op);
    return run(comm, in, out, &said);
}
API int onecclAllToAll(const void *in, void *out, size_t count, int type, void *comm, void *stream);
int onecclAllToAll(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    SAID(said.kind = ALL_TO_ALL);
    return run(comm, in, out, &said);
}
API int onecclScatter(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream);
int onecclScatter(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    SAID(said.kind = SCATTER, said.root = root);
    return run(comm, in, out, &said);
}

API int onecclGetVersion(int *version);
int onecclGetVersion(int *version)
{
    const char *text = getenv("TUTTI_STANDIN_ONECCL_VERSION");
    *version = text ? atoi(text) : 20220200;
    return OK;
}
API int onecclGetUniqueId(struct id *id);
int onecclGetUniqueId(struct id *id)
{
    static _Atomic unsigned n;
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "/tutti_oneccl_%d_%u", (int)getpid(), atomic_fetch_add(&n, 1));
    return OK;
}
API int onecclCommInitRank(void **out, size_t n, struct id id, int rank);
int onecclCommInitRank(void **out, size_t n, struct id id, int rank)
{
    struct comm *comm = calloc(1, sizeof *comm);
    const int fd = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
    if (!comm || n > MOST || fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) return REFUSED;
    comm->n = (unsigned)n, comm->me = (unsigned)rank;
    comm->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->shared == MAP_FAILED) return REFUSED;
    obey(comm);
    barrier(comm);
    shm_unlink(id.bytes); /* all have it; the first one to come here removes the name */
    *out = comm;
    return OK;
}
API int onecclCommDestroy(void *arg);
int onecclCommDestroy(void *arg)
{
    struct comm *comm = arg;
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return OK;
}
API const char *onecclGetLastError(void *comm);
const char *onecclGetLastError(void *comm)
{
    (void)comm;
    return words;
}
