/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce_scatter: block r of all inputs, folded, to rank r. Whatever the method, a rank folds its own block of all
 * inputs in rank order, in blocks that stay in the first cache, and its own input where it lies: only what others want
 * is copied to lines or staging. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* folded at one go */

static size_t own_block(const struct flat_op *op, size_t *at)
{
    return flat_block(op, op->lane->me, at);
}

static bool is_large(const struct flat_op *op)
{
    return op->bytes >= FLAT_PAST_CACHE_BYTES;
}

/* ---- lines: all inputs whole, and each rank reads those of its block ---- */

static bool is_there(struct flat_op *op, uint32_t peer)
{
    return peer == op->lane->me || flat_lines_there(op, peer, 0);
}

static void fold_lines(const struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM], next[FLAT_LINE_ROOM];
    size_t at, bytes = own_block(op, &at);
    if (bytes == 0) return;
    for (uint32_t r = 0; r < op->lane->n; r++) {
        flat_lines_part(op, r, 0, at, bytes, r == 0 ? sum : next);
        if (r > 0) flat_fold(op, sum, sum, next, bytes);
    }
    flat_divide(op, sum, bytes);
    memcpy(op->recv, sum, bytes);
}

static enum tutti_advance line(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (op->n_put == 0 && op->call.bind.scale) {
        _Alignas(TUTTI_CACHE_LINE) unsigned char scaled[FLAT_LINE_ROOM];
        flat_take(op, scaled, op->send, flat_send_bytes(op));
        flat_lines_put(op, 0, scaled, flat_send_bytes(op));
    } else if (op->n_put == 0) {
        flat_lines_put(op, 0, op->send, flat_send_bytes(op));
    }
    flat_lines_ahead(op);
    for (op->peer = 0; op->peer < op->lane->n; op->peer++) FLAT_WAIT(is_there(op, op->peer));
    fold_lines(op);
    FLAT_END;
}

static size_t total_bytes(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    const struct tutti_bind *bind = &call->bind;
    size_t count = bind->v ? 0 : bind->count * lane->n;
    for (uint32_t r = 0; bind->v && r < lane->n; r++) count += bind->counts[r];
    return count * tutti_dtype_bytes(call->info.dtype);
}

static bool fits_line(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && total_bytes(lane, call) <= FLAT_LINE_MAX;
}

/* ---- staging ---- */

static void start_stage(struct flat_op *op)
{
    flat_cut_evenly(op, op->bytes, op->lane->n);
}

/* Pieces lie one behind the other, each as long as it is. */
static size_t place_of(const struct flat_op *op, uint32_t r, uint64_t u, size_t *bytes)
{
    size_t at;
    if (!op->tables) {
        *bytes = flat_piece(op, op->bytes, u);
        return r * *bytes;
    }
    *bytes = flat_piece(op, flat_block(op, r, &at), u);
    return r * op->piece;
}

static void stage_round(struct flat_op *op, uint64_t u)
{
    unsigned char *slot = flat_slot_in(op, op->lane->me, u);
    for (uint32_t r = 0; r < op->lane->n; r++) {
        size_t at, bytes, place = place_of(op, r, u, &bytes);
        if (bytes == 0 || (r == op->lane->me && !op->call.bind.scale)) continue;
        flat_block(op, r, &at);
        flat_take(op, slot + place, op->send + at + u * op->piece, bytes);
    }
}

static void first(struct flat_op *op)
{
    stage_round(op, 0);
}

/* When all are there. */
static bool fold_round(struct flat_op *op, uint64_t u, uint32_t peer)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes, place = place_of(op, lane->me, u, &bytes);
    unsigned char *out = op->recv + u * op->piece;
    if (peer != lane->me || bytes == 0) return true;
    own_block(op, &at);
    for (uint32_t r = 0; r < lane->n; r++) sources[r] = flat_slot_in(op, r, u) + place;
    if (!op->call.bind.scale) sources[lane->me] = op->send + at + u * op->piece;
    flat_fold_all(op, &out, 1, is_large(op), sources, lane->n, 0, bytes);
    return true;
}

static enum tutti_advance stage(struct flat_op *op)
{
    static const struct flat_rounds rounds = {stage_round, fold_round};
    enum tutti_advance run = flat_rounds(op, &rounds);
    if (run == TUTTI_RUN_DONE && is_large(op)) flat_fence();
    return run;
}

static bool fits_stage(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->n > 1 && lane->chunk > 0;
}

/* ---- mapped inputs ---- */

static bool fold_mapped(struct flat_op *op, size_t bytes)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *out = op->recv + op->offset;
    size_t at, whole = own_block(op, &at);
    for (uint32_t r = 0; r < lane->n; r++) {
        sources[r] = flat_peer_part(op, r, true, at, whole);
        if (!sources[r]) return false;
    }
    flat_fold_all(op, &out, 1, is_large(op), sources, lane->n, op->offset, bytes);
    return true;
}

static enum tutti_advance mapped(struct flat_op *op)
{
    size_t at, bytes = own_block(op, &at);
    FLAT_BEGIN(op->at)
    for (op->offset = 0; op->offset < bytes; op->offset += PAUSE_BYTES) {
        size_t left = bytes - op->offset;
        if (!fold_mapped(op, left < PAUSE_BYTES ? left : PAUSE_BYTES)) {
            tutti_fail(TUTTI_ERR_SYSTEM, "memory of a peer can not be mapped");
            return TUTTI_RUN_FAILED;
        }
        if (left > PAUSE_BYTES) FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

static bool fits_mapped(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && !call->bind.scale;
}

const struct flat_method flat_line_reduce_scatter = {
    .name = "line", .kind = TUTTI_REDUCE_SCATTER, .fits = fits_line, .cost_ns = flat_cost_line, .advance = line};
const struct flat_method flat_stage_reduce_scatter = {.name = "stage",
                                                      .kind = TUTTI_REDUCE_SCATTER,
                                                      .who = FLAT_ALL,
                                                      .fits = fits_stage,
                                                      .cost_ns = flat_cost_stage,
                                                      .start = start_stage,
                                                      .first = first,
                                                      .advance = stage};
const struct flat_method flat_mapped_reduce_scatter = {.name = "mapped",
                                                       .kind = TUTTI_REDUCE_SCATTER,
                                                       .needs = FLAT_SEND_MAPPED,
                                                       .fits = fits_mapped,
                                                       .cost_ns = flat_cost_mapped,
                                                       .advance = mapped};
