/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COLL_H
#define TUTTI_COLL_H

/* Collectives and point-to-point calls.
 *
 * Every call takes `options` (NULL: defaults) and `work`. With work NULL the call blocks until it is complete; else it
 * returns once it is started, and *work must be waited for or tested, and freed (tutti_work_free). Buffers are borrowed
 * until completion, on success and on failure. Counts are elements, of any size up to SIZE_MAX bytes in all. In place
 * means send == recv; for all_gather and gather send == recv + rank * count elements, for reduce_scatter and scatter
 * recv == send + rank * count, and so with displacements for the v forms; any other overlap is TUTTI_ERR_ARGUMENT.
 * Ranks call the collectives of one communicator in one order.
 *
 * Device memory (all buffers of a call, on the communicator's device: tutti_comm_config): the call is enqueued on
 * options->stream and returns at once, with work NULL, too; its buffers are borrowed until the stream has come past it.
 * Nothing waits on the host, so calls can be captured in a graph and replayed. Calls of one communicator run one after
 * another, in the order in which they were enqueued, whatever their streams; launches of graphs are ordered by the
 * caller with one another and with other calls of the communicator. With work, tutti_work_wait and _test tell when the
 * stream has come past it (not in a capture: ARGUMENT). In a group, calls on devices come first, communicators in the
 * order of their ids and collectives before messages, so that the order inside the group does not matter there either.
 * Its messages of a communicator may be on several streams, of one capture or of none (ARGUMENT): they begin when all
 * of these have come to them, and all go on when they are over (through the host: all its calls). A call without a byte
 * of this rank is one on device memory, unless it is a v form or message with a pointer to the host. What fails on the
 * device (a peer that dies, the deadline, which each wait for a peer has to itself) ends the communicator: the next
 * call returns the error, tutti_comm_state tells it at any time, and what is enqueued behind runs on with undefined
 * results. A user-defined operation is carried out on the host, in the stream's order (not in a capture); so are all
 * calls on device memory where some rank has no device, or devices do not reach one another. There a call on host
 * memory waits until the calls before it have started, and at most 64 calls and 1 GiB of them are under way: who makes
 * more waits.
 *
 * Errors: ARGUMENT and UNSUPPORTED before anything is
 * started; then PEER_DEAD, PEER_LEFT, TIMEOUT, MISMATCH, ABORTED, which also end the communicator (tutti_comm_state).
 */

#include <tutti/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tutti_work;

struct tutti_call_options {
    size_t size;           /* sizeof(struct tutti_call_options) */
    uint64_t timeout_ns;   /* 0: the communicator's */
    const char *algorithm; /* NULL: chosen; else a name of `tutti sched list`, with optional radix "tree:4", or the path
                              of a file, "./mine.c" (tutti_algorithm_load); borrowed */
    const char *label;     /* for traces and error texts; borrowed until completion */
    const void *premul;    /* TUTTI_PREMUL_SUM: pointer to one factor of the call's dtype (read at the call; with
                              `ordered` one in memory that the device reaches is read in the stream's order) ... */
    double premul_value;   /* ... or, when premul is NULL, the factor by value, converted as C does (integers: to 0) */
    bool attended;         /* the caller waits for the work at once: no thread is woken to bring the call on before
                              tutti_work_wait, _test, _notify or _free is called */
    void *stream;          /* calls on device memory: the stream (CUstream, cudaStream_t) that orders them; NULL: the
                              default stream */
    /* A quantised all_reduce, reduce_scatter or reduce_scatter_v (docs/quantized.md): sum or avg of float16, bfloat16,
     * float32 or float64. The three are equal on all ranks. */
    enum tutti_wire wire;
    uint32_t wire_block; /* elements that share a scale: a multiple of 32 up to 1024; 0: 256 */
    uint64_t wire_seed;  /* 0: rounds to nearest; else stochastically, without bias, by random numbers of the seed */
    const void
        *wire_seeds; /* NULL, or where a uint64_t lies that is added to the seed: on device memory (of the device,
                        or pinned) it is read in the stream's order, so that replays of a graph may differ */
    bool ordered;    /* memory of the host that the device reaches (pinned) counts as the device's, in the order of the
                        stream; other memory of the host is ARGUMENT. On a communicator without a device: nothing */
    bool overlap;    /* calls on device memory: computation runs beside the call, so it takes few of the device's SMs
                        (option gpu_overlap_blocks), and waits for late ranks on one. May differ between ranks */
};
#define TUTTI_CALL_OPTIONS_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(struct tutti_call_options), 0, NULL, NULL, NULL, 1.0, false, NULL, TUTTI_WIRE_NONE, 0, 0, NULL, false,  \
            false                                                                                                      \
    }

