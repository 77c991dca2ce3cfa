/* SPDX-License-Identifier: BSD-3-Clause */
/* scatter: a block of the root's to every rank. Small: in the root's lines, of which a leaf waits for those alone that
 * hold its block. Private: rounds through the root's staging memory, each with a piece for every leaf. Where the root's
 * buffer is mapped, the leaves read their blocks in place, all at once. Of the v form a leaf knows its own block alone:
 * the root's post says how many rounds there are, and the leaves' posts how many bytes they expect. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */
#define MAPPED_LEAST ((size_t)4 << 10)  /* less is gone from the root sooner when it is copied */

/* Number of a leaf, and the leaf of a number. */
static uint32_t index_of(const struct flat_op *op, uint32_t r)
{
    return r - (r > flat_root(op));
}

static uint32_t leaf_of(const struct flat_op *op, uint32_t i)
{
    return i + (i >= flat_root(op));
}

static bool is_past(const struct flat_op *op)
{
    return op->bytes >= TUTTI_PAST_CACHE_BYTES / op->lane->n;
}

static void keep_own(struct flat_op *op)
{
    size_t at, bytes = flat_block(op, op->lane->me, &at);
    if (bytes > 0 && op->recv != op->send + at) flat_copy(op->recv, op->send + at, bytes, is_past(op));
}

/* ---- lines: whole blocks in each level ---- */

static uint32_t per_level(size_t bytes)
{
    return bytes > 0 ? (uint32_t)(FLAT_LINE_MAX / bytes) : FLAT_MAX_RANKS;
}

static void put_level(struct flat_op *op, uint32_t level)
{
    unsigned char blocks[FLAT_LINE_MAX];
    uint32_t per = per_level(op->bytes), n = op->lane->n - 1, filled = 0;
    for (uint32_t i = level * per; i < n && filled < per; i++, filled++)
        memcpy(blocks + filled * op->bytes, op->send + leaf_of(op, i) * op->bytes, op->bytes);
    flat_lines_put(op, level, blocks, filled * op->bytes);
}

static enum tutti_advance in_lines(struct flat_op *op)
{
    uint32_t per = per_level(op->bytes), i = index_of(op, op->lane->me);
    size_t at = i % per * op->bytes;
    FLAT_BEGIN(op->at)
    if (flat_is_root(op)) {
        for (op->level = 0; op->level * per < op->lane->n - 1; op->level++) put_level(op, op->level);
        keep_own(op);
    } else {
        FLAT_WAIT(flat_lines_there(op, flat_root(op), i / per));
        flat_lines_part(op, flat_root(op), i / per, at, op->bytes, op->recv);
    }
    FLAT_END;
}

/* ---- staging ---- */

static uint64_t rounds_of(const struct flat_op *op, size_t bytes)
{
    return (bytes + op->piece - 1) / op->piece;
}

static void start(struct flat_op *op)
{
    flat_cut(op, op->call.bind.v ? SIZE_MAX : op->bytes, op->lane->n - 1);
    if (op->call.bind.v) op->n_rounds = flat_is_root(op) ? rounds_of(op, op->bytes) : 0;
    if (op->call.bind.v && flat_is_root(op) && (op->facts & FLAT_SEND_MAPPED)) flat_blocks_tell(op);
}

/* Of the v form: the root's number of rounds, and a leaf's bytes. */
static uint64_t tell(const struct flat_op *op)
{
    if (!op->call.bind.v) return 0;
    return flat_is_root(op) ? op->n_rounds : op->bytes;
}

static void put(struct flat_op *op, uint64_t u)
{
    unsigned char *slot = flat_slot_in(op, op->lane->me, u);
    for (uint32_t i = 0; i < op->lane->n - 1; i++) {
        size_t at, bytes = flat_piece(op, flat_block(op, leaf_of(op, i), &at), u);
        if (bytes > 0) memcpy(slot + i * op->piece, op->send + at + u * op->piece, bytes);
    }
}

static void first(struct flat_op *op)
{
    if (op->n_rounds > 0) put(op, 0);
}

/* A leaf that expects another number of bytes than the root has for it. */
static bool agrees(const struct flat_op *op, uint32_t r)
{
    uint64_t facts = atomic_load_explicit(&flat_post_of(op, r)->facts, memory_order_relaxed);
    size_t at, bytes = flat_block(op, r, &at), expected = facts >> FLAT_NUMBER_SHIFT;
    if (expected == bytes) return true;
    tutti_fail(TUTTI_ERR_MISMATCH, "rank %u sends %zu bytes to rank %u, which expects %zu", op->lane->me, bytes, r,
               expected);
    return false;
}

