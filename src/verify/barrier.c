/* SPDX-License-Identifier: BSD-3-Clause */
/* A barrier moves no data that matters; what counts is cause: a rank may leave only after all have come. Each step has
 * the set of ranks that must have come before it can complete: its own, those of the steps that it waits for (by its
 * mask or by the window), and for a receive those of its send. A rank leaves when all its steps are complete. */

#include "verify/bundle.h"

#include <string.h>

enum { WORDS = 4 }; /* 64-bit words in a set: as many ranks are looked at in one pass */

struct causes {
    const struct tutti_bundle *bundle;
    uint32_t first;   /* rank of the pass */
    uint64_t *sets;   /* by step of the bundle */
    uint64_t *upto;   /* by step of the bundle: of it and all steps before it at its slot */
    uint32_t *n_upto; /* by slot: how many of those are made */
};

static void unite(uint64_t *into, const uint64_t *from)
{
    for (size_t w = 0; w < WORDS; w++) into[w] |= from[w];
}

static void include(const struct causes *causes, uint64_t *set, uint32_t slot)
{
    const uint32_t bit = slot - causes->first;
    if (slot >= causes->first && bit < 64 * WORDS) set[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static uint64_t *set_of(const struct causes *causes, uint64_t *sets, uint32_t slot, uint32_t index)
{
    return sets + ((size_t)causes->bundle->base[slot] + index) * WORDS;
}

/* The completed steps among all up to this one. */
static const uint64_t *set_upto(const struct causes *causes, uint32_t slot, uint32_t index)
{
    for (uint32_t *n = &causes->n_upto[slot]; *n <= index; ++*n) {
        uint64_t *set = set_of(causes, causes->upto, slot, *n);
        memcpy(set, set_of(causes, causes->sets, slot, *n), WORDS * sizeof *set);
        if (*n > 0) unite(set, set_of(causes, causes->upto, slot, *n - 1));
    }
    return set_of(causes, causes->upto, slot, index);
}

/* What a step knows when it starts. */
static void start_set(const struct causes *causes, uint32_t slot, uint32_t index, uint64_t *set)
{
    include(causes, set, slot);
    for (uint64_t rest = tutti_bundle_step(causes->bundle, slot, index)->wait; rest; rest &= rest - 1) {
        unite(set, set_of(causes, causes->sets, slot, index - 1 - (uint32_t)__builtin_ctzll(rest)));
    }
    if (index >= TUTTI_WINDOW) unite(set, set_upto(causes, slot, index - TUTTI_WINDOW));
}

/* Sets are made in an order in which causes come first: the order of completion, a send's own at its receive. */
static void make_set(const struct causes *causes, uint32_t slot, uint32_t index)
{
    const struct tutti_bundle *bundle = causes->bundle;
    uint64_t *set = set_of(causes, causes->sets, slot, index);
    start_set(causes, slot, index, set);
    if (!tutti_step_receives(tutti_bundle_step(bundle, slot, index))) return;
    const uint32_t peer = tutti_bundle_step(bundle, slot, index)->peer;
    const uint32_t send = bundle->match[bundle->base[slot] + index] - bundle->base[peer];
    uint64_t *sent = set_of(causes, causes->sets, peer, send);
    start_set(causes, peer, send, sent);
    unite(set, sent);
}

static void check_slot(const struct causes *causes, uint32_t slot)
{
    const struct tutti_bundle *bundle = causes->bundle;
    const uint32_t n_steps = bundle->schedules[slot]->n_steps;
    const uint64_t *set = n_steps ? set_upto(causes, slot, n_steps - 1) : NULL;
    for (uint32_t s = causes->first; s < bundle->n && s - causes->first < 64 * WORDS; s++) {
        const uint32_t bit = s - causes->first;
        if (s == slot || (set && (set[bit / 64] >> (bit % 64) & 1))) continue;
        tutti_bundle_refuse(bundle, slot, TUTTI_NO_INDEX,
                            "may leave the barrier before rank %u has come: no chain of messages leads from there", s);
        return;
    }
}

/* Ranks from causes->first on, as many as a set has. */
static void check_pass(struct causes *causes)
{
    const struct tutti_bundle *bundle = causes->bundle;
    memset(causes->sets, 0, ((size_t)bundle->n_steps + 1) * WORDS * sizeof *causes->sets);
    memset(causes->n_upto, 0, bundle->n * sizeof *causes->n_upto);
    for (uint32_t i = 0; i < bundle->n_order; i++) {
        const uint32_t slot = bundle->order_slot[i];
        make_set(causes, slot, bundle->order[i] - bundle->base[slot]);
    }
    for (uint32_t s = 0; s < bundle->n && bundle->verdict->ok; s++) check_slot(causes, s);
}

enum tutti_status tutti_bundle_check_barrier(struct tutti_bundle *bundle)
{
    struct causes causes = {.bundle = bundle};
    const size_t n_words = ((size_t)bundle->n_steps + 1) * WORDS;
    const uint32_t n_passes = (bundle->n + 64 * WORDS - 1) / (64 * WORDS);
    const uint32_t every = bundle->sampled && n_passes > bundle->sampled ? n_passes / bundle->sampled : 1;
    enum tutti_status status = TUTTI_OK;
    if (bundle->kind != TUTTI_BARRIER) return TUTTI_OK;
    causes.sets = tutti_alloc_array(n_words, sizeof *causes.sets);
    causes.upto = tutti_alloc_array(n_words, sizeof *causes.upto);
    causes.n_upto = tutti_alloc_array(bundle->n, sizeof *causes.n_upto);
    if (!causes.sets || !causes.upto || !causes.n_upto) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to check a barrier of %u ranks", bundle->n);
        goto err_causes;
    }
    for (uint32_t pass = 0; pass < n_passes && bundle->verdict->ok; pass += every) {
        causes.first = pass * 64 * WORDS;
        check_pass(&causes);
    }
err_causes:
    tutti_free(causes.sets);
    tutti_free(causes.upto);
    tutti_free(causes.n_upto);
    return status;
}
