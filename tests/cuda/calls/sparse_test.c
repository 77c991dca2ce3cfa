/* SPDX-License-Identifier: BSD-3-Clause */
/* all_reduce_sparse_block on device memory: the sums of whole numbers, with blocks that repeat; blocks that are not in
 * the result are left out, and all ranks are told. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "reference.h"

#include <string.h>

enum { OUT = 40, MOST = 60, BLOCK_MOST = 300 };

struct sides { /* in device memory and in pinned memory alike */
    int64_t indices[MOST];
    int32_t status, padding;
    unsigned char values[MOST * BLOCK_MOST * 8];
    unsigned char out[OUT * BLOCK_MOST * 8];
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33, x *= UINT64_C(0xff51afd7ed558ccd), x ^= x >> 33, x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static size_t blocks_of(uint64_t round, int32_t rank)
{
    return mix(round * 31 + (uint64_t)rank) % MOST;
}
/* In every fourth round rank 1 has an index that is wrong. */
static int64_t index_of(uint64_t round, int32_t rank, size_t i)
{
    if (round % 4 == 3 && rank == 1 && i == 1) return round % 8 == 3 ? -1 : OUT;
    return (int64_t)(mix(round * 977 + (uint64_t)rank * 13 + i) % OUT);
}
static double value_of(uint64_t round, int32_t rank, size_t i, size_t k)
{
    return (double)((int64_t)(mix(round + (uint64_t)rank * 3 + i * 5 + k * 7) % 5) - 2);
}

static void one(struct gpu_rank *g, uint64_t round, struct sides *device, struct sides *host)
{
    static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_FLOAT16, TUTTI_BFLOAT16};
    static double want[OUT * BLOCK_MOST];
    const enum tutti_dtype dtype = dtypes[round % 4];
    const size_t element = ref_bytes(dtype), block = (size_t[]){1, 33, BLOCK_MOST}[round / 2 % 3];
    struct rank *rank = g->rank;
    bool wrong = false;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    memset(want, 0, sizeof(want));
    memset(host, 0x5a, sizeof(*host));
    for (int32_t r = 0; r < rank->n; r++)
        for (size_t i = 0; i < blocks_of(round, r); i++) {
            const int64_t index = index_of(round, r, i);
            wrong |= index < 0 || index >= OUT;
            if (r == rank->index) host->indices[i] = index;
            for (size_t k = 0; k < block; k++) {
                if (index >= 0 && index < OUT) want[(size_t)index * block + k] += value_of(round, r, i, k);
                if (r == rank->index)
                    ref_encode(dtype, value_of(round, r, i, k), host->values + (i * block + k) * element);
            }
        }
    RANK_CHECK_OK(rank, tutti_cuda_copy(g->gpu, device, host, sizeof(*host), g->stream));
    RANK_CHECK_OK(rank, tutti_all_reduce_sparse_block(device->values, device->indices, blocks_of(round, rank->index),
                                                      block, device->out, OUT * block, dtype, TUTTI_SUM,
                                                      &device->status, rank->comm, &options, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_copy(g->gpu, host, device, sizeof(*host), g->stream));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    RANK_CHECK(rank, host->status == (wrong ? TUTTI_ERR_ARGUMENT : TUTTI_OK));
    for (size_t i = 0; i < OUT * block; i++) RANK_CHECK(rank, ref_decode(dtype, host->out + i * element) == want[i]);
}

static void dense(struct rank *rank)
{
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    struct sides *device = (struct sides *)(void *)gpu_rank_words(&g, sizeof(*device) / 4);
    struct sides *host = (struct sides *)(void *)gpu_rank_host_words(&g, sizeof(*host) / 4);
    RANK_CHECK(rank, device && host);
    for (uint64_t round = 0; round < 24 && !rank->failure[0]; round++) one(&g, round, device, host);
    tutti_cuda_free(g.gpu, device);
    tutti_cuda_free_host(g.gpu, host);
    gpu_rank_leave(&g);
}

static void sums_are_dense(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        struct ranks_config config = {.n = gpu_ranks_at_most(n), .forked = true, .timeout_ns = UINT64_C(60000000000)};
        config.deadline_s = gpu_ranks_deadline_s();
        assert_int_equal(ranks_run(&config, dense), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_dense)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
