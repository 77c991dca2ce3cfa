/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of oneCCL's C interface that tutti calls, between processes of one machine: each rank lays what it has into
 * shared memory, waits for the others, and takes what it needs, slice by slice. It waits for ever, as oneCCL does, and
 * ends the process where ranks call different things, as oneCCL may. Reductions are the reference's.
 *
 * With a stream, the address of a queue of the stand-in for SYCL, a call is carried out by the thread of the queue's
 * list in the stand-in for Level Zero, when that comes to it; and waits for ever where ranks call different things.
 *
 *   TUTTI_STANDIN_ONECCL_VERSION=20210000    what it says it is
 *   TUTTI_STANDIN_ONECCL_STUCK=RANK:CALL     that rank never returns from that call, which counts from 1; 0: the making
 *   TUTTI_STANDIN_ONECCL_DIES=RANK:CALL      it is killed in it, or on the device when that comes to it
 *   TUTTI_STANDIN_ONECCL_FAILS=RANK:CALL     it refuses it: result 11 */
#include "reference.h"
#include "standin/sycl/sycl_standin.h"

#include <dlfcn.h>
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
struct letter { /* a part of a message, from, to */
    _Atomic unsigned full;
    char data[SLICE];
};
struct shared {
    _Atomic unsigned arrived;
    struct said said[MOST];
    char data[MOST][MOST][SLICE]; /* from, to */
    struct letter letters[MOST][MOST];
};
struct comm {
    struct shared *shared;
    unsigned n, me, barriers;
    unsigned calls; /* that were made, */
    unsigned run;   /* and the one that is carried out */
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

static bool is_now(const char *variable, const struct comm *comm, unsigned n)
{
    const char *text = getenv(variable);
    unsigned rank, call;
    return text && sscanf(text, "%u:%u", &rank, &call) == 2 && rank == comm->me && call == n;
}

static void obey(const struct comm *comm)
{
    if (is_now("TUTTI_STANDIN_ONECCL_DIES", comm, comm->run)) raise(SIGKILL);
    while (is_now("TUTTI_STANDIN_ONECCL_STUCK", comm, comm->calls)) sched_yield();
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

/* ---- calls, here or on a stream ---- */

struct message {
    bool send;
    unsigned peer;
    char *at;
    size_t bytes;
};
struct call {
    struct comm *comm;
    const void *in;
    void *out;
    struct said said;
    bool enqueued;
    size_t n; /* messages, instead of a collective */
    struct message messages[];
};

static void collective(const struct call *call)
{
    struct comm *comm = call->comm;
    const struct said *said = &call->said;
    comm->shared->said[comm->me] = *said;
    barrier(comm);
    for (unsigned r = 0; r < comm->n; r++) {
        if (memcmp(&comm->shared->said[r], said, sizeof *said) == 0) continue;
        if (!call->enqueued) abort();
        for (;;) pause();
    }
    const size_t bytes = said->count * ref_bytes(types[said->type]);
    for (size_t at = 0; at < bytes; at += SLICE)
        slice(comm, said, call->in, call->out, at, bytes - at < SLICE ? bytes - at : SLICE);
    barrier(comm); /* what was said may be said anew */
}

static bool move(const struct comm *comm, struct message *m)
{
    const unsigned from = m->send ? comm->me : m->peer, to = m->send ? m->peer : comm->me;
    struct letter *letter = &comm->shared->letters[from][to];
    const size_t bytes = m->bytes < SLICE ? m->bytes : SLICE;
    if (m->bytes == 0 || atomic_load(&letter->full) == (m->send ? 1 : 0)) return false;
    memcpy(m->send ? letter->data : m->at, m->send ? m->at : letter->data, bytes);
    m->at += bytes, m->bytes -= bytes;
    atomic_store(&letter->full, m->send ? 1 : 0);
    return true;
}

/* All at once; between two ranks, one way, in order. */
static void exchange(struct call *call)
{
    bool left = true;
    while (left) {
        bool moved = false;
        left = false;
        for (size_t i = 0; i < call->n; i++) {
            struct message *m = &call->messages[i];
            size_t before = 0;
            while (before < i && (call->messages[before].bytes == 0 || call->messages[before].send != m->send ||
                                  call->messages[before].peer != m->peer))
                before++;
            if (before == i) moved |= move(call->comm, m);
            left |= m->bytes > 0;
        }
        if (!moved && left) sched_yield();
    }
}

static void carry_out(void *arg)
{
    struct call *call = arg;
    call->comm->run++;
    obey(call->comm);
    if (call->n)
        exchange(call);
    else
        collective(call);
    free(call);
}

static int enqueue(struct call *call, const struct sycl_standin_queue *queue)
{
    int (*list_call)(void *list, void (*function)(void *arg), void *arg) = NULL;
    const char *name = getenv("TUTTI_LEVEL_ZERO_LIBRARY");
    void *driver = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *found = driver ? dlsym(driver, "standin_list_call") : NULL;
    memcpy(&list_call, &found, sizeof found);
    call->enqueued = true;
    return list_call && list_call(queue->native, carry_out, call) == 0 ? OK : REFUSED;
}

static int start(struct call *call, void *stream)
{
    struct comm *comm = call->comm;
    comm->calls++;
    if (is_now("TUTTI_STANDIN_ONECCL_FAILS", comm, comm->calls)) {
        snprintf(words, sizeof words, "the stand-in refuses call %u", comm->calls);
        return REFUSED;
    }
    while (is_now("TUTTI_STANDIN_ONECCL_STUCK", comm, comm->calls)) sched_yield();
    if (stream) return enqueue(call, stream);
    carry_out(call);
    return OK;
}

static int run(void *comm, const void *in, void *out, const struct said *said, void *stream)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call || said->type < 0 || said->type >= (int)(sizeof types / sizeof *types) || said->op < 0 ||
        said->op >= (int)(sizeof ops / sizeof *ops))
        return REFUSED;
    call->comm = comm, call->in = in, call->out = out, call->said = *said;
    return start(call, stream);
}

