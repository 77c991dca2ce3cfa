/* SPDX-License-Identifier: BSD-3-Clause */

/* By levels: an all_reduce inside each group, then one among the slots that have the same place in theirs, and so on,
 * level by level. No slot waits for the result of another one of its group, as it does where a lead speaks for all; but
 * each sends all of the data between the groups. So it is for short messages, where slots have CPUs of their own.
 *
 *     levels 3,3     0 1 2 | 3 4 5    all_reduce of 0 1 2 and of 3 4 5; then of 0 3, of 1 4 and of 2 5
 *
 * Groups are consecutive slots and calls keep the order of operands, so the fold does, too, and all slots fold alike.
 *
 * Träff, Hunold: Decomposing MPI collectives for exploiting multi-lane communication (CLUSTER 2020). */

#include "algo/parts.h"

static uint32_t one_a_level(const struct tutti_shape *shape)
{
    return shape->n_levels + 1;
}

/* Units of this level are `stride` slots wide, and `size` of them are a group, or are all there are. */
static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t stride = 1;

    for (uint32_t level = 0; level < round; level++) stride *= shape->levels[level].runs[0].size;
    const uint32_t size = round < shape->n_levels ? shape->levels[round].runs[0].size : shape->size / stride;
    const uint32_t base = shape->slot / (stride * size) * (stride * size) + shape->slot % stride;
    const struct tutti_view view = {.base = base, .stride = stride, .size = size, .n_chunks = 1, .width = 1};
    if (size > 1) tutti_emit_call(emit, TUTTI_ALL_REDUCE, &view);
}

const struct tutti_algorithm tutti_algorithm_by_levels = {
    .name = "by_levels",
    .help = "an all_reduce inside each group, then one among slots of the same place: short messages",
    .source = "Träff and Hunold, CLUSTER 2020",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.needs = TUTTI_NEEDS_LEVELS | TUTTI_NEEDS_EQUAL_GROUPS,
                                             .rounds = one_a_level, .round = all_reduce_round)},
};
