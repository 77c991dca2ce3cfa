/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce: to the root. Small: in lines, which the root reads, or, among many ranks, leaders of groups, whose partial
 * results it folds. Private buffers: rounds through staging, in which the leaves fold a slice each and the root copies
 * the slices out, so that the root does not do more than the others; of two ranks the root folds what the other staged.
 * Where all inputs and the root's output are mapped, every rank folds its slice straight into that output. Operands are
 * folded in the order of ranks everywhere. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */
#define MAPPED_LEAST ((size_t)4 << 10)  /* less is gone from the leaves sooner when it is copied */

/* ---- lines: level 0 is what ranks give, level 1 what groups give ---- */

static uint32_t group_begin(const struct flat_op *op)
{
    return op->lane->me - op->lane->me % flat_group(op->lane);
}

static uint32_t group_end(const struct flat_op *op)
{
    uint32_t end = group_begin(op) + flat_group(op->lane);
    return end < op->lane->n ? end : op->lane->n;
}

static bool leads(const struct flat_op *op)
{
    return flat_leader(op, op->lane->me) == op->lane->me;
}

/* What a rank gives at a level. */
static void given(const struct flat_op *op, uint32_t r, uint32_t level, unsigned char *out)
{
    if (r != op->lane->me)
        flat_lines_part(op, r, level, 0, op->bytes, out);
    else if (level == 0)
        flat_take(op, out, op->send, op->bytes);
    else
        memcpy(out, op->recv, op->bytes);
}

/* What ranks from, from + step, ... give, or, with level 1, their leaders, in `sum`. */
static void fold_lines(const struct flat_op *op, uint32_t level, uint32_t from, uint32_t end, uint32_t step,
                       unsigned char *sum)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char next[FLAT_LINE_ROOM];
    given(op, level ? flat_leader(op, from) : from, level, sum);
    for (uint32_t r = from + step; r < end; r += step) {
        given(op, level ? flat_leader(op, r) : r, level, next);
        flat_fold(op, sum, sum, next, op->bytes);
    }
}

/* Of the own group: to the root's output, which holds the partial result for now, or to the leader's lines. */
static void fold_group(struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM];
    fold_lines(op, 0, group_begin(op), group_end(op), 1, sum);
    if (flat_is_root(op))
        memcpy(op->recv, sum, op->bytes);
    else
        flat_lines_put(op, 1, sum, op->bytes);
}

static void fold_groups(struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM];
    fold_lines(op, 1, 0, op->lane->n, flat_group(op->lane), sum);
    flat_divide(op, sum, op->bytes);
    memcpy(op->recv, sum, op->bytes);
}

static void put_own(struct flat_op *op)
{
    if (op->n_put > 0) return; /* by flat_tiny */
    _Alignas(TUTTI_CACHE_LINE) unsigned char own[FLAT_LINE_ROOM];
    flat_take(op, own, op->send, op->bytes);
    flat_lines_put(op, 0, own, op->bytes);
}

static enum tutti_advance in_lines(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    if (leads(op)) {
        for (op->peer = group_begin(op); op->peer < group_end(op); op->peer++)
            FLAT_WAIT(op->peer == lane->me || flat_lines_there(op, op->peer, 0));
        fold_group(op);
    } else {
        put_own(op);
    }
    if (flat_is_root(op)) {
        for (op->peer = 0; op->peer < lane->n; op->peer += flat_group(lane))
            FLAT_WAIT(flat_leader(op, op->peer) == lane->me || flat_lines_there(op, flat_leader(op, op->peer), 1));
        fold_groups(op);
    }
    FLAT_END;
}

/* ---- staging ---- */

static uint32_t n_folders(const struct flat_op *op)
{
    return op->lane->n == 2 ? 1 : op->lane->n - 1;
}

static bool folds(const struct flat_op *op, uint32_t r)
{
    return (r == flat_root(op)) == (op->lane->n == 2);
}

static bool stages(const struct flat_op *op)
{
    return op->lane->n > 2 || !flat_is_root(op) || op->call.bind.scale;
}

/* The slice of round u that rank r folds. */
static size_t slice_of(const struct flat_op *op, uint64_t u, uint32_t r, size_t *at)
{
    uint32_t i = op->lane->n == 2 ? 0 : r - (r > flat_root(op));
    *at = 0;
    return folds(op, r) ? flat_part(op, flat_piece(op, op->bytes, u), n_folders(op), i, at) : 0;
}

static void start(struct flat_op *op)
{
    flat_cut(op, op->bytes, 1);
}

/* What this rank folds itself is read where it is, unless it has to be scaled. */
static void put(struct flat_op *op, uint64_t u)
{
    unsigned char *slot = flat_slot_in(op, op->lane->me, u);
    const unsigned char *own = op->send + u * op->piece;
    size_t at = 0, some = op->call.bind.scale ? 0 : slice_of(op, u, op->lane->me, &at);
    size_t behind = flat_piece(op, op->bytes, u) - at - some;
    if (at > 0) flat_take(op, slot, own, at);
    if (behind > 0) flat_take(op, slot + at + some, own + at + some, behind);
}

