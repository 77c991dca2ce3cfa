/* SPDX-License-Identifier: BSD-3-Clause */
/* Private buffers that are only copied: each rank has what it gets copied by the kernel, straight from where it lies
 * with the others to where it belongs. */
#include "backend/flat/flat.h"

/* What this rank gets of the peer: where that is in the peer's input, and in the own output. */
struct part {
    size_t from, to, bytes;
};

static struct part part_of(const struct flat_op *op, uint32_t peer)
{
    struct part part = {.from = 0};
    part.bytes = flat_block(op, peer, &part.to);
    if (op->call.info.kind == TUTTI_ALL_TO_ALL) part.from = op->lane->me * op->bytes;
    return part;
}

static void copy_own(struct flat_op *op)
{
    struct part part = part_of(op, op->lane->me);
    const unsigned char *from = op->send + part.from;
    unsigned char *to = op->recv + part.to;
    if (part.bytes > 0 && from != to)
        flat_copy(to, from, part.bytes, op->bytes >= TUTTI_PAST_CACHE_BYTES / op->lane->n);
}

static size_t window(const struct flat_op *op, size_t bytes)
{
    size_t left = bytes - op->offset;
    return left < FLAT_WINDOW_BYTES ? left : FLAT_WINDOW_BYTES;
}

static enum tutti_advance read_part(struct flat_op *op, uint32_t peer)
{
    struct part part = part_of(op, peer);
    return flat_attach_read(op, peer, op->recv + part.to + op->offset, part.from + op->offset, window(op, part.bytes));
}

/* ---- all_gather and all_to_all ---- */

static enum tutti_advance read_all(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->peer = 1; op->peer < lane->n; op->peer++) {
        for (op->offset = 0; op->offset < part_of(op, flat_after(lane, op->peer)).bytes;
             op->offset += FLAT_WINDOW_BYTES) {
            FLAT_STEP(read_part(op, flat_after(lane, op->peer)));
            FLAT_PAUSE();
        }
    }
    copy_own(op);
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- broadcast: each other rank reads; of two, both copy a half if both may ---- */

static bool is_shared(const struct flat_op *op)
{
    if (op->lane->n != 2) return false;
    const struct flat_post *post = flat_post_of(op, 1 - flat_root(op));
    return atomic_load_explicit(&post->facts, memory_order_relaxed) & FLAT_ATTACHABLE;
}

static size_t half(const struct flat_op *op)
{
    return is_shared(op) ? op->bytes / 2 / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE : op->bytes;
}

static enum tutti_advance write_half(struct flat_op *op)
{
    return flat_attach_write(op, 1 - op->lane->me, op->send + op->offset, op->offset, window(op, op->bytes));
}

static enum tutti_advance read_half(struct flat_op *op)
{
    return flat_attach_read(op, flat_root(op), op->recv + op->offset, op->offset, window(op, half(op)));
}

static enum tutti_advance broadcast(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (!flat_is_root(op)) {
        for (op->offset = 0; op->offset < half(op); op->offset += FLAT_WINDOW_BYTES) {
            FLAT_STEP(read_half(op));
            FLAT_PAUSE();
        }
        FLAT_WAIT(half(op) == op->bytes || flat_staged(op, flat_root(op), 1));
    } else {
        if (op->lane->n == 2) FLAT_WAIT(flat_posted(op, 1 - op->lane->me));
        for (op->offset = half(op); op->offset < op->bytes; op->offset += FLAT_WINDOW_BYTES) {
            FLAT_STEP(write_half(op));
            FLAT_PAUSE();
        }
        flat_stage(op);
        FLAT_WAIT(flat_left(op));
    }
    FLAT_END;
}

/* Nobody knows where the blocks of v forms lie with others, unless they send but one. */
static bool fits(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && !lane->addresses && !(call->bind.v && call->info.kind == TUTTI_ALL_TO_ALL);
}

const struct flat_method flat_attach_all_gather = {.name = "attach",
                                                   .kind = TUTTI_ALL_GATHER,
                                                   .needs = FLAT_ATTACHABLE,
                                                   .fits = fits,
                                                   .cost_ns = flat_cost_attach,
                                                   .advance = read_all};
const struct flat_method flat_attach_all_to_all = {.name = "attach",
                                                   .kind = TUTTI_ALL_TO_ALL,
                                                   .needs = FLAT_ATTACHABLE | FLAT_APART,
                                                   .fits = fits,
                                                   .cost_ns = flat_cost_attach,
                                                   .advance = read_all};
const struct flat_method flat_attach_broadcast = {.name = "attach",
                                                  .kind = TUTTI_BROADCAST,
                                                  .needs = FLAT_ATTACHABLE,
                                                  .fits = fits,
                                                  .cost_ns = flat_cost_attach,
                                                  .advance = broadcast};
