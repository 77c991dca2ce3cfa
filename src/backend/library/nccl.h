/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_LIBRARY_NCCL_H
#define TUTTI_BACKEND_LIBRARY_NCCL_H

/* NVIDIA's library, opened with dlopen (2.18 or later), as a back end on devices (library.h). Its communicator is made
 * when the first call comes to it, so that opening costs nothing where others serve all calls. What waits within NCCL
 * is ended from outside, by the watch, which aborts the communicator: NCCL knows no deadlines.
 *
 * nccl_kinds.c: what each kind becomes. nccl_open.c: the library, and the instance. nccl_comm.c: its communicator, from
 * its making to its end. */

#include "backend/library/library.h"

/* ---- the library, in declarations of our own: handles are void pointers, results and enumerations int ---- */
#define NCCL_NEEDED 21800
#define NCCL_ID_BYTES 128
enum nccl_result { NCCL_OK = 0 };
enum nccl_op { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG };
#define NCCL_SCALAR_IN_HOST 1
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};
/* As of 2.18; later ones are longer, and take the length into account. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, min_ctas, max_ctas;
    const char *net;
    int split_share;
};
#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_UNSET INT32_MIN

#define NCCL_CALLS(X)                                                                                                  \
    X(version_get, ncclGetVersion, (int *version))                                                                     \
    X(id_get, ncclGetUniqueId, (struct nccl_id * id))                                                                  \
    X(comm_init, ncclCommInitRankConfig,                                                                               \
      (void **comm, int n, struct nccl_id id, int rank, const struct nccl_config *config))                             \
    X(comm_abort, ncclCommAbort, (void *comm))                                                                         \
    X(comm_destroy, ncclCommDestroy, (void *comm))                                                                     \
    X(comm_state, ncclCommGetAsyncError, (void *comm, int *state))                                                     \
    X(group_start, ncclGroupStart, (void))                                                                             \
    X(group_end, ncclGroupEnd, (void))                                                                                 \
    X(factor_create, ncclRedOpCreatePreMulSum, (int *op, void *factor, int type, int residence, void *comm))           \
    X(factor_destroy, ncclRedOpDestroy, (int op, void *comm))                                                          \
    X(all_reduce, ncclAllReduce,                                                                                       \
      (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))                           \
    X(reduce, ncclReduce,                                                                                              \
      (const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream))                 \
    X(broadcast, ncclBroadcast,                                                                                        \
      (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream))                         \
    X(all_gather, ncclAllGather, (const void *in, void *out, size_t count, int type, void *comm, void *stream))        \
    X(reduce_scatter, ncclReduceScatter,                                                                               \
      (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))                           \
    X(send, ncclSend, (const void *in, size_t count, int type, int peer, void *comm, void *stream))                    \
    X(recv, ncclRecv, (void *out, size_t count, int type, int peer, void *comm, void *stream))

struct nccl_library {
#define NCCL_MEMBER(member, symbol, parameters) int(*member) parameters;
    NCCL_CALLS(NCCL_MEMBER)
#undef NCCL_MEMBER
    const char *(*error_text)(int result);
    const char *(*last_error)(void *comm); /* NULL comm: of the thread */
    int version;                           /* 22809: 2.28.9 */
};
/* Opens it at first use; named: a file, "": the one that is loaded already, else the system's. NULL and a record that
 * says why (UNSUPPORTED). What was found first stays. */
const struct nccl_library *nccl_library(const char *named);
/* Whether it takes ranks that share a GPU: from 2.30 on, where its switch is on. */
bool nccl_shares(const struct nccl_library *library);

/* ---- an instance ---- */
/* What a member shows the others, in memory that they map. */
struct nccl_board {
    struct watch_log log;   /* first */
    _Atomic uint32_t ready; /* slot 0's: the id is there */
    struct nccl_id id;
};
struct nccl_ending; /* a communicator's (nccl_open.c) */
struct nccl_backend {
    struct library l; /* first */
    const struct nccl_library *library;
    uint32_t blocks; /* a launch's, at most; 0: NCCL's choice */

    /* Held while a call is within NCCL, which waits for peers when it connects. The thread that aborts a stuck call
     * does not take it. */
    pthread_mutex_t lock;
    void *comm;                           /* NULL: not made yet, or aborted; atomic */
    _Atomic(struct nccl_ending *) ending; /* NULL: no communicator was to be made yet */
    _Atomic uint64_t error_ns;            /* since when NCCL has an error, 0: it has none; the watch's */
};
static inline struct nccl_backend *nccl_of(const struct library *l)
{
    return (struct nccl_backend *)(uintptr_t)l;
}
static inline struct nccl_board *nccl_board(const struct nccl_backend *b, uint32_t r)
{
    return (struct nccl_board *)(void *)b->l.watched.logs[r];
}

/* ---- nccl_comm.c ---- */
/* Makes the communicator, at the first call. Fails the team when it can not. */
enum tutti_status nccl_make(struct library *l, uint64_t timeout_ns);
/* Around what may wait for peers within NCCL; the watch ends it at the deadline. NULL: it was aborted. */
void *nccl_enter(struct nccl_backend *b);
/* OK for success, else a record with the team's failure, or NCCL's words of its own. */
enum tutti_status nccl_leave(struct nccl_backend *b, int result, const char *call);
enum tutti_status nccl_refused(const struct nccl_backend *b, int result, const char *call);
void nccl_ending_leave(struct nccl_backend *b); /* when the communicator has been ended, or there is none */
/* Ends it; alone: nobody is left to wait for, and all is well. Then waits, for so long at most. */
void nccl_end_begin(struct nccl_backend *b, bool alone);
void nccl_end_wait(struct nccl_backend *b, uint64_t most_ns);
/* Ends what waits on the device: `stop` before the failure is told, `stopped` after it; some two seconds at most in
 * all. What NCCL waits for beyond that, graphs that hold calls, is left to a thread. */
bool nccl_stop(struct library *l); /* false: a call is within NCCL whose communicator was not there yet */
void nccl_stopped(struct library *l);

/* nccl_kinds.c: whether NCCL has it among n ranks, with the meaning that tutti gives it; and what it has for it. */
bool nccl_can(const struct tutti_backend_call *call, uint32_t n);
double nccl_cost_ns(const struct tutti_backend_call *call, uint32_t n);
enum tutti_status nccl_run(struct library *l, const struct library_item *item, void *stream, uint64_t timeout_ns);

#endif
