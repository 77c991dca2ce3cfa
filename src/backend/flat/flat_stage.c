/* SPDX-License-Identifier: BSD-3-Clause */
/* Private buffers, through staging memory, in rounds that overlap: in round u every rank copies of its piece u what
 * others fold, then folds its own slice of all ranks' piece u - 1 (its own part straight from its buffer) into its
 * output and for the others to take, and takes their slices of piece u - 2. A rank that has staged round u + 1 has read
 * round u - 2 to its end, so the slots need no acknowledgement of their own. */
#include "backend/flat/flat.h"

#define SLICE_LEAST ((size_t)1024) /* of one rank in a round */

/* Bytes of round u. */
static size_t piece_of(const struct flat_op *op, uint64_t u)
{
    size_t at = u * op->piece;
    return op->bytes - at < op->piece ? op->bytes - at : op->piece;
}

/* At least some rounds, so that copying in, folding and copying out overlap between ranks, but not of tiny ones. */
static void start(struct flat_op *op)
{
    size_t piece = op->lane->chunk, least = 2 * FLAT_BLOCK_BYTES, slices = op->lane->n * SLICE_LEAST;
    if (slices > least) least = slices;
    while (piece >= 2 * least && op->bytes < 4 * piece) piece /= 2;
    op->piece = piece;
    op->n_rounds = (op->bytes + piece - 1) / piece;
}

/* Inputs that are scaled pass through staging all the same. */
static bool own_is_staged(const struct flat_op *op)
{
    return op->call.bind.scale != NULL;
}

static void stage(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    unsigned char *slot = flat_slot_in(op, lane->me, u);
    size_t piece = piece_of(op, u);
    for (uint32_t i = own_is_staged(op) ? 0 : 1; i < lane->n; i++) {
        size_t at, bytes = flat_part(op, piece, lane->n, flat_after(lane, i), &at);
        if (bytes > 0) flat_take(op, slot + at, op->send + u * op->piece + at, bytes);
    }
}

static void first(struct flat_op *op)
{
    stage(op, 0);
}

static void fold(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes = flat_part(op, piece_of(op, u), lane->n, lane->me, &at);
    unsigned char *dst[] = {flat_slot_out(op, lane->me, u), op->recv + u * op->piece + at};
    for (uint32_t r = 0; r < lane->n; r++) sources[r] = flat_slot_in(op, r, u);
    if (!own_is_staged(op)) sources[lane->me] = op->send + u * op->piece;
    if (bytes > 0) flat_fold_all(op, dst, 2, op->bytes >= TUTTI_PAST_CACHE_BYTES, sources, lane->n, at, bytes);
    flat_raise(op, FLAT_FOLDED, lane->rounds + u + 1);
}

static void copy_out(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t at, bytes = flat_part(op, piece_of(op, u), op->lane->n, peer, &at);
    flat_copy(op->recv + u * op->piece + at, flat_slot_out(op, peer, u), bytes, op->bytes >= TUTTI_PAST_CACHE_BYTES);
}

static enum tutti_advance all_reduce(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + 2; op->round++) {
        if (op->round < op->n_rounds && op->round >= op->staged) {
            FLAT_WAIT(flat_round_room(op, op->round));
            stage(op, op->round);
            flat_stage(op);
        }
        if (op->round >= 1 && op->round <= op->n_rounds) {
            flat_posts_ahead(op);
            for (op->peer = 1; op->peer < lane->n; op->peer++)
                FLAT_WAIT(flat_staged(op, flat_after(lane, op->peer), op->round));
            if (lane->rounds + op->round >= 3) flat_read_by_all(op->lane, lane->rounds + op->round - 3);
            fold(op, op->round - 1);
        }
        if (op->round >= 2) {
            flat_flags_ahead(op, FLAT_FOLDED);
            for (op->peer = 1; op->peer < lane->n; op->peer++) {
                FLAT_WAIT(flat_reached(op, flat_after(lane, op->peer),
                                       flat_flag(op, flat_after(lane, op->peer), FLAT_FOLDED),
                                       lane->rounds + op->round - 1));
                copy_out(op, op->round - 2, flat_after(lane, op->peer));
            }
            flat_has_read(op, op->round - 1);
        }
    }
    if (op->bytes >= TUTTI_PAST_CACHE_BYTES) flat_fence();
    FLAT_END;
}

bool flat_fits_staging(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && lane->chunk > 0 && !call->bind.v;
}

const struct flat_method flat_stage_all_reduce = {.name = "stage",
                                                  .kind = TUTTI_ALL_REDUCE,
                                                  .who = FLAT_ALL,
                                                  .fits = flat_fits_staging,
                                                  .cost_ns = flat_cost_stage,
                                                  .start = start,
                                                  .first = first,
                                                  .advance = all_reduce};
