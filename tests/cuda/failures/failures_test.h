/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_FAILURES_TEST_H
#define TUTTI_TESTS_CUDA_FAILURES_TEST_H

/* Calls of ranks of which one, the victim, does not do as the others do, and what becomes of them: for the tests of
 * what fails on the device. */

#include "test.h"

#include "base/base.h"
#include "cuda/support/gpu_ranks.h"

enum { WORDS = 40000, VICTIM = 1 };
#define LIMIT_NS (UINT64_C(2000000000) * (gpu_ranks_stand_in() ? 10 : 1))

static inline enum tutti_status call(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, size_t n)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    return tutti_all_reduce(words, words, n, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL);
}

static inline enum tutti_status receive(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words,
                                        uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.timeout_ns = timeout_ns;
    return tutti_recv(words, 10, TUTTI_UINT32, VICTIM, 0, comm, &options, NULL, NULL);
}

/* The call once more, from a graph of which all ranks have had a replay. */
static inline enum tutti_status replay(struct gpu_rank *g, uint32_t *words, bool again)
{
    void *graph = NULL;
    enum tutti_status status = tutti_cuda_graph_begin(g->gpu, g->stream);
    if (status >= 0) status = call(g, g->rank->comm, words, 1000);
    if (status >= 0) status = tutti_cuda_graph_end(g->gpu, g->stream, &graph);
    if (status >= 0) status = tutti_cuda_graph_launch(g->gpu, graph, g->stream);
    if (status >= 0) status = tutti_cuda_stream_sync(g->gpu, g->stream);
    if (status >= 0) status = tutti_comm_state(g->rank->comm, NULL);
    if (status >= 0 && again) status = tutti_cuda_graph_launch(g->gpu, graph, g->stream);
    tutti_cuda_graph_destroy(g->gpu, graph); /* a launch under way goes on */
    return status;
}

/* The stream has come to its end; then what the communicator says of it. */
static inline enum tutti_status outcome(struct gpu_rank *g, struct tutti_comm *comm, struct tutti_error *error)
{
    uint64_t start = tutti_now_ns();
    if (tutti_cuda_stream_sync(g->gpu, g->stream) < 0) return tutti_last_error()->status;
    while (tutti_comm_state(comm, error) == TUTTI_OK && tutti_now_ns() - start < 10 * LIMIT_NS) tutti_sleep_ns(1000000);
    return tutti_comm_state(comm, error);
}

/* A collective and messages from the victim: nccl connects ranks when they first talk, and waits for them meanwhile. */
static inline void connect_all(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    RANK_CHECK_OK(rank, call(g, comm, words, 1000));
    for (int32_t q = 0; q < rank->n && rank->index == VICTIM; q++)
        if (q != VICTIM) RANK_CHECK_OK(rank, tutti_send(words, 10, TUTTI_UINT32, q, 0, comm, &options, NULL));
    if (rank->index != VICTIM) RANK_CHECK_OK(rank, receive(g, comm, words, 0));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
}

/* Another communicator of the same ranks, which has made a call. */
static inline void open_second(struct gpu_rank *g, uint32_t *words, struct tutti_comm **comm)
{
    struct rank *rank = g->rank;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, comm));
    RANK_CHECK_OK(rank, call(g, *comm, words, 1000));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
}

#endif
