/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_PLANTED_ALGORITHMS_TEST_H
#define TUTTI_VERIFY_PLANTED_ALGORITHMS_TEST_H

/* For the tests of the checker: small correct algorithms, in which faults are planted (mutant_test.c). */

#include "verify/planted_test.h"

enum { PLANTED_ACTIONS = 64 }; /* in a round, at most */

/* ---- the correct algorithms, as actions of a slot in a round ---- */
typedef uint32_t (*actions_function)(const struct tutti_shape *s, uint32_t k, struct planted_action *out);

static uint32_t ring_all_reduce(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot, left = (r + p - 1) % p, right = (r + 1) % p;
    out[0] = planted_send(right, TUTTI_DATA, (r + 2 * p - k) % p);
    out[1] = k < p - 1 ? planted_recv_reduce(left, (r + 2 * p - k - 1) % p, TUTTI_RIGHT)
                       : planted_recv(left, TUTTI_DATA, (r + 2 * p - k - 1) % p);
    return 2;
}

static uint32_t ring_all_gather(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot, left = (r + p - 1) % p;
    out[0] = planted_send((r + 1) % p, TUTTI_DATA, (r + p - k) % p);
    out[1] = planted_recv(left, TUTTI_DATA, (left + p - k) % p);
    return 2;
}

/* Up a chain in rank order, down again from the last. */
static uint32_t chain_all_reduce(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot;
    uint32_t n = 0;
    (void)k;
    if (r > 0) out[n++] = planted_recv_reduce(r - 1, 0, TUTTI_LEFT);
    if (r < p - 1) out[n++] = planted_send(r + 1, TUTTI_DATA, 0);
    if (r < p - 1) out[n++] = planted_recv(r + 1, TUTTI_DATA, 0);
    if (r > 0) out[n++] = planted_send(r - 1, TUTTI_DATA, 0);
    return n;
}

static uint32_t chain_scan(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    uint32_t n = 0;
    (void)k;
    if (s->slot > 0) out[n++] = planted_recv_reduce(s->slot - 1, 0, TUTTI_LEFT);
    if (s->slot < s->size - 1) out[n++] = planted_send(s->slot + 1, TUTTI_DATA, 0);
    return n;
}

/* Ranks pass what they have received with their own in SCRATCH 1. */
static uint32_t chain_exscan(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    uint32_t n = 0;
    (void)k;
    out[n++] = planted_copy(TUTTI_SCRATCH, 0, TUTTI_DATA, 0);
    if (s->slot > 0) out[n++] = planted_recv(s->slot - 1, TUTTI_DATA, 0);
    if (s->slot > 0) {
        out[n] = planted_reduce(0, 0, TUTTI_LEFT);
        out[n].buffer = TUTTI_SCRATCH;
        out[n].src_buffer = TUTTI_DATA;
        n++;
    }
    if (s->slot < s->size - 1) out[n++] = planted_send(s->slot + 1, TUTTI_SCRATCH, 0);
    return n;
}

/* All to all, folded at every rank from rank 0 on: equal bits everywhere, in rank order. */
static uint32_t direct_all_reduce(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot;
    uint32_t n = 0;
    (void)k;
    for (uint32_t i = 1; i < p; i++) out[n++] = planted_send((r + i) % p, TUTTI_DATA, 0);
    for (uint32_t i = 1; i < p; i++) out[n++] = planted_recv((r + p - i) % p, TUTTI_SCRATCH, (r + p - i) % p);
    out[n++] = planted_copy(TUTTI_SCRATCH, r, TUTTI_DATA, 0);
    out[n++] = planted_copy(TUTTI_DATA, 0, TUTTI_SCRATCH, 0);
    for (uint32_t i = 1; i < p; i++) out[n++] = planted_reduce(0, i, TUTTI_RIGHT);
    return n;
}

/* All to all, each rank combining what comes in the order of distance: right but for the last bits. */
static uint32_t careless_all_reduce(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot;
    uint32_t n = 0;
    (void)k;
    for (uint32_t i = 1; i < p; i++) out[n++] = planted_send((r + i) % p, TUTTI_DATA, 0);
    for (uint32_t i = 1; i < p; i++) out[n++] = planted_recv((r + i) % p, TUTTI_SCRATCH, (r + i) % p);
    for (uint32_t i = 1; i < p; i++) out[n++] = planted_reduce(0, (r + i) % p, TUTTI_RIGHT);
    return n;
}

static uint32_t linear_broadcast(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    uint32_t n = 0;
    (void)k;
    if (s->slot != s->root) out[n++] = planted_recv(s->root, TUTTI_DATA, 0);
    for (uint32_t i = 1; i < s->size && s->slot == s->root; i++) {
        out[n++] = planted_send((s->root + i) % s->size, TUTTI_DATA, 0);
    }
    return n;
}

