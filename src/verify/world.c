/* SPDX-License-Identifier: BSD-3-Clause */
/* A world for the checker: the sealed schedules of all slots, and whether they belong together at all. */

#include "verify/world.h"

#include <string.h>

/* What must be equal on all slots; false when something was refused. */
static bool same_world(struct tutti_world *world, uint32_t slot)
{
    const struct tutti_schedule *first = world->schedules[0];
    const struct tutti_schedule *schedule = world->schedules[slot];
    if (schedule->shape.slot != slot) {
        tutti_world_refuse(world, slot, TUTTI_NO_INDEX, "was given the schedule of rank %u", schedule->shape.slot);
    } else if (schedule->kind != first->kind || schedule->algorithm != first->algorithm) {
        tutti_world_refuse(world, slot, TUTTI_NO_INDEX, "runs another collective than rank 0");
    } else if (!tutti_shape_same_world(&schedule->shape, &first->shape)) {
        tutti_world_refuse(world, slot, TUTTI_NO_INDEX, "was sealed for another shape than rank 0");
    } else if (schedule->hash != first->hash) {
        tutti_world_refuse(world, slot, TUTTI_NO_INDEX, "has schedule hash %016llx, rank 0 has %016llx",
                           (unsigned long long)schedule->hash, (unsigned long long)first->hash);
    } else if (schedule->n_chunks != first->n_chunks) {
        tutti_world_refuse(world, slot, TUTTI_NO_INDEX, "cuts the data into %u chunks, rank 0 into %u",
                           schedule->n_chunks, first->n_chunks);
    }
    return world->verdict->ok;
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
        return true;
    }
    return false;
}

static enum tutti_status number_steps(struct tutti_world *world)
{
    uint64_t total = 0;
    world->base = tutti_alloc_array((size_t)world->n + 1, sizeof *world->base);
    if (!world->base) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks", world->n);
    for (uint32_t s = 0; s < world->n; s++) {
        world->base[s] = (uint32_t)total;
        total += world->schedules[s]->n_steps;
        if (total >= TUTTI_NO_INDEX) {
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%u ranks have more than 2^32 steps: check fewer ranks", world->n);
        }
    }
    world->base[world->n] = world->n_steps = (uint32_t)total;
    world->match = tutti_alloc_array((size_t)total + 1, sizeof *world->match);
    world->previous = tutti_alloc_array((size_t)total + 1, sizeof *world->previous);
    world->order = tutti_alloc_array((size_t)total + 1, sizeof *world->order);
    if (!world->match || !world->previous || !world->order) {
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks with %u steps", world->n, world->n_steps);
    }
    return TUTTI_OK;
}

enum tutti_status tutti_world_init(struct tutti_world *world, const struct tutti_schedule *const *schedules, uint32_t n,
                                   struct tutti_verdict *verdict)
{
    const struct tutti_schedule *first = schedules[0];
    *world = (struct tutti_world){.schedules = schedules,
                                  .n = n,
                                  .kind = first->kind,
                                  .info = tutti_kind_info(first->kind),
                                  .shape = &first->shape,
                                  .n_chunks = first->n_chunks,
                                  .verdict = verdict};
    if (refuse_defect(verdict, schedules, n)) return TUTTI_OK;
    if (first->shape.size != n) {
        tutti_world_refuse(world, TUTTI_NO_INDEX, TUTTI_NO_INDEX, "was given the schedules of %u ranks", n);
        return TUTTI_OK;
    }
    if (!first->algorithm || !first->algorithm->kinds[first->kind]) {
        tutti_world_refuse(world, TUTTI_NO_INDEX, TUTTI_NO_INDEX, "the algorithm does not offer this kind");
        return TUTTI_OK;
    }
    world->needs = first->algorithm->kinds[first->kind]->needs;
    for (uint32_t s = 0; s < n; s++) {
        if (!same_world(world, s)) return TUTTI_OK;
    }
    const uint32_t blocks = tutti_kind_blocks(first->kind, n);
    if (world->n_chunks == 0 || world->n_chunks % blocks) {
        tutti_world_refuse(world, TUTTI_NO_INDEX, TUTTI_NO_INDEX, "%u chunks are not a multiple of the %u blocks",
                           world->n_chunks, blocks);
        return TUTTI_OK;
    }
    world->per_block = world->n_chunks / blocks;
    return number_steps(world);
}

void tutti_world_fini(struct tutti_world *world)
{
    tutti_free(world->base);
    tutti_free(world->match);
    tutti_free(world->previous);
    tutti_free(world->order);
}

uint32_t tutti_world_slot(const struct tutti_world *world, uint32_t index)
{
    uint32_t low = 0, high = world->n; /* base[low] <= index < base[high] */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (world->base[middle] <= index) low = middle;
        if (world->base[middle] > index) high = middle;
    }
    return low;
}