static void first(struct flat_op *op)
{
    if (stages(op)) put(op, 0);
}

static bool is_past(const struct flat_op *op)
{
    return op->bytes >= TUTTI_PAST_CACHE_BYTES && op->send != op->recv;
}

static void fold(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *out = flat_is_root(op) ? op->recv + u * op->piece : flat_slot_out(op, lane->me, u);
    size_t at, bytes = slice_of(op, u, lane->me, &at);
    for (uint32_t r = 0; r < lane->n; r++)
        sources[r] = r == lane->me && !op->call.bind.scale ? op->send + u * op->piece : flat_slot_in(op, r, u);
    if (flat_is_root(op)) out += at; /* slots hold the slice alone */
    if (bytes > 0) flat_fold_all(op, &out, 1, flat_is_root(op) && is_past(op), sources, lane->n, at, bytes);
    if (!flat_is_root(op)) flat_raise(op, FLAT_FOLDED, lane->rounds + u + 1);
}

static void copy_out(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t at, bytes = slice_of(op, u, peer, &at);
    if (bytes > 0) flat_copy(op->recv + u * op->piece + at, flat_slot_out(op, peer, u), bytes, is_past(op));
}

/* The root of many copies out what was folded in the round before; all others are through when they have folded. */
static enum tutti_advance staged(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    if (!flat_is_root(op) && !folds(op, lane->me)) flat_has_read(op, op->n_rounds);
    for (op->round = 0; op->round < op->n_rounds + 2; op->round++) {
        if (op->round < op->n_rounds && op->round >= op->staged && stages(op)) {
            FLAT_WAIT(flat_round_room(op, op->round));
            put(op, op->round);
            flat_stage(op);
        }
        if (op->round >= 1 && op->round <= op->n_rounds && folds(op, lane->me)) {
            for (op->peer = 1; op->peer < lane->n; op->peer++)
                FLAT_WAIT(flat_staged(op, flat_after(lane, op->peer), op->round));
            fold(op, op->round - 1);
            flat_has_read(op, op->round);
        }
        if (op->round >= 2 && flat_is_root(op) && !folds(op, lane->me)) {
            for (op->peer = 1; op->peer < lane->n; op->peer++) {
                FLAT_WAIT(flat_reached(op, flat_after(lane, op->peer),
                                       flat_flag(op, flat_after(lane, op->peer), FLAT_FOLDED),
                                       lane->rounds + op->round - 1));
                copy_out(op, op->round - 2, flat_after(lane, op->peer));
            }
            flat_has_read(op, op->round - 1);
        }
    }
    if (flat_is_root(op) && is_past(op)) flat_fence();
    FLAT_END;
}

/* ---- mapped ---- */

static bool push(struct flat_op *op, size_t at, size_t bytes)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *out = flat_peer_part(op, flat_root(op), false, 0, op->bytes);
    for (uint32_t r = 0; r < lane->n; r++) {
        sources[r] = flat_peer_part(op, r, true, 0, op->bytes);
        if (!sources[r]) return false;
    }
    if (!out) return false;
    out += at;
    flat_fold_all(op, &out, 1, op->bytes >= TUTTI_PAST_CACHE_BYTES, sources, lane->n, at, bytes);
    return true;
}

static enum tutti_advance mapped(struct flat_op *op)
{
    size_t at, bytes = flat_part(op, op->bytes, op->lane->n, op->lane->me, &at);
    FLAT_BEGIN(op->at)
    for (op->offset = 0; op->offset < bytes; op->offset += PAUSE_BYTES) {
        size_t left = bytes - op->offset;
        if (!push(op, at + op->offset, left < PAUSE_BYTES ? left : PAUSE_BYTES)) return flat_lost();
        if (left > PAUSE_BYTES) FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- fits ---- */

static bool fits_lines(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    bool in_order = !lane->reproducible || flat_group(lane) == lane->n; /* from left to right, not by groups */
    return lane->n > 1 && flat_block_bytes(lane, call) <= FLAT_LINE_MAX && in_order;
}

static bool fits_mapped(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && flat_block_bytes(lane, call) >= MAPPED_LEAST && !call->bind.scale;
}

const struct flat_method flat_line_reduce = {
    .name = "line", .kind = TUTTI_REDUCE, .fits = fits_lines, .cost_ns = flat_cost_line, .advance = in_lines};
const struct flat_method flat_stage_reduce = {.name = "stage",
                                              .kind = TUTTI_REDUCE,
                                              .who = FLAT_ALL,
                                              .fits = flat_fits_staging,
                                              .cost_ns = flat_cost_stage,
                                              .start = start,
                                              .first = first,
                                              .advance = staged};
const struct flat_method flat_mapped_reduce = {.name = "mapped",
                                               .kind = TUTTI_REDUCE,
                                               .needs = FLAT_SEND_MAPPED | FLAT_RECV_MAPPED,
                                               .fits = fits_mapped,
                                               .cost_ns = flat_cost_mapped,
                                               .advance = mapped};
