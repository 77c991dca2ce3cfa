/* SPDX-License-Identifier: BSD-3-Clause */

/* Parallel aggregated trees: every slot's block goes to all along a binomial tree, and the p trees run side by side, in
 * log2 p rounds for any number of slots. The first round crosses the greatest distance, with one block a slot; each
 * round after it goes half as far with twice as many, until neighbours exchange half of everything. Bruck's algorithm
 * has the same rounds the other way round, so that half of everything goes farthest; where networks thin out towards
 * their top, this one waits for them least.
 *
 *     5 slots, the blocks of slot 0     all_gather: a block that started o slots back has offset o here. Before the
 *     distance 4   0 -> 4               round of distance d the offsets that a slot has are the multiples of 2 d; it
 *     distance 2   0 -> 2               sends those whose slot d further on lies within the circle.
 *     distance 1   0 -> 1, 2 -> 3       reduce_scatter: the same trees backwards, from their leaves to their roots.
 *
 * Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale (arXiv 2506.20252, 2025). */

#include "algo/parts.h"

static uint32_t rounds(const struct tutti_shape *shape)
{
    return tutti_powers(shape, 2);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const uint64_t d = tutti_power(2, rounds(shape) - 1 - round);

    for (uint64_t o = 0; o + d < shape->size; o += 2 * d) {
        tutti_emit_send(emit, tutti_ahead(shape, d), TUTTI_DATA, tutti_behind(shape, o), 1);
        tutti_emit_recv(emit, tutti_behind(shape, d), TUTTI_DATA, tutti_behind(shape, o + d), 1);
    }
}

static void reduce_scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const uint64_t d = tutti_power(2, round);

    for (uint64_t o = 0; o + d < shape->size; o += 2 * d) {
        tutti_emit_send(emit, tutti_behind(shape, d), TUTTI_DATA, tutti_behind(shape, o + d), 1);
        tutti_emit_recv_reduce(emit, tutti_ahead(shape, d), TUTTI_DATA, tutti_behind(shape, o), 1, TUTTI_RIGHT);
    }
}

const struct tutti_algorithm tutti_algorithm_pat = {
    .name = "pat",
    .help = "trees side by side, far and small first: networks that thin out towards their top",
    .source = "Jeaugey, PAT: all-gather and reduce-scatter operations at scale (2025)",
    .kinds = {[TUTTI_ALL_GATHER] = TUTTI_OPS(.rounds = rounds, .round = all_gather_round),
              [TUTTI_REDUCE_SCATTER] =
                  TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .rounds = rounds, .round = reduce_scatter_round)},
};
