/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_ONESHOT_CUH
#define TUTTI_DEVICE_CUDA_ONESHOT_CUH

/* An exchange by lines or sentinels, in steps for one unit: a thread puts its units of all parts into its peers' slots,
 * and takes what peers have put into its own. It waits for no other thread of its block. As units belong to threads, a
 * buffer may be input and output: what a thread overwrites, it alone has read.
 *
 * Parts: the parts of an exchange, a struct with call, in, out, units, alike, to(q), from(q), and at(u): how far from
 * the beginning of each part this thread's unit u is. MOST: the most ranks.
 * CHUNK: of how many of them things are in flight at once; divides MOST. WHOLE: for units below `whole`, which need no
 * questions about addresses and ends. PHASE: of the slots. */

#include "reduce.cuh"
#include "units.cuh"
#include "wires.cuh"

/* Bytes from the beginning of each part to this thread's unit u. */
CUDA_DEVICE uint64_t cuda_unit_at(uint32_t units, uint32_t u)
{
    return (uint64_t)16 * ((cuda_block() * units + u) * cuda_threads() + cuda_thread());
}

/* The parts of a struct cuda_exchange. */
struct cuda_exchange_parts {
    const struct cuda_call &call;
    const struct cuda_exchange &x;
    const char *in;
    char *out;
    uint32_t units;
    bool alike;

    __device__ __forceinline__ struct cuda_part to(uint32_t q) const { return x.send[q]; }
    __device__ __forceinline__ struct cuda_part from(uint32_t q) const { return x.recv[q]; }
    __device__ __forceinline__ uint64_t at(uint32_t u) const { return cuda_unit_at(units, u); }
};

/* Whether all units of this warp are below `whole`; the last thread's last one is the greatest. */
CUDA_DEVICE bool cuda_is_whole(uint32_t units, uint32_t whole)
{
    return (cuda_block() * units + units - 1) * cuda_threads() + (cuda_thread() | (CUDA_WARP - 1)) < whole;
}

/* Out of the way: each kernel has many places for it, and few calls scale. */
template <typename R> CUDA_COLD cuda_words cuda_scale_unit(const struct cuda_call &call, cuda_words unit)
{
    return R::scale(unit, call.factor);
}

template <typename R> CUDA_DEVICE cuda_words cuda_scaled(const struct cuda_call &call, cuda_words unit)
{
    if constexpr (R::moves)
        return unit;
    else
        return call.scales ? cuda_scale_unit<R>(call, unit) : unit;
}

/* The own part of a move, unless it is there already. */
template <bool WHOLE, typename Parts> CUDA_DEVICE void cuda_keep_own(const Parts &x, uint64_t at, cuda_words unit)
{
    const struct cuda_part part = x.from(x.call.me);
    if (at >= part.bytes || x.in + x.to(x.call.me).at == x.out + part.at) return;
    cuda_give_unit<WHOLE>(x.out + part.at + at, unit, part.bytes - at);
}

/* A unit to rank q, if this thread has `any`; by whole warps. `slot`: from a rank's scratch to the place. */
template <typename Wire, typename R>
CUDA_DEVICE void cuda_put_unit(const struct cuda_call &call, uint32_t q, uint64_t slot, bool any, cuda_words unit,
                               uint32_t flag)
{
    if constexpr (Wire::excepts) {
        unit = cuda_scaled<R>(call, unit);
        Wire::except(call.base[q] + Wire::exceptions(call, slot), any, unit, flag);
        if (any) Wire::put(call.base[q] + slot, unit, flag);
    } else if (any) {
        Wire::put(call.base[q] + slot, Wire::proper(cuda_scaled<R>(call, unit)), flag);
    }
}

/* The i-th rank to send to, of n: each rank begins with another, so that they do not all push at one at a time. */
template <uint32_t MOST> CUDA_DEVICE uint32_t cuda_nth(const struct cuda_call &call, uint32_t i)
{
    if constexpr (MOST == 2) return i;
    const uint32_t q = call.me + 1 + i;
    return q < call.n ? q : q - call.n;
}

