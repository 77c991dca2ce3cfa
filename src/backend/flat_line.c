/* SPDX-License-Identifier: BSD-3-Clause */
/* The smallest calls: data and the operation's word share cache lines, so that one line's way from writer to reader is
 * all that a hand-over costs. Each line is written with its word last and read after its word was seen, so nothing
 * rests on stores of a whole line being atomic. A butterfly over the factors of n keeps the number of readers of a
 * line, and of lines to read, small where ranks are many; it folds neighbouring groups from left to right, so rank
 * order holds. */
#include "backend/flat.h"

static struct flat_line *slot(const struct flat_op *op, uint32_t peer, uint32_t level)
{
    return op->lane->areas[peer]->lines[level][op->number % FLAT_DEPTH];
}

/* Behind the bytes come zeros: reductions run over whole lines, where garbage could be slow to add. */
void flat_lines_put(struct flat_op *op, uint32_t level, const unsigned char *data, size_t bytes)
{
    struct flat_line *line = slot(op, op->lane->me, level);
    size_t at = 0;
    do { /* without data, too: the word alone tells */
        size_t some = bytes - at < FLAT_LINE_BYTES ? bytes - at : FLAT_LINE_BYTES;
        if (some < FLAT_LINE_BYTES) memset(line->data, 0, FLAT_LINE_BYTES);
        if (some > 0) memcpy(line->data, data + at, some);
        flat_publish(op, &line->word, op->word);
        at += FLAT_LINE_BYTES, line++;
    } while (at < bytes);
}

bool flat_lines_there(struct flat_op *op, uint32_t peer, uint32_t level, uint32_t n)
{
    const struct flat_line *line = slot(op, peer, level);
    for (uint32_t i = 0; i < n; i++)
        if (atomic_load_explicit(&line[i].word, memory_order_acquire) != op->word &&
            !flat_spin_word(op, peer, &line[i].word))
            return false;
    return true;
}

/* One line at least, so that who waits for nothing waits for its peer. */
bool flat_lines_part_there(struct flat_op *op, uint32_t peer, uint32_t level, size_t at, size_t bytes)
{
    const struct flat_line *line = slot(op, peer, level);
    size_t i = bytes > 0 ? at / FLAT_LINE_BYTES : 0, end = bytes > 0 ? flat_lines_of(at + bytes) : 1;
    for (; i < end; i++)
        if (atomic_load_explicit(&line[i].word, memory_order_acquire) != op->word &&
            !flat_spin_word(op, peer, &line[i].word))
            return false;
    return true;
}

void flat_lines_part(const struct flat_op *op, uint32_t peer, uint32_t level, size_t at, size_t bytes,
                     unsigned char *out)
{
    const struct flat_line *line = slot(op, peer, level) + at / FLAT_LINE_BYTES;
    for (at %= FLAT_LINE_BYTES; bytes > 0; at = 0, line++) {
        size_t some = FLAT_LINE_BYTES - at < bytes ? FLAT_LINE_BYTES - at : bytes;
        memcpy(out, line->data + at, some);
        out += some, bytes -= some;
    }
}

/* After flat_lines_there: into FLAT_LINE_ROOM bytes, zeros behind. */
void flat_lines_get(const struct flat_op *op, uint32_t peer, uint32_t level, uint32_t n, unsigned char *out)
{
    const struct flat_line *line = slot(op, peer, level);
    for (uint32_t i = 0; i < n; i++) memcpy(out + (size_t)i * FLAT_LINE_BYTES, line[i].data, FLAT_LINE_BYTES);
    memset(out + (size_t)n * FLAT_LINE_BYTES, 0, TUTTI_CACHE_LINE);
}

/* The lines of one level's group, folded in rank order into op->recv. */
static void fold_level(const struct flat_op *op, bool last)
{
    const struct flat_lane *lane = op->lane;
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM], next[FLAT_LINE_ROOM];
    uint32_t n = flat_lines_of(op->bytes);
    /* Whole vectors, and whole elements of any type; a user's function sees the elements alone. */
    size_t whole = op->call.bind.user ? op->bytes : ((size_t)n * FLAT_LINE_BYTES + 63) & ~(size_t)63;

    flat_lines_get(op, flat_digit_peer(lane, op->level, op->stride, 0), op->level, n, sum);
    for (uint32_t d = 1; d < lane->factors[op->level]; d++) {
        flat_lines_get(op, flat_digit_peer(lane, op->level, op->stride, d), op->level, n, next);
        flat_fold(op, sum, sum, next, whole);
    }
    if (last) flat_divide(op, sum, whole);
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
        for (op->peer = 0; op->peer < lane->factors[op->level]; op->peer++)
            FLAT_WAIT(flat_lines_there(op, flat_digit_peer(lane, op->level, op->stride, op->peer), op->level,
                                       flat_lines_of(op->bytes)));
        fold_level(op, op->level + 1 == lane->n_factors);
        op->stride *= lane->factors[op->level];
    }
    FLAT_END;
}

static enum tutti_advance barrier(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->level = 0, op->stride = 1; op->level < lane->n_factors; op->level++) {
        if (op->level >= op->n_put) flat_lines_put(op, op->level, NULL, 0);
        for (op->peer = 0; op->peer < lane->factors[op->level]; op->peer++)
            FLAT_WAIT(flat_lines_there(op, flat_digit_peer(lane, op->level, op->stride, op->peer), op->level, 1));
        op->stride *= lane->factors[op->level];
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
