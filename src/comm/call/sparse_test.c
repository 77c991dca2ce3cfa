/* SPDX-License-Identifier: BSD-3-Clause */
/* all_reduce_sparse_block on host memory: sums of whole numbers, exact in any order; blocks that repeat are added, and
 * an index that is wrong on one rank is heard of by all. */
#include "ranks.h"
#include "reference.h"
#include "test.h"

#include <string.h>
#include <tutti/tutti.h>

enum { OUT = 40, MOST = 60, BLOCK_MOST = 33 };

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33, x *= UINT64_C(0xff51afd7ed558ccd), x ^= x >> 33, x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static size_t blocks_of(uint64_t round, int32_t rank)
{
    return mix(round * 31 + (uint64_t)rank) % MOST;
}
static int64_t index_of(uint64_t round, int32_t rank, size_t i)
{
    return (int64_t)(mix(round * 977 + (uint64_t)rank * 13 + i) % OUT);
}
static double value_of(uint64_t round, int32_t rank, size_t i, size_t k)
{
    return (double)((int64_t)(mix(round + (uint64_t)rank * 3 + i * 5 + k * 7) % 5) - 2);
}

static void dense(struct rank *rank)
{
    static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_FLOAT16, TUTTI_BFLOAT16};
    unsigned char values[MOST * BLOCK_MOST * 8], out[OUT * BLOCK_MOST * 8];
    int64_t indices[MOST];
    for (uint64_t round = 0; round < 24; round++) {
        const enum tutti_dtype dtype = dtypes[round % 4];
        const size_t element = ref_bytes(dtype), block = (size_t[]){1, 4, BLOCK_MOST}[round % 3];
        double want[OUT * BLOCK_MOST] = {0};
        struct tutti_work *work = NULL;
        int32_t status = 99;
        for (int32_t r = 0; r < rank->n; r++)
            for (size_t i = 0; i < blocks_of(round, r); i++)
                for (size_t k = 0; k < block; k++) {
                    want[(size_t)index_of(round, r, i) * block + k] += value_of(round, r, i, k);
                    if (r != rank->index) continue;
                    indices[i] = index_of(round, r, i);
                    ref_encode(dtype, value_of(round, r, i, k), values + (i * block + k) * element);
                }
        memset(out, 0x5a, sizeof(out));
        RANK_CHECK_OK(rank, tutti_all_reduce_sparse_block(values, indices, blocks_of(round, rank->index), block, out,
                                                          OUT * block, dtype, TUTTI_SUM, &status, rank->comm, NULL,
                                                          round % 2 ? &work : NULL));
        if (work) RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
        RANK_CHECK(rank, status == TUTTI_OK);
        for (size_t i = 0; i < OUT * block; i++) RANK_CHECK(rank, ref_decode(dtype, out + i * element) == want[i]);
    }
}

static void sums_are_dense(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) assert_int_equal(ranks_threads(n, dense, NULL), 0);
}

static void wrong(struct rank *rank)
{
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    for (int what = 0; what < 2; what++) {
        int64_t indices[2] = {0, rank->index == 1 ? what ? -1 : 4 : 3};
        int32_t status = 99;
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "an index of rank 1 is none of the 4 blocks",
                         tutti_all_reduce_sparse_block(values, indices, 2, 2, out, 8, TUTTI_FLOAT32, TUTTI_SUM, &status,
                                                       rank->comm, NULL, NULL));
        RANK_CHECK(rank, status == TUTTI_ERR_ARGUMENT);
    }
    int64_t index = 1;
    struct tutti_comm *comm = rank->comm;
#define REFUSED(part, ...) RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, part, tutti_all_reduce_sparse_block(__VA_ARGS__))
    REFUSED("not a multiple of block", values, &index, 1, 3, out, 8, TUTTI_FLOAT32, TUTTI_SUM, NULL, comm, NULL, NULL);
    REFUSED("values is NULL", NULL, &index, 1, 2, out, 8, TUTTI_FLOAT32, TUTTI_SUM, NULL, comm, NULL, NULL);
    REFUSED("indices is NULL", values, NULL, 1, 2, out, 8, TUTTI_FLOAT32, TUTTI_SUM, NULL, comm, NULL, NULL);
    REFUSED("recv is NULL", values, &index, 1, 2, NULL, 8, TUTTI_FLOAT32, TUTTI_SUM, NULL, comm, NULL, NULL);
    REFUSED("overlap", values, &index, 1, 2, values, 8, TUTTI_FLOAT32, TUTTI_SUM, NULL, comm, NULL, NULL);
    RANK_CHECK_ERROR(
        rank, TUTTI_ERR_UNSUPPORTED, "op is max",
        tutti_all_reduce_sparse_block(values, &index, 1, 2, out, 8, TUTTI_FLOAT32, TUTTI_MAX, NULL, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce_sparse_block(values, &index, 1, 2, out, 8, TUTTI_FLOAT32, TUTTI_AVG, NULL,
                                                      comm, NULL, NULL));
    for (size_t i = 0; i < 8; i++) RANK_CHECK(rank, out[i] == (i == 2 ? 1.0f : i == 3 ? 2.0f : 0.0f));
}

static void wrong_ones(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, wrong, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_dense), cmocka_unit_test(wrong_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