/* Unit u of all parts to those who get it; of a reduction's own part to *own. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Parts>
CUDA_DEVICE void cuda_send_unit(const Parts &x, struct cuda_turn *turn, uint32_t u, cuda_words *own)
{
    const uint32_t me = x.call.me;
    const uint64_t at = x.at(u);
    for (uint32_t first = 0; first < MOST && first < x.call.n; first += CHUNK) {
        cuda_words units[CHUNK];
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = cuda_nth<MOST>(x.call, first + k);
            units[k] = cuda_words{0, 0, 0, 0};
            if ((k == 0 || !x.alike) && first + k < x.call.n && at < x.to(q).bytes)
                units[k] = cuda_take_unit<WHOLE>(x.in + x.to(q).at + at, x.to(q).bytes - at);
        }
        if (!cuda_turn_pay(x.call, turn)) return;
        const uint64_t slot = Wire::slot(x.call, 0, turn->count) + Wire::place(u), stride = cuda_stride<Wire>(x.call);
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            if (first + k >= x.call.n) continue;
            const uint32_t q = cuda_nth<MOST>(x.call, first + k);
            const bool any = at < x.to(q).bytes;
            const cuda_words unit = x.alike ? units[0] : units[k]; /* no earlier: that would wait for the load */
            if (q != me)
                cuda_put_unit<Wire, R>(x.call, q, slot + cuda_row(q, me) * stride, any, unit, cuda_turn_flag(*turn));
            else if (!any)
                continue;
            else if constexpr (R::moves)
                cuda_keep_own<WHOLE>(x, at, unit);
            else
                *own = unit;
        }
    }
}

/* Where this thread finds unit u. */
template <typename Wire, uint32_t PHASE>
CUDA_DEVICE struct cuda_inbox cuda_inbox_of(const struct cuda_call &call, const struct cuda_turn &turn, uint32_t u)
{
    const uint64_t slot = Wire::slot(call, PHASE, turn.count);
    struct cuda_inbox inbox = {call.base[call.me] + slot + Wire::place(u), cuda_stride<Wire>(call), nullptr, call.me};
    if constexpr (Wire::excepts) inbox.exceptions = call.base[call.me] + Wire::exceptions(call, slot + Wire::place(u));
    return inbox;
}

/* Looks at what CHUNK sources from rank `first` on have sent until it is there. False: the call has failed. */
template <typename Wire, uint32_t CHUNK, typename Parts>
CUDA_DEVICE bool cuda_await_units(const Parts &x, struct cuda_turn *turn, uint32_t first, uint64_t at,
                                  struct cuda_inbox inbox, typename Wire::seen *seen)
{
    const uint32_t flag = cuda_turn_flag(*turn);
    for (;;) {
        uint32_t missing = CUDA_MAX_RANKS;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q < x.call.n && q != x.call.me && at < x.from(q).bytes) seen[k] = Wire::look(inbox, q);
        }
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q < x.call.n && q != x.call.me && at < x.from(q).bytes && !Wire::there(seen[k], flag)) missing = q;
        }
        if (missing == CUDA_MAX_RANKS) return true;
        if (!cuda_go_on(&turn->waiter, x.call, missing)) return false;
    }
}

/* Unit u of what others sent, to its place. */
template <typename Wire, uint32_t PHASE, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Parts>
CUDA_DEVICE bool cuda_move_unit(const Parts &x, struct cuda_turn *turn, uint32_t u)
{
    const uint64_t at = x.at(u);
    const struct cuda_inbox inbox = cuda_inbox_of<Wire, PHASE>(x.call, *turn, u);
    for (uint32_t first = 0; first < MOST && first < x.call.n; first += CHUNK) {
        typename Wire::seen seen[CHUNK];
        if (!cuda_await_units<Wire, CHUNK>(x, turn, first, at, inbox, seen)) return false;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q >= x.call.n || q == x.call.me || at >= x.from(q).bytes) continue;
            cuda_give_unit<WHOLE>(x.out + x.from(q).at + at, Wire::unit(seen[k]), x.from(q).bytes - at);
            Wire::empty(inbox.from(q));
        }
    }
    return true;
}

