/* SPDX-License-Identifier: BSD-3-Clause */
/* all_gather: everybody's block to everybody. Lines, as a butterfly whose messages grow with its levels; staging, in
 * rounds of which each rank copies its own piece in and all pieces out; and, where buffers are mapped, without staging:
 * a block that is pushed is read once, a block that is pulled needs no mapped output. */
#include "backend/flat/flat.h"

#define PUSH_BYTES ((size_t)16 << 10)   /* of the own block to each rank in turn: it stays in the first cache */
#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */

static unsigned char *block_of(const struct flat_op *op, uint32_t r, size_t *bytes)
{
    size_t at;
    *bytes = flat_block(op, r, &at);
    return op->recv + at;
}

static bool is_large(const struct flat_op *op)
{
    return op->bytes >= FLAT_PAST_CACHE_BYTES / op->lane->n;
}

/* ---- lines ---- */

/* What this rank has so far: the blocks of its group of `stride` neighbours. Blocks of different sizes have one level.
 */
static size_t group_of(const struct flat_op *op, uint32_t r, unsigned char **data)
{
    size_t bytes;
    uint32_t first = r / op->stride * op->stride;
    *data = block_of(op, first, &bytes);
    return bytes * op->stride;
}

static void put_level(struct flat_op *op)
{
    unsigned char *data;
    size_t bytes = group_of(op, op->lane->me, &data);
    if (op->level == 0 && data != op->send && bytes > 0) memcpy(data, op->send, bytes);
    if (op->level >= op->n_put) flat_lines_put(op, op->level, data, bytes);
}

static bool take_level(struct flat_op *op, uint32_t peer)
{
    unsigned char *data;
    size_t bytes = group_of(op, peer, &data);
    if (peer == op->lane->me) return true;
    if (!flat_lines_there(op, peer, op->level)) return false;
    flat_lines_part(op, peer, op->level, 0, bytes, data);
    return true;
}

static enum tutti_advance line(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->level = 0, op->stride = 1; op->level < lane->n_factors; op->level++) {
        put_level(op);
        flat_group_ahead(op, op->level, op->stride);
        for (op->peer = 0; op->peer < flat_radix(lane, op->level); op->peer++)
            FLAT_WAIT(take_level(op, flat_digit_peer(lane, op->level, op->stride, op->peer)));
        op->stride *= flat_radix(lane, op->level);
    }
    FLAT_END;
}

/* Blocks that a rank's lines hold at the last level. */
static uint32_t last_stride(const struct flat_lane *lane)
{
    return lane->n / flat_radix(lane, lane->n_factors - 1);
}

static bool fits_line(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    if (lane->n == 1 || (call->bind.v && lane->n_factors > 1)) return false;
    return flat_block_bytes(lane, call) <= FLAT_LINE_MAX / last_stride(lane);
}

/* ---- staging ---- */

static void start_stage(struct flat_op *op)
{
    flat_cut_evenly(op, op->bytes, 1);
}

static void stage_own(struct flat_op *op, uint64_t u)
{
    size_t bytes;
    unsigned char *own = block_of(op, op->lane->me, &bytes);
    bytes = flat_piece(op, bytes, u);
    if (bytes == 0) return;
    memcpy(flat_slot_in(op, op->lane->me, u), op->send + u * op->piece, bytes);
    if (own != op->send) flat_copy(own + u * op->piece, op->send + u * op->piece, bytes, is_large(op));
}

static void first(struct flat_op *op)
{
    stage_own(op, 0);
}

static bool copy_out(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t bytes;
    unsigned char *block = block_of(op, peer, &bytes);
    bytes = flat_piece(op, bytes, u);
    if (peer != op->lane->me && bytes > 0)
        flat_copy(block + u * op->piece, flat_slot_in(op, peer, u), bytes, is_large(op));
    return true;
}

static enum tutti_advance stage(struct flat_op *op)
{
    static const struct flat_rounds rounds = {stage_own, copy_out};
    enum tutti_advance run = flat_rounds(op, &rounds);
    if (run == TUTTI_RUN_DONE && is_large(op)) flat_fence();
    return run;
}

static bool fits_stage(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->n > 1 && lane->chunk > 0;
}

/* ---- mapped buffers ---- */

static bool push_piece(struct flat_op *op, size_t at, size_t bytes)
{
    const struct flat_lane *lane = op->lane;
    bool past = is_large(op);
    for (uint32_t i = 0; i < lane->n; i++) {
        unsigned char *recv = flat_peer_recv(op, flat_after(lane, i));
        if (!recv) return false;
        recv += lane->me * op->bytes + at;
        if (recv != op->send + at) flat_copy(recv, op->send + at, bytes, past);
    }
    return true;
}

static enum tutti_advance unmapped(void)
{
    tutti_fail(TUTTI_ERR_SYSTEM, "memory of a peer can not be mapped");
    return TUTTI_RUN_FAILED;
}

static enum tutti_advance push(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    for (op->offset = 0; op->offset < op->bytes; op->offset += PUSH_BYTES) {
        size_t left = op->bytes - op->offset;
        if (!push_piece(op, op->offset, left < PUSH_BYTES ? left : PUSH_BYTES)) return unmapped();
        if ((op->offset + PUSH_BYTES) % PAUSE_BYTES == 0) FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

/* From where the operation is in the peer's block; false: it can not be mapped. */
static bool pull_piece(struct flat_op *op, uint32_t peer)
{
    size_t bytes, left;
    unsigned char *block = block_of(op, peer, &bytes);
    left = bytes - op->offset;
    if (bytes == 0) return true;
    const unsigned char *source = flat_peer_part(op, peer, true, op->offset, left);
    if (!source) return false;
    if (left > PAUSE_BYTES) left = PAUSE_BYTES;
    if (source != block + op->offset) flat_copy(block + op->offset, source, left, is_large(op));
    op->offset += left;
    return true;
}

static bool is_pulled(const struct flat_op *op, uint32_t peer)
{
    size_t at;
    return op->offset >= flat_block(op, peer, &at);
}

static enum tutti_advance pull(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    for (op->peer = 0; op->peer < op->lane->n; op->peer++) {
        op->offset = 0;
        do {
            if (!pull_piece(op, flat_after(op->lane, op->peer))) return unmapped();
            FLAT_PAUSE();
        } while (!is_pulled(op, flat_after(op->lane, op->peer)));
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

static bool fits_push(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && !call->bind.v; /* displacements may differ between ranks */
}

static bool fits_pull(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->n > 1;
}

const struct flat_method flat_line_all_gather = {
    .name = "line", .kind = TUTTI_ALL_GATHER, .fits = fits_line, .cost_ns = flat_cost_line, .advance = line};
const struct flat_method flat_stage_all_gather = {.name = "stage",
                                                  .kind = TUTTI_ALL_GATHER,
                                                  .who = FLAT_ALL,
                                                  .fits = fits_stage,
                                                  .cost_ns = flat_cost_stage,
                                                  .start = start_stage,
                                                  .first = first,
                                                  .advance = stage};
const struct flat_method flat_push_all_gather = {.name = "push",
                                                 .kind = TUTTI_ALL_GATHER,
                                                 .needs = FLAT_RECV_MAPPED,
                                                 .fits = fits_push,
                                                 .cost_ns = flat_cost_mapped,
                                                 .advance = push};
const struct flat_method flat_pull_all_gather = {.name = "pull",
                                                 .kind = TUTTI_ALL_GATHER,
                                                 .needs = FLAT_SEND_MAPPED,
                                                 .fits = fits_pull,
                                                 .cost_ns = flat_cost_mapped,
                                                 .advance = pull};
