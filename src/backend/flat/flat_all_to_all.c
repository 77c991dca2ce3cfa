/* SPDX-License-Identifier: BSD-3-Clause */
/* all_to_all: block r of everybody's input to rank r. The v form knows only its own row and column, so its posts tell
 * how many rounds the longest own block takes, and a first round of staging tells the places and lengths of the blocks.
 * In place, a round is staged before it is overwritten; mapped buffers swap, each pair half by half. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */

static bool is_large(const struct flat_op *op)
{
    return op->bytes >= FLAT_PAST_CACHE_BYTES / op->lane->n;
}

/* ---- lines: all inputs whole, and each rank reads those of its blocks ---- */

static bool take_block(struct flat_op *op, uint32_t peer)
{
    size_t at = op->lane->me * op->bytes;
    if (!flat_lines_there(op, peer, 0)) return false;
    flat_lines_part(op, peer, 0, at, op->bytes, op->recv + peer * op->bytes);
    return true;
}

static enum tutti_advance line(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (op->n_put == 0) flat_lines_put(op, 0, op->send, op->bytes * op->lane->n);
    flat_lines_ahead(op);
    for (op->peer = 0; op->peer < op->lane->n; op->peer++) FLAT_WAIT(take_block(op, op->peer));
    FLAT_END;
}

static bool fits_line(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && flat_block_bytes(lane, call) <= FLAT_LINE_MAX / lane->n;
}

/* ---- the first round of the v form: where this rank's blocks are, and how long ---- */

struct entry {
    uint64_t at, bytes;
};

static uint64_t table_rounds(const struct flat_op *op)
{
    return op->tables ? 1 : 0;
}

static void stage_table(struct flat_op *op)
{
    unsigned char *slot = flat_slot_in(op, op->lane->me, 0);
    for (uint32_t r = 0; r < op->lane->n; r++) {
        size_t at, bytes = flat_block_sent(op, r, &at);
        struct entry entry = {at, bytes};
        memcpy(slot + r * sizeof(entry), &entry, sizeof(entry));
    }
}

/* What the peer has for this rank. After its first round is staged. */
static struct entry entry_of(const struct flat_op *op, uint32_t peer)
{
    struct entry entry = {op->lane->me * op->bytes, op->bytes};
    if (op->tables) memcpy(&entry, flat_slot_in(op, peer, 0) + op->lane->me * sizeof(entry), sizeof(entry));
    return entry;
}

static bool agrees(const struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = flat_block(op, peer, &at);
    struct entry entry = entry_of(op, peer);
    if (!op->tables || entry.bytes == bytes) return true;
    tutti_fail(TUTTI_ERR_MISMATCH, "rank %u sends %zu bytes to rank %u, which expects %zu", peer, (size_t)entry.bytes,
               op->lane->me, bytes);
    return false;
}

/* ---- staging ---- */

/* What is equal on all ranks decides on the length of pieces. */
static void start_stage(struct flat_op *op)
{
    flat_cut_evenly(op, op->tables ? op->lane->chunk * FLAT_SLOTS : op->bytes, op->lane->n);
    op->n_rounds = (op->bytes + op->piece - 1) / op->piece;
}

static uint64_t tell_rounds(const struct flat_op *op)
{
    return op->n_rounds;
}

/* Where the piece for rank r lies in round u: one behind the other, as long as they are; of the v form, whose readers
 * know their own lengths alone, at equal distances. */
static size_t place_of(const struct flat_op *op, uint32_t r, uint64_t u)
{
    return r * (op->tables ? op->piece : flat_piece(op, op->bytes, u));
}

static void stage_round(struct flat_op *op, uint64_t round)
{
    unsigned char *slot = flat_slot_in(op, op->lane->me, round);
    uint64_t u = round - table_rounds(op);
    if (round < table_rounds(op)) {
        stage_table(op);
        return;
    }
    for (uint32_t i = 1; i < op->lane->n; i++) {
        uint32_t r = flat_after(op->lane, i);
        size_t at, bytes = flat_piece(op, flat_block_sent(op, r, &at), u);
        if (bytes > 0) memcpy(slot + place_of(op, r, u), op->send + at + u * op->piece, bytes);
    }
}

static void first(struct flat_op *op)
{
    stage_round(op, 0);
}

/* False: the peer has another number of bytes for this rank. */
static bool copy_out(struct flat_op *op, uint64_t round, uint32_t peer)
{
    const struct flat_lane *lane = op->lane;
    uint64_t u = round - table_rounds(op);
    if (round < table_rounds(op)) return agrees(op, peer);
    size_t to, from, bytes = flat_piece(op, flat_block(op, peer, &to), u);
    const unsigned char *piece = flat_slot_in(op, peer, round) + place_of(op, lane->me, u);
    unsigned char *out = op->recv + to + u * op->piece;
    if (peer == lane->me) {
        flat_block_sent(op, peer, &from);
        piece = op->send + from + u * op->piece;
    }
    if (bytes > 0 && out != piece) flat_copy(out, piece, bytes, is_large(op));
    return true;
}

