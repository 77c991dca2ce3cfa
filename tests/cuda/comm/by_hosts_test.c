/* SPDX-License-Identifier: BSD-3-Clause */
/* What docs/gpu.md says of devices across hosts: communicators that are split off within a host are served by its
 * devices, those across go through the host, and three of their calls on one stream are one all_reduce of all. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "comm/call/device.h"

#include <stdlib.h>

enum { RANKS = 4, COUNT = 30000, SHARD = COUNT / 2 };

static uint32_t value(int32_t rank, uint32_t round, size_t i)
{
    return (uint32_t)(i * 2654435761u) ^ (uint32_t)rank << 8 ^ round;
}

static void sum_by_hosts(struct gpu_rank *g, uint32_t round, struct tutti_comm *inner, struct tutti_comm *outer)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint32_t *words = gpu_rank_words(g, COUNT), *shard = gpu_rank_words(g, SHARD);
    uint32_t *host = rank_alloc(rank, COUNT * sizeof(uint32_t));
    RANK_CHECK(rank, words && shard);
    options.stream = g->stream;
    for (size_t i = 0; i < COUNT; i++) host[i] = value(rank->index, round, i);
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, words, host, COUNT * sizeof(uint32_t)));
    RANK_CHECK_OK(rank, tutti_reduce_scatter(words, shard, SHARD, TUTTI_UINT32, TUTTI_SUM, inner, &options, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(shard, shard, SHARD, TUTTI_UINT32, TUTTI_SUM, outer, &options, NULL));
    RANK_CHECK_OK(rank, tutti_all_gather(shard, words, SHARD, TUTTI_UINT32, inner, &options, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, host, words, COUNT * sizeof(uint32_t)));
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t want = 0;
        for (int32_t r = 0; r < rank->n; r++) want += value(r, round, i);
        RANK_CHECK(rank, host[i] == want);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* giving memory back waits for the device */
    tutti_cuda_free(g->gpu, words);
    tutti_cuda_free(g->gpu, shard);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void by_hosts(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_comm *inner = NULL, *outer = NULL;
    if (!gpu_rank_open(rank, &g)) return;
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index / 2, rank->index, &inner));
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index % 2, rank->index, &outer));
    RANK_CHECK(rank, rank->comm->device->n == 0 && inner->device->n > 0 && outer->device->n == 0);
    for (uint32_t round = 0; round < 3 && !rank->failure[0]; round++) sum_by_hosts(&g, round, inner, outer);
    if (rank->failure[0]) return;
    tutti_comm_destroy(inner);
    tutti_comm_destroy(outer);
    gpu_rank_leave(&g);
}

static void all_reduce(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(RANKS, by_hosts, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_reduce)};
    setenv("RANKS_A_HOST", "2", 1);
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
