/* SPDX-License-Identifier: BSD-3-Clause */

/* Dissemination: in the round of distance d every slot tells the slot d further on, and d is r times as large in each
 * round; after log_r p rounds everybody has heard of everybody.
 *
 * barrier: round the circle. A token is taken only when what came before it has been taken in, which the copy into DATA
 * says: the token that a slot passes on depends on all that it received.
 * scan, exscan (radix 2): along the line. Before the round of distance d slot s holds the fold of the d slots up to
 * itself; what comes in is the fold of the d slots before those and goes to the left of it, so the operands' order is
 * kept. exscan also keeps the fold without its own part.
 *
 * Hensgen, Finkel, Manber: Two algorithms for barrier synchronization (IJPP 17, 1988); Hillis, Steele: Data parallel
 * algorithms (CACM 29, 1986). */

#include "algo/parts.h"

static uint32_t barrier_rounds(const struct tutti_shape *shape)
{
    return tutti_powers(shape, shape->radix);
}

static uint32_t scan_rounds(const struct tutti_shape *shape)
{
    return tutti_powers(shape, 2);
}

/* One round more: the result moves to DATA. */
static uint32_t exscan_rounds(const struct tutti_shape *shape)
{
    return scan_rounds(shape) + 1;
}

/* A token of its own for each message of a round. */
static uint32_t barrier_scratch(const struct tutti_shape *shape)
{
    return shape->radix - 1;
}

static void barrier_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint64_t d = tutti_power(shape->radix, round), size = shape->size;

    for (uint64_t j = 1; j < shape->radix && j * d < size; j++) {
        tutti_emit_send(emit, tutti_ahead(shape, j * d), TUTTI_DATA, 0, 1);
        tutti_emit_recv(emit, tutti_behind(shape, j * d), TUTTI_SCRATCH, (uint32_t)j - 1, 1);
    }
    for (uint64_t j = 1; j < shape->radix && j * d < size; j++)
        tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, (uint32_t)j - 1, 1);
}

/* Passes DATA on and receives into SCRATCH[round]; whether something came. */
static bool exchange(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint64_t d = tutti_power(2, round);

    if (shape->slot + d < shape->size) tutti_emit_send(emit, (uint32_t)(shape->slot + d), TUTTI_DATA, 0, 1);
    if (shape->slot < d) return false;
    tutti_emit_recv(emit, (uint32_t)(shape->slot - d), TUTTI_SCRATCH, round, 1);
    return true;
}

static void scan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    if (exchange(shape, round, emit)) tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, round, 1, TUTTI_LEFT);
}

/* SCRATCH[0], which came first, becomes the fold without the own part. */
static void exscan_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    if (round == scan_rounds(shape)) {
        if (shape->slot > 0) tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);
    } else if (exchange(shape, round, emit)) {
        if (shape->slot + 2 * tutti_power(2, round) < shape->size) /* somebody will ask for the fold with it */
            tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, round, 1, TUTTI_LEFT);
        if (round > 0) tutti_emit_reduce(emit, TUTTI_SCRATCH, 0, TUTTI_SCRATCH, round, 1, TUTTI_LEFT);
    }
}

const struct tutti_algorithm tutti_algorithm_dissemination = {
    .name = "dissemination",
    .help = "log p rounds of growing distance (dissemination:4: fewer rounds, more messages)",
    .source = "Hensgen, Finkel and Manber, IJPP 17 (1988); Hillis and Steele, CACM 29 (1986)",
    .kinds = {[TUTTI_BARRIER] = TUTTI_OPS(.default_radix = 2, .scratch = barrier_scratch, .rounds = barrier_rounds,
                                          .round = barrier_round),
              [TUTTI_SCAN] = TUTTI_OPS(.scratch = scan_rounds, .rounds = scan_rounds, .round = scan_round),
              [TUTTI_EXSCAN] = TUTTI_OPS(.scratch = scan_rounds, .rounds = exscan_rounds, .round = exscan_round)},
};
