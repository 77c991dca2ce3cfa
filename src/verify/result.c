/* SPDX-License-Identifier: BSD-3-Clause */
/* What every slot must hold at the end, and the sentence when it does not: which contribution is missing or counted
 * twice, whose chunk it is instead, what came in the wrong order, where replicas would differ in their last bits. */

#include "verify/cell.h"

#include <stdio.h>

struct result {
    const struct tutti_bundle *bundle;
    const struct tutti_cells *cells;
    uint32_t chunk;
    struct tutti_cell all; /* the left fold over all slots */
};

static void chunk_name(const struct tutti_bundle *bundle, uint32_t chunk, char *out, size_t capacity)
{
    if (bundle->info->block_a_slot && bundle->per_block > 1) {
        snprintf(out, capacity, "chunk %u (of block %u)", chunk, chunk / bundle->per_block);
    } else {
        snprintf(out, capacity, "chunk %u", chunk);
    }
}

/* ---- what a wrong sum is: a search that costs O(n^2), made once ---- */

/* It differs by the contribution of one slot. */
static bool explain_one(const struct result *result, uint64_t got, uint64_t want, char *out, size_t capacity)
{
    for (uint32_t s = 0; s < result->bundle->n; s++) {
        const uint64_t x = tutti_cell_fingerprint(s, result->chunk);
        if (got == want - x) snprintf(out, capacity, "lacks the contribution of rank %u", s);
        if (got == want + x) snprintf(out, capacity, "has a contribution of rank %u too many", s);
        if (got == want - x || got == want + x) return true;
    }
    return false;
}

/* It is the sum of consecutive ranks alone, of this chunk or another. */
static bool explain_run(const struct result *result, uint64_t got, char *out, size_t capacity)
{
    const uint32_t n = result->bundle->n;
    for (uint32_t c = 0; c < result->bundle->n_chunks && c < n; c++) {
        const uint32_t chunk = (result->chunk + c) % result->bundle->n_chunks;
        for (uint32_t first = 0; first < n; first++) {
            uint64_t sum = 0;
            for (uint32_t k = 0; k < n; k++) {
                sum += tutti_cell_fingerprint((first + k) % n, chunk);
                if (sum != got) continue;
                const char *of = k + 1 == n ? "all ranks" : NULL;
                char ranks[64];
                if (!of && k == 0) snprintf(ranks, sizeof ranks, "rank %u alone", first);
                if (!of && k > 0) snprintf(ranks, sizeof ranks, "ranks %u to %u alone", first, (first + k) % n);
                snprintf(out, capacity, "has the contribution of %s to chunk %u", of ? of : ranks, chunk);
                return true;
            }
        }
    }
    return false;
}

static void explain(const struct result *result, const struct tutti_cell *got, const struct tutti_cell *want, char *out,
                    size_t capacity)
{
    enum { SMALL = 128 }; /* bundles in which the cubic search is quick */
    if (explain_one(result, got->sum, want->sum, out, capacity)) return;
    if (result->bundle->n <= SMALL && explain_run(result, got->sum, out, capacity)) return;
    snprintf(out, capacity, "combines %u contributions that are not the %u expected", got->n_leaves, want->n_leaves);
}

/* ---- the comparison ---- */

/* What a slot should hold, for sentences. */
static void expected_text(const struct result *result, uint32_t slot, enum tutti_content content, char *out,
                          size_t capacity)
{
    const struct tutti_bundle *bundle = result->bundle;
    const bool from_root = bundle->kind == TUTTI_BROADCAST || bundle->kind == TUTTI_SCATTER;
    const uint32_t origin = from_root ? bundle->shape->root : result->chunk / bundle->per_block;
    if (content == TUTTI_HOLDS_OWN) snprintf(out, capacity, "its own contribution");
    if (content == TUTTI_HOLDS_ORIGIN) snprintf(out, capacity, "that of rank %u", origin);
    if (content == TUTTI_HOLDS_ALL) snprintf(out, capacity, "that of ranks 0 to %u", bundle->n - 1);
    if (content == TUTTI_HOLDS_PREFIX) snprintf(out, capacity, "that of ranks 0 to %u", slot);
    if (content == TUTTI_HOLDS_BEFORE) snprintf(out, capacity, "that of ranks 0 to %u", slot - 1);
}

