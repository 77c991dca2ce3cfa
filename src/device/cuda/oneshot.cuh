/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_ONESHOT_CUH
#define TUTTI_DEVICE_CUDA_ONESHOT_CUH

/* One exchange (struct cuda_exchange) by lines or sentinels: every thread puts its units of all parts into its peers'
 * slots, then takes what peers have put into its own, unit by unit; it waits for no other thread of its block. As units
 * belong to threads, a buffer may be input and output: what a thread overwrites, it alone has read.
 *
 * MOST: the most ranks. CHUNK: of how many of them things are in flight at once; divides MOST. WHOLE: for units below
 * x.whole, which need no questions about addresses and ends; the others take peers in twos. */

#include "reduce.cuh"
#include "units.cuh"
#include "wires.cuh"

/* Bytes from the beginning of each part to this thread's unit u. */
CUDA_DEVICE uint64_t cuda_unit_at(uint32_t units, uint32_t u)
{
    return (uint64_t)16 * ((cuda_block() * units + u) * cuda_threads() + cuda_thread());
}

/* Whether that is so for all threads of this warp, whose last one is asked about its last unit. */
CUDA_DEVICE bool cuda_is_whole(const struct cuda_exchange &x)
{
    const uint32_t last = (cuda_block() * x.units + x.units - 1) * cuda_threads() + (cuda_thread() | (CUDA_WARP - 1));
    return last < x.whole;
}

template <typename R> CUDA_DEVICE cuda_words cuda_scaled(const struct cuda_call &call, cuda_words unit)
{
    if constexpr (R::moves)
        return unit;
    else
        return call.scales ? R::scale(unit, call.factor) : unit;
}

/* The own part of a move. */
template <bool WHOLE> CUDA_DEVICE void cuda_keep_own(const struct cuda_exchange &x, uint64_t at, cuda_words unit)
{
    const struct cuda_part part = x.recv[x.call.me];
    if (at >= part.bytes || x.in + x.send[x.call.me].at == x.out + part.at) return;
    cuda_give_unit<WHOLE>(x.out + part.at + at, unit, part.bytes - at);
}

/* Unit u of all parts to their receivers. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE void cuda_send_unit(const struct cuda_exchange &x, struct cuda_turn *turn, uint32_t u)
{
    const uint64_t at = cuda_unit_at(x.units, u);
    for (uint32_t first = 0; first < MOST; first += CHUNK) {
        if (first >= x.call.n) break;
        cuda_words units[CHUNK];
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const struct cuda_part &part = x.send[first + k];
            if (k > 0 && x.alike)
                units[k] = units[0];
            else if (first + k < x.call.n && at < part.bytes)
                units[k] = cuda_take_unit<WHOLE>(x.in + part.at + at, part.bytes - at);
        }
        if (!cuda_turn_pay(x.call, turn)) return;
        const uint64_t slot = Wire::slot(x.call, 0, turn->count, x.call.me) + Wire::place(u);
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q >= x.call.n || at >= x.send[q].bytes) continue;
            if (q != x.call.me)
                Wire::put(x.call.base[q] + slot, Wire::proper(cuda_scaled<R>(x.call, units[k])), cuda_turn_flag(*turn));
            else if constexpr (R::moves)
                cuda_keep_own<WHOLE>(x, at, units[k]);
        }
    }
}

/* Looks at the slots of CHUNK sources, from rank `first` on, until units are there from all that send one. */
template <typename Wire, uint32_t CHUNK>
CUDA_DEVICE bool cuda_await_units(const struct cuda_exchange &x, struct cuda_turn *turn, uint32_t first, uint64_t at,
                                  const char *slot, uint64_t stride, typename Wire::seen *seen)
{
    const uint32_t flag = cuda_turn_flag(*turn);
    for (;;) {
        uint32_t missing = CUDA_MAX_RANKS;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q < x.call.n && q != x.call.me && at < x.recv[q].bytes) seen[k] = Wire::look(slot + q * stride);
        }
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q < x.call.n && q != x.call.me && at < x.recv[q].bytes && !Wire::there(seen[k], flag)) missing = q;
        }
        if (missing == CUDA_MAX_RANKS) return true;
        if (!cuda_go_on(&turn->waiter, x.call, missing)) return false;
    }
}

/* Contributions in rank order. */
template <typename R> struct cuda_folding {
    typename R::total total;
    bool begun;

    __device__ __forceinline__ void add(cuda_words unit, uint32_t op)
    {
        if (begun)
            R::next(&total, unit, op);
        else
            R::first(&total, unit);
        begun = true;
    }
};
template <> struct cuda_folding<cuda_move> {
};

/* Unit u of what others sent: to its place, or folded with the own one. False: the call has failed. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE bool cuda_receive_unit(const struct cuda_exchange &x, struct cuda_turn *turn, uint32_t u)
{
    const uint32_t me = x.call.me;
    const uint64_t at = cuda_unit_at(x.units, u), base = Wire::slot(x.call, 0, turn->count, 0) + Wire::place(u);
    const uint64_t stride = Wire::slot(x.call, 0, turn->count, 1) + Wire::place(u) - base;
    char *slot = x.call.base[me] + base;
    cuda_folding<R> folding = {};
    cuda_words own = {};
    if constexpr (!R::moves)
        if (at < x.recv[me].bytes) own = cuda_take_unit<WHOLE>(x.in + x.send[me].at + at, x.recv[me].bytes - at);
    for (uint32_t first = 0; first < MOST; first += CHUNK) {
        if (first >= x.call.n) break;
        typename Wire::seen seen[CHUNK];
        if (!cuda_await_units<Wire, CHUNK>(x, turn, first, at, slot, stride, seen)) return false;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t q = first + k;
            if (q >= x.call.n || at >= x.recv[q].bytes) continue;
            if constexpr (R::moves) {
                if (q != me)
                    cuda_give_unit<WHOLE>(x.out + x.recv[q].at + at, Wire::unit(seen[k]), x.recv[q].bytes - at);
            } else {
                folding.add(q == me ? cuda_scaled<R>(x.call, own) : Wire::unit(seen[k]), x.call.op);
            }
            if (q != me) Wire::empty(slot + q * stride);
        }
    }
    if constexpr (!R::moves)
        if (folding.begun)
            cuda_give_unit<WHOLE>(x.out + x.recv[me].at + at, R::result(folding.total, x.call.divisor),
                                  x.result_bytes - at);
    return true;
}

template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE bool cuda_receive(const struct cuda_exchange &x, struct cuda_turn *turn)
{
    for (uint32_t u = 0; u < x.units; u++)
        if (!cuda_receive_unit<Wire, R, MOST, CHUNK, WHOLE>(x, turn, u)) return false;
    return true;
}

/* The kernels' body. FAST: with a path for whole units. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool FAST>
CUDA_DEVICE void cuda_oneshot(const struct cuda_exchange &x)
{
    struct cuda_turn turn = cuda_turn_begin(x.call);
    const bool whole = FAST && cuda_is_whole(x);
    for (uint32_t u = 0; u < x.units; u++) {
        if (whole)
            cuda_send_unit<Wire, R, MOST, CHUNK, FAST>(x, &turn, u);
        else
            cuda_send_unit<Wire, R, MOST, 2, false>(x, &turn, u);
    }
    cuda_turn_count(x.call, turn);
    if (turn.failed) return;
    if (whole ? cuda_receive<Wire, R, MOST, CHUNK, FAST>(x, &turn) : cuda_receive<Wire, R, MOST, 2, false>(x, &turn))
        cuda_turn_end(x.call, turn);
}

#endif