static enum tutti_advance give_all(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    flat_has_read(op, op->n_rounds); /* nothing */
    for (op->peer = 0; op->call.bind.v && op->peer < op->lane->n - 1; op->peer++) {
        FLAT_WAIT(flat_posted(op, leaf_of(op, op->peer)));
        if (!agrees(op, leaf_of(op, op->peer))) return TUTTI_RUN_FAILED;
    }
    for (op->round = op->staged; op->round < op->n_rounds; op->round++) {
        FLAT_WAIT(flat_round_room(op, op->round));
        put(op, op->round);
        flat_stage(op);
    }
    keep_own(op);
    if (is_past(op)) flat_fence();
    FLAT_END;
}

static void take(struct flat_op *op, uint64_t u)
{
    const unsigned char *piece = flat_slot_in(op, flat_root(op), u) + index_of(op, op->lane->me) * op->piece;
    flat_copy(op->recv + u * op->piece, piece, flat_piece(op, op->bytes, u), is_past(op));
}

static enum tutti_advance take_own(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (op->call.bind.v) op->n_rounds = op->told;
    for (op->round = 0; op->round < rounds_of(op, op->bytes); op->round++) {
        FLAT_WAIT(flat_staged(op, flat_root(op), op->round + 1));
        take(op, op->round);
        flat_has_read(op, op->round + 1);
    }
    flat_has_read(op, op->n_rounds);
    if (is_past(op)) flat_fence();
    FLAT_END;
}

static enum tutti_advance staged(struct flat_op *op)
{
    return flat_is_root(op) ? give_all(op) : take_own(op);
}

/* ---- the root's buffer is mapped ---- */

static enum tutti_advance disagree(const struct flat_op *op, size_t sent)
{
    tutti_fail(TUTTI_ERR_MISMATCH, "rank %u sends %zu bytes to rank %u, which expects %zu", flat_root(op), sent,
               op->lane->me, op->bytes);
    return TUTTI_RUN_FAILED;
}

/* Where the own block lies in the root's buffer, and its bytes. */
static size_t own_block(const struct flat_op *op, size_t *at)
{
    return op->call.bind.v && !flat_is_root(op) ? flat_block_told(op, at) : flat_block(op, op->lane->me, at);
}

static enum tutti_advance pull(struct flat_op *op)
{
    size_t at, bytes = own_block(op, &at);
    FLAT_BEGIN(op->at)
    if (!flat_is_root(op) && bytes != op->bytes) return disagree(op, bytes);
    for (op->offset = 0; op->offset < bytes; op->offset += PAUSE_BYTES) {
        const unsigned char *from = flat_peer_part(op, flat_root(op), true, at, bytes);
        size_t left = bytes - op->offset, some = left < PAUSE_BYTES ? left : PAUSE_BYTES;
        if (!from) return flat_lost();
        from += op->offset;
        if (op->recv + op->offset != from) flat_copy(op->recv + op->offset, from, some, is_past(op));
        if (left > PAUSE_BYTES) FLAT_PAUSE();
    }
    flat_fence();
    if (flat_is_root(op)) FLAT_WAIT(flat_left(op));
    FLAT_END;
}

/* ---- fits ---- */

static bool fits_lines(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    size_t bytes = flat_block_bytes(lane, call);
    return lane->n > 1 && bytes <= FLAT_LINE_MAX && lane->n - 1 <= per_level(bytes) * FLAT_LEVELS;
}

static bool fits_staged(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->n > 1 && lane->chunk > 0;
}

static bool fits_pull(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && (!call->bind.v || lane->n <= FLAT_TOLD_RANKS) && flat_block_bytes(lane, call) >= MAPPED_LEAST;
}

const struct flat_method flat_line_scatter = {
    .name = "line", .kind = TUTTI_SCATTER, .fits = fits_lines, .cost_ns = flat_cost_line, .advance = in_lines};
const struct flat_method flat_stage_scatter = {.name = "stage",
                                               .kind = TUTTI_SCATTER,
                                               .who = FLAT_ROOT,
                                               .fits = fits_staged,
                                               .cost_ns = flat_cost_stage,
                                               .start = start,
                                               .tell = tell,
                                               .first = first,
                                               .advance = staged};
const struct flat_method flat_mapped_scatter = {.name = "mapped",
                                                .kind = TUTTI_SCATTER,
                                                .needs = FLAT_SEND_MAPPED,
                                                .fits = fits_pull,
                                                .cost_ns = flat_cost_mapped,
                                                .advance = pull};