static void refuse_content(const struct result *result, uint32_t slot, const struct tutti_cell *want,
                           enum tutti_content content)
{
    const struct tutti_bundle *bundle = result->bundle;
    const struct tutti_cell *got = tutti_cell_at(result->cells, slot, TUTTI_DATA, result->chunk);
    char chunk[64], expected[64], text[128];
    chunk_name(bundle, result->chunk, chunk, sizeof chunk);
    expected_text(result, slot, content, expected, sizeof expected);
    if (got->state != TUTTI_CELL_WRITTEN) {
        tutti_bundle_refuse(bundle, slot, TUTTI_NO_INDEX, "never writes %s of its result; expected %s", chunk,
                            expected);
    } else if (got->sum != want->sum) {
        explain(result, got, want, text, sizeof text);
        tutti_bundle_refuse(bundle, slot, got->writer, "ends with a wrong %s: it %s; expected %s", chunk, text,
                            expected);
    } else if (!(bundle->needs & TUTTI_NEEDS_COMMUTATIVE) && got->word != want->word) {
        tutti_bundle_refuse(
            bundle, slot, got->writer,
            "ends with %s combined out of order, without TUTTI_NEEDS_COMMUTATIVE; expected %s, from left "
            "to right",
            chunk, expected);
    } else {
        tutti_bundle_refuse(bundle, slot, got->writer,
                            "ends with %s not folded one rank after the other, as TUTTI_KEEPS_RANK_ORDER claims; "
                            "expected ((0 op 1) op 2) ...",
                            chunk);
    }
}

static void compare(const struct result *result, uint32_t slot, const struct tutti_cell *want,
                    enum tutti_content content)
{
    const struct tutti_bundle *bundle = result->bundle;
    const struct tutti_cell *got = tutti_cell_at(result->cells, slot, TUTTI_DATA, result->chunk);
    const bool ordered = bundle->info->reduces && !(bundle->needs & TUTTI_NEEDS_COMMUTATIVE);
    const bool folded = bundle->info->reduces && (bundle->needs & TUTTI_KEEPS_RANK_ORDER);
    if (got->state == TUTTI_CELL_WRITTEN && got->sum == want->sum && (!ordered || got->word == want->word) &&
        (!folded || got->fold == want->fold))
        return;
    refuse_content(result, slot, want, content);
}

static void check_slot(const struct result *result, uint32_t slot, const struct tutti_cell *before,
                       const struct tutti_cell *prefix)
{
    const struct tutti_bundle *bundle = result->bundle;
    const enum tutti_content content =
        tutti_kind_after(bundle->kind, &bundle->schedules[slot]->shape, result->chunk / bundle->per_block);
    if (content == TUTTI_HOLDS_OWN) {
        const struct tutti_cell own = tutti_cell_leaf(slot, result->chunk);
        compare(result, slot, &own, content);
    } else if (content == TUTTI_HOLDS_ORIGIN) {
        const struct tutti_cell origin = tutti_cell_origin(bundle, slot, result->chunk);
        compare(result, slot, &origin, content);
    } else if (content != TUTTI_HOLDS_NOTHING) {
        const struct tutti_cell *const wanted[] = {
            [TUTTI_HOLDS_ALL] = &result->all, [TUTTI_HOLDS_PREFIX] = prefix, [TUTTI_HOLDS_BEFORE] = before};
        compare(result, slot, wanted[content], content);
    }
}

/* All that hold the same reduction must have combined it alike, or rounding would differ. What they hold is right. */
static void check_replicas(const struct tutti_bundle *bundle, const struct tutti_cells *cells, uint32_t chunk)
{
    const struct tutti_cell *first = NULL;
    uint32_t first_slot = 0;
    for (uint32_t s = 0; s < bundle->n && bundle->verdict->ok; s++) {
        const struct tutti_cell *got = tutti_cell_at(cells, s, TUTTI_DATA, chunk);
        if (tutti_kind_after(bundle->kind, &bundle->schedules[s]->shape, chunk / bundle->per_block) != TUTTI_HOLDS_ALL)
            continue;
        if (first && got->tree != first->tree)
            tutti_bundle_refuse(bundle, s, got->writer,
                                "ends with chunk %u combined in another tree than rank %u has it: all sums are right, "
                                "but replicas may differ in their last bits",
                                chunk, first_slot);
        if (!first) first = got, first_slot = s;
    }
}

enum tutti_status tutti_bundle_check_result(struct tutti_bundle *bundle, const struct tutti_cells *cells)
{
    const enum tutti_result result_kind = bundle->info->result;
    const bool prefixes = result_kind == TUTTI_GETS_PREFIX || result_kind == TUTTI_GETS_BEFORE;
    for (uint32_t c = 0; c < bundle->n_chunks && bundle->verdict->ok; c++) {
        struct result result = {.bundle = bundle, .cells = cells, .chunk = c, .all = tutti_cell_leaf(0, c)};
        for (uint32_t s = 1; s < bundle->n && bundle->info->reduces && !prefixes; s++) {
            const struct tutti_cell leaf = tutti_cell_leaf(s, c);
            result.all = tutti_cell_combine(&result.all, &leaf);
        }
        struct tutti_cell before = {0}, prefix = tutti_cell_leaf(0, c);
        for (uint32_t s = 0; s < bundle->n && bundle->verdict->ok; s++) {
            if (s > 0 && prefixes) {
                const struct tutti_cell leaf = tutti_cell_leaf(s, c);
                before = prefix;
                prefix = tutti_cell_combine(&prefix, &leaf);
            }
            check_slot(&result, s, &before, &prefix);
        }
    }
    for (uint32_t c = 0; c < bundle->n_chunks && bundle->verdict->ok; c++) check_replicas(bundle, cells, c);
    return TUTTI_OK;
}
