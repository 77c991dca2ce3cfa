/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions without staging of inputs. Where buffers are mapped each rank folds its share of all inputs where they
 * lie, in the first cache, and stores the result to all outputs that want it, for pushing beats pulling. Where they are
 * private, the kernel copies the share of all inputs here, and the others read the result where this rank has it, or
 * get it written. In place is no different: of other ranks' buffers a rank touches its share alone, which nobody else
 * does. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10)        /* folded at one go */
#define PREFIX_PAUSE_BYTES ((size_t)128 << 10) /* of all ranks' prefixes */
#define READERS_MOST 8                         /* of an all_reduce by the kernel: more read too little at once */
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

/* ---- private buffers: inputs are copied into the staging memory, in which nobody looks for anything then ---- */

/* Results of an all_reduce are written to all peers, which is faster than that they read them. */
static bool reads_results(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_ALL_REDUCE && op->inst->survives;
}

static bool writes_to(const struct flat_op *op, uint32_t peer)
{
    const enum tutti_kind kind = op->call.info.kind;
    return kind == TUTTI_ALL_REDUCE ? !op->inst->survives : kind == TUTTI_REDUCE && peer == flat_root(op);
}

void flat_fold_attached_start(struct flat_op *op)
{
    size_t copies = 2 * FLAT_SLOTS * op->inst->chunk / (op->inst->n - 1), at, share;
    op->piece = (copies < FLAT_WINDOW_BYTES ? copies : FLAT_WINDOW_BYTES) / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
    flat_rounds_place(op, 0);
    if (!reads_results(op)) return;
    share = flat_part(op, op->bytes, op->inst->n, 0, &at); /* the largest */
    op->n_rounds = flat_rounds_of(op, share);
}

/* Window u of the share of rank r: where it is in the inputs, and its bytes. */
static size_t window_of(const struct flat_op *op, uint32_t r, uint64_t u, size_t *at)
{
    const bool scatter = op->call.info.kind == TUTTI_REDUCE_SCATTER;
    const size_t share = scatter ? flat_block(op, r, at) : flat_part(op, op->bytes, op->inst->n, r, at);
    const size_t bytes = flat_piece(op, share, u);
    if (bytes > 0) *at += u * op->piece;
    return bytes;
}

static unsigned char *copy_of(const struct flat_op *op, uint32_t peer)
{
    const struct flat_instance *inst = op->inst;
    return inst->staging[inst->me] + (peer - (peer > inst->me)) * op->piece;
}

/* Whether the result is this rank's, too. */
static bool keeps(const struct flat_op *op)
{
    return op->call.info.kind != TUTTI_REDUCE || flat_is_root(op);
}

/* Results that are large go past the caches, unless others read them there. */
static bool is_far(const struct flat_op *op)
{
    const size_t parts = op->call.info.kind == TUTTI_REDUCE_SCATTER ? op->inst->n : 1;
    return op->bytes >= TUTTI_PAST_CACHE_BYTES / parts && !reads_results(op);
}

static unsigned char *own_output(const struct flat_op *op, size_t at)
{
    return op->call.info.kind == TUTTI_REDUCE_SCATTER ? op->recv + op->round * op->piece : op->recv + at;
}

/* The result of a window, from which it is written to others: the own output, or over the copy of an input if that goes
 * past the caches, or if the result is not this rank's. */
static unsigned char *sum_of(const struct flat_op *op, size_t at)
{
    return is_far(op) || !keeps(op) ? copy_of(op, flat_after(op->inst, 1)) : own_output(op, at);
}

static void fold_window(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes = window_of(op, inst->me, op->round, &at);
    unsigned char *own = keeps(op) ? own_output(op, at) : NULL, *sum = sum_of(op, at), *dst[2];
    const bool gives = op->call.info.kind == TUTTI_ALL_REDUCE || !own, past = own && is_far(op);
    uint32_t n = 0;
    if (gives && sum != own) dst[n++] = sum;
    if (own) dst[n++] = own;
    for (uint32_t r = 0; r < inst->n; r++) sources[r] = r == inst->me ? op->send + at : copy_of(op, r);
    if (bytes > 0) flat_fold_all(op, &(struct flat_folding){dst, n, past, sources, inst->n, 0}, bytes);
    if (op->n_rounds > 0) flat_raise(op, FLAT_FOLDED, flat_number(op, op->round + 1));
}

