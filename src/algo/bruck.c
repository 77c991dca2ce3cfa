/* SPDX-License-Identifier: BSD-3-Clause */

/* Bruck: log_r p steps for any number of slots p, by powers of the radix r.
 *
 * all_gather: before the step of distance d a slot holds the d blocks from its own on. Those of the slots d, 2 d, ...
 * (r - 1) d further on follow them. Blocks keep their place in DATA, so a run that passes the last slot goes on at slot
 * 0 and is two messages.
 *
 * all_to_all: block i of SCRATCH is on its way to the slot i further on. The digits of i in base r are the hops that it
 * makes: in the step of distance d and digit j, all blocks whose digit is j go j d slots on, packed into one message.
 * At the end block i comes from the slot i back. Each block moves up to log_r p times and SCRATCH has one size for all:
 * short, equal blocks.
 *
 * Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in multiport message-passing
 * systems (IEEE TPDS 8, 1997). */

#include "algo/parts.h"

static uint32_t n_distances(const struct tutti_shape *shape)
{
    return tutti_powers(shape, shape->radix);
}

/* A run of blocks that starts at `first` and may pass the last one. */
static void send_run(const struct tutti_shape *shape, uint32_t peer, uint32_t first, uint32_t n,
                     struct tutti_emit *emit)
{
    uint32_t fits = shape->size - first < n ? shape->size - first : n;

    tutti_emit_send(emit, peer, TUTTI_DATA, first, fits);
    if (n > fits) tutti_emit_send(emit, peer, TUTTI_DATA, 0, n - fits);
}

static void recv_run(const struct tutti_shape *shape, uint32_t peer, uint32_t first, uint32_t n,
                     struct tutti_emit *emit)
{
    uint32_t fits = shape->size - first < n ? shape->size - first : n;

    tutti_emit_recv(emit, peer, TUTTI_DATA, first, fits);
    if (n > fits) tutti_emit_recv(emit, peer, TUTTI_DATA, 0, n - fits);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint64_t d = tutti_power(shape->radix, round);

    for (uint64_t j = 1; j < shape->radix && j * d < shape->size; j++) {
        uint32_t n = (uint32_t)(d < shape->size - j * d ? d : shape->size - j * d);
        send_run(shape, tutti_behind(shape, j * d), shape->slot, n, emit);
        recv_run(shape, tutti_ahead(shape, j * d), tutti_ahead(shape, j * d), n, emit);
    }
}

/* SCRATCH: blocks on their way [0, p), then what leaves and what comes in, of at most p blocks each. */
static uint32_t three_sizes(const struct tutti_shape *shape)
{
    return 3 * shape->size;
}

/* Blocks with that digit, in runs of d, from or to where they are packed; their number. */
static uint32_t pack(const struct tutti_shape *shape, uint64_t d, uint64_t digit, uint32_t packed, bool leaves,
                     struct tutti_emit *emit)
{
    uint32_t n = 0, size = shape->size;

    for (uint64_t first = digit * d; first < size; first += d * shape->radix) {
        uint32_t block = (uint32_t)first, run = (uint32_t)(d < size - first ? d : size - first), at = packed + n;
        tutti_emit_copy(emit, TUTTI_SCRATCH, leaves ? at : block, TUTTI_SCRATCH, leaves ? block : at, run);
        n += run;
    }
    return n;
}

static void hop(const struct tutti_shape *shape, uint64_t d, uint64_t digit, struct tutti_emit *emit)
{
    uint32_t leaving = shape->size, coming = 2 * shape->size, n = pack(shape, d, digit, leaving, true, emit);

    if (n == 0) return;
    tutti_emit_send(emit, tutti_ahead(shape, digit * d), TUTTI_SCRATCH, leaving, n);
    tutti_emit_recv(emit, tutti_behind(shape, digit * d), TUTTI_SCRATCH, coming, n);
    pack(shape, d, digit, coming, false, emit);
}

/* Round 0 turns the blocks, then come the hops, and the last round turns them back. */
static uint32_t hops_and_turns(const struct tutti_shape *shape)
{
    return n_distances(shape) + 2;
}

static void all_to_all_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t n_hops = n_distances(shape);

    if (round == 0) {
        uint32_t n = shape->size - shape->slot;
        tutti_emit_copy(emit, TUTTI_SCRATCH, 0, TUTTI_IN, shape->slot, n);
        if (shape->slot > 0) tutti_emit_copy(emit, TUTTI_SCRATCH, n, TUTTI_IN, 0, shape->slot);
    } else if (round <= n_hops) {
        for (uint64_t digit = 1; digit < shape->radix; digit++)
            hop(shape, tutti_power(shape->radix, round - 1), digit, emit);
    } else {
        for (uint32_t i = 0; i < shape->size; i++)
            tutti_emit_copy(emit, TUTTI_DATA, tutti_behind(shape, i), TUTTI_SCRATCH, i, 1);
    }
}

const struct tutti_algorithm tutti_algorithm_bruck = {
    .name = "bruck",
    .help = "log p steps for any p (bruck:4: fewer steps, more messages): short blocks",
    .source = "Bruck et al., IEEE TPDS 8 (1997)",
    .kinds = {[TUTTI_ALL_GATHER] = TUTTI_OPS(.default_radix = 2, .rounds = n_distances, .round = all_gather_round),
              [TUTTI_ALL_TO_ALL] =
                  TUTTI_OPS(.needs = TUTTI_NEEDS_EQUAL_BLOCKS, .default_radix = 2, .scratch = three_sizes,
                            .rounds = hops_and_turns, .round = all_to_all_round)},
};