/* Loads an algorithm from a file: C (.c, compiled by the compiler of TUTTI_CC), Python (.py), a shared object (.so) or
 * a plan of steps; docs/write_a_collective.md says what is in them. From then on it is known to this process by the
 * name that it has and by its path, in tutti_call_options.algorithm and in the option `algorithm`; a path that is named
 * there without having been loaded is loaded. A name of `tutti sched list` stays that of the library's own. *name (name
 * may be NULL) is what to call it by; it belongs to the library and stays, as the algorithm does, until the process
 * ends. A file that has changed is loaded anew, and is meant by name and path from then on.
 *
 * Blocking, local to this rank, any thread: compiling takes a moment, the first time on this host. All ranks must load
 * files of the same contents. Before its first call in a shape the algorithm is proved by the command tutti, in a
 * process of its own, so that call takes a moment longer, once on this host; and the first call of a kind that names it
 * on a communicator waits for all ranks: where one has no such file, other contents or a counterexample, the call is
 * refused on every rank (ARGUMENT or UNSUPPORTED), nothing is run, and the communicator goes on. (Calls in groups, in
 * recordings and on communicators with devices do not wait; other contents are MISMATCH there. Files of the option
 * `algorithms` are compared when the communicator is made: CONFIG.)
 *
 * Errors: ARGUMENT (no such file, it does not compile, it is no algorithm; the text begins with the path), SYSTEM,
 * MEMORY. */
TUTTI_API enum tutti_status tutti_algorithm_load(const char *path, const char **name) TUTTI_MUST_USE;
/* Whether an algorithm of this name (of the library's own, or loaded) has schedules for a kind ("all_reduce"); false,
 * too, where there is no such name or kind. Whether one fits a call, the call says. */
TUTTI_API bool tutti_algorithm_offers(const char *name, const char *kind);

/* What a completed receive or probe found. */
struct tutti_message {
    int32_t source;
    int32_t tag;
    size_t bytes;
};
#define TUTTI_ANY_SOURCE (-1)
#define TUTTI_ANY_TAG (-1) /* tags of messages are >= 0 */

TUTTI_API enum tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                             enum tutti_op op, struct tutti_comm *comm,
                                             const struct tutti_call_options *options, struct tutti_work **work);
/* recv is significant at root only. */
TUTTI_API enum tutti_status tutti_reduce(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                         enum tutti_op op, int32_t root, struct tutti_comm *comm,
                                         const struct tutti_call_options *options, struct tutti_work **work);
TUTTI_API enum tutti_status tutti_broadcast(void *buffer, size_t count, enum tutti_dtype dtype, int32_t root,
                                            struct tutti_comm *comm, const struct tutti_call_options *options,
                                            struct tutti_work **work);
/* recv holds size * count elements, rank r's at r * count. */
TUTTI_API enum tutti_status tutti_all_gather(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                             struct tutti_comm *comm, const struct tutti_call_options *options,
                                             struct tutti_work **work);
/* counts[r], displs[r] (elements, displs NULL: packed) are equal on all ranks; rank r sends counts[r]. */
TUTTI_API enum tutti_status tutti_all_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                               enum tutti_dtype dtype, struct tutti_comm *comm,
                                               const struct tutti_call_options *options, struct tutti_work **work);
