/* SPDX-License-Identifier: BSD-3-Clause */
/* The public collectives. Each sets the arguments of its call. What differs between kinds is in the table of kinds
 * (sched/kind.c). */
#include "comm/call/call.h"

/* ---- equal blocks ---- */

/* The body of a kind's public function: its parameters are what the header says, and these are the call's arguments. */
#define CALL(KIND, DTYPE, OP, ROOT, COUNT, SEND, RECV)                                                                 \
    struct tutti_call call;                                                                                            \
    tutti_call_set(&call, KIND, DTYPE, (int32_t)(OP), ROOT, COUNT, SEND, RECV);                                        \
    return tutti_call_collective(&call, comm, options, work)

enum tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                                   struct tutti_comm *comm, const struct tutti_call_options *options,
                                   struct tutti_work **work)
{
    CALL(TUTTI_ALL_REDUCE, dtype, op, 0, count, send, recv);
}

enum tutti_status tutti_reduce(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                               int32_t root, struct tutti_comm *comm, const struct tutti_call_options *options,
                               struct tutti_work **work)
{
    CALL(TUTTI_REDUCE, dtype, op, root, count, send, recv);
}

enum tutti_status tutti_broadcast(void *buffer, size_t count, enum tutti_dtype dtype, int32_t root,
                                  struct tutti_comm *comm, const struct tutti_call_options *options,
                                  struct tutti_work **work)
{
    CALL(TUTTI_BROADCAST, dtype, TUTTI_SUM, root, count, buffer, buffer);
}

enum tutti_status tutti_all_gather(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                   struct tutti_comm *comm, const struct tutti_call_options *options,
                                   struct tutti_work **work)
{
    CALL(TUTTI_ALL_GATHER, dtype, TUTTI_SUM, 0, count, send, recv);
}

enum tutti_status tutti_gather(const void *send, void *recv, size_t count, enum tutti_dtype dtype, int32_t root,
                               struct tutti_comm *comm, const struct tutti_call_options *options,
                               struct tutti_work **work)
{
    CALL(TUTTI_GATHER, dtype, TUTTI_SUM, root, count, send, recv);
}

enum tutti_status tutti_scatter(const void *send, void *recv, size_t count, enum tutti_dtype dtype, int32_t root,
                                struct tutti_comm *comm, const struct tutti_call_options *options,
                                struct tutti_work **work)
{
    CALL(TUTTI_SCATTER, dtype, TUTTI_SUM, root, count, send, recv);
}

enum tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                       enum tutti_op op, struct tutti_comm *comm,
                                       const struct tutti_call_options *options, struct tutti_work **work)
{
    CALL(TUTTI_REDUCE_SCATTER, dtype, op, 0, count, send, recv);
}

enum tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                   struct tutti_comm *comm, const struct tutti_call_options *options,
                                   struct tutti_work **work)
{
    CALL(TUTTI_ALL_TO_ALL, dtype, TUTTI_SUM, 0, count, send, recv);
}

enum tutti_status tutti_scan(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                             struct tutti_comm *comm, const struct tutti_call_options *options,
                             struct tutti_work **work)
{
    CALL(TUTTI_SCAN, dtype, op, 0, count, send, recv);
}

enum tutti_status tutti_exscan(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                               struct tutti_comm *comm, const struct tutti_call_options *options,
                               struct tutti_work **work)
{
    CALL(TUTTI_EXSCAN, dtype, op, 0, count, send, recv);
}

enum tutti_status tutti_barrier(struct tutti_comm *comm, const struct tutti_call_options *options,
                                struct tutti_work **work)
{
    CALL(TUTTI_BARRIER, TUTTI_UINT8, TUTTI_SUM, 0, 0, NULL, NULL);
}

/* ---- v forms ---- */

/* A table of gather_v or scatter_v: what other ranks than the root pass is not read. */
static const size_t *at_root(const size_t *table, int32_t root, const struct tutti_comm *comm)
{
    return root == tutti_comm_rank(comm) ? table : NULL;
}

/* The public function of a v form; what follows is what the kind has beside buffers and communicator. */
#define CALL_V(KIND, NAME, ROOT, OP, ...)                                                                              \
    tutti_call_submit(&(struct tutti_call){.job = {.info = {.kind = KIND, .dtype = dtype, .op = OP, .root = ROOT},     \
                                                   .bind = {.v = true, .input = send, .output = recv, __VA_ARGS__},    \
                                                   .commutative = true},                                               \
                                           .name = NAME,                                                               \
                                           .comm = comm,                                                               \
                                           .work = work},                                                              \
                      options)

enum tutti_status tutti_all_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                     enum tutti_dtype dtype, struct tutti_comm *comm,
                                     const struct tutti_call_options *options, struct tutti_work **work)
{
    return CALL_V(TUTTI_ALL_GATHER, "all_gather_v", 0, 0, .counts = counts, .displs = displs);
}

