/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_WINDOW_MOVER_H
#define TUTTI_COMM_WINDOW_MOVER_H

/* Carries out what peers do by messages to a part in memory of a device: copies through a piece of pinned memory, one
 * after another, so that words change as one step. A thread of its own waits for the device: the engine's owner must
 * not, since streams may wait for what it does. It uses nothing of windows. */

#include "backend/backend.h"
#include "comm/call/pinned.h"
#include "engine/flight/onesided.h"

struct tutti_mover;
/* Words behind a part that peers map, too, so that they are changed by the device. */
struct tutti_mover_words {
    struct tutti_backend *backend; /* its one-sided calls change them, and words of the part */
    char *words;                   /* memory of the device */
    uint64_t at, bytes;            /* their offset in moves; what the part has before them */
    uint32_t me;                   /* the own rank in the back end */
};
/* base: of the part, in memory of the device. piece_bytes: the most that a move has. words: copied; there are
 * only changes of words then. NULL: none. */
enum tutti_status tutti_mover_open(struct tutti_pinned_pool *pool, struct tutti_team *team, void *base,
                                   size_t piece_bytes, const struct tutti_mover_words *words, struct tutti_mover **out);
void tutti_mover_begin(struct tutti_mover *mover, struct tutti_move *move); /* as tutti_exposed.move */
void tutti_mover_close(struct tutti_mover *mover);                          /* all moves are over. NULL: none */

#endif