TUTTI_API enum tutti_status tutti_gather(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                         int32_t root, struct tutti_comm *comm,
                                         const struct tutti_call_options *options, struct tutti_work **work);
/* Each rank sends `count`; counts, displs and recv are significant at root only. */
TUTTI_API enum tutti_status tutti_gather_v(const void *send, size_t count, void *recv, const size_t *counts,
                                           const size_t *displs, enum tutti_dtype dtype, int32_t root,
                                           struct tutti_comm *comm, const struct tutti_call_options *options,
                                           struct tutti_work **work);
/* send holds size * count elements at root. */
TUTTI_API enum tutti_status tutti_scatter(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                          int32_t root, struct tutti_comm *comm,
                                          const struct tutti_call_options *options, struct tutti_work **work);
TUTTI_API enum tutti_status tutti_scatter_v(const void *send, const size_t *counts, const size_t *displs, void *recv,
                                            size_t count, enum tutti_dtype dtype, int32_t root, struct tutti_comm *comm,
                                            const struct tutti_call_options *options, struct tutti_work **work);
/* send holds size * count elements, recv count: the reduction of block `rank`. */
TUTTI_API enum tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                                 enum tutti_op op, struct tutti_comm *comm,
                                                 const struct tutti_call_options *options, struct tutti_work **work);
/* counts are equal on all ranks; send is packed, recv holds counts[rank]. */
TUTTI_API enum tutti_status tutti_reduce_scatter_v(const void *send, void *recv, const size_t *counts,
                                                   enum tutti_dtype dtype, enum tutti_op op, struct tutti_comm *comm,
                                                   const struct tutti_call_options *options, struct tutti_work **work);
/* Block r of send (count elements) goes to block `rank` of rank r's recv. In place is allowed. */
TUTTI_API enum tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                             struct tutti_comm *comm, const struct tutti_call_options *options,
                                             struct tutti_work **work);
/* Own row and column; displs NULL: packed. In place is not defined (ARGUMENT). */
TUTTI_API enum tutti_status tutti_all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_displs,
                                               void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                               enum tutti_dtype dtype, struct tutti_comm *comm,
                                               const struct tutti_call_options *options, struct tutti_work **work);
/* A sum, or avg, of sparse inputs: block i of values (`block` elements) is added to block indices[i] of recv, which has
 * count elements and is 0 elsewhere; indices that repeat are added, in their order; then recv is reduced over all ranks
 * as by tutti_all_reduce, whose options and work these are. n_blocks and indices are each rank's own. values, indices,
 * recv and status lie on the host or all on the device (there float16, bfloat16, float32, float64). On the host a wrong
 * index on any rank is ARGUMENT on all. On the device nothing waits: blocks that are not in recv are left out, and
 * *status, if it is given (on all ranks), becomes TUTTI_ERR_ARGUMENT on all; else TUTTI_OK. Not in groups and
 * recordings. */
TUTTI_API enum tutti_status tutti_all_reduce_sparse_block(const void *values, const int64_t *indices, size_t n_blocks,
                                                          size_t block, void *recv, size_t count,
                                                          enum tutti_dtype dtype, enum tutti_op op, int32_t *status,
                                                          struct tutti_comm *comm,
                                                          const struct tutti_call_options *options,
                                                          struct tutti_work **work);
/* An all_to_all_v whose counts only the senders know. Counts, displacements and status lie where the data lies, and are
 * read and written when the call runs: on device memory with the back end `cuda` nothing waits on the host, and a graph
 * may be launched again with others. Where some block does not fit into send or recv, on any rank, nothing is moved on
 * any, and the communicator stays as it is: status becomes TUTTI_ERR_TRUNCATED, recv_counts say what would have come,
 * and where the host reads the counts the call fails so, too. On host memory, and where device memory goes through the
 * host or by nccl, the host reads them: then the call waits, with work, too, until the stream has come to it and the
 * other ranks have called it, though not for the data, and can not be captured. Not in groups and recordings. In place
 * is not defined. */
