/* SPDX-License-Identifier: BSD-3-Clause */
/* gather: a block of every rank to the root. Small: in lines. Else each edge goes its own way: a leaf whose block is
 * mapped waits until the root has read it in place, another one copies it into its staging memory, in rounds, and is
 * through when the last is there. Where the root's buffer is mapped, the leaves write their blocks into it themselves,
 * all at once. Of the v form a leaf knows its own block alone: the root's post says how many rounds there are, and the
 * leaves' posts how many bytes they send. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */
#define MAPPED_LEAST ((size_t)4 << 10)  /* less is gone from the leaf sooner when it is copied */

static bool is_past(const struct flat_op *op)
{
    return op->bytes >= TUTTI_PAST_CACHE_BYTES / op->lane->n;
}

/* ---- lines ---- */

static void keep_own(struct flat_op *op)
{
    size_t at, bytes = flat_block(op, op->lane->me, &at);
    if (bytes > 0 && op->recv + at != op->send) memcpy(op->recv + at, op->send, bytes);
}

static enum tutti_advance in_lines(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    if (!flat_is_root(op)) {
        if (op->n_put == 0) flat_lines_put(op, 0, op->send, op->bytes);
    } else {
        keep_own(op);
        flat_lines_ahead(op);
        for (op->peer = 1; op->peer < lane->n; op->peer++) {
            FLAT_WAIT(flat_lines_there(op, flat_after(lane, op->peer), 0));
            flat_lines_part(op, flat_after(lane, op->peer), 0, 0, op->bytes,
                            op->recv + flat_after(lane, op->peer) * op->bytes);
        }
    }
    FLAT_END;
}

/* ---- staging, or in place: as each leaf says ---- */

static uint64_t rounds_of(const struct flat_op *op, size_t bytes)
{
    return (bytes + op->piece - 1) / op->piece;
}

static void start(struct flat_op *op)
{
    flat_cut(op, op->call.bind.v ? SIZE_MAX : op->bytes, 1);
    if (op->call.bind.v) op->n_rounds = flat_is_root(op) ? rounds_of(op, op->bytes) : 0;
    if (op->call.bind.v && flat_is_root(op) && (op->facts & FLAT_RECV_MAPPED)) flat_blocks_tell(op);
    if (op->bytes < MAPPED_LEAST || op->forced) op->facts &= ~(uint64_t)FLAT_SEND_MAPPED;
}

/* Of the v form: the root's number of rounds, and a leaf's bytes. */
static uint64_t tell(const struct flat_op *op)
{
    if (!op->call.bind.v) return 0;
    return flat_is_root(op) ? op->n_rounds : op->bytes;
}

static uint64_t post_facts(const struct flat_op *op, uint32_t r)
{
    return atomic_load_explicit(&flat_post_of(op, r)->facts, memory_order_relaxed);
}

static bool in_place(const struct flat_op *op, uint32_t r)
{
    return post_facts(op, r) & FLAT_SEND_MAPPED;
}

static enum tutti_advance give(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (op->call.bind.v) op->n_rounds = op->told;
    flat_has_read(op, op->n_rounds); /* nothing */
    if (in_place(op, op->lane->me)) {
        FLAT_WAIT(flat_reached(op, flat_root(op), &op->lane->areas[flat_root(op)]->done, op->number));
    } else {
        for (op->round = 0; op->round < rounds_of(op, op->bytes); op->round++) {
            FLAT_WAIT(flat_round_room(op, op->round));
            memcpy(flat_slot_in(op, op->lane->me, op->round), op->send + op->round * op->piece,
                   flat_piece(op, op->bytes, op->round));
            flat_stage(op);
        }
    }
    FLAT_END;
}

/* Whether there is nothing to wait for in this round: nothing of the peer's block, or it is there anyway. */
static bool there(struct flat_op *op, uint32_t r)
{
    size_t at, bytes = flat_block(op, r, &at);
    if (r == op->lane->me || flat_piece(op, bytes, op->round) == 0) return true;
    return flat_posted(op, r) && (in_place(op, r) || flat_staged(op, r, op->round + 1));
}

static bool collect(struct flat_op *op, uint32_t r)
{
    size_t at, bytes = flat_block(op, r, &at), some = flat_piece(op, bytes, op->round);
    if (some == 0) return true;
    const unsigned char *from = flat_slot_in(op, r, op->round);
    if (r == op->lane->me || in_place(op, r)) {
        from = flat_peer_part(op, r, true, 0, bytes);
        if (!from) return false;
        from += op->round * op->piece;
    }
    at += op->round * op->piece;
    if (op->recv + at != from) flat_copy(op->recv + at, from, some, is_past(op));
    return true;
}

