/* SPDX-License-Identifier: BSD-3-Clause */

/* Recursive halving and doubling for any number of slots: log2 p steps, each byte sent about once.
 *
 * reduce_scatter: the slots are cut into a left and a right half, each answers for the chunks of its own slots. Slot i
 * of one half sends slot i of the other what that half answers for, and combines what comes. Then each half goes on by
 * itself, down to single slots. The right half may have one slot more, which has no counterpart: it sends what the left
 * half answers for to the last slot there, and needs nothing, since all contributions of the left half have gone to the
 * others of its own half.
 *
 *     0 1 | 2 3 4    0 <-> 2, 1 <-> 3, 4 -> 1 (chunks 0 and 1)
 *
 * all_gather is the same backwards: halves exchange what they have, and the last slot of the left also serves the odd
 * one. all_reduce is the one, then the other.
 *
 * Rabenseifner: Optimization of collective reduction operations (ICCS 2004); Thakur, Rabenseifner, Gropp (IJHPCA 19,
 * 2005). */

#include "algo/parts.h"

struct cut {
    uint32_t first, left, n; /* slots [first, first + left) and [first + left, first + n) */
};

/* The range of the slot after `depth` halvings, and how it is cut; n < 2 when the slot was alone before. */
static struct cut descend(const struct tutti_shape *shape, uint32_t depth)
{
    struct cut cut = {.first = 0, .left = shape->size / 2, .n = shape->size};

    for (uint32_t d = 0; d < depth && cut.n > 1; d++) {
        if (shape->slot < cut.first + cut.left) {
            cut.n = cut.left;
        } else {
            cut.first += cut.left;
            cut.n -= cut.left;
        }
        cut.left = cut.n / 2;
    }
    return cut;
}

static uint32_t depth_of(const struct tutti_shape *shape)
{
    uint32_t depth = 0;

    for (uint32_t n = shape->size; n > 1; n -= n / 2) depth++;
    return depth;
}

static uint32_t twice_depth(const struct tutti_shape *shape)
{
    return 2 * depth_of(shape);
}

static void halve(const struct tutti_shape *shape, uint32_t depth, struct tutti_emit *emit)
{
    struct cut cut = descend(shape, depth);

    if (cut.n < 2) return;
    uint32_t middle = cut.first + cut.left, right = cut.n - cut.left;
    if (shape->slot < middle) {
        uint32_t peer = shape->slot + cut.left;
        tutti_emit_send(emit, peer, TUTTI_DATA, middle, right);
        tutti_emit_recv_reduce(emit, peer, TUTTI_DATA, cut.first, cut.left, TUTTI_RIGHT);
        if (right > cut.left && shape->slot + 1 == middle)
            tutti_emit_recv_reduce(emit, cut.first + cut.n - 1, TUTTI_DATA, cut.first, cut.left, TUTTI_RIGHT);
        return;
    }
    uint32_t peer = shape->slot - cut.left;
    bool odd = peer == middle; /* one to the right of the last counterpart */
    tutti_emit_send(emit, odd ? middle - 1 : peer, TUTTI_DATA, cut.first, cut.left);
    if (!odd) tutti_emit_recv_reduce(emit, peer, TUTTI_DATA, middle, right, TUTTI_LEFT);
}

static void double_up(const struct tutti_shape *shape, uint32_t depth, struct tutti_emit *emit)
{
    struct cut cut = descend(shape, depth);

    if (cut.n < 2) return;
    uint32_t middle = cut.first + cut.left, right = cut.n - cut.left;
    if (shape->slot < middle) {
        uint32_t peer = shape->slot + cut.left;
        tutti_emit_send(emit, peer, TUTTI_DATA, cut.first, cut.left);
        tutti_emit_recv(emit, peer, TUTTI_DATA, middle, right);
        if (right > cut.left && shape->slot + 1 == middle)
            tutti_emit_send(emit, cut.first + cut.n - 1, TUTTI_DATA, cut.first, cut.left);
        return;
    }
    uint32_t peer = shape->slot - cut.left;
    bool odd = peer == middle;
    if (!odd) tutti_emit_send(emit, peer, TUTTI_DATA, middle, right);
    tutti_emit_recv(emit, odd ? middle - 1 : peer, TUTTI_DATA, cut.first, cut.left);
}

static void reduce_scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    halve(shape, round, emit);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    double_up(shape, depth_of(shape) - 1 - round, emit);
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t depth = depth_of(shape);

    if (round < depth)
        halve(shape, round, emit);
    else
        double_up(shape, 2 * depth - 1 - round, emit);
}

const struct tutti_algorithm tutti_algorithm_halving_doubling = {
    .name = "halving_doubling",
    .help = "recursive halving, then doubling, any size: medium messages",
    .source = "Rabenseifner, ICCS 2004; Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005)",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .chunks = tutti_one_a_slot,
                                             .rounds = twice_depth, .round = all_reduce_round),
              [TUTTI_REDUCE_SCATTER] =
                  TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .rounds = depth_of, .round = reduce_scatter_round),
              [TUTTI_ALL_GATHER] = TUTTI_OPS(.rounds = depth_of, .round = all_gather_round)},
};
