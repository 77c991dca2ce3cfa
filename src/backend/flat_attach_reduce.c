/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of private buffers with cross-memory copies. Results go straight into the outputs of all, so that nobody
 * copies out: each rank stages, in rounds, what others fold, folds its slice into its own output, and now and then
 * writes what it has so far to the others. In place is no different: what a rank writes into an output it has read. */
#include "backend/flat.h"

/* Slice r of the whole. */
static size_t slice(const struct flat_op *op, uint32_t r, size_t *at)
{
    return flat_part(op, op->bytes, op->lane->n, r, at);
}

static void start(struct flat_op *op)
{
    size_t at, longest = slice(op, 0, &at);
    flat_cut(op, longest, op->lane->n - 1);
}

/* A slot holds pieces for all others, that for the next rank first. */
static const unsigned char *piece_from(const struct flat_op *op, uint32_t peer, uint64_t u)
{
    uint32_t n = op->lane->n, i = (op->lane->me + n - peer) % n;
    return flat_slot_in(op, peer, u) + (i - 1) * op->piece;
}

static void stage(struct flat_op *op, uint64_t u)
{
    unsigned char *slot = flat_slot_in(op, op->lane->me, u);
    for (uint32_t i = 1; i < op->lane->n; i++) {
        size_t at, bytes = flat_piece(op, slice(op, flat_after(op->lane, i), &at), u);
        if (bytes > 0) flat_take(op, slot + (i - 1) * op->piece, op->send + at + u * op->piece, bytes);
    }
    flat_stage(op);
}

static void fold(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes = flat_piece(op, slice(op, lane->me, &at), u);
    unsigned char *out = op->recv + at + u * op->piece;
    if (bytes == 0) return;
    for (uint32_t r = 0; r < lane->n; r++)
        if (r != lane->me) sources[r] = piece_from(op, r, u);
    sources[lane->me] = op->send + at + u * op->piece;
    if (op->call.bind.scale) {
        unsigned char *scaled = flat_slot_out(op, lane->me, u);
        flat_take(op, scaled, sources[lane->me], bytes);
        sources[lane->me] = scaled;
    }
    flat_fold_all(op, &out, 1, 0, sources, lane->n, 0, bytes);
}

/* Bytes of the slice that are folded after round u, but not written to the others yet; 0: wait for more. */
static size_t window(const struct flat_op *op, uint64_t u, size_t *at)
{
    size_t bytes = slice(op, op->lane->me, at), folded = u * op->piece < bytes ? u * op->piece : bytes;
    size_t due = folded - op->offset;
    *at += op->offset;
    return folded == bytes || due >= FLAT_WINDOW_BYTES ? due : 0;
}

static enum tutti_advance write_to(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = window(op, op->round, &at);
    return flat_attach_write(op, peer, op->recv + at, at, bytes);
}

static bool is_due(const struct flat_op *op)
{
    size_t at;
    return window(op, op->round, &at) > 0;
}

static void written(struct flat_op *op)
{
    size_t at;
    op->offset += window(op, op->round, &at);
}

/* A rank that has staged n rounds has read n - 2 of all. */
static enum tutti_advance all_reduce(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    op->offset = 0;
    for (op->round = 0; op->round <= op->n_rounds; op->round++) {
        if (op->round < op->n_rounds) {
            FLAT_WAIT(flat_round_room(op, op->round));
            stage(op, op->round);
        }
        if (op->round == 0) continue;
        for (op->peer = 1; op->peer < lane->n; op->peer++)
            FLAT_WAIT(flat_staged(op, flat_after(lane, op->peer), op->round));
        if (op->round >= 2) flat_read_by_all(op->lane, lane->rounds + op->round - 2);
        fold(op, op->round - 1);
        if (!is_due(op)) continue;
        for (op->peer = 1; op->peer < lane->n; op->peer++) FLAT_STEP(write_to(op, flat_after(lane, op->peer)));
        written(op);
        FLAT_PAUSE();
    }
    flat_has_read(op, op->n_rounds);
    FLAT_MEET(op);
    FLAT_END;
}

static bool fits(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return flat_fits_staging(lane, call) && !lane->addresses;
}

const struct flat_method flat_attach_all_reduce = {.name = "attach",
                                                   .kind = TUTTI_ALL_REDUCE,
                                                   .needs = FLAT_ATTACHABLE,
                                                   .fits = fits,
                                                   .cost_ns = flat_cost_attach,
                                                   .start = start,
                                                   .advance = all_reduce};