/* Unit u of what others sent and of the own part, folded in rank order; *any: whether there was anything to fold.
 * `kept` is the own unit where there is one a thread; of several it is loaded again, while others are waited for. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Parts>
CUDA_DEVICE bool cuda_fold_unit_of(const Parts &x, struct cuda_turn *turn, uint32_t u, cuda_words kept, bool *any,
                                   cuda_words *result)
{
    const uint32_t me = x.call.me;
    const uint64_t at = x.at(u);
    const struct cuda_inbox inbox = cuda_inbox_of<Wire, 0>(x.call, *turn, u);
    typename R::total total;
    cuda_words own = kept;
    if (x.units > 1 && at < x.from(me).bytes)
        own = cuda_take_unit<WHOLE>(x.in + x.to(me).at + at, x.from(me).bytes - at);
    *any = false;
    for (uint32_t first = 0; first < MOST && first < x.call.n; first += CHUNK) {
        typename Wire::seen seen[CHUNK];
        if (!cuda_await_units<Wire, CHUNK>(x, turn, first, at, inbox, seen)) return false;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q >= x.call.n || at >= x.from(q).bytes) continue;
            const cuda_words unit = q == me ? cuda_scaled<R>(x.call, own) : Wire::unit(seen[k]);
            if (*any)
                R::next(&total, unit, x.call.op);
            else
                R::first(&total, unit);
            *any = true;
            if (q != me) Wire::empty(inbox.from(q));
        }
    }
    if (*any) *result = R::result(total, x.call.divisor);
    return true;
}

template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE bool cuda_receive_unit(const struct cuda_exchange_parts &x, struct cuda_turn *turn, uint32_t u,
                                   cuda_words own)
{
    if constexpr (R::moves) {
        return cuda_move_unit<Wire, 0, MOST, CHUNK, WHOLE>(x, turn, u);
    } else {
        const uint64_t at = x.at(u);
        cuda_words result;
        bool any;
        if (!cuda_fold_unit_of<Wire, R, MOST, CHUNK, WHOLE>(x, turn, u, own, &any, &result)) return false;
        if (any) cuda_give_unit<WHOLE>(x.out + x.from(x.call.me).at + at, result, x.x.result_bytes - at);
        return true;
    }
}

/* How many units receiving stays behind sending, on wires that carry several units a thread: a unit is looked for when
 * those after it are on their way, so that what it costs to look is hidden by the wires, and few are left to look for
 * in the end. Nobody waits for ever: whoever waits for a unit has sent that one, and more. */
CUDA_DEVICE uint32_t cuda_lag(uint32_t units)
{
    return units > 2 ? 2 : units - 1;
}

/* What leaves before anything is waited for: the first unit, or all. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE void cuda_begin_units(const struct cuda_exchange_parts &x, struct cuda_turn *turn, cuda_words *own)
{
    for (uint32_t u = 0; u < (Wire::lags ? 1 : x.units); u++)
        cuda_send_unit<Wire, R, MOST, CHUNK, WHOLE>(x, turn, u, own);
}

template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE bool cuda_end_units(const struct cuda_exchange_parts &x, struct cuda_turn *turn, cuda_words own)
{
    const uint32_t lag = Wire::lags ? cuda_lag(x.units) : 0;
    for (uint32_t u = 0; u < x.units + lag; u++) {
        if (Wire::lags && u > 0 && u < x.units) cuda_send_unit<Wire, R, MOST, CHUNK, WHOLE>(x, turn, u, &own);
        if (u + 1 > lag && !cuda_receive_unit<Wire, R, MOST, CHUNK, WHOLE>(x, turn, u - lag, own)) return false;
    }
    return true;
}

/* The body of the kernels of one exchange. FAST: with a way of their own for whole units; the other one takes peers in
 * twos. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool FAST>
CUDA_DEVICE void cuda_oneshot(const struct cuda_exchange &exchange)
{
    const struct cuda_exchange_parts x = {exchange.call, exchange,       exchange.in,
                                          exchange.out,  exchange.units, exchange.alike != 0};
    cuda_words own = {0, 0, 0, 0};
    cuda_follow_launch();
    struct cuda_turn turn = cuda_turn_begin(x.call);
    const bool whole = FAST && cuda_is_whole(x.units, exchange.whole);
    if (whole)
        cuda_begin_units<Wire, R, MOST, CHUNK, FAST>(x, &turn, &own);
    else
        cuda_begin_units<Wire, R, MOST, 2, false>(x, &turn, &own);
    const uint64_t block = cuda_unit_at(x.units, 0) - 16 * cuda_thread();
    cuda_turn_tell(x, turn, block);
    if (turn.failed) return;
    if (!(whole ? cuda_end_units<Wire, R, MOST, CHUNK, FAST>(x, &turn, own)
                : cuda_end_units<Wire, R, MOST, 2, false>(x, &turn, own)))
        return;
    cuda_turn_count<MOST>(x, turn, block);
    cuda_turn_end(x.call, turn);
}

#endif
