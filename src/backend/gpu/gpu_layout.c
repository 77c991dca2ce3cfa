/* SPDX-License-Identifier: BSD-3-Clause */
/* Where things are in scratch memory. A ring belongs to one (other rank, block), so the rings of many ranks have to be
 * smaller: of a list of ring sizes the first is taken that the budget allows, with half the blocks if none does. */
#include "backend/gpu/gpu_plan.h"

#define ALIGN ((uint64_t)256)
#define TILE_BYTES (2 * GPU_LEAST_TILE)
#define BOUNCE_MOST ((size_t)4 << 20) /* of the budget an eighth, at most */

/* Bytes that one block moves to one peer at once. Lines serve up to some 64 KiB, and sentinels are faster than tiles,
 * as far as their rings reach. It takes some 47 us until a tile is given back, in which a block sends 128 KiB to all
 * its peers together: rings for 96 KiB made three quarters of the speed. Phases of sentinels are two: calls that have
 * one exchange take the room of both. Between two ranks, who gain nothing by two, there is one. */
static const struct grade {
    uint32_t line_bytes, phase_bytes, n_tiles;
} grades[] = {
    {4096, 131072, 8}, {4096, 65536, 8}, {4096, 65536, 4}, {4096, 32768, 4}, {4096, 16384, 4}, {4096, 24576, 2},
    {4096, 16384, 2},  {4096, 8192, 4},  {4096, 8192, 2},  {4096, 4096, 2},  {2048, 4096, 2},  {2048, 2048, 2},
};

static uint64_t take(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end = (at + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* Fewer blocks have as much on their way, if each has more; and more scratch gives all of them more. */
#define TILES_IN_ALL (16 * GPU_MAX_BLOCKS) /* to one peer, at most */
/* Tiles of a ring from which on it has half as many of twice the size: with half the fences and flags large calls
 * between two take 2 % less. Four such tiles are too few, and still larger ones gain nothing more. */
#define LONG_RING 12

/* n_tiles: of TILE_BYTES. What is all ones when idle comes first, in one piece: see gpu_open.c. */
static void lay_out(uint32_t n, uint32_t n_blocks, const struct grade *grade, uint32_t n_tiles, struct gpu_layout *out)
{
    const uint32_t merged = n_tiles >= LONG_RING ? 2 : 1;
    const uint64_t cells = (uint64_t)n * n_blocks, rings = n > 1 ? cells - n_blocks : n_blocks;
    const uint32_t sentinel_bytes = grade->phase_bytes * (n > 2 ? 2 : 1);
    uint64_t end = 0;
    *out = (struct gpu_layout){.n_blocks = n_blocks,
                               .line_bytes = grade->line_bytes,
                               .sentinel_bytes = sentinel_bytes,
                               .tile_bytes = merged * TILE_BYTES,
                               .n_tiles = n_tiles / merged};
    out->sentinels = take(&end, 2 * rings * sentinel_bytes);
    out->lines = take(&end, 2 * rings * 2 * grade->line_bytes);
    out->exceptions = take(&end, 2 * rings * sentinel_bytes / 32);
    out->tiles = take(&end, rings * n_tiles * TILE_BYTES);
    out->begun = take(&end, cells * sizeof(uint32_t));
    out->called = take(&end, n_blocks * sizeof(uint64_t));
    out->arrived = take(&end, cells * sizeof(uint32_t));
    out->returned = take(&end, cells * sizeof(uint32_t));
    out->sent = take(&end, cells * sizeof(uint64_t));
    out->received = take(&end, cells * sizeof(uint64_t));
    out->directs = take(&end, n_blocks * sizeof(uint32_t));
    out->landed = take(&end, cells * sizeof(uint32_t));
    out->relayed = take(&end, (uint64_t)n_blocks * (GPU_DIRECT_THREADS / 32) * sizeof(uint64_t));
    out->agreements = take(&end, n_blocks * sizeof(uint32_t));
    out->ways = take(&end, 2 * sizeof(uint64_t));
    out->posts = take(&end, (uint64_t)2 * n * GPU_POST_BYTES);
    out->met = take(&end, n * sizeof(uint32_t));
    out->met_own = take(&end, sizeof(uint32_t));
    out->asked = take(&end, sizeof(uint64_t));
    out->stopped = take(&end, sizeof(uint32_t));
    out->bytes = end;
}

static bool lay_out_within(uint64_t budget, uint32_t n, uint32_t n_blocks, const struct grade *grade, uint32_t n_tiles,
                           struct gpu_layout *out)
{
    struct gpu_layout layout;
    lay_out(n, n_blocks, grade, n_tiles, &layout);
    if (layout.bytes > budget) return false;
    *out = layout;
    return true;
}

/* Rings are doubled as often as the budget allows, then made half as long again. */
bool gpu_layout(uint32_t n, size_t budget, uint32_t n_blocks, struct gpu_layout *out, size_t *bounce)
{
    const size_t spare = budget / 8 < BOUNCE_MOST ? budget / 8 / ALIGN * ALIGN : BOUNCE_MOST, most = budget - spare;
    for (uint32_t blocks = n_blocks; blocks >= GPU_LEAST_BLOCKS; blocks /= 2) {
        for (size_t g = 0; g < TUTTI_ARRAY_LEN(grades); g++) {
            uint32_t n_tiles = grades[g].n_tiles;
            if (!lay_out_within(most, n, blocks, &grades[g], n_tiles, out)) continue;
            while (blocks * n_tiles * 2 <= TILES_IN_ALL &&
                   lay_out_within(most, n, blocks, &grades[g], n_tiles * 2, out))
                n_tiles *= 2;
            if (blocks * n_tiles * 3 / 2 <= TILES_IN_ALL)
                (void)lay_out_within(most, n, blocks, &grades[g], n_tiles * 3 / 2, out);
            *bounce = spare;
            return true;
        }
    }
    return false;
}

uint32_t gpu_blocks_for(uint32_t n_sms, uint32_t ranks_on_gpu)
{
    uint32_t most = n_sms / ranks_on_gpu, blocks = 1;
    while (blocks * 2 <= most && blocks * 2 <= GPU_MAX_BLOCKS) blocks *= 2;
    return blocks;
}
