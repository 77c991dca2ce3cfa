/* SPDX-License-Identifier: BSD-3-Clause */

/* Recursive doubling: log2 p exchanges, each of the whole message. In step k neighbours at distance 2^k exchange what
 * they have and both combine it, in the order of the slots, so results are equal on all ranks. Beyond the largest power
 * of two below p the first slots go in pairs: the left one gives its part to the right one, and gets the result.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH (IJHPCA 19, 2005), 4.5. */

#include "algo/parts.h"

struct core {
    uint32_t n, pairs; /* slots that exchange, a power of two; pairs of which one does */
};

static struct core core_of(const struct tutti_shape *shape)
{
    struct core core = {.n = 1};

    while (core.n <= shape->size / 2) core.n *= 2;
    core.pairs = shape->size - core.n;
    return core;
}

/* The slot that is the i-th of those that exchange. */
static uint32_t slot_of(const struct core *core, uint32_t i)
{
    return i < core->pairs ? 2 * i + 1 : i + core->pairs;
}

static uint32_t rounds(const struct tutti_shape *shape)
{
    const struct core core = core_of(shape);
    uint32_t n = core.pairs > 0 ? 2 : 0;

    for (uint32_t d = 1; d < core.n; d *= 2) n++;
    return n > 0 ? n : 1;
}

/* In a pair: to the right at the beginning, back at the end. */
static void pair_round(const struct tutti_shape *shape, const struct core *core, bool back, struct tutti_emit *emit)
{
    const bool right = shape->slot % 2 == 1;

    if (shape->slot >= 2 * core->pairs) return;
    if (right == back)
        tutti_emit_send(emit, right ? shape->slot - 1 : shape->slot + 1, TUTTI_DATA, 0, 1);
    else if (back)
        tutti_emit_recv(emit, shape->slot + 1, TUTTI_DATA, 0, 1);
    else
        tutti_emit_recv_reduce(emit, shape->slot - 1, TUTTI_DATA, 0, 1, TUTTI_LEFT);
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const struct core core = core_of(shape);
    const uint32_t first = core.pairs > 0, slot = shape->slot;

    if (first && (round == 0 || round + 1 == rounds(shape))) {
        pair_round(shape, &core, round > 0, emit);
        return;
    }
    if ((slot < 2 * core.pairs && slot % 2 == 0) || core.n == 1) return;
    const uint32_t i = slot < 2 * core.pairs ? slot / 2 : slot - core.pairs, distance = UINT32_C(1) << (round - first);
    const uint32_t peer = slot_of(&core, i ^ distance);
    const bool right = i & distance;
    /* One after another it would end, too: the left one sends first. Both may wait for the other to take what they
     * send, so what comes is kept apart. */
    if (!right) tutti_emit_send(emit, peer, TUTTI_DATA, 0, 1);
    tutti_emit_recv(emit, peer, TUTTI_SCRATCH, 0, 1);
    if (right) tutti_emit_send(emit, peer, TUTTI_DATA, 0, 1);
    tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1, right ? TUTTI_LEFT : TUTTI_RIGHT);
}

const struct tutti_algorithm tutti_algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .help = "exchanges with neighbours twice as far each time, any size: small messages",
    .source = "Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), section 4.5",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.scratch = tutti_one, .rounds = rounds, .round = all_reduce_round)},
};