static enum tutti_advance stage(struct flat_op *op)
{
    static const struct flat_rounds rounds = {stage_round, copy_out};
    op->n_rounds = op->told + table_rounds(op);
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

/* v: the places of the blocks, as a round of staging. */
static void start_pull(struct flat_op *op)
{
    op->n_rounds = table_rounds(op);
}

/* From where the operation is in the peer's block; false: it can not be mapped. */
static bool pull_piece(struct flat_op *op, uint32_t peer)
{
    size_t to, bytes = flat_block(op, peer, &to);
    size_t left = bytes - op->offset;
    if (bytes == 0) return true;
    const unsigned char *source = flat_peer_part(op, peer, true, entry_of(op, peer).at + op->offset, left);
    if (!source) return false;
    if (left > PAUSE_BYTES) left = PAUSE_BYTES;
    flat_copy(op->recv + to + op->offset, source, left, is_large(op));
    op->offset += left;
    return true;
}

static bool is_pulled(const struct flat_op *op, uint32_t peer)
{
    size_t at;
    return op->offset >= flat_block(op, peer, &at);
}

static enum tutti_advance unmapped(void)
{
    tutti_fail(TUTTI_ERR_SYSTEM, "memory of a peer can not be mapped");
    return TUTTI_RUN_FAILED;
}

static enum tutti_advance pull(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    if (op->n_rounds > 0) {
        FLAT_WAIT(flat_round_room(op, 0));
        stage_table(op);
        flat_stage(op);
    }
    for (op->peer = 0; op->peer < lane->n; op->peer++) {
        FLAT_WAIT(flat_after(lane, op->peer) == lane->me || flat_staged(op, flat_after(lane, op->peer), op->n_rounds));
        if (!agrees(op, flat_after(lane, op->peer))) return TUTTI_RUN_FAILED;
        op->offset = 0;
        do {
            if (!pull_piece(op, flat_after(lane, op->peer))) return unmapped();
            FLAT_PAUSE();
        } while (!is_pulled(op, flat_after(lane, op->peer)));
    }
    flat_fence();
    if (op->n_rounds > 0) flat_has_read(op, op->n_rounds);
    FLAT_MEET(op);
    FLAT_END;
}

static bool fits_always(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->n > 1;
}

/* ---- mapped buffers in place ---- */

static void swap(unsigned char *a, unsigned char *b, size_t bytes)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char block[FLAT_BLOCK_BYTES];
    for (size_t at = 0; at < bytes; at += sizeof(block)) {
        size_t some = bytes - at < sizeof(block) ? bytes - at : sizeof(block);
        memcpy(block, a + at, some);
        memcpy(a + at, b + at, some);
        memcpy(b + at, block, some);
    }
}

/* This rank's half of what it swaps with the peer. */
static size_t half_of(const struct flat_op *op, uint32_t peer, size_t *at)
{
    size_t half = op->bytes / 2;
    *at = peer < op->lane->me ? half : 0;
    return peer < op->lane->me ? op->bytes - half : half;
}

/* From op->offset on, so much as may go at once: others may fail meanwhile. False: it can not be mapped. */
static bool swap_piece(struct flat_op *op, uint32_t peer)
{
    const struct flat_lane *lane = op->lane;
    size_t at, bytes = half_of(op, peer, &at) - op->offset;
    unsigned char *theirs = flat_peer_recv(op, peer);
    if (!theirs) return false;
    at += op->offset;
    swap(op->recv + peer * op->bytes + at, theirs + lane->me * op->bytes + at,
         bytes < PAUSE_BYTES ? bytes : PAUSE_BYTES);
    return true;
}

static bool is_swapped(const struct flat_op *op, uint32_t peer)
{
    size_t at;
    return op->offset >= half_of(op, peer, &at);
}

static enum tutti_advance exchange(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    for (op->peer = 1; op->peer < op->lane->n; op->peer++) {
        for (op->offset = 0; !is_swapped(op, flat_after(op->lane, op->peer)); op->offset += PAUSE_BYTES) {
            if (!swap_piece(op, flat_after(op->lane, op->peer))) return unmapped();
            FLAT_PAUSE();
        }
    }
    FLAT_MEET(op);
    FLAT_END;
}

static bool fits_exchange(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && !call->bind.v;
}

const struct flat_method flat_line_all_to_all = {
    .name = "line", .kind = TUTTI_ALL_TO_ALL, .fits = fits_line, .cost_ns = flat_cost_line, .advance = line};
const struct flat_method flat_stage_all_to_all = {.name = "stage",
                                                  .kind = TUTTI_ALL_TO_ALL,
                                                  .who = FLAT_ALL,
                                                  .fits = fits_stage,
                                                  .cost_ns = flat_cost_stage,
                                                  .start = start_stage,
                                                  .tell = tell_rounds,
                                                  .first = first,
                                                  .advance = stage};
const struct flat_method flat_pull_all_to_all = {.name = "pull",
                                                 .kind = TUTTI_ALL_TO_ALL,
                                                 .needs = FLAT_SEND_MAPPED | FLAT_APART,
                                                 .fits = fits_always,
                                                 .cost_ns = flat_cost_mapped,
                                                 .start = start_pull,
                                                 .advance = pull};
const struct flat_method flat_swap_all_to_all = {.name = "swap",
                                                 .kind = TUTTI_ALL_TO_ALL,
                                                 .needs = FLAT_RECV_MAPPED | FLAT_SAME,
                                                 .fits = fits_exchange,
                                                 .cost_ns = flat_cost_mapped,
                                                 .advance = exchange};
