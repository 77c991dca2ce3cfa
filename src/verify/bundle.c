/* SPDX-License-Identifier: BSD-3-Clause */
/* A bundle for the checker: the sealed schedules of all slots, and whether they belong together at all. */

#include "verify/bundle.h"

#include <string.h>

/* What must be equal on all slots; false when something was refused. */
static bool same_bundle(struct tutti_bundle *bundle, uint32_t slot)
{
    const struct tutti_schedule *first = bundle->schedules[0];
    const struct tutti_schedule *schedule = bundle->schedules[slot];
    if (schedule->shape.slot != slot) {
        tutti_bundle_refuse(bundle, slot, TUTTI_NO_INDEX, "was given the schedule of rank %u", schedule->shape.slot);
    } else if (schedule->kind != first->kind || schedule->algorithm != first->algorithm) {
        tutti_bundle_refuse(bundle, slot, TUTTI_NO_INDEX, "runs another collective than rank 0");
    } else if (!tutti_shape_same_world(&schedule->shape, &first->shape)) {
        tutti_bundle_refuse(bundle, slot, TUTTI_NO_INDEX, "was sealed for another shape than rank 0");
    } else if (schedule->hash != first->hash) {
        tutti_bundle_refuse(bundle, slot, TUTTI_NO_INDEX, "has schedule hash %016llx, rank 0 has %016llx",
                            (unsigned long long)schedule->hash, (unsigned long long)first->hash);
    } else if (schedule->n_chunks != first->n_chunks) {
        tutti_bundle_refuse(bundle, slot, TUTTI_NO_INDEX, "cuts the data into %u chunks, rank 0 into %u",
                            schedule->n_chunks, first->n_chunks);
    }
    return bundle->verdict->ok;
}

/* The sealer's sentence is whole already: it names algorithm and shape itself. */
static bool refuse_defect(struct tutti_verdict *verdict, const struct tutti_schedule *const *schedules, uint32_t n)
{
    for (uint32_t s = 0; s < n; s++) {
        if (!schedules[s]->defect) continue;
        const size_t length = strnlen(schedules[s]->defect, sizeof verdict->text - 1);
        memcpy(verdict->text, schedules[s]->defect, length);
        verdict->text[length] = '\0';
        verdict->ok = false;
        verdict->finding = TUTTI_FOUND_EMITTED;
        verdict->rank = s, verdict->step = TUTTI_NO_INDEX;
        return true;
    }
    return false;
}

static enum tutti_status number_steps(struct tutti_bundle *bundle)
{
    uint64_t total = 0;
    bundle->base = tutti_alloc_array((size_t)bundle->n + 1, sizeof *bundle->base);
    if (!bundle->base) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks", bundle->n);
    for (uint32_t s = 0; s < bundle->n; s++) {
        bundle->base[s] = (uint32_t)total;
        total += bundle->schedules[s]->n_steps;
        if (total >= TUTTI_NO_INDEX) {
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%u ranks have more than 2^32 steps: check fewer ranks",
                              bundle->n);
        }
    }
    bundle->base[bundle->n] = bundle->n_steps = (uint32_t)total;
    bundle->match = tutti_alloc_array((size_t)total + 1, sizeof *bundle->match);
    bundle->previous = tutti_alloc_array((size_t)total + 1, sizeof *bundle->previous);
    bundle->order = tutti_alloc_array((size_t)total + 1, sizeof *bundle->order);
    bundle->order_slot = tutti_alloc_array((size_t)total + 1, sizeof *bundle->order_slot);
    if (!bundle->match || !bundle->previous || !bundle->order || !bundle->order_slot) {
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks with %u steps", bundle->n, bundle->n_steps);
    }
    return TUTTI_OK;
}

enum tutti_status tutti_bundle_init(struct tutti_bundle *bundle, const struct tutti_schedule *const *schedules,
                                    uint32_t n, struct tutti_verdict *verdict)
{
    const struct tutti_schedule *first = schedules[0];
    *bundle = (struct tutti_bundle){.schedules = schedules,
                                    .n = n,
                                    .kind = first->kind,
                                    .info = tutti_kind_info(first->kind),
                                    .shape = &first->shape,
                                    .n_chunks = first->n_chunks,
                                    .finding = TUTTI_FOUND_APART,
                                    .verdict = verdict};
    if (refuse_defect(verdict, schedules, n)) return TUTTI_OK;
    if (first->shape.size != n) {
        tutti_bundle_refuse(bundle, TUTTI_NO_INDEX, TUTTI_NO_INDEX, "was given the schedules of %u ranks", n);
        return TUTTI_OK;
    }
    if (!first->algorithm || !first->algorithm->kinds[first->kind]) {
        tutti_bundle_refuse(bundle, TUTTI_NO_INDEX, TUTTI_NO_INDEX, "the algorithm does not offer this kind");
        return TUTTI_OK;
    }
    bundle->needs = first->algorithm->kinds[first->kind]->needs;
    for (uint32_t s = 0; s < n; s++) {
        if (!same_bundle(bundle, s)) return TUTTI_OK;
    }
    const uint32_t blocks = tutti_kind_blocks(first->kind, n);
    if (bundle->n_chunks == 0 || bundle->n_chunks % blocks) {
        tutti_bundle_refuse(bundle, TUTTI_NO_INDEX, TUTTI_NO_INDEX, "%u chunks are not a multiple of the %u blocks",
                            bundle->n_chunks, blocks);
        return TUTTI_OK;
    }
    bundle->per_block = bundle->n_chunks / blocks;
    return number_steps(bundle);
}

void tutti_bundle_fini(struct tutti_bundle *bundle)
{
    tutti_free(bundle->base);
    tutti_free(bundle->match);
    tutti_free(bundle->previous);
    tutti_free(bundle->order);
    tutti_free(bundle->order_slot);
}

uint32_t tutti_bundle_slot(const struct tutti_bundle *bundle, uint32_t index)
{
    uint32_t low = 0, high = bundle->n; /* base[low] <= index < base[high] */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (bundle->base[middle] <= index) low = middle;
        if (bundle->base[middle] > index) high = middle;
    }
    return low;
}