static uint32_t linear_reduce(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    uint32_t n = 0;
    (void)k;
    if (s->slot != s->root) out[n++] = planted_send(s->root, TUTTI_DATA, 0);
    for (uint32_t i = 1; i < s->size && s->slot == s->root; i++) {
        out[n++] = planted_recv_reduce((s->root + i) % s->size, 0, TUTTI_RIGHT);
    }
    return n;
}

static uint32_t linear_scatter(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    uint32_t n = 0;
    (void)k;
    if (s->slot != s->root) out[n++] = planted_recv(s->root, TUTTI_DATA, s->slot);
    for (uint32_t i = 1; i < s->size && s->slot == s->root; i++) {
        out[n++] = planted_send((s->root + i) % s->size, TUTTI_DATA, (s->root + i) % s->size);
    }
    return n;
}

/* Rank r passes blocks r.. on to r - 1, down to the root 0. */
static uint32_t chain_gather(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot;
    uint32_t n = 0;
    (void)k;
    if (r < p - 1) {
        out[n] = planted_recv(r + 1, TUTTI_DATA, r + 1);
        out[n++].n = p - 1 - r;
    }
    if (r > 0) {
        out[n] = planted_send(r - 1, TUTTI_DATA, r);
        out[n++].n = p - r;
    }
    return n;
}

static uint32_t pairwise_reduce_scatter(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot;
    out[0] = planted_send((r + k + 1) % p, TUTTI_DATA, (r + k + 1) % p);
    out[1] = planted_recv_reduce((r + p - k - 1) % p, r, TUTTI_RIGHT);
    return 2;
}

static uint32_t pairwise_all_to_all(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, to = (s->slot + k) % p, from = (s->slot + p - k) % p;
    if (k == 0) {
        out[0] = planted_copy(TUTTI_DATA, s->slot, TUTTI_IN, s->slot);
        return 1;
    }
    out[0] = planted_send(to, TUTTI_IN, to);
    out[1] = planted_recv(from, TUTTI_DATA, from);
    return 2;
}

/* Blocks arrive in the order of distance and are moved to their places at the end. */
static uint32_t rotated_all_gather(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, r = s->slot;
    uint32_t n = 0;
    if (k == 0) out[n++] = planted_copy(TUTTI_SCRATCH, 0, TUTTI_DATA, r);
    if (k < p - 1) {
        out[n++] = planted_send((r + p - 1) % p, TUTTI_SCRATCH, k);
        out[n++] = planted_recv((r + 1) % p, TUTTI_SCRATCH, k + 1);
        return n;
    }
    for (uint32_t i = 0; i < p; i++) out[n++] = planted_copy(TUTTI_DATA, (r + i) % p, TUTTI_SCRATCH, i);
    return n;
}

/* Three ranks; the block of rank 2 goes by rank 1. */
static uint32_t relay_scatter(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    uint32_t n = 0;
    (void)k;
    if (s->slot == 0) out[n++] = planted_send(1, TUTTI_DATA, 1);
    if (s->slot == 0) out[n++] = planted_send(1, TUTTI_DATA, 2);
    if (s->slot == 1) out[n++] = planted_recv(0, TUTTI_DATA, 1);
    if (s->slot == 1) out[n++] = planted_recv(0, TUTTI_SCRATCH, 0);
    if (s->slot == 1) out[n++] = planted_send(2, TUTTI_SCRATCH, 0);
    if (s->slot == 2) out[n++] = planted_recv(1, TUTTI_DATA, 2);
    return n;
}

static uint32_t dissemination_barrier(const struct tutti_shape *s, uint32_t k, struct planted_action *out)
{
    const uint32_t p = s->size, distance = UINT32_C(1) << k;
    out[0] = planted_send((s->slot + distance) % p, TUTTI_DATA, 0);
    out[1] = planted_recv((s->slot + p - distance) % p, TUTTI_SCRATCH, 0);
    out[2] = planted_copy(TUTTI_DATA, 0, TUTTI_SCRATCH, 0);
    return 3;
}

/* ---- shapes of the above ---- */
static uint32_t size_of(const struct tutti_shape *s)
{
    return s->size;
}
static uint32_t one(const struct tutti_shape *s)
{
    return s->size > 0 ? 1 : 0;
}
static uint32_t less_one(const struct tutti_shape *s)
{
    return s->size - 1;
}
static uint32_t twice_less_one(const struct tutti_shape *s)
{
    return 2 * (s->size - 1);
}
static uint32_t log_of(const struct tutti_shape *s)
{
    uint32_t rounds = 0;
    while ((UINT32_C(1) << rounds) < s->size) rounds++;
    return rounds;
}

