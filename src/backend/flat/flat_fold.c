/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of mapped buffers: each rank folds its share of all inputs where they lie, in the first cache, and stores
 * the result to all outputs that want it, for pushing beats pulling. In place is no different: of other ranks' buffers
 * a rank touches its share alone, which nobody else does. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10)        /* folded at one go */
#define PREFIX_PAUSE_BYTES ((size_t)128 << 10) /* of all ranks' prefixes */
#define MAPPED_LEAST ((size_t)4 << 10)         /* less is gone from the leaves sooner when it is copied */

/* This rank's share: where it is in the inputs. */
static size_t share_of(const struct flat_op *op, size_t *at)
{
    if (op->call.info.kind == TUTTI_REDUCE_SCATTER) return flat_block(op, op->inst->me, at);
    return flat_part(op, op->bytes, op->inst->n, op->inst->me, at);
}

static bool is_past(const struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    bool soon = kind == TUTTI_ALL_REDUCE || kind == TUTTI_REDUCE_SCATTER;
    return op->bytes >= (soon ? FLAT_PAST_CACHE_BYTES : TUTTI_PAST_CACHE_BYTES);
}

/* The shares in the outputs that want what this rank folds; 0: one of them can not be mapped. */
static uint32_t outputs_of(const struct flat_op *op, size_t at, size_t bytes, unsigned char **outputs)
{
    const struct flat_instance *inst = op->inst;
    enum tutti_kind kind = op->call.info.kind;
    uint32_t n = kind == TUTTI_ALL_REDUCE ? inst->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = kind == TUTTI_REDUCE ? flat_root(op) : flat_after(inst, i); /* not all to the same one at once */
        outputs[i] = flat_peer_part(op, r, false, kind == TUTTI_REDUCE_SCATTER ? 0 : at, bytes);
        if (!outputs[i]) return 0;
        outputs[i] += op->offset;
    }
    return n;
}

/* From op->offset on in the share. */
static bool fold_mapped(struct flat_op *op, size_t bytes)
{
    const struct flat_instance *inst = op->inst;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *outputs[FLAT_MAX_RANKS];
    size_t at, whole = share_of(op, &at);
    uint32_t n = outputs_of(op, at, whole, outputs);
    if (n == 0) return false;
    for (uint32_t r = 0; r < inst->n; r++) {
        sources[r] = flat_peer_part(op, r, true, at, whole);
        if (!sources[r]) return false;
    }
    flat_fold_all(op, &(struct flat_folding){outputs, n, is_past(op) ? n : 0, sources, inst->n, op->offset}, bytes);
    return true;
}

/* A prefix is divided by what its owner's post says. */
static void store_prefix(const struct flat_op *op, uint32_t r, unsigned char *to, const unsigned char *from,
                         size_t bytes)
{
    const struct tutti_bind *bind = &op->call.bind;
    uint64_t facts = atomic_load_explicit(&flat_post_of(op, r)->facts, memory_order_relaxed);
    if (bind->divide)
        bind->divide(to, from, bytes / op->element, (uint32_t)(facts >> FLAT_NUMBER_SHIFT));
    else
        flat_copy(to, from, bytes, is_past(op));
}

/* A block of all ranks: an input is read before the output is written that may be the same memory. */
static bool sweep(struct flat_op *op, size_t at, size_t bytes)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sums[2][FLAT_BLOCK_BYTES];
    bool own = flat_takes_own(op);
    for (uint32_t r = 0; r < op->inst->n; r++) {
        const unsigned char *in = flat_peer_part(op, r, true, 0, op->bytes), *before = sums[(r + 1) % 2];
        unsigned char *sum = sums[r % 2], *out = NULL;
        if (r > 0 || own) out = flat_peer_part(op, r, false, 0, op->bytes);
        if (!in || (!out && (r > 0 || own))) return false;
        if (r == 0)
            memcpy(sum, in + at, bytes);
        else
            flat_fold(op, sum, before, in + at, bytes);
        if (out) store_prefix(op, r, out + at, own ? sum : before, bytes);
    }
    return true;
}

static bool fold_prefixes(struct flat_op *op, size_t bytes)
{
    size_t at;
    share_of(op, &at);
    for (size_t done = 0; done < bytes; done += FLAT_BLOCK_BYTES) {
        size_t some = bytes - done < FLAT_BLOCK_BYTES ? bytes - done : FLAT_BLOCK_BYTES;
        if (!sweep(op, at + op->offset + done, some)) return false;
    }
    return true;
}

enum tutti_advance flat_fold_mapped(struct flat_op *op)
{
    bool prefix = flat_is_scan(op->call.info.kind);
    size_t at, bytes = share_of(op, &at), window = PAUSE_BYTES;
    if (prefix) window = (PREFIX_PAUSE_BYTES / FLAT_BLOCK_BYTES / op->inst->n + 1) * FLAT_BLOCK_BYTES;
    if (op->offset < bytes) {
        size_t left = bytes - op->offset, some = left < window ? left : window;
        if (!(prefix ? fold_prefixes(op, some) : fold_mapped(op, some))) return flat_lost();
        op->offset += some;
        if (op->offset < bytes) return TUTTI_RUN_MOVED;
    }
    flat_fence();
    return flat_meet(op);
}

bool flat_fold_mapped_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    bool small = call->info.kind != TUTTI_ALL_REDUCE && call->info.kind != TUTTI_REDUCE_SCATTER;
    return inst->n > 1 && !call->bind.scale && (!small || flat_block_bytes(inst, call) >= MAPPED_LEAST);
}
