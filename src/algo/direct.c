/* SPDX-License-Identifier: BSD-3-Clause */

/* Direct. One shot: every slot sends what others need straight to them; one step of latency, the most messages. The
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

#include "algo/parts.h"

/* Peers of a round, at most: a world of a hundred slots has one round, and a larger one can be looked at in parts. */
#define PEERS 128

static uint32_t peer_rounds(const struct tutti_shape *shape)
{
    return shape->size > 1 ? (shape->size - 1 + PEERS - 1) / PEERS : 1;
}

/* The distances of a round are [first, end). */
static uint32_t first_peer(uint32_t round)
{
    return 1 + round * PEERS;
}
static uint32_t end_peer(const struct tutti_shape *shape, uint32_t round)
{
    return shape->size - first_peer(round) > PEERS ? first_peer(round + 1) : shape->size;
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
    for (uint32_t k = first_peer(round); k < end_peer(shape, round); k++) {
        tutti_emit_send(emit, tutti_ahead(shape, k), TUTTI_DATA, 0, 1);
        tutti_emit_recv(emit, tutti_behind(shape, k), TUTTI_SCRATCH, tutti_behind(shape, k), 1);
    }
    if (round + 1 == peer_rounds(shape)) fold(shape, 0, shape->size, emit);
}

static void reduce_scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    for (uint32_t k = first_peer(round); k < end_peer(shape, round); k++) {
        tutti_emit_send(emit, tutti_ahead(shape, k), TUTTI_DATA, tutti_ahead(shape, k), 1);
        tutti_emit_recv(emit, tutti_behind(shape, k), TUTTI_SCRATCH, tutti_behind(shape, k), 1);
    }
    if (round + 1 == peer_rounds(shape)) fold(shape, shape->slot, shape->size, emit);
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
        tutti_emit_send(emit, tutti_ahead(shape, k), TUTTI_DATA, 0, 1);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, tutti_ahead(shape, k), TUTTI_DATA, shape->slot, 1);
        tutti_emit_recv(emit, tutti_behind(shape, k), TUTTI_DATA, tutti_behind(shape, k), 1);
    }
}

static void gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot != shape->root) tutti_emit_send(emit, shape->root, TUTTI_DATA, shape->slot, 1);
    for (uint32_t k = 1; k < shape->size && shape->slot == shape->root; k++)
        tutti_emit_recv(emit, tutti_ahead(shape, k), TUTTI_DATA, tutti_ahead(shape, k), 1);
}

static void scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot != shape->root) tutti_emit_recv(emit, shape->root, TUTTI_DATA, shape->slot, 1);
    for (uint32_t k = 1; k < shape->size && shape->slot == shape->root; k++)
        tutti_emit_send(emit, tutti_ahead(shape, k), TUTTI_DATA, tutti_ahead(shape, k), 1);
}

static void all_to_all_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    tutti_emit_copy(emit, TUTTI_DATA, shape->slot, TUTTI_IN, shape->slot, 1);
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, tutti_ahead(shape, k), TUTTI_IN, tutti_ahead(shape, k), 1);
        tutti_emit_recv(emit, tutti_behind(shape, k), TUTTI_DATA, tutti_behind(shape, k), 1);
    }
}

/* Tokens are awaited in SCRATCH, so that a slot can receive before its own token is taken. */
static void barrier_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, tutti_ahead(shape, k), TUTTI_DATA, 0, 1);
        tutti_emit_recv(emit, tutti_behind(shape, k), TUTTI_SCRATCH, 0, 1);
    }
    if (shape->size > 1) tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);
}

/* To all slots on the right, from all on the left. */
static void exchange_with_prefix(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const uint32_t slot = shape->slot;

    for (uint32_t k = first_peer(round); k < end_peer(shape, round); k++) {
        if (k < shape->size - slot) tutti_emit_send(emit, slot + k, TUTTI_DATA, 0, 1);
        if (k <= slot) tutti_emit_recv(emit, slot - k, TUTTI_SCRATCH, slot - k, 1);
    }
}

static void scan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    exchange_with_prefix(shape, round, emit);
    if (round + 1 == peer_rounds(shape)) fold(shape, 0, shape->slot, emit);
}

static void exscan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    exchange_with_prefix(shape, round, emit);
    if (round + 1 < peer_rounds(shape)) return;
    for (uint32_t s = 1; s < shape->slot; s++)
        tutti_emit_reduce(emit, TUTTI_SCRATCH, 0, TUTTI_SCRATCH, s, 1, TUTTI_RIGHT);
    if (shape->slot > 0) tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);
}

