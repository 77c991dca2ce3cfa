/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_BLOCK_FOLD_H
#define TUTTI_DEVICE_KERNELS_BLOCK_FOLD_H

/* Folding of contributions that lie in memory of this device, in the order of ranks, by a reducer R (reduce.h). MOST:
 * the most ranks. Sums, which training is made of, have more loads of a thread on their way at once, and are written
 * out. */

#include "device/kernels/block_units.h"
#include "device/kernels/reduce.h"

/* What threads know of a fold. */
struct fold {
    __local const uint64_t *from; /* rank q's */
    uint32_t n, me, ranks;        /* ranks: who contributes, a bit each: one at least */
    uint32_t op, divisor, scales;
    gpu_words factor;
};

template <class R>
GPU_DEVICE struct fold fold_of(__local const struct gpu_call *call, __local const uint64_t *from, uint32_t ranks)
{
    struct fold fold = {from, call->n, call->me, ranks, call->op, call->divisor, call->scales, {0, 0, 0, 0}};
    if (fold.scales) fold.factor = R::factor((const unsigned char *)call->factor);
    return fold;
}

/* Whether all that is folded lies at multiples of 16, and so many bytes of it. */
GPU_DEVICE bool fold_is_whole(const struct fold *fold, uint64_t to, uint64_t bytes)
{
    uint64_t all = to | bytes;
    for (uint32_t q = 0; q < fold->n; q++)
        if (fold->ranks >> q & 1) all |= fold->from[q];
    return is_whole(all);
}

/* The contribution of rank q, into or onto the total. */
template <class R>
GPU_DEVICE void fold_add(const struct fold *fold, uint32_t q, gpu_words unit, typename R::total *total, bool *any)
{
    if (q == fold->me && fold->scales) unit = R::scale_by(unit, fold->factor);
    if (*any)
        R::next(total, unit, fold->op);
    else
        R::first(total, unit);
    *any = true;
}

/* The first of the units, which move up. */
template <class R, uint32_t GROUP>
GPU_DEVICE void fold_next(const struct fold *fold, uint32_t q, gpu_words *units, typename R::total *total, bool *any)
{
    if (fold->ranks >> q & 1) fold_add<R>(fold, q, units[0], total, any);
    GPU_UNROLL
    for (uint32_t i = 1; i < GROUP; i++) units[i - 1] = units[i];
}

/* The unit that is `at` bytes from the beginning of each contribution. */
template <class R, uint32_t MOST> GPU_DEVICE gpu_words fold_whole_unit(const struct fold *fold, uint32_t at)
{
    constexpr uint32_t group = R::sums && MOST > 2 ? 4 : 2;
    typename R::total total = {{0}};
    bool any = false;
    for (uint32_t first = 0; first < (MOST > group ? fold->n : 1); first += group) {
        gpu_words units[group];
        GPU_UNROLL
        for (uint32_t k = 0; k < group; k++)
            if (fold->ranks >> (first + k) & 1) units[k] = gpu_read_words(fold->from[first + k] + at);
        if constexpr (R::sums) {
            GPU_UNROLL
            for (uint32_t k = 0; k < group; k++) fold_next<R, group>(fold, first + k, units, &total, &any);
        } else {
            GPU_NO_UNROLL
            for (uint32_t k = 0; k < group; k++) fold_next<R, group>(fold, first + k, units, &total, &any);
        }
    }
    return R::result(total, fold->divisor);
}

template <class R> GPU_DEVICE gpu_words fold_ragged_unit(const struct fold *fold, uint32_t at, uint32_t left)
{
    typename R::total total = {{0}};
    bool any = false;
    GPU_NO_UNROLL
    for (uint32_t q = 0; q < fold->n; q++)
        if (fold->ranks >> q & 1) fold_add<R>(fold, q, unit_take(fold->from[q] + at, left), &total, &any);
    return R::result(total, fold->divisor);
}

/* Units from `begin` on, each `step` further on; 32 bits, since addresses take twice the registers. */
template <class R, uint32_t MOST>
GPU_DEVICE void fold_span(const struct fold *fold, uint64_t to, uint32_t bytes, uint32_t begin, uint32_t step)
{
    if (fold_is_whole(fold, to, bytes)) {
        for (uint32_t at = begin; at < bytes; at += step) gpu_write_words(to + at, fold_whole_unit<R, MOST>(fold, at));
    } else {
        for (uint32_t at = begin; at < bytes; at += step)
            unit_give(to + at, fold_ragged_unit<R>(fold, at, bytes - at), bytes - at);
    }
}

/* Chunks that lie on this device (struct gpu_fold): every thread takes units in turns of the grid, of a piece at a time
 * whose bytes fit in 32 bits. */
#ifndef GPU_FOLD_PIECE
#define GPU_FOLD_PIECE (1u << 30)
#endif
template <class R, uint32_t MOST> GPU_DEVICE void fold_chunks(__local struct gpu_fold *x)
{
    const uint32_t ranks = (1u << x->call.n) - 1;
    const struct fold fold = fold_of<R>(&x->call, (__local const uint64_t *)x->from, ranks);
    const uint32_t begin = (gpu_block() * gpu_threads() + gpu_thread()) * 16, step = gpu_threads() * gpu_blocks() * 16;
    for (uint64_t left = x->bytes, at = 0; left > 0;) {
        const uint32_t some = left < GPU_FOLD_PIECE ? (uint32_t)left : GPU_FOLD_PIECE;
        fold_span<R, MOST>(&fold, (uint64_t)x->out + at, some, begin, step);
        at += some, left -= some;
        if (left == 0) break;
        gpu_sync(); /* all threads are through with that piece */
        if (gpu_thread() < x->call.n) x->from[gpu_thread()] += some;
        gpu_sync();
    }
}

#define GPU_FOLD(name, R, most)                                                                                        \
    GPU_KERNEL(fold_##name##_##most, struct gpu_fold, parameter, 512)                                                  \
    {                                                                                                                  \
        GPU_SHARED(struct gpu_fold, x);                                                                                \
        GPU_SHARE(x, parameter);                                                                                       \
        fold_chunks<R, most>(&x);                                                                                      \
    }
#define GPU_FOLD_FAST(name, R) GPU_FOLD(name, R, 2) GPU_FOLD(name, R, 16)

#endif
