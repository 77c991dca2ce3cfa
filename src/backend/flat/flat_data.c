/* SPDX-License-Identifier: BSD-3-Clause */
/* What methods do with bytes: copies, and reductions in blocks that stay in the first cache. */
#include "backend/flat/flat.h"

void flat_copy(void *dst, const void *src, size_t bytes, bool past)
{
    if (past)
        tutti_copy_stream(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

void flat_fence(void)
{
    tutti_copy_fence();
}

/* Whether what ranks touch, each so many bytes, fills more than half of the last cache. all: the larger side. */
static bool fills_cache(const struct flat_op *op, size_t all, size_t touched)
{
    return all >= FLAT_PAST_CACHE_BYTES && (double)touched * op->inst->n > op->inst->machine.cache_kib * 1024 / 2;
}

/* Measured on two and four ranks: what is the result of a fold goes past the caches later where the inputs of others
 * were staged in them. */
bool flat_goes_past(const struct flat_op *op)
{
    bool apart = op->send != op->recv;
    const size_t all = op->bytes * op->inst->n;
    switch (op->call.info.kind) {
    case TUTTI_ALL_GATHER:
        return fills_cache(op, all, op->bytes + all);
    case TUTTI_ALL_TO_ALL:
        return fills_cache(op, all, 2 * all);
    case TUTTI_REDUCE_SCATTER:
        return op->bytes >= FLAT_PAST_CACHE_BYTES;
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return op->bytes >= TUTTI_PAST_CACHE_BYTES / op->inst->n;
    case TUTTI_REDUCE:
    case TUTTI_SCAN:
    case TUTTI_EXSCAN:
        return op->bytes >= TUTTI_PAST_CACHE_BYTES && apart;
    default:
        return op->bytes >= TUTTI_PAST_CACHE_BYTES;
    }
}

void flat_take(const struct flat_op *op, void *dst, const void *src, size_t bytes)
{
    const struct tutti_bind *bind = &op->call.bind;
    if (bind->scale)
        bind->scale(dst, src, bytes / op->element, op->call.factor);
    else if (dst != src)
        memcpy(dst, src, bytes);
}

void flat_fold(const struct flat_op *op, void *dst, const void *left, const void *right, size_t bytes)
{
    const struct tutti_bind *bind = &op->call.bind;
    if (bind->user)
        bind->user(left, right, dst, bytes / op->element, op->call.info.dtype, bind->user_arg);
    else
        bind->reduce(dst, left, right, bytes / op->element);
}

void flat_divide(const struct flat_op *op, void *data, size_t bytes)
{
    const struct tutti_bind *bind = &op->call.bind;
    if (bind->divide) bind->divide(data, data, bytes / op->element, bind->divisor);
}

/* One block of the result, in out. */
static void fold_block(const struct flat_op *op, unsigned char *out, const unsigned char *const *sources, uint32_t n,
                       size_t at, size_t bytes)
{
    if (n == 1)
        memmove(out, sources[0] + at, bytes);
    else
        flat_fold(op, out, sources[0] + at, sources[1] + at, bytes);
    for (uint32_t i = 2; i < n; i++) flat_fold(op, out, out, sources[i] + at, bytes);
}

/* Whether the first destination can hold the intermediate results: it is written before the last sources are read. */
static bool holds(const unsigned char *dst, const unsigned char *const *sources, uint32_t n, size_t at)
{
    for (uint32_t i = 2; i < n; i++)
        if (sources[i] + at == dst) return false;
    return true;
}

void flat_fold_all(const struct flat_op *op, const struct flat_folding *what, size_t bytes)
{
    const uint32_t n_dst = what->n_dst, n_past = what->n_past;
    unsigned char *const *dst = what->dst;
    _Alignas(TUTTI_CACHE_LINE) unsigned char block[FLAT_BLOCK_BYTES];
    bool direct = n_past < n_dst && holds(dst[0], what->sources, what->n, what->at);

    for (size_t done = 0; done < bytes; done += FLAT_BLOCK_BYTES) {
        size_t some = bytes - done < FLAT_BLOCK_BYTES ? bytes - done : FLAT_BLOCK_BYTES;
        unsigned char *out = direct ? dst[0] + done : block;
        fold_block(op, out, what->sources, what->n, what->at + done, some);
        flat_divide(op, out, some);
        for (uint32_t d = direct; d < n_dst; d++) flat_copy(dst[d] + done, out, some, d >= n_dst - n_past);
    }
}

size_t flat_part(const struct flat_op *op, size_t bytes, uint32_t n, uint32_t i, size_t *at)
{
    size_t unit = op->element > TUTTI_CACHE_LINE ? op->element : TUTTI_CACHE_LINE; /* elements are powers of two */
    size_t units = (bytes + unit - 1) / unit, each = (units + n - 1) / n * unit;
    size_t begin = each * i < bytes ? each * i : bytes;
    *at = begin;
    return bytes - begin < each ? bytes - begin : each;
}

/* ---- an instance of one rank: what is left of a collective is a copy ---- */

/* Where the one block is, in each buffer: the kinds that have a block for each rank may have displacements. */
static size_t sent_at(const struct flat_op *op)
{
    size_t at = 0;
    if (op->call.info.kind == TUTTI_SCATTER) flat_block(op, 0, &at);
    if (op->call.info.kind == TUTTI_ALL_TO_ALL) flat_block_sent(op, 0, &at);
    return at;
}

static size_t received_at(const struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    size_t at = 0;
    if (kind == TUTTI_GATHER || kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL) flat_block(op, 0, &at);
    return at;
}

/* The root's own buffer is right already; nothing comes before rank 0. */
static bool moves(const struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    return kind != TUTTI_BROADCAST && kind != TUTTI_BARRIER && kind != TUTTI_EXSCAN;
}

enum tutti_advance flat_alone(struct flat_op *op)
{
    if (!moves(op)) return TUTTI_RUN_DONE;
    size_t at, bytes = flat_block(op, 0, &at);
    const unsigned char *from = op->send + sent_at(op);
    unsigned char *to = op->recv + received_at(op);
    if (bytes >= TUTTI_PAST_CACHE_BYTES && from != to && !op->call.bind.scale) {
        flat_copy(to, from, bytes, true);
        flat_fence();
    } else if (bytes > 0) {
        flat_take(op, to, from, bytes);
    }
    if (bytes > 0) flat_divide(op, to, bytes);
    return TUTTI_RUN_DONE;
}

bool flat_alone_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    (void)call;
    return inst->n == 1;
}