struct tutti_all_to_all_v_dynamic {
    size_t size; /* sizeof(struct tutti_all_to_all_v_dynamic) */
    const void *send;
    const uint64_t *send_counts; /* elements for each rank */
    const uint64_t *send_displs; /* where they begin; NULL: packed, in rank order */
    size_t send_capacity;        /* elements that send has */
    void *recv;
    uint64_t *recv_counts;       /* written: elements from each rank */
    const uint64_t *recv_displs; /* where they go; NULL: packed, in rank order */
    size_t recv_capacity;
    int32_t *status; /* written: TUTTI_OK, TUTTI_ERR_TRUNCATED; may be NULL */
    enum tutti_dtype dtype;
};
TUTTI_API enum tutti_status tutti_all_to_all_v_dynamic(const struct tutti_all_to_all_v_dynamic *call,
                                                       struct tutti_comm *comm,
                                                       const struct tutti_call_options *options,
                                                       struct tutti_work **work);
/* Rank r gets the reduction of ranks 0..r (scan) or 0..r-1 (exscan; rank 0's recv is left untouched). avg divides by
 * the number of contributors. */
TUTTI_API enum tutti_status tutti_scan(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                       enum tutti_op op, struct tutti_comm *comm,
                                       const struct tutti_call_options *options, struct tutti_work **work);
TUTTI_API enum tutti_status tutti_exscan(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                         enum tutti_op op, struct tutti_comm *comm,
                                         const struct tutti_call_options *options, struct tutti_work **work);
/* Complete when all ranks have called it, and the collectives that they called before on this communicator are complete
 * on all of them. On a communicator with a device the call first waits, also with work, until what was enqueued before
 * it is over here. */
TUTTI_API enum tutti_status tutti_barrier(struct tutti_comm *comm, const struct tutti_call_options *options,
                                          struct tutti_work **work);

/* Point-to-point: matched by (source, tag) in the order of the calls. A send completes when its buffer may be reused.
 * Sending to oneself is allowed (asynchronously, or inside a group; on devices inside a group that has both ends). On
 * devices messages between two ranks match in the order of the calls, whatever their tags; sizes must be equal, and
 * TUTTI_ANY_SOURCE is UNSUPPORTED. A message waits on its stream for its counterpart: those of several ranks that cross
 * belong into one group. There a later one with a peer may wait for an earlier one with another where there are more
 * than some 200, or one is received where another is received or sent from. (Where device memory goes through the host,
 * all is as on hosts.) */
TUTTI_API enum tutti_status tutti_send(const void *buffer, size_t count, enum tutti_dtype dtype, int32_t dest,
                                       int32_t tag, struct tutti_comm *comm, const struct tutti_call_options *options,
                                       struct tutti_work **work);
/* count is the capacity, in bytes count * size of dtype: types are not compared; message (may be NULL, else it lives
 * until completion) tells what came. */
TUTTI_API enum tutti_status tutti_recv(void *buffer, size_t count, enum tutti_dtype dtype, int32_t source, int32_t tag,
                                       struct tutti_comm *comm, const struct tutti_call_options *options,
                                       struct tutti_message *message, struct tutti_work **work);
TUTTI_API enum tutti_status tutti_sendrecv(const void *send, size_t send_count, int32_t dest, int32_t send_tag,
                                           void *recv, size_t recv_count, int32_t source, int32_t recv_tag,
                                           enum tutti_dtype dtype, struct tutti_comm *comm,
                                           const struct tutti_call_options *options, struct tutti_message *message,
                                           struct tutti_work **work);
/* TUTTI_OK and *message if a message waits to be received, TUTTI_AGAIN if none does (never blocks). */
TUTTI_API enum tutti_status tutti_probe(int32_t source, int32_t tag, struct tutti_comm *comm,
                                        struct tutti_message *message);

