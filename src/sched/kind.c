/* SPDX-License-Identifier: BSD-3-Clause */

/* The kinds of collectives: one table of what each is, and two pure functions that say what a slot's DATA holds before
 * and must hold after (S2). The sealer, the checker and the engine all ask here, so that a kind is defined once. */

#include "sched/sched.h"

#include <string.h>

/* Before or after, as a rule over slots and blocks, so that a kind is one row. */
enum rule {
    NOTHING,
    OWN,        /* every slot: its contribution to every block */
    ORIGIN,     /* every slot: every block's origin */
    ALL,        /* every slot: the reduction, every block */
    PREFIX,     /* every slot: the reduction over 0..slot */
    BEFORE,     /* every slot but 0: the reduction over 0..slot-1 */
    OWN_BLOCK,  /* every slot: block `slot`, as its origin */
    ALL_BLOCK,  /* every slot: the reduction of block `slot` */
    AT_ROOT,    /* the root: every block's origin */
    ALL_AT_ROOT /* the root: the reduction */
};

struct kind_row {
    struct tutti_kind_info info;
    enum rule before, after;
};

/* on_loss: a reduction over the survivors is still what was asked for; a missing block or root is not. */
static const struct kind_row kinds[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {{"all_reduce", true, false, false, false, TUTTI_ON_LOSS_SHRINK}, OWN, ALL},
    [TUTTI_REDUCE] = {{"reduce", true, true, false, false, TUTTI_ON_LOSS_SHRINK}, OWN, ALL_AT_ROOT},
    [TUTTI_BROADCAST] = {{"broadcast", false, true, false, false, TUTTI_ON_LOSS_FAIL}, AT_ROOT, ORIGIN},
    [TUTTI_ALL_GATHER] = {{"all_gather", false, false, true, false, TUTTI_ON_LOSS_FAIL}, OWN_BLOCK, ORIGIN},
    [TUTTI_GATHER] = {{"gather", false, true, true, false, TUTTI_ON_LOSS_FAIL}, OWN_BLOCK, AT_ROOT},
    [TUTTI_SCATTER] = {{"scatter", false, true, true, false, TUTTI_ON_LOSS_FAIL}, AT_ROOT, OWN_BLOCK},
    [TUTTI_REDUCE_SCATTER] = {{"reduce_scatter", true, false, true, false, TUTTI_ON_LOSS_SHRINK}, OWN, ALL_BLOCK},
    [TUTTI_ALL_TO_ALL] = {{"all_to_all", false, false, true, true, TUTTI_ON_LOSS_FAIL}, NOTHING, ORIGIN},
    [TUTTI_BARRIER] = {{"barrier", false, false, false, false, TUTTI_ON_LOSS_SHRINK}, OWN, ALL},
    [TUTTI_SCAN] = {{"scan", true, false, false, false, TUTTI_ON_LOSS_SHRINK}, OWN, PREFIX},
    [TUTTI_EXSCAN] = {{"exscan", true, false, false, false, TUTTI_ON_LOSS_SHRINK}, OWN, BEFORE},
};

const struct tutti_kind_info *tutti_kind_info(enum tutti_kind kind)
{
    return (uint32_t)kind < TUTTI_N_KINDS ? &kinds[kind].info : NULL;
}

const char *tutti_kind_name(enum tutti_kind kind)
{
    return (uint32_t)kind < TUTTI_N_KINDS ? kinds[kind].info.name : "unknown";
}

bool tutti_kind_parse(const char *name, enum tutti_kind *out)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        if (strcmp(kinds[kind].info.name, name) == 0) {
            *out = (enum tutti_kind)kind;
            return true;
        }
    }
    return false;
}

uint32_t tutti_kind_blocks(enum tutti_kind kind, uint32_t size)
{
    return kinds[kind].info.block_a_slot ? size : 1;
}

static enum tutti_content apply(enum rule rule, const struct tutti_shape *shape, uint32_t block)
{
    bool own = block == shape->slot;
    bool root = shape->slot == shape->root;

    switch (rule) {
    case OWN:
        return TUTTI_HOLDS_OWN;
    case ORIGIN:
        return TUTTI_HOLDS_ORIGIN;
    case ALL:
        return TUTTI_HOLDS_ALL;
    case PREFIX:
        return TUTTI_HOLDS_PREFIX;
    case BEFORE:
        return shape->slot > 0 ? TUTTI_HOLDS_BEFORE : TUTTI_HOLDS_NOTHING;
    case OWN_BLOCK:
        return own ? TUTTI_HOLDS_ORIGIN : TUTTI_HOLDS_NOTHING;
    case ALL_BLOCK:
        return own ? TUTTI_HOLDS_ALL : TUTTI_HOLDS_NOTHING;
    case AT_ROOT:
        return root ? TUTTI_HOLDS_ORIGIN : TUTTI_HOLDS_NOTHING;
    case ALL_AT_ROOT:
        return root ? TUTTI_HOLDS_ALL : TUTTI_HOLDS_NOTHING;
    case NOTHING:
        break;
    }
    return TUTTI_HOLDS_NOTHING;
}

enum tutti_content tutti_kind_before(enum tutti_kind kind, const struct tutti_shape *shape, uint32_t block)
{
    return apply(kinds[kind].before, shape, block);
}

enum tutti_content tutti_kind_after(enum tutti_kind kind, const struct tutti_shape *shape, uint32_t block)
{
    return apply(kinds[kind].after, shape, block);
}
