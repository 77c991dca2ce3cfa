/* SPDX-License-Identifier: BSD-3-Clause */
/* The public collectives: each fills a request and submits it. What differs between them is data here, and in the table
 * of check.c. */
#include "comm/object/comm.h"

enum tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                                   struct tutti_comm *comm, const struct tutti_call_options *options,
                                   struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status = tutti_quick(TUTTI_ALL_REDUCE, send, recv, count, dtype, op, 0, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "all_reduce",
                                    .kind = TUTTI_ALL_REDUCE,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = (int)op,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_reduce(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                               int32_t root, struct tutti_comm *comm, const struct tutti_call_options *options,
                               struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status = tutti_quick(TUTTI_REDUCE, send, recv, count, dtype, op, root, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "reduce",
                                    .kind = TUTTI_REDUCE,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = (int)op,
                                    .root = root,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_broadcast(void *buffer, size_t count, enum tutti_dtype dtype, int32_t root,
                                  struct tutti_comm *comm, const struct tutti_call_options *options,
                                  struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status =
            tutti_quick(TUTTI_BROADCAST, buffer, buffer, count, dtype, TUTTI_SUM, root, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "broadcast",
                                    .kind = TUTTI_BROADCAST,
                                    .recv = buffer,
                                    .count = count,
                                    .dtype = dtype,
                                    .root = root,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_all_gather(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                   struct tutti_comm *comm, const struct tutti_call_options *options,
                                   struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status =
            tutti_quick(TUTTI_ALL_GATHER, send, recv, count, dtype, TUTTI_SUM, 0, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "all_gather",
                                    .kind = TUTTI_ALL_GATHER,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_all_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                     enum tutti_dtype dtype, struct tutti_comm *comm,
                                     const struct tutti_call_options *options, struct tutti_work **work)
{
    struct tutti_request request = {.name = "all_gather_v",
                                    .kind = TUTTI_ALL_GATHER,
                                    .v = true,
                                    .send = send,
                                    .recv = recv,
                                    .counts = counts,
                                    .displs = displs,
                                    .dtype = dtype,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_gather(const void *send, void *recv, size_t count, enum tutti_dtype dtype, int32_t root,
                               struct tutti_comm *comm, const struct tutti_call_options *options,
                               struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status =
            tutti_quick(TUTTI_GATHER, send, recv, count, dtype, TUTTI_SUM, root, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "gather",
                                    .kind = TUTTI_GATHER,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .root = root,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

/* The table is significant at root only; elsewhere what the caller passes is not read. */
static const size_t *at_root(const size_t *table, int32_t root, const struct tutti_comm *comm)
{
    return root == tutti_comm_rank(comm) ? table : NULL;
}

enum tutti_status tutti_gather_v(const void *send, size_t count, void *recv, const size_t *counts, const size_t *displs,
                                 enum tutti_dtype dtype, int32_t root, struct tutti_comm *comm,
                                 const struct tutti_call_options *options, struct tutti_work **work)
{
    struct tutti_request request = {.name = "gather_v",
                                    .kind = TUTTI_GATHER,
                                    .v = true,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .counts = at_root(counts, root, comm),
                                    .displs = at_root(displs, root, comm),
                                    .dtype = dtype,
                                    .root = root,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_scatter(const void *send, void *recv, size_t count, enum tutti_dtype dtype, int32_t root,
                                struct tutti_comm *comm, const struct tutti_call_options *options,
                                struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status =
            tutti_quick(TUTTI_SCATTER, send, recv, count, dtype, TUTTI_SUM, root, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "scatter",
                                    .kind = TUTTI_SCATTER,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .root = root,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_scatter_v(const void *send, const size_t *counts, const size_t *displs, void *recv,
                                  size_t count, enum tutti_dtype dtype, int32_t root, struct tutti_comm *comm,
                                  const struct tutti_call_options *options, struct tutti_work **work)
{
    struct tutti_request request = {.name = "scatter_v",
                                    .kind = TUTTI_SCATTER,
                                    .v = true,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .counts = at_root(counts, root, comm),
                                    .displs = at_root(displs, root, comm),
                                    .dtype = dtype,
                                    .root = root,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                       enum tutti_op op, struct tutti_comm *comm,
                                       const struct tutti_call_options *options, struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status =
            tutti_quick(TUTTI_REDUCE_SCATTER, send, recv, count, dtype, op, 0, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "reduce_scatter",
                                    .kind = TUTTI_REDUCE_SCATTER,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = (int)op,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_reduce_scatter_v(const void *send, void *recv, const size_t *counts, enum tutti_dtype dtype,
                                         enum tutti_op op, struct tutti_comm *comm,
                                         const struct tutti_call_options *options, struct tutti_work **work)
{
    struct tutti_request request = {.name = "reduce_scatter_v",
                                    .kind = TUTTI_REDUCE_SCATTER,
                                    .v = true,
                                    .send = send,
                                    .recv = recv,
                                    .counts = counts,
                                    .dtype = dtype,
                                    .op = (int)op,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                                   struct tutti_comm *comm, const struct tutti_call_options *options,
                                   struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status =
            tutti_quick(TUTTI_ALL_TO_ALL, send, recv, count, dtype, TUTTI_SUM, 0, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "all_to_all",
                                    .kind = TUTTI_ALL_TO_ALL,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv,
                                     const size_t *recv_counts, const size_t *recv_displs, enum tutti_dtype dtype,
                                     struct tutti_comm *comm, const struct tutti_call_options *options,
                                     struct tutti_work **work)
{
    struct tutti_request request = {.name = "all_to_all_v",
                                    .kind = TUTTI_ALL_TO_ALL,
                                    .v = true,
                                    .send = send,
                                    .in_counts = send_counts,
                                    .in_displs = send_displs,
                                    .recv = recv,
                                    .counts = recv_counts,
                                    .displs = recv_displs,
                                    .dtype = dtype,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_scan(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                             struct tutti_comm *comm, const struct tutti_call_options *options,
                             struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status = tutti_quick(TUTTI_SCAN, send, recv, count, dtype, op, 0, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "scan",
                                    .kind = TUTTI_SCAN,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = (int)op,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_exscan(const void *send, void *recv, size_t count, enum tutti_dtype dtype, enum tutti_op op,
                               struct tutti_comm *comm, const struct tutti_call_options *options,
                               struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status = tutti_quick(TUTTI_EXSCAN, send, recv, count, dtype, op, 0, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {.name = "exscan",
                                    .kind = TUTTI_EXSCAN,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = (int)op,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_barrier(struct tutti_comm *comm, const struct tutti_call_options *options,
                                struct tutti_work **work)
{
    if (tutti_is_plain(options, work)) {
        enum tutti_status status =
            tutti_quick(TUTTI_BARRIER, NULL, NULL, 0, TUTTI_UINT8, TUTTI_SUM, 0, comm, options, work);
        if (status != TUTTI_AGAIN) return status;
    }
    struct tutti_request request = {
        .name = "barrier", .kind = TUTTI_BARRIER, .dtype = TUTTI_UINT8, .comm = comm, .work = work};
    return tutti_request_submit(&request, options);
}
