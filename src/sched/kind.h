/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SCHED_KIND_H
#define TUTTI_SCHED_KIND_H

/* The kinds of collectives: the one table (kind.c) of who holds which blocks before and after a call, what is reduced,
 * who is the root, what may be in place, who has the tables of v forms, and what a lost rank means. All who need to
 * know ask here: sealer and checker, the engine's layout, the back ends, the checks of arguments. To add a kind: its
 * name in <tutti/schedule.h>, and a row in kind.c. To add a property: a field of struct tutti_kind_info, and in kind.c
 * what the macro KIND derives for it, or one more column. Pure: no bytes, no pointers. */

#include "base/base.h"

#include <tutti/schedule.h>

/* One side of a call, as the user passes it: how many blocks, and at which slots they are read or written. A slot that
 * has one block where the other side has them all has its own block, the one with its number. */
enum tutti_blocks { TUTTI_NO_BLOCK, TUTTI_ONE_BLOCK, TUTTI_ALL_BLOCKS };
enum tutti_slots { TUTTI_EVERY_SLOT, TUTTI_THE_ROOT, TUTTI_ALL_BUT_FIRST };
struct tutti_kind_side {
    enum tutti_blocks blocks;
    enum tutti_slots at;
};

/* What the receiving side gets of the sending sides. */
enum tutti_result {
    TUTTI_GETS_ORIGIN, /* each block as the one slot that has it passed it */
    TUTTI_GETS_ALL,    /* the reduction over all slots */
    TUTTI_GETS_PREFIX, /* the reduction over slots 0..slot */
    TUTTI_GETS_BEFORE, /* the reduction over slots 0..slot-1 */
};

/* Where send and recv may share memory. */
enum tutti_in_place {
    TUTTI_NEVER_IN_PLACE,
    TUTTI_SAME_BUFFER,  /* send == recv (not in v forms: block for block the sizes may differ) */
    TUTTI_ONE_BUFFER,   /* always: the call has one argument for both */
    TUTTI_SEND_IN_RECV, /* send == the own block of recv */
    TUTTI_RECV_IN_SEND, /* recv == the own block of send */
};

/* The ranks that have the counts of v forms. */
enum tutti_tables {
    TUTTI_NO_TABLES,      /* no v form */
    TUTTI_SHARED_TABLE,   /* all slots have the same one */
    TUTTI_TABLE_AT_ROOT,  /* the root; the others know the size of their own block */
    TUTTI_TABLE_EACH_SIDE /* every slot has one for what it sends and one for what it receives */
};

/* What the loss of a rank means for a call under way. Fault tolerance (row 8) will act on it; until then any loss ends
 * the communicator. A reduction over the survivors is still what was asked for; a missing block or root is not. */
enum tutti_on_loss { TUTTI_ON_LOSS_SHRINK, TUTTI_ON_LOSS_FAIL };

struct tutti_kind_info {
    const char *name;
    struct tutti_kind_side send, recv;
    enum tutti_result result;
    enum tutti_in_place in_place;
    enum tutti_tables tables;
    enum tutti_on_loss on_loss;
    bool reduces; /* takes an operation */
    bool rooted;
    bool block_a_slot; /* size blocks; else one */
    bool separate_in;  /* IN and DATA have different layouts (all_to_all) */
};
extern const struct tutti_kind_info tutti_kinds[TUTTI_N_KINDS];

static inline const struct tutti_kind_info *tutti_kind_info(enum tutti_kind kind)
{
    return (uint32_t)kind < TUTTI_N_KINDS ? &tutti_kinds[kind] : NULL;
}
bool tutti_kind_parse(const char *name, enum tutti_kind *out);

static inline uint32_t tutti_kind_blocks(enum tutti_kind kind, uint32_t size)
{
    return tutti_kinds[kind].block_a_slot ? size : 1;
}

/* Whether the slot's argument on this side is read or written. */
static inline bool tutti_side_is_at(struct tutti_kind_side side, uint32_t slot, uint32_t root)
{
    return side.at == TUTTI_EVERY_SLOT || (side.at == TUTTI_THE_ROOT ? slot == root : slot != 0);
}
/* How many blocks the slot passes there. */
static inline uint32_t tutti_side_blocks(struct tutti_kind_side side, uint32_t slot, uint32_t root, uint32_t size)
{
    if (!tutti_side_is_at(side, slot, root)) return 0;
    return side.blocks == TUTTI_ALL_BLOCKS ? size : (uint32_t)side.blocks;
}

/* Whether what `from` sends becomes part of what `to` receives. */
bool tutti_kind_flows(enum tutti_kind kind, uint32_t root, uint32_t from, uint32_t to);
/* How many slots contribute to each element that the slot receives, at least 1: what avg divides by. */
uint32_t tutti_kind_contributors(enum tutti_kind kind, uint32_t slot, uint32_t size);

/* What nccl-tests multiplies the buffer's bytes a second with to get bus bandwidth: the bytes that each of n ranks must
 * let through one direction of its port, in units of the buffer (all_to_all: of what one rank sends). */
double tutti_kind_bus_factor(const struct tutti_kind_info *info, uint32_t n);

/* ---- the same for schedules, whose DATA is input and output as one (S2) ---- */
enum tutti_content {
    TUTTI_HOLDS_NOTHING,
    TUTTI_HOLDS_OWN,    /* this slot's contribution to the block */
    TUTTI_HOLDS_ORIGIN, /* the contribution of the one slot that has it (the block's owner, or the root) */
    TUTTI_HOLDS_ALL,    /* the reduction over all slots */
    TUTTI_HOLDS_PREFIX, /* the reduction over slots 0..slot */
    TUTTI_HOLDS_BEFORE, /* the reduction over slots 0..slot-1 */
};
/* What DATA holds (for all_to_all the input is IN[destination], all OWN, and DATA is empty before). */
enum tutti_content tutti_kind_before(enum tutti_kind kind, const struct tutti_shape *shape, uint32_t block);
enum tutti_content tutti_kind_after(enum tutti_kind kind, const struct tutti_shape *shape, uint32_t block);

#endif
