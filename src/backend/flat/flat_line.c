/* SPDX-License-Identifier: BSD-3-Clause */
/* The smallest calls: data follow the operation's word, the first of them in the same cache line, so that one line's
 * way from writer to reader is all that a hand-over costs. The word is written last, and data are read after it was
 * seen, so nothing rests on stores of a whole line being atomic. A butterfly over the factors of n keeps the number of
 * readers of a slot, and of slots to read, small where ranks are many; it folds neighbouring groups from left to right,
 * so rank order holds. */
#include "backend/flat/flat.h"

static struct flat_slot *slot_of(const struct flat_op *op, uint32_t peer, uint32_t level)
{
    return &op->lane->areas[peer]->slots[level][op->number % FLAT_DEPTH];
}

void flat_lines_put(struct flat_op *op, uint32_t level, const unsigned char *data, size_t bytes)
{
    struct flat_slot *slot = slot_of(op, op->lane->me, level);
    if (bytes > 0) memcpy(slot->data, data, bytes);
    flat_publish(op, &slot->word, op->word);
}

bool flat_lines_there(struct flat_op *op, uint32_t peer, uint32_t level)
{
    const _Atomic uint64_t *word = &slot_of(op, peer, level)->word;
    return atomic_load_explicit(word, memory_order_acquire) == op->word || flat_spin_word(op, peer, word);
}

void flat_group_ahead(const struct flat_op *op, uint32_t level, uint32_t stride)
{
    const struct flat_lane *lane = op->lane;
    for (uint32_t d = 0; lane->n > 2 && d < flat_radix(lane, level); d++)
        __builtin_prefetch(slot_of(op, flat_digit_peer(lane, level, stride, d), level));
}

void flat_lines_ahead(const struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    for (uint32_t i = 1; lane->n > 2 && i < lane->n; i++) __builtin_prefetch(slot_of(op, flat_after(lane, i), 0));
}

void flat_lines_part(const struct flat_op *op, uint32_t peer, uint32_t level, size_t at, size_t bytes,
                     unsigned char *out)
{
    if (bytes > 0) memcpy(out, slot_of(op, peer, level)->data + at, bytes);
}

/* What one level's group gave, folded in rank order into op->recv. */
static void fold_level(const struct flat_op *op, bool last)
{
    const struct flat_lane *lane = op->lane;
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM], next[FLAT_LINE_ROOM];

    flat_lines_part(op, flat_digit_peer(lane, op->level, op->stride, 0), op->level, 0, op->bytes, sum);
    for (uint32_t d = 1; d < flat_radix(lane, op->level); d++) {
        flat_lines_part(op, flat_digit_peer(lane, op->level, op->stride, d), op->level, 0, op->bytes, next);
        flat_fold(op, sum, sum, next, op->bytes);
    }
    if (last) flat_divide(op, sum, op->bytes);
    memcpy(op->recv, sum, op->bytes);
}

static enum tutti_advance all_reduce(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->level = 0, op->stride = 1; op->level < lane->n_factors; op->level++) {
        if (op->level < op->n_put) {
            /* by flat_tiny */
        } else if (op->level > 0) {
            flat_lines_put(op, op->level, op->recv, op->bytes);
        } else if (op->call.bind.scale) {
            _Alignas(TUTTI_CACHE_LINE) unsigned char scaled[FLAT_LINE_ROOM];
            flat_take(op, scaled, op->send, op->bytes);
            flat_lines_put(op, 0, scaled, op->bytes);
        } else {
            flat_lines_put(op, 0, op->send, op->bytes);
        }
        flat_group_ahead(op, op->level, op->stride);
        for (op->peer = 0; op->peer < flat_radix(lane, op->level); op->peer++)
            FLAT_WAIT(flat_lines_there(op, flat_digit_peer(lane, op->level, op->stride, op->peer), op->level));
        fold_level(op, op->level + 1 == lane->n_factors);
        op->stride *= flat_radix(lane, op->level);
    }
    FLAT_END;
}

static enum tutti_advance barrier(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->level = 0, op->stride = 1; op->level < lane->n_factors; op->level++) {
        if (op->level >= op->n_put) flat_lines_put(op, op->level, NULL, 0);
        flat_group_ahead(op, op->level, op->stride);
        for (op->peer = 0; op->peer < flat_radix(lane, op->level); op->peer++)
            FLAT_WAIT(flat_lines_there(op, flat_digit_peer(lane, op->level, op->stride, op->peer), op->level));
        op->stride *= flat_radix(lane, op->level);
    }
    FLAT_END;
}

bool flat_fits_line(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    size_t bytes = call->bind.count * tutti_dtype_bytes(call->info.dtype);
    return lane->n > 1 && !call->bind.v && bytes <= FLAT_LINE_MAX && !(lane->reproducible && lane->n_factors > 1);
}

static bool fits_barrier(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->n > 1;
}

const struct flat_method flat_line_all_reduce = {
    .name = "line", .kind = TUTTI_ALL_REDUCE, .fits = flat_fits_line, .cost_ns = flat_cost_line, .advance = all_reduce};
const struct flat_method flat_line_barrier = {
    .name = "line", .kind = TUTTI_BARRIER, .fits = fits_barrier, .cost_ns = flat_cost_line, .advance = barrier};