/* The own window of all inputs is copied here and folded. */
static enum tutti_advance read_inputs(struct flat_op *op)
{
    size_t at, bytes = window_of(op, op->inst->me, op->round, &at);
    for (; bytes > 0 && op->peer < op->inst->n; op->peer++) {
        const uint32_t peer = flat_after(op->inst, op->peer);
        const enum tutti_advance run = flat_attach_read(op, peer, copy_of(op, peer), at, bytes);
        if (run != TUTTI_RUN_DONE) return run;
    }
    fold_window(op);
    return TUTTI_RUN_DONE;
}

static enum tutti_advance write_results(struct flat_op *op)
{
    size_t at, bytes = window_of(op, op->inst->me, op->round, &at);
    for (; bytes > 0 && op->peer < op->inst->n; op->peer++) {
        const uint32_t peer = flat_after(op->inst, op->peer);
        if (!writes_to(op, peer)) continue;
        const enum tutti_advance run = flat_attach_write(op, peer, sum_of(op, at), at, bytes);
        if (run != TUTTI_RUN_DONE) return run;
    }
    return TUTTI_RUN_DONE;
}

/* What the others have folded in this window of an all_reduce. */
static enum tutti_advance read_results(struct flat_op *op)
{
    for (; op->n_rounds > 0 && op->peer < op->inst->n; op->peer++) {
        const uint32_t peer = flat_after(op->inst, op->peer);
        size_t at, bytes = window_of(op, peer, op->round, &at);
        if (bytes == 0) continue;
        if (!flat_reached(op, peer, flat_flag(op, peer, FLAT_FOLDED), flat_number(op, op->round + 1)))
            return TUTTI_RUN_BLOCKED;
        const enum tutti_advance run = flat_attach_result(op, peer, op->recv + at, at, bytes);
        if (run != TUTTI_RUN_DONE) return run;
    }
    return TUTTI_RUN_DONE;
}

static uint64_t n_windows(const struct flat_op *op)
{
    size_t at, share = share_of(op, &at);
    return op->n_rounds > 0 ? op->n_rounds : flat_rounds_of(op, share);
}

enum attached_state { ATTACHED_READ, ATTACHED_WRITE, ATTACHED_RESULTS, ATTACHED_N_STATES };

enum tutti_advance flat_fold_attached(struct flat_op *op)
{
    static enum tutti_advance (*const steps[ATTACHED_N_STATES])(struct flat_op *op) = {
        [ATTACHED_READ] = read_inputs, [ATTACHED_WRITE] = write_results, [ATTACHED_RESULTS] = read_results};
    while (op->round < n_windows(op)) {
        if (op->peer == 0) op->peer = 1;
        const enum tutti_advance run = steps[op->at](op);
        if (run != TUTTI_RUN_DONE) return run;
        op->peer = 1;
        if (++op->at < ATTACHED_N_STATES) continue;
        op->at = ATTACHED_READ;
        op->round++;
        return TUTTI_RUN_MOVED; /* bytes were moved for a while: others get their turn */
    }
    if (op->n_rounds > 0) flat_has_read(op, op->n_rounds);
    flat_fence();
    return flat_meet(op);
}

/* ---- where they fit ---- */

bool flat_fold_attached_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    bool few = call->info.kind != TUTTI_ALL_REDUCE || inst->n <= READERS_MOST;
    return inst->chunk > 0 && !inst->addresses && !call->bind.scale && few;
}

bool flat_fold_mapped_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    bool small = call->info.kind != TUTTI_ALL_REDUCE && call->info.kind != TUTTI_REDUCE_SCATTER;
    return inst->n > 1 && !call->bind.scale && (!small || flat_block_bytes(inst, call) >= MAPPED_LEAST);
}
