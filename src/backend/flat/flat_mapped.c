/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that all ranks map: no staging at all. The posts, which tell where the buffers are, are the barrier at the
 * beginning; at the end all ranks meet, for nobody may leave while others read or write its buffers. Pushing beats
 * pulling: a slice is folded once, in the first cache, and stored to all outputs. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */

static size_t part_of(const struct flat_op *op, size_t *at)
{
    return flat_part(op, op->bytes, op->lane->n, op->lane->me, at);
}

/* Folds `bytes` of the own slice from op->offset on and stores them to all. */
static bool push(struct flat_op *op, size_t at, size_t bytes)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *outputs[FLAT_MAX_RANKS];

    for (uint32_t r = 0; r < lane->n; r++) {
        uint32_t o = (lane->me + r) % lane->n; /* not all to the same one at once */
        unsigned char *output = flat_peer_recv(op, o);
        sources[r] = flat_peer_send(op, r);
        if (!sources[r] || !output) return false;
        outputs[r] = output + at;
    }
    flat_fold_all(op, outputs, lane->n, op->bytes >= (size_t)4 << 20 ? lane->n : 0, sources, lane->n, at, bytes);
    return true;
}

static enum tutti_advance all_reduce(struct flat_op *op)
{
    size_t at, bytes = part_of(op, &at);
    FLAT_BEGIN(op->at)
    for (op->offset = 0; op->offset < bytes; op->offset += PAUSE_BYTES) {
        size_t left = bytes - op->offset;
        if (!push(op, at + op->offset, left < PAUSE_BYTES ? left : PAUSE_BYTES)) {
            tutti_fail(TUTTI_ERR_SYSTEM, "memory of a peer can not be mapped");
            return TUTTI_RUN_FAILED;
        }
        if (left > PAUSE_BYTES) FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

static bool fits(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && !call->bind.v && !call->bind.scale;
}

const struct flat_method flat_mapped_all_reduce = {.name = "mapped",
                                                   .kind = TUTTI_ALL_REDUCE,
                                                   .needs = FLAT_SEND_MAPPED | FLAT_RECV_MAPPED,
                                                   .fits = fits,
                                                   .cost_ns = flat_cost_mapped,
                                                   .advance = all_reduce};
