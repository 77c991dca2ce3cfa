/* SPDX-License-Identifier: BSD-3-Clause */

/* Direct, one shot: every slot sends what others need straight to them; one step of latency, the most messages. The
 * k-th message goes k slots on and the k-th that is awaited comes from k slots back, so no slot is a hot spot.
 *
 * What is combined is kept apart in SCRATCH until all of it is there and then folded from slot 0 to slot p - 1: all
 * ranks fold in the same order, results are equal on all ranks and do not depend on the number of messages in flight.
 * Rooted kinds are the linear algorithms: the root talks to each slot itself. gather, scatter and all_to_all touch
 * blocks of their own row and column alone, so v forms need no table of all ranks. reduce holds one chunk at a time: it
 * takes the operands in order.
 *
 * Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory, practice, and experience (CCPE 19,
 * 2007), section 4. */

#include "algo/algo.h"

static uint32_t ahead(const struct tutti_shape *shape, uint32_t k)
{
    return (shape->slot + k) % shape->size;
}

static uint32_t behind(const struct tutti_shape *shape, uint32_t k)
{
    return (shape->slot + shape->size - k) % shape->size;
}

static uint32_t one_round(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}

static uint32_t one_scratch(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}

static uint32_t slot_scratch(const struct tutti_shape *shape)
{
    return shape->size;
}

/* Folds SCRATCH[0..slot) op DATA[chunk] op SCRATCH[slot + 1..n), strictly from left to right, into DATA[chunk]. */
static void fold(const struct tutti_shape *shape, uint32_t chunk, uint32_t n, struct tutti_emit *emit)
{
    uint32_t slot = shape->slot;

    for (uint32_t s = 1; s < slot; s++) tutti_emit_reduce(emit, TUTTI_SCRATCH, 0, TUTTI_SCRATCH, s, 1, TUTTI_RIGHT);
    if (slot > 0) tutti_emit_reduce(emit, TUTTI_DATA, chunk, TUTTI_SCRATCH, 0, 1, TUTTI_LEFT);
    for (uint32_t s = slot + 1; s < n; s++)
        tutti_emit_reduce(emit, TUTTI_DATA, chunk, TUTTI_SCRATCH, s, 1, TUTTI_RIGHT);
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, 0, 1);
        tutti_emit_recv(emit, behind(shape, k), TUTTI_SCRATCH, behind(shape, k), 1);
    }
    fold(shape, 0, shape->size, emit);
}

static void reduce_scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, ahead(shape, k), 1);
        tutti_emit_recv(emit, behind(shape, k), TUTTI_SCRATCH, behind(shape, k), 1);
    }
    fold(shape, shape->slot, shape->size, emit);
}

static void reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot != shape->root) {
        tutti_emit_send(emit, shape->root, TUTTI_DATA, 0, 1);
        return;
    }
    for (uint32_t s = 0; s < shape->root; s++) {
        if (s == 0)
            tutti_emit_recv(emit, s, TUTTI_SCRATCH, 0, 1);
        else
            tutti_emit_recv_reduce(emit, s, TUTTI_SCRATCH, 0, 1, TUTTI_RIGHT);
    }
    if (shape->root > 0) tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1, TUTTI_LEFT);
    for (uint32_t s = shape->root + 1; s < shape->size; s++)
        tutti_emit_recv_reduce(emit, s, TUTTI_DATA, 0, 1, TUTTI_RIGHT);
}

static void broadcast_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot != shape->root) tutti_emit_recv(emit, shape->root, TUTTI_DATA, 0, 1);
    for (uint32_t k = 1; k < shape->size && shape->slot == shape->root; k++)
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, 0, 1);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, shape->slot, 1);
        tutti_emit_recv(emit, behind(shape, k), TUTTI_DATA, behind(shape, k), 1);
    }
}

static void gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot != shape->root) tutti_emit_send(emit, shape->root, TUTTI_DATA, shape->slot, 1);
    for (uint32_t k = 1; k < shape->size && shape->slot == shape->root; k++)
        tutti_emit_recv(emit, ahead(shape, k), TUTTI_DATA, ahead(shape, k), 1);
}

static void scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot != shape->root) tutti_emit_recv(emit, shape->root, TUTTI_DATA, shape->slot, 1);
    for (uint32_t k = 1; k < shape->size && shape->slot == shape->root; k++)
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, ahead(shape, k), 1);
}