enum tutti_status tutti_gather_v(const void *send, size_t count, void *recv, const size_t *counts, const size_t *displs,
                                 enum tutti_dtype dtype, int32_t root, struct tutti_comm *comm,
                                 const struct tutti_call_options *options, struct tutti_work **work)
{
    return CALL_V(TUTTI_GATHER, "gather_v", root, 0, .count = count, .counts = at_root(counts, root, comm),
                  .displs = at_root(displs, root, comm));
}

enum tutti_status tutti_scatter_v(const void *send, const size_t *counts, const size_t *displs, void *recv,
                                  size_t count, enum tutti_dtype dtype, int32_t root, struct tutti_comm *comm,
                                  const struct tutti_call_options *options, struct tutti_work **work)
{
    return CALL_V(TUTTI_SCATTER, "scatter_v", root, 0, .count = count, .counts = at_root(counts, root, comm),
                  .displs = at_root(displs, root, comm));
}

enum tutti_status tutti_reduce_scatter_v(const void *send, void *recv, const size_t *counts, enum tutti_dtype dtype,
                                         enum tutti_op op, struct tutti_comm *comm,
                                         const struct tutti_call_options *options, struct tutti_work **work)
{
    return CALL_V(TUTTI_REDUCE_SCATTER, "reduce_scatter_v", 0, (int32_t)op, .counts = counts);
}

enum tutti_status tutti_all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv,
                                     const size_t *recv_counts, const size_t *recv_displs, enum tutti_dtype dtype,
                                     struct tutti_comm *comm, const struct tutti_call_options *options,
                                     struct tutti_work **work)
{
    return CALL_V(TUTTI_ALL_TO_ALL, "all_to_all_v", 0, 0, .in_counts = send_counts, .in_displs = send_displs,
                  .counts = recv_counts, .displs = recv_displs);
}

/* Point-to-point calls: calls like the collectives, matched by the engine. */

enum tutti_status tutti_send(const void *buffer, size_t count, enum tutti_dtype dtype, int32_t dest, int32_t tag,
                             struct tutti_comm *comm, const struct tutti_call_options *options,
                             struct tutti_work **work)
{
    struct tutti_call call = {.type = TUTTI_CALL_SEND,
                              .name = "send",
                              .job.bind.input = buffer,
                              .job.bind.count = count,
                              .job.info.dtype = dtype,
                              .dest = dest,
                              .send_tag = tag,
                              .comm = comm,
                              .work = work};
    return tutti_call_submit(&call, options);
}

enum tutti_status tutti_recv(void *buffer, size_t count, enum tutti_dtype dtype, int32_t source, int32_t tag,
                             struct tutti_comm *comm, const struct tutti_call_options *options,
                             struct tutti_message *message, struct tutti_work **work)
{
    struct tutti_call call = {.type = TUTTI_CALL_RECV,
                              .name = "recv",
                              .job.bind.output = buffer,
                              .recv_count = count,
                              .job.info.dtype = dtype,
                              .source = source,
                              .recv_tag = tag,
                              .message = message,
                              .comm = comm,
                              .work = work};
    return tutti_call_submit(&call, options);
}

enum tutti_status tutti_sendrecv(const void *send, size_t send_count, int32_t dest, int32_t send_tag, void *recv,
                                 size_t recv_count, int32_t source, int32_t recv_tag, enum tutti_dtype dtype,
                                 struct tutti_comm *comm, const struct tutti_call_options *options,
                                 struct tutti_message *message, struct tutti_work **work)
{
    struct tutti_call call = {.type = TUTTI_CALL_SENDRECV,
                              .name = "sendrecv",
                              .job.bind.input = send,
                              .job.bind.count = send_count,
                              .dest = dest,
                              .send_tag = send_tag,
                              .job.bind.output = recv,
                              .recv_count = recv_count,
                              .source = source,
                              .recv_tag = recv_tag,
                              .job.info.dtype = dtype,
                              .message = message,
                              .comm = comm,
                              .work = work};
    return tutti_call_submit(&call, options);
}

enum tutti_status tutti_probe(int32_t source, int32_t tag, struct tutti_comm *comm, struct tutti_message *message)
{
    struct tutti_call call = {.type = TUTTI_CALL_RECV,
                              .name = "probe",
                              .job.info.dtype = TUTTI_UINT8,
                              .source = source,
                              .recv_tag = tag,
                              .comm = comm};
    if (comm) TUTTI_TRY(tutti_survive_refuse(comm, "probe"));
    TUTTI_TRY(tutti_comm_enter(comm, "probe"));
    enum tutti_status status = tutti_call_check(&call);
    struct tutti_message found;
    if (status >= 0) status = tutti_engine_probe(comm->team, source, tag, &found);
    if (status == TUTTI_OK && message) *message = found;
    tutti_comm_leave(comm);
    return status;
}