/* ---- groups, of messages alone ---- */

static _Thread_local struct {
    int depth;
    size_t n;
    struct comm *comm;
    void *stream;
    struct message messages[256];
} group;

static int group_end(void)
{
    if (--group.depth > 0 || group.n == 0) return OK;
    struct call *call = calloc(1, sizeof *call + group.n * sizeof *group.messages);
    if (!call) return REFUSED;
    call->comm = group.comm, call->n = group.n;
    memcpy(call->messages, group.messages, group.n * sizeof *group.messages);
    group.n = 0;
    return start(call, group.stream);
}

/* As oneCCL's, a group whose ranks receive first would end nowhere; and so would a message to oneself. */
static int add(bool send, void *at, size_t bytes, int peer, void *comm, void *stream)
{
    struct comm *of = comm;
    const bool late = send && group.n > 0 && !group.messages[group.n - 1].send;
    if (late || peer < 0 || peer >= (int)of->n || peer == (int)of->me ||
        group.n == sizeof group.messages / sizeof *group.messages) {
        snprintf(words, sizeof words, "the stand-in refuses a message");
        return REFUSED;
    }
    group.depth++;
    group.comm = comm, group.stream = stream;
    group.messages[group.n++] = (struct message){send, (unsigned)peer, at, bytes};
    return group_end();
}

#define SAID(...)                                                                                                      \
    struct said said;                                                                                                  \
    memset(&said, 0, sizeof said);                                                                                     \
    __VA_ARGS__;                                                                                                       \
    said.count = count, said.type = type

/* ---- the interface ---- */

API int onecclAllReduce(void *in, void *out, size_t count, int type, int op, void *comm, void *stream);
int onecclAllReduce(void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    SAID(said.kind = ALL_REDUCE, said.op = op);
    return run(comm, in, out, &said, stream);
}
API int onecclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream);
int onecclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream)
{
    SAID(said.kind = REDUCE, said.op = op, said.root = root);
    return run(comm, in, out, &said, stream);
}
API int onecclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream);
int onecclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    SAID(said.kind = BROADCAST, said.root = root);
    return run(comm, in, out, &said, stream);
}
API int onecclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream);
int onecclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    SAID(said.kind = ALL_GATHER);
    return run(comm, in, out, &said, stream);
}
API int onecclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream);
int onecclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    SAID(said.kind = REDUCE_SCATTER, said.op = op);
    return run(comm, in, out, &said, stream);
}
API int onecclAllToAll(const void *in, void *out, size_t count, int type, void *comm, void *stream);
int onecclAllToAll(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    SAID(said.kind = ALL_TO_ALL);
    return run(comm, in, out, &said, stream);
}
API int onecclScatter(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream);
int onecclScatter(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    SAID(said.kind = SCATTER, said.root = root);
    return run(comm, in, out, &said, stream);
}

API int onecclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream);
int onecclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream)
{
    return add(true, (void *)(uintptr_t)in, count * ref_bytes(types[type]), peer, comm, stream);
}
API int onecclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream);
int onecclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream)
{
    return add(false, out, count * ref_bytes(types[type]), peer, comm, stream);
}
API int onecclGroupStart(void);
int onecclGroupStart(void)
{
    group.depth++;
    return OK;
}
API int onecclGroupEnd(void);
int onecclGroupEnd(void)
{
    return group_end();
}
API int onecclSetDevice(uint32_t device);
int onecclSetDevice(uint32_t device)
{
    (void)device;
    return OK;
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
    const int fd = memfd_create("oneccl", 0); /* open until the process ends */
    memset(id, 0, sizeof *id);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) return REFUSED;
    snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", (int)getpid(), fd);
    return OK;
}
API int onecclCommInitRank(void **out, size_t n, struct id id, int rank);
int onecclCommInitRank(void **out, size_t n, struct id id, int rank)
{
    struct comm *comm = calloc(1, sizeof *comm);
    const int fd = open(id.bytes, O_RDWR);
    if (!comm || n > MOST || fd < 0) return REFUSED;
    comm->n = (unsigned)n, comm->me = (unsigned)rank;
    comm->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->shared == MAP_FAILED) return REFUSED;
    obey(comm);
    barrier(comm);
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