/* ---- the table of correct algorithms; name and kind are in the sentence ---- */
enum base_id {
    RING_ALL_REDUCE,
    RING_ALL_GATHER,
    CHAIN_ALL_REDUCE,
    CHAIN_SCAN,
    CHAIN_EXSCAN,
    DIRECT_ALL_REDUCE,
    CARELESS_ALL_REDUCE,
    LINEAR_BROADCAST,
    LINEAR_REDUCE,
    LINEAR_SCATTER,
    CHAIN_GATHER,
    PAIRWISE_REDUCE_SCATTER,
    PAIRWISE_ALL_TO_ALL,
    ROTATED_ALL_GATHER,
    RELAY_SCATTER,
    DISSEMINATION_BARRIER,
    N_BASES
};
typedef uint32_t (*shape_function)(const struct tutti_shape *s);
static const struct base {
    const char *name;
    enum tutti_kind kind;
    uint32_t needs, size, root;
    shape_function chunks, scratch, rounds;
    actions_function actions;
} bases[N_BASES] = {
    [RING_ALL_REDUCE] = {"ring", TUTTI_ALL_REDUCE, TUTTI_NEEDS_COMMUTATIVE, 5, 0, size_of, NULL, twice_less_one,
                         ring_all_reduce},
    [RING_ALL_GATHER] = {"ring", TUTTI_ALL_GATHER, 0, 5, 0, NULL, NULL, less_one, ring_all_gather},
    [CHAIN_ALL_REDUCE] = {"chain", TUTTI_ALL_REDUCE, TUTTI_KEEPS_RANK_ORDER, 5, 0, NULL, NULL, one, chain_all_reduce},
    [CHAIN_SCAN] = {"chain", TUTTI_SCAN, TUTTI_KEEPS_RANK_ORDER, 5, 0, NULL, NULL, one, chain_scan},
    [CHAIN_EXSCAN] = {"chain", TUTTI_EXSCAN, TUTTI_KEEPS_RANK_ORDER, 5, 0, NULL, one, one, chain_exscan},
    [DIRECT_ALL_REDUCE] = {"direct", TUTTI_ALL_REDUCE, TUTTI_KEEPS_RANK_ORDER, 5, 0, NULL, size_of, one,
                           direct_all_reduce},
    [CARELESS_ALL_REDUCE] = {"careless", TUTTI_ALL_REDUCE, TUTTI_NEEDS_COMMUTATIVE, 5, 0, NULL, size_of, one,
                             careless_all_reduce},
    [LINEAR_BROADCAST] = {"linear", TUTTI_BROADCAST, 0, 5, 2, NULL, NULL, one, linear_broadcast},
    [LINEAR_REDUCE] = {"linear", TUTTI_REDUCE, TUTTI_NEEDS_COMMUTATIVE, 5, 2, NULL, NULL, one, linear_reduce},
    [LINEAR_SCATTER] = {"linear", TUTTI_SCATTER, TUTTI_OWN_COUNTS_ONLY, 5, 2, NULL, NULL, one, linear_scatter},
    [CHAIN_GATHER] = {"chain", TUTTI_GATHER, 0, 5, 0, NULL, NULL, one, chain_gather},
    [PAIRWISE_REDUCE_SCATTER] = {"pairwise", TUTTI_REDUCE_SCATTER, TUTTI_NEEDS_COMMUTATIVE, 5, 0, NULL, NULL, less_one,
                                 pairwise_reduce_scatter},
    [PAIRWISE_ALL_TO_ALL] = {"pairwise", TUTTI_ALL_TO_ALL, TUTTI_OWN_COUNTS_ONLY, 5, 0, NULL, NULL, size_of,
                             pairwise_all_to_all},
    [ROTATED_ALL_GATHER] = {"rotated", TUTTI_ALL_GATHER, 0, 5, 0, NULL, size_of, size_of, rotated_all_gather},
    [RELAY_SCATTER] = {"relay", TUTTI_SCATTER, TUTTI_NEEDS_EQUAL_BLOCKS, 3, 0, NULL, one, one, relay_scatter},
    [DISSEMINATION_BARRIER] = {"dissemination", TUTTI_BARRIER, 0, 8, 0, NULL, one, log_of, dissemination_barrier},
};

static const struct base *base; /* the algorithm whose rounds are asked for */

static inline void planted_round(const struct tutti_shape *s, uint32_t k, struct tutti_emit *emit)
{
    struct planted_action actions[PLANTED_ACTIONS];
    const uint32_t n = base->actions(s, k, actions);
    assert_true(n <= PLANTED_ACTIONS);
    for (uint32_t i = 0; i < n; i++) planted_emit(emit, &actions[i]);
}

#endif