static void all_to_all_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    tutti_emit_copy(emit, TUTTI_DATA, shape->slot, TUTTI_IN, shape->slot, 1);
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, ahead(shape, k), TUTTI_IN, ahead(shape, k), 1);
        tutti_emit_recv(emit, behind(shape, k), TUTTI_DATA, behind(shape, k), 1);
    }
}

/* Tokens are awaited in SCRATCH, so that a slot can receive before its own token is taken. */
static void barrier_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, 0, 1);
        tutti_emit_recv(emit, behind(shape, k), TUTTI_SCRATCH, 0, 1);
    }
    if (shape->size > 1) tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);
}

/* To all slots on the right, from all on the left. */
static void exchange_with_prefix(const struct tutti_shape *shape, struct tutti_emit *emit)
{
    for (uint32_t s = 0; s < shape->slot; s++) tutti_emit_recv(emit, s, TUTTI_SCRATCH, s, 1);
    for (uint32_t s = shape->slot + 1; s < shape->size; s++) tutti_emit_send(emit, s, TUTTI_DATA, 0, 1);
}

static void scan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    exchange_with_prefix(shape, emit);
    fold(shape, 0, shape->slot, emit);
}

static void exscan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    exchange_with_prefix(shape, emit);
    for (uint32_t s = 1; s < shape->slot; s++)
        tutti_emit_reduce(emit, TUTTI_SCRATCH, 0, TUTTI_SCRATCH, s, 1, TUTTI_RIGHT);
    if (shape->slot > 0) tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);
}

static const struct tutti_schedule_ops all_reduce = {
    .needs = TUTTI_KEEPS_RANK_ORDER, .scratch = slot_scratch, .rounds = one_round, .round = all_reduce_round};
static const struct tutti_schedule_ops reduce = {
    .needs = TUTTI_KEEPS_RANK_ORDER, .scratch = one_scratch, .rounds = one_round, .round = reduce_round};
static const struct tutti_schedule_ops broadcast = {.rounds = one_round, .round = broadcast_round};
static const struct tutti_schedule_ops all_gather = {.rounds = one_round, .round = all_gather_round};
static const struct tutti_schedule_ops gather = {
    .needs = TUTTI_OWN_COUNTS_ONLY, .rounds = one_round, .round = gather_round};
static const struct tutti_schedule_ops scatter = {
    .needs = TUTTI_OWN_COUNTS_ONLY, .rounds = one_round, .round = scatter_round};
static const struct tutti_schedule_ops reduce_scatter = {
    .needs = TUTTI_KEEPS_RANK_ORDER, .scratch = slot_scratch, .rounds = one_round, .round = reduce_scatter_round};
static const struct tutti_schedule_ops all_to_all = {
    .needs = TUTTI_OWN_COUNTS_ONLY, .rounds = one_round, .round = all_to_all_round};
static const struct tutti_schedule_ops barrier = {.scratch = one_scratch, .rounds = one_round, .round = barrier_round};
static const struct tutti_schedule_ops scan = {
    .needs = TUTTI_KEEPS_RANK_ORDER, .scratch = slot_scratch, .rounds = one_round, .round = scan_round};
static const struct tutti_schedule_ops exscan = {
    .needs = TUTTI_KEEPS_RANK_ORDER, .scratch = slot_scratch, .rounds = one_round, .round = exscan_round};

const struct tutti_algorithm tutti_algorithm_direct = {
    .name = "direct",
    .help = "everybody straight to everybody in one step; folds in rank order",
    .source = "Chan, Heimlich, Purkayastha and van de Geijn, CCPE 19 (2007)",
    .kinds = {[TUTTI_ALL_REDUCE] = &all_reduce,
              [TUTTI_REDUCE] = &reduce,
              [TUTTI_BROADCAST] = &broadcast,
              [TUTTI_ALL_GATHER] = &all_gather,
              [TUTTI_GATHER] = &gather,
              [TUTTI_SCATTER] = &scatter,
              [TUTTI_REDUCE_SCATTER] = &reduce_scatter,
              [TUTTI_ALL_TO_ALL] = &all_to_all,
              [TUTTI_BARRIER] = &barrier,
              [TUTTI_SCAN] = &scan,
              [TUTTI_EXSCAN] = &exscan},
};
