/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_OPEN_H
#define TUTTI_BACKEND_OPEN_H

/* How the members of a communicator open back ends together: one procedure for all of them.
 *   1. Each member opens its side of each back end (`tutti_opening_try`), which gives it a card.
 *   2. The cards are gathered. A back end that some member of the group could not open is closed by all.
 *   3. Each connects with the cards of its group, and the outcomes are gathered: again all members keep it, or none.
 *   4. All are told that it stays (ops->connected).
 * So every member knows which back ends are open, and it is the same on all members of a group.
 *
 * Blocking, in steps 2 and 3, which wait for the others. One thread. On failure nothing is left open. */

#include "backend/backend.h"

/* One back end for one group of slots of the communicator. */
struct tutti_opening {
    const struct tutti_backend_ops *ops; /* equal on all members of the communicator */
    struct tutti_lane slots;             /* the own group; size 0: this member is in none, and only takes part */
    bool needed; /* connecting fails with more than UNSUPPORTED: the whole opening fails; equal on all */
    struct tutti_backend *backend; /* in the end: open on all of the group; else NULL, and */
    struct tutti_error why;        /* the reason: the own one, or which member failed, and with what status */
    _Alignas(uint64_t) unsigned char card[TUTTI_BACKEND_CARD_MOST];
};

/* The ranks that open them. */
struct tutti_openers {
    uint32_t n, me;
    const char *call; /* for sentences */
    /* One record of `bytes` of each member, gathered by all. all NULL: out of memory here, which the others are told.
     */
    enum tutti_status (*gather)(void *arg, const void *mine, size_t bytes, void *all);
    void *arg;
};

/* Step 1. What fails is kept in `why`. */
void tutti_opening_try(struct tutti_opening *opening, const struct tutti_backend_config *config);
/* Instead of step 1: this member does not want the back end; the thread's error record has the reason. */
void tutti_opening_skip(struct tutti_opening *opening);
/* The rest, of n openings: the same number, in the same order, on all members. */
enum tutti_status tutti_opening_finish(struct tutti_opening *openings, uint32_t n, const struct tutti_openers *openers);
/* The first of n statuses, `stride` bytes apart, that is a failure; -1: none is. */
int32_t tutti_first_failed(const void *first, size_t stride, uint32_t n);

#endif