const struct tutti_algorithm tutti_algorithm_direct = {
    .name = "direct",
    .help = "everybody straight to everybody in one step; folds in rank order",
    .source = "Chan, Heimlich, Purkayastha and van de Geijn, CCPE 19 (2007)",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .scratch = tutti_one_a_slot,
                                             .rounds = peer_rounds, .round = all_reduce_round),
              [TUTTI_REDUCE] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .scratch = tutti_one, .rounds = tutti_one,
                                         .round = reduce_round),
              [TUTTI_BROADCAST] = TUTTI_OPS(.rounds = tutti_one, .round = broadcast_round),
              [TUTTI_ALL_GATHER] = TUTTI_OPS(.rounds = tutti_one, .round = all_gather_round),
              [TUTTI_GATHER] = TUTTI_OPS(.needs = TUTTI_OWN_COUNTS_ONLY, .rounds = tutti_one, .round = gather_round),
              [TUTTI_SCATTER] = TUTTI_OPS(.needs = TUTTI_OWN_COUNTS_ONLY, .rounds = tutti_one, .round = scatter_round),
              [TUTTI_REDUCE_SCATTER] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .scratch = tutti_one_a_slot,
                                                 .rounds = peer_rounds, .round = reduce_scatter_round),
              [TUTTI_ALL_TO_ALL] =
                  TUTTI_OPS(.needs = TUTTI_OWN_COUNTS_ONLY, .rounds = tutti_one, .round = all_to_all_round),
              [TUTTI_BARRIER] = TUTTI_OPS(.scratch = tutti_one, .rounds = tutti_one, .round = barrier_round),
              [TUTTI_SCAN] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .scratch = tutti_one_a_slot,
                                       .rounds = peer_rounds, .round = scan_round),
              [TUTTI_EXSCAN] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .scratch = tutti_one_a_slot,
                                         .rounds = peer_rounds, .round = exscan_round)},
};

/* ---- two shots ----
 *
 * The data is cut into one chunk a slot, its owner. all_reduce: every slot sends each owner its part of that chunk, the
 * owner folds all parts from slot 0 to slot p - 1, and sends the result to everybody. Two steps of latency and each
 * byte sent twice, as little as can be; the result is folded once, strictly from left to right, so it is that of the
 * one-shot form, bit for bit. reduce ends with the owners sending to the root alone; broadcast starts with the root
 * sending each owner its chunk.
 *
 * van de Geijn: On global combine operations (JPDC 22, 1994); Chan, Heimlich, Purkayastha, van de Geijn (CCPE 19,
 * 2007). */

static uint32_t two_rounds(const struct tutti_shape *shape)
{
    (void)shape;
    return 2;
}

/* The first shot's, and one. */
static uint32_t shot_rounds(const struct tutti_shape *shape)
{
    return peer_rounds(shape) + 1;
}

static void two_shot_all_reduce(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (round < peer_rounds(shape) ? reduce_scatter_round : all_gather_round)(shape, round, emit);
}

static void two_shot_reduce(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (round < peer_rounds(shape) ? reduce_scatter_round : gather_round)(shape, round, emit);
}

/* The root has all chunks: owners send theirs to the others alone. */
static void two_shot_broadcast(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    bool at_root = shape->slot == shape->root;

    for (uint32_t k = 1; k < shape->size; k++) {
        uint32_t to = tutti_ahead(shape, k), from = tutti_behind(shape, k);
        if (round == 0) {
            if (at_root) tutti_emit_send(emit, to, TUTTI_DATA, to, 1);
            if (from == shape->root) tutti_emit_recv(emit, from, TUTTI_DATA, shape->slot, 1);
        } else {
            if (to != shape->root) tutti_emit_send(emit, to, TUTTI_DATA, shape->slot, 1);
            if (!at_root) tutti_emit_recv(emit, from, TUTTI_DATA, from, 1);
        }
    }
}

const struct tutti_algorithm tutti_algorithm_direct_two_shot = {
    .name = "direct_two_shot",
    .help = "through an owner of each chunk, straight there and back; folds in rank order",
    .source = "van de Geijn, JPDC 22 (1994); Chan et al., CCPE 19 (2007)",
    .kinds = {[TUTTI_ALL_REDUCE] =
                  TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .chunks = tutti_one_a_slot, .scratch = tutti_one_a_slot,
                            .rounds = shot_rounds, .round = two_shot_all_reduce),
              [TUTTI_REDUCE] = TUTTI_OPS(.needs = TUTTI_KEEPS_RANK_ORDER, .chunks = tutti_one_a_slot,
                                         .scratch = tutti_one_a_slot, .rounds = shot_rounds, .round = two_shot_reduce),
              [TUTTI_BROADCAST] =
                  TUTTI_OPS(.chunks = tutti_one_a_slot, .rounds = two_rounds, .round = two_shot_broadcast)},
};
