/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_ROOT_H
#define TUTTI_TESTS_FLAT_ROOT_H

/* Random calls of the kinds that have a root, or an order of ranks. As in peer.h, whose slots they use: a plan is drawn
 * alike by all ranks, and after the call every byte is compared with an image made from the plan alone. */

#include "peer.h"

enum root_kind {
    ROOT_BROADCAST,
    ROOT_REDUCE,
    ROOT_GATHER,
    ROOT_SCATTER,
    ROOT_SCAN,
    ROOT_EXSCAN,
    ROOT_ALL_REDUCE, /* for the other kinds, so that slots pass from one to the next */
    ROOT_BARRIER,
    ROOT_N_KINDS
};

struct root_plan {
    enum root_kind kind;
    bool v;
    enum tutti_dtype dtype;
    int op;         /* enum tutti_op; -1: the user's, which does not commute */
    bool any_order; /* inputs whose reduction is exact whatever the order; else compared with that from left to right */
    size_t count;
    uint32_t root;
    const char *method; /* "flat:stage"; NULL: chosen */
    enum peer_which in_place, send_mapped, recv_mapped;
    bool async;
    uint64_t seed;
    size_t counts[PEER_MAX_RANKS]; /* gather and scatter: of each rank's block */
};

struct root_draw {
    uint32_t n;
    size_t chunk;       /* bytes of a slot of staging, around which sizes are interesting */
    size_t most;        /* bytes of a call; 0: what a buffer holds */
    bool rooted;        /* kinds alone in which ranks wait for one at most */
    bool left_to_right; /* the ranks' results are folded so */
};
void root_plan(uint64_t *random, const struct root_draw *draw, struct root_plan *out);
void root_print(const struct root_plan *plan, char *out, size_t capacity);

void root_prepare(const struct rank *rank, const struct root_plan *plan, struct peer_slot *slot);
enum tutti_status root_start(struct rank *rank, const struct root_plan *plan, enum tutti_op user,
                             struct peer_slot *slot);
const char *root_compare(const struct rank *rank, const struct root_plan *plan, const struct peer_slot *slot);

#endif