/* Between start and end (per thread; they nest) calls are collected, on any number of communicators; the outermost end
 * starts them all in one submission, so that their order inside the group can not deadlock. Calls with work NULL are
 * complete when tutti_group_end returns if its own work is NULL; else that work covers them (an empty group has none:
 * ARGUMENT). A call that fails inside the group fails the end, and nothing of the group is started. */
TUTTI_API enum tutti_status tutti_group_start(void);
TUTTI_API enum tutti_status tutti_group_end(struct tutti_work **work);

/* Work. test never blocks: TUTTI_OK complete, TUTTI_PENDING, else the error. wait blocks at most timeout_ns (0: until
 * the call's own deadline) and returns TUTTI_PENDING when that passes first. Any thread, any number of them. */
TUTTI_API enum tutti_status tutti_work_test(struct tutti_work *work);
TUTTI_API enum tutti_status tutti_work_wait(struct tutti_work *work, uint64_t timeout_ns);
TUTTI_API void tutti_work_error(struct tutti_work *work, struct tutti_error *out);
/* Nanoseconds from start to completion, 0 while pending. */
TUTTI_API uint64_t tutti_work_duration_ns(const struct tutti_work *work);
TUTTI_API uint64_t tutti_work_sequence(const struct tutti_work *work);
/* Gives the handle back. Of a pending call: the call goes on, its buffers stay borrowed until it ends. */
TUTTI_API void tutti_work_free(struct tutti_work *work);

/* Calls function(arg) once when the call is complete, failed or not; soon, if it is already. The functions of a context
 * run on its completion thread, which the first of them starts, one after the other in the order of completion (the
 * same work's, and those of works that are complete, in the order of the requests). They may block, which holds up only
 * the functions behind them, and call everything: also free this work, start calls, abort, or destroy the communicator
 * or the context. A work can be freed before its functions have run. A work of several contexts' calls notifies on the
 * thread of the context whose part is the last one.
 * tutti_comm_destroy returns when the functions of the calls that ended on the communicator have returned,
 * tutti_context_destroy when all have; called from within such a function they wait for none, and those still queued
 * run afterwards. Once the context is gone the function runs on the calling thread, inside tutti_work_notify.
 * Errors: ARGUMENT, MEMORY, SYSTEM (a thread can not be started); then the function is never called. */
typedef void (*tutti_work_function)(void *arg);
TUTTI_API enum tutti_status tutti_work_notify(struct tutti_work *work, tutti_work_function function, void *arg);

/* User-defined reduction: inout[i] = left[i] op right[i] is computed as f(left, right, out, count, dtype, arg), where
 * out may equal left or right. Must be associative; says whether it commutes. It may be called from the progress
 * thread. *out is an operation for all calls of this context until tutti_op_destroy (not while calls use it). */
typedef void (*tutti_op_function)(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype,
                                  void *arg);
TUTTI_API enum tutti_status tutti_op_create(struct tutti_context *context, tutti_op_function function, void *arg,
                                            bool commutes, enum tutti_op *out) TUTTI_MUST_USE;
TUTTI_API enum tutti_status tutti_op_destroy(struct tutti_context *context, enum tutti_op op);

/* Persistent collectives: recorded once, started many times. Between tutti_persistent_record and _end exactly one
 * collective is called on this thread with work NULL; it is not run. start runs it (same rules as the call itself:
 * its buffers are borrowed until that run is complete, so start it again only then). */
struct tutti_persistent;
TUTTI_API enum tutti_status tutti_persistent_record(void);
TUTTI_API enum tutti_status tutti_persistent_end(struct tutti_persistent **out) TUTTI_MUST_USE;
TUTTI_API enum tutti_status tutti_persistent_start(struct tutti_persistent *persistent, struct tutti_work **work);
TUTTI_API void tutti_persistent_destroy(struct tutti_persistent *persistent);

#ifdef __cplusplus
}
#endif

#endif
