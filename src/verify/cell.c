/* SPDX-License-Identifier: BSD-3-Clause */
/* Abstract contents and lengths: pure functions. */

#include "verify/cell.h"

/* Arbitrary odd numbers: they only have to differ. */
#define SALT_LEAF UINT64_C(0x8f3a1c5be92d7641)
#define SALT_WORD UINT64_C(0x5851f42d4c957f2d)
#define SALT_FOLD UINT64_C(0xd1342543de82ef95)
#define BASE UINT64_C(0xaf251af3b0f025b5)

uint64_t tutti_cell_fingerprint(uint32_t slot, uint32_t chunk)
{
    return tutti_mix64(((uint64_t)slot << 32 | chunk) * SALT_LEAF + SALT_WORD);
}

struct tutti_cell tutti_cell_leaf(uint32_t slot, uint32_t chunk)
{
    const uint64_t x = tutti_cell_fingerprint(slot, chunk);
    return (struct tutti_cell){.sum = x,
                               .tree = tutti_mix64(x + SALT_LEAF),
                               .word = tutti_mix64(x ^ SALT_WORD),
                               .scale = BASE,
                               .fold = tutti_mix64(x ^ SALT_FOLD),
                               .n_leaves = 1,
                               .writer = TUTTI_NO_INDEX};
}

struct tutti_cell tutti_cell_combine(const struct tutti_cell *left, const struct tutti_cell *right)
{
    struct tutti_cell cell = *left;
    cell.sum = left->sum + right->sum;
    cell.tree = tutti_mix64(left->tree + right->tree + SALT_LEAF);
    cell.word = left->word * right->scale + right->word;
    cell.scale = left->scale * right->scale;
    cell.fold = tutti_mix64(left->fold * SALT_FOLD + tutti_mix64(right->fold));
    cell.n_leaves = left->n_leaves + right->n_leaves;
    return cell;
}

/* Blocks of equal size have chunks of equal size where these are cut alike. */
static uint64_t length(const struct tutti_bundle *bundle, uint32_t row, uint32_t chunk)
{
    const uint32_t sub = chunk % bundle->per_block;
    if (bundle->needs & TUTTI_NEEDS_EQUAL_BLOCKS) return sub;
    return (uint64_t)row * bundle->n_chunks + chunk;
}

uint64_t tutti_length_of_data(const struct tutti_bundle *bundle, uint32_t slot, uint32_t chunk)
{
    if (!bundle->info->separate_in) return length(bundle, 0, chunk);
    /* DATA[source] here is what the source has as IN[slot]. */
    return length(bundle, chunk / bundle->per_block, slot * bundle->per_block + chunk % bundle->per_block);
}

uint64_t tutti_length_of_in(const struct tutti_bundle *bundle, uint32_t slot, uint32_t chunk)
{
    return length(bundle, slot, chunk);
}

uint64_t tutti_length_of_step(const struct tutti_bundle *bundle, uint32_t slot, const struct tutti_step *step,
                              uint32_t i)
{
    const bool all_equal = (bundle->needs & TUTTI_NEEDS_EQUAL_BLOCKS) && bundle->per_block == 1;
    if (all_equal) return 0;
    if (tutti_step_reads_src(step) && step->src_buffer == TUTTI_IN)
        return tutti_length_of_in(bundle, slot, step->src + i);
    if (step->extent == TUTTI_NO_EXTENT) return TUTTI_LENGTH_LARGEST;
    return tutti_length_of_data(bundle, slot, step->extent + i);
}

struct tutti_cell tutti_cell_origin(const struct tutti_bundle *bundle, uint32_t slot, uint32_t chunk)
{
    const uint32_t block = chunk / bundle->per_block, sub = chunk % bundle->per_block;
    if (bundle->info->separate_in) return tutti_cell_leaf(block, slot * bundle->per_block + sub);
    /* A block that the root has, or had, is the root's; any other is its owner's. */
    const bool from_root = bundle->kind == TUTTI_BROADCAST || bundle->kind == TUTTI_SCATTER;
    return tutti_cell_leaf(from_root ? bundle->shape->root : block, chunk);
}
