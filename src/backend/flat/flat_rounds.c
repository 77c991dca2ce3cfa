/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds of staging in which every rank puts something in and takes what the others have put: two cursors, of which the
 * first runs ahead of the second, so that nobody waits for a round that others are only beginning. Who has staged a
 * round has taken all rounds but the one before it, so slots need no acknowledgements. */
#include "backend/flat/flat.h"

#define AHEAD 2 /* more gained nothing, not even where ranks share CPUs */

static bool wants_to_put(const struct flat_op *op)
{
    return op->staged < op->n_rounds && op->staged < op->round + AHEAD;
}

enum tutti_advance flat_rounds(struct flat_op *op, const struct flat_rounds *rounds)
{
    struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds; op->round++) {
        while (wants_to_put(op)) {
            if (op->staged > op->round && !flat_round_room(op, op->staged)) break; /* what is there comes first */
            FLAT_WAIT(flat_round_room(op, op->staged));
            rounds->put(op, op->staged);
            flat_stage(op);
        }
        flat_posts_ahead(op);
        for (op->peer = 1; op->peer <= lane->n; op->peer++) {
            FLAT_WAIT(flat_after(lane, op->peer) == lane->me ||
                      flat_staged(op, flat_after(lane, op->peer), op->round + 1));
            if (!rounds->take(op, op->round, flat_after(lane, op->peer))) return TUTTI_RUN_FAILED;
        }
        if (op->round + 1 >= AHEAD) flat_read_by_all(lane, lane->rounds + op->round + 1 - AHEAD);
    }
    flat_has_read(op, op->n_rounds);
    FLAT_END;
}
