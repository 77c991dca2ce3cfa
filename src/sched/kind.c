/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched/kind.h"

#include <string.h>

/* clang-format off */
#define NO_BLOCK TUTTI_NO_BLOCK
#define ONE_BLOCK TUTTI_ONE_BLOCK
#define ALL_BLOCKS TUTTI_ALL_BLOCKS
#define EVERY_SLOT TUTTI_EVERY_SLOT
#define THE_ROOT TUTTI_THE_ROOT
#define ALL_BUT_FIRST TUTTI_ALL_BUT_FIRST
#define ORIGIN TUTTI_GETS_ORIGIN
#define ALL TUTTI_GETS_ALL
#define PREFIX TUTTI_GETS_PREFIX
#define BEFORE TUTTI_GETS_BEFORE

/* A row says what goes in where and what comes out where; the rest follows from that. */
#define KIND(NAME, SEND, SEND_AT, RECV, RECV_AT, RESULT)                                                               \
    {                                                                                                                  \
        .name = NAME, .send = {SEND, SEND_AT}, .recv = {RECV, RECV_AT}, .result = RESULT,                              \
        .in_place = SEND == NO_BLOCK          ? TUTTI_NEVER_IN_PLACE                                                   \
                    : SEND < RECV             ? TUTTI_SEND_IN_RECV                                                     \
                    : SEND > RECV             ? TUTTI_RECV_IN_SEND                                                     \
                    : SEND_AT == THE_ROOT     ? TUTTI_ONE_BUFFER                                                       \
                                              : TUTTI_SAME_BUFFER,                                                     \
        .tables = SEND != ALL_BLOCKS && RECV != ALL_BLOCKS       ? TUTTI_NO_TABLES                                     \
                  : SEND == RECV                                 ? TUTTI_TABLE_EACH_SIDE                               \
                  : SEND_AT == THE_ROOT || RECV_AT == THE_ROOT   ? TUTTI_TABLE_AT_ROOT                                 \
                                                                 : TUTTI_SHARED_TABLE,                                 \
        .on_loss = RESULT == ORIGIN ? TUTTI_ON_LOSS_FAIL : TUTTI_ON_LOSS_SHRINK,                                       \
        .reduces = RESULT != ORIGIN && SEND != NO_BLOCK, .rooted = SEND_AT == THE_ROOT || RECV_AT == THE_ROOT,         \
        .block_a_slot = SEND == ALL_BLOCKS || RECV == ALL_BLOCKS,                                                      \
        .separate_in = SEND == ALL_BLOCKS && RECV == ALL_BLOCKS,                                                       \
    }

const struct tutti_kind_info tutti_kinds[TUTTI_N_KINDS] = {
    /*                             name              sends       at          receives    at             what */
    [TUTTI_ALL_REDUCE]     = KIND("all_reduce",     ONE_BLOCK,  EVERY_SLOT, ONE_BLOCK,  EVERY_SLOT,    ALL),
    [TUTTI_REDUCE]         = KIND("reduce",         ONE_BLOCK,  EVERY_SLOT, ONE_BLOCK,  THE_ROOT,      ALL),
    [TUTTI_BROADCAST]      = KIND("broadcast",      ONE_BLOCK,  THE_ROOT,   ONE_BLOCK,  EVERY_SLOT,    ORIGIN),
    [TUTTI_ALL_GATHER]     = KIND("all_gather",     ONE_BLOCK,  EVERY_SLOT, ALL_BLOCKS, EVERY_SLOT,    ORIGIN),
    [TUTTI_GATHER]         = KIND("gather",         ONE_BLOCK,  EVERY_SLOT, ALL_BLOCKS, THE_ROOT,      ORIGIN),
    [TUTTI_SCATTER]        = KIND("scatter",        ALL_BLOCKS, THE_ROOT,   ONE_BLOCK,  EVERY_SLOT,    ORIGIN),
    [TUTTI_REDUCE_SCATTER] = KIND("reduce_scatter", ALL_BLOCKS, EVERY_SLOT, ONE_BLOCK,  EVERY_SLOT,    ALL),
    [TUTTI_ALL_TO_ALL]     = KIND("all_to_all",     ALL_BLOCKS, EVERY_SLOT, ALL_BLOCKS, EVERY_SLOT,    ORIGIN),
    [TUTTI_BARRIER]        = KIND("barrier",        NO_BLOCK,   EVERY_SLOT, NO_BLOCK,   EVERY_SLOT,    ALL),
    [TUTTI_SCAN]           = KIND("scan",           ONE_BLOCK,  EVERY_SLOT, ONE_BLOCK,  EVERY_SLOT,    PREFIX),
    [TUTTI_EXSCAN]         = KIND("exscan",         ONE_BLOCK,  EVERY_SLOT, ONE_BLOCK,  ALL_BUT_FIRST, BEFORE),
};
/* clang-format on */