/* A leaf that sends another number of bytes than the root expects. */
static bool agrees(const struct flat_op *op, uint32_t r)
{
    size_t at, bytes = flat_block(op, r, &at), sent = post_facts(op, r) >> FLAT_NUMBER_SHIFT;
    if (sent == bytes) return true;
    tutti_fail(TUTTI_ERR_MISMATCH, "rank %u sends %zu bytes to rank %u, which expects %zu", r, sent, op->lane->me,
               bytes);
    return false;
}

static enum tutti_advance collect_all(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->peer = 1; op->call.bind.v && op->peer < lane->n; op->peer++) {
        FLAT_WAIT(flat_posted(op, flat_after(lane, op->peer)));
        if (!agrees(op, flat_after(lane, op->peer))) return TUTTI_RUN_FAILED;
    }
    for (op->round = 0; op->round < op->n_rounds; op->round++) {
        for (op->peer = 0; op->peer < lane->n; op->peer++) {
            FLAT_WAIT(there(op, flat_after(lane, op->peer)));
            if (!collect(op, flat_after(lane, op->peer))) return flat_lost();
        }
        flat_has_read(op, op->round + 1);
        if (op->round + 1 < op->n_rounds) FLAT_PAUSE();
    }
    if (is_past(op)) flat_fence();
    FLAT_END;
}

static enum tutti_advance staged(struct flat_op *op)
{
    return flat_is_root(op) ? collect_all(op) : give(op);
}

/* ---- the root's buffer is mapped ---- */

static enum tutti_advance disagree(const struct flat_op *op, size_t expected)
{
    tutti_fail(TUTTI_ERR_MISMATCH, "rank %u sends %zu bytes to rank %u, which expects %zu", op->lane->me, op->bytes,
               flat_root(op), expected);
    return TUTTI_RUN_FAILED;
}

/* Where the own block belongs in the root's buffer, and its bytes. */
static size_t own_block(const struct flat_op *op, size_t *at)
{
    return op->call.bind.v && !flat_is_root(op) ? flat_block_told(op, at) : flat_block(op, op->lane->me, at);
}

static enum tutti_advance push(struct flat_op *op)
{
    size_t at, bytes = own_block(op, &at);
    FLAT_BEGIN(op->at)
    if (!flat_is_root(op) && bytes != op->bytes) return disagree(op, bytes);
    for (op->offset = 0; op->offset < bytes; op->offset += PAUSE_BYTES) {
        unsigned char *out = flat_peer_part(op, flat_root(op), false, at, bytes);
        size_t left = bytes - op->offset, some = left < PAUSE_BYTES ? left : PAUSE_BYTES;
        if (!out) return flat_lost();
        out += op->offset;
        if (out != op->send + op->offset) flat_copy(out, op->send + op->offset, some, is_past(op));
        if (left > PAUSE_BYTES) FLAT_PAUSE();
    }
    flat_fence();
    if (flat_is_root(op)) FLAT_WAIT(flat_left(op));
    FLAT_END;
}

/* ---- fits ---- */

static bool fits_lines(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && flat_block_bytes(lane, call) <= FLAT_LINE_MAX;
}

static bool fits_staged(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->n > 1 && lane->chunk > 0;
}

static bool fits_push(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && (!call->bind.v || lane->n <= FLAT_TOLD_RANKS) && flat_block_bytes(lane, call) >= MAPPED_LEAST;
}

const struct flat_method flat_line_gather = {
    .name = "line", .kind = TUTTI_GATHER, .fits = fits_lines, .cost_ns = flat_cost_line, .advance = in_lines};
const struct flat_method flat_stage_gather = {.name = "stage",
                                              .kind = TUTTI_GATHER,
                                              .who = FLAT_ROOT,
                                              .fits = fits_staged,
                                              .cost_ns = flat_cost_stage,
                                              .start = start,
                                              .tell = tell,
                                              .advance = staged};
const struct flat_method flat_mapped_gather = {.name = "mapped",
                                               .kind = TUTTI_GATHER,
                                               .needs = FLAT_RECV_MAPPED,
                                               .fits = fits_push,
                                               .cost_ns = flat_cost_mapped,
                                               .advance = push};
