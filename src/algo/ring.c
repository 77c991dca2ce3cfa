/* SPDX-License-Identifier: BSD-3-Clause */

/* Ring: each slot talks to the next and to the one before alone, and all links are busy all the time. Bandwidth-optimal
 * for long messages, p - 1 steps of latency.
 *
 * reduce_scatter: chunk c starts at slot c + 1 and travels once round, each slot adding its own part, to end at slot c:
 *
 *     slot       0        1        2            the parts of chunk 0 are added in the order 1, 2, 0: the operation
 *     round 0   c2 ->    c0 ->    c1 ->         must commute
 *     round 1   c1 ->    c2 ->    c0 ->
 *
 * all_gather: finished chunks travel on in the same way. all_reduce: the one, then the other.
 * broadcast, reduce, scan: a chain, pipelined by the engine's slices. Chains run 0, 1, ..., p - 1 where they combine,
 * so that they fold from left to right; reduce then sends the result from the last slot to the root.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations (JPDC 69, 2009). */

#include "algo/parts.h"

static uint32_t once_round(const struct tutti_shape *shape)
{
    return shape->size - 1;
}

static uint32_t twice_round(const struct tutti_shape *shape)
{
    return 2 * (shape->size - 1);
}

static uint32_t one_round(const struct tutti_shape *shape)
{
    return shape->size > 1 ? 1 : 0;
}

static void reduce_scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    tutti_emit_send(emit, tutti_ahead(shape, 1), TUTTI_DATA, tutti_behind(shape, round + 1), 1);
    tutti_emit_recv_reduce(emit, tutti_behind(shape, 1), TUTTI_DATA, tutti_behind(shape, round + 2), 1, TUTTI_LEFT);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    tutti_emit_send(emit, tutti_ahead(shape, 1), TUTTI_DATA, tutti_behind(shape, round), 1);
    tutti_emit_recv(emit, tutti_behind(shape, 1), TUTTI_DATA, tutti_behind(shape, round + 1), 1);
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    if (round < shape->size - 1)
        reduce_scatter_round(shape, round, emit);
    else
        all_gather_round(shape, round - (shape->size - 1), emit);
}

static void broadcast_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot != shape->root) tutti_emit_recv(emit, tutti_behind(shape, 1), TUTTI_DATA, 0, 1);
    if (tutti_ahead(shape, 1) != shape->root) tutti_emit_send(emit, tutti_ahead(shape, 1), TUTTI_DATA, 0, 1);
}

/* TUTTI_LEFT: what comes from the rank before is the left operand, so operands stay in rank order. */
static void scan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot > 0) tutti_emit_recv_reduce(emit, shape->slot - 1, TUTTI_DATA, 0, 1, TUTTI_LEFT);
    if (shape->slot + 1 < shape->size) tutti_emit_send(emit, shape->slot + 1, TUTTI_DATA, 0, 1);
}

static void reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t last = shape->size - 1;

    scan_round(shape, round, emit);
    if (shape->root == last) return;
    if (shape->slot == last) tutti_emit_send(emit, shape->root, TUTTI_DATA, 0, 1);
    if (shape->slot == shape->root) tutti_emit_recv(emit, last, TUTTI_DATA, 0, 1);
}

/* What comes from the left is this slot's result and, with its own part, what goes to the right. */
static void exscan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot > 0) tutti_emit_recv(emit, shape->slot - 1, TUTTI_SCRATCH, 0, 1);
    if (shape->slot + 1 < shape->size) {
        if (shape->slot > 0) tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1, TUTTI_LEFT);
        tutti_emit_send(emit, shape->slot + 1, TUTTI_DATA, 0, 1);
    }
    if (shape->slot > 0) tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);
}

const struct tutti_algorithm tutti_algorithm_ring = {
    .name = "ring",
    .help = "neighbours only; all links busy: long messages",
    .source = "Patarasuk and Yuan, JPDC 69 (2009)",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .chunks = tutti_one_a_slot,
                                             .rounds = twice_round, .round = all_reduce_round),
              [TUTTI_REDUCE] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .rounds = one_round, .round = reduce_round),
              [TUTTI_BROADCAST] = TUTTI_OPS(.rounds = one_round, .round = broadcast_round),
              [TUTTI_ALL_GATHER] = TUTTI_OPS(.rounds = once_round, .round = all_gather_round),
              [TUTTI_REDUCE_SCATTER] =
                  TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .rounds = once_round, .round = reduce_scatter_round),
              [TUTTI_SCAN] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .rounds = one_round, .round = scan_round),
              [TUTTI_EXSCAN] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .scratch = tutti_one, .rounds = one_round,
                                         .round = exscan_round)},
};
