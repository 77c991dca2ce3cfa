/* SPDX-License-Identifier: BSD-3-Clause */

/* Pairwise exchange: in round k slot s exchanges with slot k - s (mod p), so that in every round the slots form pairs
 * that talk to one another alone, as in a tournament; after p rounds everybody has met everybody, itself included.
 * No SCRATCH, no block sent twice, no slot with two peers at a time: long blocks, and any number of slots.
 *
 * reduce_scatter combines what comes as it comes: operands must commute. all_to_all touches blocks of its own row and
 * column alone.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH (IJHPCA 19, 2005), sections
 * 4.3 and 4.4. */

#include "algo/parts.h"

static uint32_t peer_of(const struct tutti_shape *shape, uint32_t round)
{
    return (round + shape->size - shape->slot) % shape->size;
}

static void all_to_all_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t peer = peer_of(shape, round);

    if (peer == shape->slot) {
        tutti_emit_copy(emit, TUTTI_DATA, peer, TUTTI_IN, peer, 1);
        return;
    }
    tutti_emit_send(emit, peer, TUTTI_IN, peer, 1);
    tutti_emit_recv(emit, peer, TUTTI_DATA, peer, 1);
}

static void all_gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t peer = peer_of(shape, round);

    if (peer == shape->slot) return;
    tutti_emit_send(emit, peer, TUTTI_DATA, shape->slot, 1);
    tutti_emit_recv(emit, peer, TUTTI_DATA, peer, 1);
}

static void reduce_scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t peer = peer_of(shape, round);

    if (peer == shape->slot) return;
    tutti_emit_send(emit, peer, TUTTI_DATA, peer, 1);
    tutti_emit_recv_reduce(emit, peer, TUTTI_DATA, shape->slot, 1, TUTTI_RIGHT);
}

const struct tutti_algorithm tutti_algorithm_pairwise = {
    .name = "pairwise",
    .help = "everybody meets everybody, two by two: long blocks",
    .source = "Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005)",
    .kinds = {[TUTTI_ALL_GATHER] = TUTTI_OPS(.rounds = tutti_one_a_slot, .round = all_gather_round),
              [TUTTI_REDUCE_SCATTER] = TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .rounds = tutti_one_a_slot,
                                                 .round = reduce_scatter_round),
              [TUTTI_ALL_TO_ALL] =
                  TUTTI_OPS(.needs = TUTTI_OWN_COUNTS_ONLY, .rounds = tutti_one_a_slot, .round = all_to_all_round)},
};
