/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of private buffers with cross-memory copies. A few ranks read what they fold straight from the inputs of
 * the others, and write what came out straight into their outputs. A copy costs as much as some KiB, however, so many
 * ranks stage, in rounds, what others fold, and only write results so. In place is no different: of other ranks'
 * buffers a rank touches but its slice, which nobody else does. */
#include "backend/flat/flat.h"

#define READERS_MOST 3

/* This rank's share of the inputs. */
static size_t slice(const struct flat_op *op, size_t *at)
{
    if (op->call.info.kind == TUTTI_REDUCE_SCATTER) return flat_block(op, op->lane->me, at);
    return flat_part(op, op->bytes, op->lane->n, op->lane->me, at);
}

/* What goes at once, where the operation is in the slice: in the inputs. */
static size_t window(const struct flat_op *op, size_t *at)
{
    size_t bytes = slice(op, at) - op->offset;
    *at += op->offset;
    return bytes < op->piece ? bytes : op->piece;
}

static unsigned char *output(const struct flat_op *op)
{
    size_t at;
    slice(op, &at);
    return op->recv + (op->call.info.kind == TUTTI_REDUCE_SCATTER ? 0 : at) + op->offset;
}

static bool is_left(const struct flat_op *op)
{
    size_t at;
    return window(op, &at) > 0;
}

static void go_on(struct flat_op *op)
{
    size_t at;
    op->offset += window(op, &at);
}

/* ---- inputs are read: into the staging memory, in which nobody looks for anything during this operation ---- */

static void start_reading(struct flat_op *op)
{
    size_t room = 2 * FLAT_SLOTS * op->lane->chunk / (op->lane->n - 1);
    op->piece = (room < FLAT_WINDOW_BYTES ? room : FLAT_WINDOW_BYTES) / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
}

static unsigned char *copy_of(const struct flat_op *op, uint32_t peer)
{
    const struct flat_lane *lane = op->lane;
    return lane->staging[lane->me] + (peer - (peer > lane->me)) * op->piece;
}

static enum tutti_advance read_from(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = window(op, &at);
    return flat_attach_read(op, peer, copy_of(op, peer), at, bytes);
}

static bool is_large(const struct flat_op *op)
{
    return op->bytes >= TUTTI_PAST_CACHE_BYTES / (op->call.info.kind == TUTTI_REDUCE_SCATTER ? op->lane->n : 1);
}

/* What is written to others: a result that goes past the caches is kept in them here. */
static unsigned char *sum(const struct flat_op *op)
{
    return is_large(op) ? copy_of(op, flat_after(op->lane, 1)) : output(op);
}

static void fold_window(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *dst[] = {sum(op), output(op)};
    uint32_t first = op->call.info.kind == TUTTI_REDUCE_SCATTER || !is_large(op);
    size_t at, bytes = window(op, &at);
    for (uint32_t r = 0; r < lane->n; r++) sources[r] = r == lane->me ? op->send + at : copy_of(op, r);
    flat_fold_all(op, dst + first, 2 - first, is_large(op), sources, lane->n, 0, bytes);
}

static enum tutti_advance write_to(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = window(op, &at);
    return flat_attach_write(op, peer, sum(op), at, bytes);
}

static enum tutti_advance reading(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->offset = 0; is_left(op); go_on(op)) {
        for (op->peer = 1; op->peer < lane->n; op->peer++) FLAT_STEP(read_from(op, flat_after(lane, op->peer)));
        fold_window(op);
        for (op->peer = 1; op->call.info.kind == TUTTI_ALL_REDUCE && op->peer < lane->n; op->peer++)
            FLAT_STEP(write_to(op, flat_after(lane, op->peer)));
        FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- inputs are staged ---- */

static void start_staging(struct flat_op *op)
{
    size_t at;
    flat_cut(op, flat_part(op, op->bytes, op->lane->n, 0, &at), op->lane->n - 1);
}

/* A slot holds pieces for all others, that for the next rank first. */
static const unsigned char *piece_from(const struct flat_op *op, uint32_t peer, uint64_t u)
{
    uint32_t n = op->lane->n, i = (op->lane->me + n - peer) % n;
    return flat_slot_in(op, peer, u) + (i - 1) * op->piece;
}

static void stage(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    unsigned char *slot = flat_slot_in(op, lane->me, u);
    for (uint32_t i = 1; i < lane->n; i++) {
        size_t at, bytes = flat_piece(op, flat_part(op, op->bytes, lane->n, flat_after(lane, i), &at), u);
        if (bytes > 0) flat_take(op, slot + (i - 1) * op->piece, op->send + at + u * op->piece, bytes);
    }
    flat_stage(op);
}

static void fold_round(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes = flat_piece(op, slice(op, &at), u);
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

/* Bytes of the slice that are folded after n rounds, but not written to the others yet; 0: wait for more. */
static size_t folded(const struct flat_op *op, uint64_t n, size_t *at)
{
    size_t bytes = slice(op, at), so_far = n * op->piece < bytes ? n * op->piece : bytes, due = so_far - op->offset;
    *at += op->offset;
    return so_far == bytes || due >= FLAT_WINDOW_BYTES ? due : 0;
}

static bool is_due(const struct flat_op *op)
{
    size_t at;
    return folded(op, op->round, &at) > 0;
}

static enum tutti_advance write_folded(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = folded(op, op->round, &at);
    return flat_attach_write(op, peer, op->recv + at, at, bytes);
}

static void written(struct flat_op *op)
{
    size_t at;
    op->offset += folded(op, op->round, &at);
}

/* A rank that has staged n rounds has read n - 2 of all. */
static enum tutti_advance staging(struct flat_op *op)
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
        fold_round(op, op->round - 1);
        if (!is_due(op)) continue;
        for (op->peer = 1; op->peer < lane->n; op->peer++) FLAT_STEP(write_folded(op, flat_after(lane, op->peer)));
        written(op);
        FLAT_PAUSE();
    }
    flat_has_read(op, op->n_rounds);
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- the methods: of two with one name, one fits ---- */

static bool fits_reduce_scatter(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && lane->chunk > 0 && !lane->addresses && !call->bind.scale;
}

static bool fits_reading(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return fits_reduce_scatter(lane, call) && !call->bind.v && lane->n <= READERS_MOST;
}

static bool fits_staging(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return flat_fits_staging(lane, call) && !lane->addresses && !fits_reading(lane, call);
}

const struct flat_method flat_attach_all_reduce = {.name = "attach",
                                                   .kind = TUTTI_ALL_REDUCE,
                                                   .needs = FLAT_ATTACHABLE,
                                                   .fits = fits_reading,
                                                   .cost_ns = flat_cost_attach,
                                                   .start = start_reading,
                                                   .advance = reading};
const struct flat_method flat_attach_staged_all_reduce = {.name = "attach",
                                                          .kind = TUTTI_ALL_REDUCE,
                                                          .needs = FLAT_ATTACHABLE,
                                                          .fits = fits_staging,
                                                          .cost_ns = flat_cost_attach_staged,
                                                          .start = start_staging,
                                                          .advance = staging};
const struct flat_method flat_attach_reduce_scatter = {.name = "attach",
                                                       .kind = TUTTI_REDUCE_SCATTER,
                                                       .needs = FLAT_ATTACHABLE,
                                                       .fits = fits_reduce_scatter,
                                                       .cost_ns = flat_cost_attach,
                                                       .start = start_reading,
                                                       .advance = reading};