const char *tutti_kind_name(enum tutti_kind kind)
{
    return (uint32_t)kind < TUTTI_N_KINDS ? tutti_kinds[kind].name : "unknown";
}

bool tutti_kind_parse(const char *name, enum tutti_kind *out)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        if (strcmp(tutti_kinds[kind].name, name) == 0) {
            *out = (enum tutti_kind)kind;
            return true;
        }
    }
    return false;
}

bool tutti_kind_flows(enum tutti_kind kind, uint32_t root, uint32_t from, uint32_t to)
{
    const struct tutti_kind_info *info = &tutti_kinds[kind];
    if (!tutti_side_is_at(info->send, from, root) || !tutti_side_is_at(info->recv, to, root)) return false;
    return info->result == TUTTI_GETS_PREFIX ? from <= to : info->result == TUTTI_GETS_BEFORE ? from < to : true;
}

uint32_t tutti_kind_contributors(enum tutti_kind kind, uint32_t slot, uint32_t size)
{
    switch (tutti_kinds[kind].result) {
    case TUTTI_GETS_ALL:
        return size;
    case TUTTI_GETS_PREFIX:
        return slot + 1;
    case TUTTI_GETS_BEFORE:
        return slot > 0 ? slot : 1; /* slot 0 receives nothing */
    case TUTTI_GETS_ORIGIN:
        break;
    }
    return 1;
}

double tutti_kind_bus_factor(const struct tutti_kind_info *info, uint32_t n)
{
    double share = (double)(n - 1) / n;
    return info == &tutti_kinds[TUTTI_ALL_REDUCE] ? 2 * share : info->block_a_slot ? share : 1;
}

/* Whether DATA of the shape's slot has the block on this side. */
static bool has(const struct tutti_kind_info *info, struct tutti_kind_side side, const struct tutti_shape *shape,
                uint32_t block)
{
    bool own_alone = info->block_a_slot && side.blocks == TUTTI_ONE_BLOCK;
    return tutti_side_is_at(side, shape->slot, shape->root) && (!own_alone || block == shape->slot);
}

enum tutti_content tutti_kind_before(enum tutti_kind kind, const struct tutti_shape *shape, uint32_t block)
{
    const struct tutti_kind_info *info = &tutti_kinds[kind];
    if (info->separate_in || !has(info, info->send, shape, block)) return TUTTI_HOLDS_NOTHING;
    return info->result == TUTTI_GETS_ORIGIN ? TUTTI_HOLDS_ORIGIN : TUTTI_HOLDS_OWN;
}

enum tutti_content tutti_kind_after(enum tutti_kind kind, const struct tutti_shape *shape, uint32_t block)
{
    static const enum tutti_content contents[] = {[TUTTI_GETS_ORIGIN] = TUTTI_HOLDS_ORIGIN,
                                                  [TUTTI_GETS_ALL] = TUTTI_HOLDS_ALL,
                                                  [TUTTI_GETS_PREFIX] = TUTTI_HOLDS_PREFIX,
                                                  [TUTTI_GETS_BEFORE] = TUTTI_HOLDS_BEFORE};
    const struct tutti_kind_info *info = &tutti_kinds[kind];
    return has(info, info->recv, shape, block) ? contents[info->result] : TUTTI_HOLDS_NOTHING;
}
