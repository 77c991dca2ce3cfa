/* SPDX-License-Identifier: BSD-3-Clause */

/* Direct, two shots: the data is cut into one chunk a slot, its owner. all_reduce: every slot sends each owner its part
 * of that chunk, the owner folds all parts from slot 0 to slot p - 1, and sends the result to everybody. Two steps of
 * latency and each byte sent twice, as little as can be; the result is folded once, strictly from left to right, so it
 * is that of the one-shot form, bit for bit. reduce ends with the owners sending to the root alone; broadcast starts
 * with the root sending each owner its chunk.
 *
 * van de Geijn: On global combine operations (JPDC 22, 1994); Chan, Heimlich, Purkayastha, van de Geijn: Collective
 * communication: theory, practice, and experience (CCPE 19, 2007). */

#include "algo/algo.h"

static uint32_t ahead(const struct tutti_shape *shape, uint32_t k)
{
    return (shape->slot + k) % shape->size;
}

static uint32_t behind(const struct tutti_shape *shape, uint32_t k)
{
    return (shape->slot + shape->size - k) % shape->size;
}

static uint32_t size_of(const struct tutti_shape *shape)
{
    return shape->size;
}

static uint32_t two_rounds(const struct tutti_shape *shape)
{
    (void)shape;
    return 2;
}

/* The owner folds SCRATCH[0..slot) op DATA[slot] op SCRATCH[slot + 1..p). */
static void reduce_to_owners(const struct tutti_shape *shape, struct tutti_emit *emit)
{
    uint32_t slot = shape->slot;

    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, ahead(shape, k), 1);
        tutti_emit_recv(emit, behind(shape, k), TUTTI_SCRATCH, behind(shape, k), 1);
    }
    for (uint32_t s = 1; s < slot; s++) tutti_emit_reduce(emit, TUTTI_SCRATCH, 0, TUTTI_SCRATCH, s, 1, TUTTI_RIGHT);
    if (slot > 0) tutti_emit_reduce(emit, TUTTI_DATA, slot, TUTTI_SCRATCH, 0, 1, TUTTI_LEFT);
    for (uint32_t s = slot + 1; s < shape->size; s++)
        tutti_emit_reduce(emit, TUTTI_DATA, slot, TUTTI_SCRATCH, s, 1, TUTTI_RIGHT);
}

static void gather_from_owners(const struct tutti_shape *shape, struct tutti_emit *emit)
{
    for (uint32_t k = 1; k < shape->size; k++) {
        tutti_emit_send(emit, ahead(shape, k), TUTTI_DATA, shape->slot, 1);
        tutti_emit_recv(emit, behind(shape, k), TUTTI_DATA, behind(shape, k), 1);
    }
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    if (round == 0)
        reduce_to_owners(shape, emit);
    else
        gather_from_owners(shape, emit);
}

static void reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    if (round == 0)
        reduce_to_owners(shape, emit);
    else if (shape->slot != shape->root)
        tutti_emit_send(emit, shape->root, TUTTI_DATA, shape->slot, 1);
    else
        for (uint32_t k = 1; k < shape->size; k++)
            tutti_emit_recv(emit, ahead(shape, k), TUTTI_DATA, ahead(shape, k), 1);
}

/* The root has all chunks: owners send theirs to the others alone. */
static void broadcast_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    bool at_root = shape->slot == shape->root;

    for (uint32_t k = 1; k < shape->size; k++) {
        uint32_t to = ahead(shape, k), from = behind(shape, k);
        if (round == 0) {
            if (at_root) tutti_emit_send(emit, to, TUTTI_DATA, to, 1);
            if (from == shape->root) tutti_emit_recv(emit, from, TUTTI_DATA, shape->slot, 1);
        } else {
            if (to != shape->root) tutti_emit_send(emit, to, TUTTI_DATA, shape->slot, 1);
            if (!at_root) tutti_emit_recv(emit, from, TUTTI_DATA, from, 1);
        }
    }
}

static const struct tutti_schedule_ops all_reduce = {.needs = TUTTI_KEEPS_RANK_ORDER,
                                                     .chunks = size_of,
                                                     .scratch = size_of,
                                                     .rounds = two_rounds,
                                                     .round = all_reduce_round};
static const struct tutti_schedule_ops reduce = {.needs = TUTTI_KEEPS_RANK_ORDER,
                                                 .chunks = size_of,
                                                 .scratch = size_of,
                                                 .rounds = two_rounds,
                                                 .round = reduce_round};
static const struct tutti_schedule_ops broadcast = {.chunks = size_of, .rounds = two_rounds, .round = broadcast_round};

const struct tutti_algorithm tutti_algorithm_direct_two_shot = {
    .name = "direct_two_shot",
    .help = "through an owner of each chunk, straight there and back; folds in rank order",
    .source = "van de Geijn, JPDC 22 (1994); Chan et al., CCPE 19 (2007)",
    .kinds = {[TUTTI_ALL_REDUCE] = &all_reduce, [TUTTI_REDUCE] = &reduce, [TUTTI_BROADCAST] = &broadcast},
};
