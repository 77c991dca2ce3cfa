/* SPDX-License-Identifier: BSD-3-Clause */

/* Scratch memory: whatever the number of ranks, the budget and the blocks, regions lie apart, within the budget, and
 * where and as large as kernels take them to be. */

#include "test.h"

#include "backend/gpu/gpu_plan.h"

enum { MOST_REGIONS = 24 };

struct region {
    uint64_t at, bytes;
};

/* From the contract with kernels (exchange.h), not from the code. */
static size_t regions_of(const struct gpu_layout *l, uint32_t n, struct region *out)
{
    uint64_t cells = (uint64_t)n * l->n_blocks, rings = (uint64_t)(n > 1 ? n - 1 : 1) * l->n_blocks;
    const struct region all[] = {
        {l->lines, 2 * rings * 2 * l->line_bytes},
        {l->sentinels, 2 * rings * l->sentinel_bytes},
        {l->exceptions, 2 * rings * (l->sentinel_bytes / 512) * 16}, /* two words of 8 bytes for each warp */
        {l->begun, cells * 4},
        {l->called, (uint64_t)l->n_blocks * 8},
        {l->tiles, rings * l->n_tiles * l->tile_bytes},
        {l->arrived, cells * 4},
        {l->returned, cells * 4},
        {l->sent, cells * 8},
        {l->received, cells * 8},
        {l->directs, (uint64_t)l->n_blocks * 4},
        {l->landed, cells * 4},
        {l->relayed, (uint64_t)l->n_blocks * (GPU_DIRECT_THREADS / 32) * 8},
        {l->agreements, (uint64_t)l->n_blocks * 4},
        {l->ways, 16},
        {l->posts, (uint64_t)2 * n * GPU_POST_BYTES},
        {l->met, (uint64_t)n * 4},
        {l->met_own, 4},
        {l->asked, 8},
        {l->stopped, 4},
    };
    _Static_assert(TUTTI_ARRAY_LEN(all) <= MOST_REGIONS, "room for all");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++) out[i] = all[i];
    return TUTTI_ARRAY_LEN(all);
}

static void check(uint32_t n, size_t budget, uint32_t n_blocks)
{
    struct gpu_layout l;
    struct region regions[MOST_REGIONS];
    size_t bounce;
    if (!gpu_layout(n, budget, n_blocks, &l, &bounce)) return;
    size_t n_regions = regions_of(&l, n, regions);
    assert_true(l.bytes + bounce <= budget);
    assert_true(bounce >= n * (size_t)GPU_SHARD_UNIT);
    assert_true(l.n_blocks > 0 && l.n_blocks <= n_blocks);
    assert_true(l.n_tiles >= 2 && l.tile_bytes % GPU_LEAST_TILE == 0);
    /* Blocks of 64 threads, a unit each. */
    assert_true(l.line_bytes % 1024 == 0 && l.sentinel_bytes % 1024 == 0 && gpu_phase_bytes(&l) % 1024 == 0);
    for (size_t i = 0; i < n_regions; i++) {
        assert_true(regions[i].at % 256 == 0 && regions[i].at + regions[i].bytes <= l.bytes);
        for (size_t k = 0; k < i; k++)
            assert_true(regions[i].at + regions[i].bytes <= regions[k].at ||
                        regions[k].at + regions[k].bytes <= regions[i].at);
    }
    /* What is all ones when idle is what comes before the lines. */
    assert_true(l.sentinels + regions[1].bytes <= l.lines);
}

static void regions_lie_apart(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= GPU_MAX_RANKS; n++)
        for (size_t budget = (size_t)1 << 20; budget <= (size_t)256 << 20; budget *= 2)
            for (uint32_t blocks = 1; blocks <= GPU_MAX_BLOCKS; blocks *= 2) check(n, budget, blocks);
}

static void budgets(void **state)
{
    struct gpu_layout l, less;
    size_t bounce;
    (void)state;
    for (uint32_t n = 1; n <= GPU_MAX_RANKS; n++) {
        assert_true(gpu_layout(n, GPU_SCRATCH_DEFAULT, GPU_MAX_BLOCKS, &l, &bounce));
        assert_true(l.n_blocks >= 64);
        assert_true(l.bytes + bounce > GPU_SCRATCH_DEFAULT / 4); /* it is used */
        assert_true(gpu_layout(n, GPU_SCRATCH_DEFAULT / 4, GPU_MAX_BLOCKS, &less, &bounce));
        assert_true(less.bytes <= l.bytes && less.n_blocks <= l.n_blocks);
        assert_false(gpu_layout(n, 4096, GPU_MAX_BLOCKS, &less, &bounce));
    }
}

/* As much on its way by few blocks as by many. */
static void fewer_blocks(void **state)
{
    struct gpu_layout all, few;
    size_t bounce;
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        assert_true(gpu_layout(n, GPU_SCRATCH_DEFAULT, GPU_MAX_BLOCKS, &all, &bounce));
        for (uint32_t blocks = 16; blocks < GPU_MAX_BLOCKS; blocks *= 2) {
            assert_true(gpu_layout(n, GPU_SCRATCH_DEFAULT, blocks, &few, &bounce));
            assert_true((uint64_t)few.n_tiles * few.tile_bytes * few.n_blocks >=
                        (uint64_t)all.n_tiles * all.tile_bytes * all.n_blocks);
        }
    }
}

/* Long rings have larger tiles, and are as long. */
static void long_rings(void **state)
{
    struct gpu_layout two, four;
    size_t bounce;
    (void)state;
    assert_true(gpu_layout(2, GPU_SCRATCH_DEFAULT, GPU_MAX_BLOCKS, &two, &bounce));
    assert_int_equal(two.tile_bytes, 4 * GPU_LEAST_TILE);
    assert_int_equal(two.n_tiles, 6);
    assert_true(gpu_layout(4, GPU_SCRATCH_DEFAULT, GPU_MAX_BLOCKS, &four, &bounce));
    assert_int_equal(four.tile_bytes, 2 * GPU_LEAST_TILE);
    assert_int_equal(four.n_tiles, 4);
}

static void blocks(void **state)
{
    (void)state;
    assert_int_equal(gpu_blocks_for(132, 1), 128);
    assert_int_equal(gpu_blocks_for(132, 2), 64);
    assert_int_equal(gpu_blocks_for(132, 3), 32);
    assert_int_equal(gpu_blocks_for(132, 16), 8);
    assert_int_equal(gpu_blocks_for(1000, 1), GPU_MAX_BLOCKS);
    assert_int_equal(gpu_blocks_for(16, 8), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(regions_lie_apart), cmocka_unit_test(budgets),
                                       cmocka_unit_test(fewer_blocks), cmocka_unit_test(long_rings),
                                       cmocka_unit_test(blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
