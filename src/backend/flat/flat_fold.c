/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions without staging of inputs. Where buffers are mapped each rank folds its share of all inputs where they
 * lie, in the first cache, and stores what came out to all outputs that want it: pushing beats pulling. Where they are
 * private, few ranks read what they fold with cross-memory copies, and write results so. Such a copy
 * costs as much as some KiB, however, so many ranks stage, in rounds, what others fold, and only write results so. In
 * place is no different: of other ranks' buffers a rank touches but its share, which nobody else does. */
#include "backend/flat/flat_ways.h"

#define PAUSE_BYTES ((size_t)256 << 10)        /* folded at one go */
#define PREFIX_PAUSE_BYTES ((size_t)128 << 10) /* of all ranks' prefixes */
#define MAPPED_LEAST ((size_t)4 << 10)         /* less is gone from the leaves sooner when it is copied */
#define READERS_MOST 3

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

/* ---- mapped buffers ---- */

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
    FLAT_BEGIN(op->at)
    for (op->offset = 0; op->offset < bytes; op->offset += window) {
        size_t left = bytes - op->offset, some = left < window ? left : window;
        if (!(prefix ? fold_prefixes(op, some) : fold_mapped(op, some))) return flat_lost();
        if (left > window) FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- cross-memory copies: inputs are read into the staging memory, in which nobody looks for anything during this
 * operation ---- */

void flat_fold_read_start(struct flat_op *op)
{
    size_t room = 2 * FLAT_SLOTS * op->inst->chunk / (op->inst->n - 1);
    op->piece = (room < FLAT_WINDOW_BYTES ? room : FLAT_WINDOW_BYTES) / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
}

/* What goes at once, where the operation is in the share: in the inputs. */
static size_t window_of(const struct flat_op *op, size_t *at)
{
    size_t bytes = share_of(op, at) - op->offset;
    *at += op->offset;
    return bytes < op->piece ? bytes : op->piece;
}

static unsigned char *copy_of(const struct flat_op *op, uint32_t peer)
{
    const struct flat_instance *inst = op->inst;
    return inst->staging[inst->me] + (peer - (peer > inst->me)) * op->piece;
}

static enum tutti_advance read_from(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = window_of(op, &at);
    return flat_attach_read(op, peer, copy_of(op, peer), at, bytes);
}

static bool is_large(const struct flat_op *op)
{
    return op->bytes >= TUTTI_PAST_CACHE_BYTES / (op->call.info.kind == TUTTI_REDUCE_SCATTER ? op->inst->n : 1);
}

/* Whether the result of this rank's share belongs to itself, too, and whether to a peer. */
static bool keeps(const struct flat_op *op)
{
    return op->call.info.kind != TUTTI_REDUCE || flat_is_root(op);
}
static bool owes(const struct flat_op *op, uint32_t peer)
{
    enum tutti_kind kind = op->call.info.kind;
    return kind == TUTTI_ALL_REDUCE || (kind == TUTTI_REDUCE && peer == flat_root(op));
}

static unsigned char *own_output(const struct flat_op *op)
{
    size_t at;
    share_of(op, &at);
    return op->recv + (op->call.info.kind == TUTTI_REDUCE_SCATTER ? 0 : at) + op->offset;
}

/* What is written to others: a result that goes past the caches, or to others alone, is kept in them here. */
static unsigned char *sum_of(const struct flat_op *op)
{
    return is_large(op) || !keeps(op) ? copy_of(op, flat_after(op->inst, 1)) : own_output(op);
}

static void fold_window(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *own = keeps(op) ? own_output(op) : NULL, *sum = sum_of(op), *dst[2];
    bool gives = op->call.info.kind == TUTTI_ALL_REDUCE || !keeps(op);
    uint32_t n = 0;
    size_t at, bytes = window_of(op, &at);
    if (gives && sum != own) dst[n++] = sum;
    if (own) dst[n++] = own;
    for (uint32_t r = 0; r < inst->n; r++) sources[r] = r == inst->me ? op->send + at : copy_of(op, r);
    bool past = own && is_large(op);
    flat_fold_all(op, &(struct flat_folding){dst, n, past, sources, inst->n, 0}, bytes);
}

static enum tutti_advance write_to(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = window_of(op, &at);
    return flat_attach_write(op, peer, sum_of(op), at, bytes);
}

enum tutti_advance flat_fold_read(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    size_t at, bytes = share_of(op, &at);
    FLAT_BEGIN(op->at)
    for (op->offset = 0; op->offset < bytes; op->offset += op->piece) {
        for (op->peer = 1; op->peer < inst->n; op->peer++) FLAT_STEP(read_from(op, flat_after(inst, op->peer)));
        fold_window(op);
        for (op->peer = 1; op->peer < inst->n; op->peer++)
            if (owes(op, flat_after(inst, op->peer))) FLAT_STEP(write_to(op, flat_after(inst, op->peer)));
        FLAT_PAUSE();
    }
    flat_fence();
    FLAT_SERVE_UNTIL(flat_meet(op) == TUTTI_RUN_DONE);
    FLAT_END;
}

/* ---- inputs are staged, results are written: all_reduce of many ---- */

/* Some may have staged a round of the other way, and told it: rounds count from there on with all. */
void flat_fold_staged_start(struct flat_op *op)
{
    size_t at;
    op->staged = op->told;
    flat_cut(op, flat_part(op, op->bytes, op->inst->n, 0, &at), op->inst->n - 1);
}

/* A slot holds pieces for all others, that for the next rank first. */
static const unsigned char *piece_from(const struct flat_op *op, uint32_t peer, uint64_t u)
{
    uint32_t n = op->inst->n, i = (op->inst->me + n - peer) % n;
    return flat_slot_in(op, peer, u) + (i - 1) * op->piece;
}

static void stage(struct flat_op *op, uint64_t u)
{
    const struct flat_instance *inst = op->inst;
    unsigned char *slot = flat_slot_in(op, inst->me, u);
    for (uint32_t i = 1; i < inst->n; i++) {
        size_t at, bytes = flat_piece(op, flat_part(op, op->bytes, inst->n, flat_after(inst, i), &at), u);
        if (bytes > 0) flat_take(op, slot + (i - 1) * op->piece, op->send + at + u * op->piece, bytes);
    }
    flat_stage(op);
}

static void fold_round(struct flat_op *op, uint64_t u)
{
    const struct flat_instance *inst = op->inst;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes = flat_piece(op, share_of(op, &at), u);
    unsigned char *out = op->recv + at + u * op->piece;
    if (bytes == 0) return;
    for (uint32_t r = 0; r < inst->n; r++)
        if (r != inst->me) sources[r] = piece_from(op, r, u);
    sources[inst->me] = op->send + at + u * op->piece;
    if (op->call.bind.scale) {
        unsigned char *scaled = flat_slot_out(op, inst->me, u);
        flat_take(op, scaled, sources[inst->me], bytes);
        sources[inst->me] = scaled;
    }
    flat_fold_all(op, &(struct flat_folding){&out, 1, 0, sources, inst->n, 0}, bytes);
}

/* Bytes of the share that are folded after op->round rounds, but not written to the others yet; 0: wait for more. */
static size_t due(const struct flat_op *op, size_t *at)
{
    size_t bytes = share_of(op, at), n = op->round * op->piece, so_far = n < bytes ? n : bytes;
    *at += op->offset;
    return so_far == bytes || so_far - op->offset >= FLAT_WINDOW_BYTES ? so_far - op->offset : 0;
}

static enum tutti_advance write_due(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = due(op, &at);
    return flat_attach_write(op, peer, op->recv + at, at, bytes);
}

/* A rank that has staged n rounds has read n - 2 of all. */
enum tutti_advance flat_fold_staged(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    size_t at;
    FLAT_BEGIN(op->at)
    op->offset = 0;
    for (op->round = 0; op->round <= op->n_rounds; op->round++) {
        if (op->round < op->n_rounds) {
            FLAT_SERVE_UNTIL(flat_round_room(op, op->round));
            stage(op, op->round);
        }
        if (op->round == 0) continue;
        for (op->peer = 1; op->peer < inst->n; op->peer++)
            FLAT_SERVE_UNTIL(flat_staged(op, flat_after(inst, op->peer), op->told + op->round));
        if (op->round >= 2) flat_read_by_all(op->inst, flat_number(op, op->round - 2));
        fold_round(op, op->round - 1);
        if (due(op, &at) == 0) continue;
        for (op->peer = 1; op->peer < inst->n; op->peer++) FLAT_STEP(write_due(op, flat_after(inst, op->peer)));
        op->offset += due(op, &at);
        FLAT_PAUSE();
    }
    flat_has_read(op, op->n_rounds);
    FLAT_SERVE_UNTIL(flat_meet(op) == TUTTI_RUN_DONE);
    FLAT_END;
}

/* ---- where they fit ---- */

bool flat_fold_mapped_fit(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    bool small = call->info.kind != TUTTI_ALL_REDUCE && call->info.kind != TUTTI_REDUCE_SCATTER;
    return inst->n > 1 && !call->bind.scale && (!small || flat_block_bytes(inst, call) >= MAPPED_LEAST);
}

bool flat_fold_read_fit(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    bool few = call->info.kind != TUTTI_ALL_REDUCE || inst->n <= READERS_MOST;
    return inst->chunk > 0 && !inst->addresses && !call->bind.scale && few;
}

bool flat_fold_staged_fit(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    return inst->chunk > 0 && !inst->addresses && call->info.kind == TUTTI_ALL_REDUCE &&
           !flat_fold_read_fit(inst, call);
}
