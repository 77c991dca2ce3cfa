/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_ONESHOT_CUH
#define TUTTI_DEVICE_CUDA_ONESHOT_CUH

/* An exchange by lines or sentinels, in steps for one unit: a thread puts its units of all parts into its peers' slots,
 * and takes what peers have put into its own. It waits for no other thread of its block. As units belong to threads, a
 * buffer may be input and output: what a thread overwrites, it alone has read.
 *
 * Parts: the parts of an exchange, a struct with call, in, out, to(q), from(q), result_bytes(), and at(u): how far from
 * the beginning of each part this thread's unit u is. MOST: the most ranks. CHUNK: of how many of them things are in
 * flight at once; divides MOST. WHOLE: for units below `whole`, which need no questions about addresses and ends.
 * PHASE: of the slots. */

#include "device/kernels/reduce.h"
#include "device/kernels/units.h"
#include "device/kernels/wires.h"

/* Bytes from the beginning of each part to this thread's unit u. */
GPU_DEVICE uint64_t gpu_unit_at(uint32_t units, uint32_t u)
{
    return (uint64_t)16 * ((gpu_block() * units + u) * gpu_threads() + gpu_thread());
}

/* The parts of a struct gpu_exchange. */
struct gpu_exchange_parts {
    const struct gpu_call &call;
    const struct gpu_exchange &x;
    const char *in;
    char *out;
    uint32_t units;

    __device__ __forceinline__ struct gpu_part to(uint32_t q) const { return x.send[q]; }
    __device__ __forceinline__ struct gpu_part from(uint32_t q) const { return x.recv[q]; }
    __device__ __forceinline__ uint64_t at(uint32_t u) const { return gpu_unit_at(units, u); }
    __device__ __forceinline__ uint64_t result_bytes() const { return x.result_bytes; }
};

/* Whether all units of this warp are below `whole`; the last thread's last one is the greatest. */
GPU_DEVICE bool gpu_is_whole(uint32_t units, uint32_t whole)
{
    return (gpu_block() * units + units - 1) * gpu_threads() + (gpu_thread() | (GPU_WARP - 1)) < whole;
}

/* Out of the way: each kernel has many places for it, and few calls scale. */
template <typename R> GPU_COLD gpu_words gpu_scale_unit(const struct gpu_call &call, gpu_words unit)
{
    return R::scale(unit, call.factor);
}

template <typename R> GPU_DEVICE gpu_words gpu_scaled(const struct gpu_call &call, gpu_words unit)
{
    if constexpr (R::moves)
        return unit;
    else
        return call.scales ? gpu_scale_unit<R>(call, unit) : unit;
}

/* The i-th other rank to send to: each rank begins with another, so that they do not all push at one at a time. */
GPU_DEVICE uint32_t gpu_nth(const struct gpu_call &call, uint32_t i)
{
    const uint32_t q = call.me + 1 + i;
    return q < call.n ? q : q - call.n;
}

/* An address so much further on, which need not mean anything: who gets nothing may have no buffer. */
template <typename T> GPU_DEVICE T *gpu_further(T *p, uint64_t by)
{
    return reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(p) + by);
}

/* Bytes of `part` from `at` on: what travels by lines and sentinels is not long. */
GPU_DEVICE uint32_t gpu_left(struct gpu_part part, uint64_t at)
{
    return at < part.bytes ? (uint32_t)(part.bytes - at) : 0;
}

/* Where a unit is in parts, and its slot in even turns: in row 0, and from there to the next row. */
struct gpu_start {
    uint64_t at, slot, stride;
};
struct gpu_way_to { /* another rank: */
    const char *in; /* the unit, */
    char *slot;     /* its slot there in even turns, */
    uint32_t left;  /* and how many bytes there are from it on */
};
struct gpu_way_from { /* the rank of a row, likewise */
    char *out;        /* for moves */
    uint32_t left;
};

/* The i-th other rank. */
template <typename Parts>
GPU_DEVICE struct gpu_way_to gpu_find_to(const Parts &x, const struct gpu_start &start, uint32_t i)
{
    const struct gpu_call &call = x.call;
    const uint32_t q = gpu_nth(call, i);
    const struct gpu_part part = x.to(q);
    return gpu_way_to{gpu_further(x.in, part.at + start.at),
                      call.base[q] + start.slot + gpu_row(q, call.me) * start.stride,
                      i + 1 < call.n ? gpu_left(part, start.at) : 0};
}

template <typename Parts>
GPU_DEVICE struct gpu_way_from gpu_find_from(const Parts &x, const struct gpu_start &start, uint32_t r)
{
    const struct gpu_part part = x.from(gpu_rank_of(x.call.me, r));
    return gpu_way_from{gpu_further(x.out, part.at + start.at), r + 1 < x.call.n ? gpu_left(part, start.at) : 0};
}

/* With few ranks the ways to all are found at once, and lie in registers. */
template <typename Parts, uint32_t MOST, bool FEW = (MOST <= 8)> struct gpu_peers {
    struct gpu_way_to ways_to[MOST];
    struct gpu_way_from ways_from[MOST];

    __device__ __forceinline__ gpu_peers(const Parts &x, const struct gpu_start &start)
    {
        GPU_UNROLL
        for (uint32_t i = 0; i + 1 < MOST; i++) ways_to[i] = gpu_find_to(x, start, i);
        GPU_UNROLL
        for (uint32_t r = 0; r + 1 < MOST; r++) ways_from[r] = gpu_find_from(x, start, r);
    }
    __device__ __forceinline__ const struct gpu_way_to &to(uint32_t i) const { return ways_to[i]; }
    __device__ __forceinline__ const struct gpu_way_from &from(uint32_t r) const { return ways_from[r]; }
    template <typename R> __device__ __forceinline__ void settle()
    {
        GPU_UNROLL
        for (uint32_t i = 0; i + 1 < MOST; i++) {
            gpu_settle(&ways_to[i].in);
            gpu_settle(&ways_to[i].slot);
            gpu_settle(&ways_to[i].left);
            if constexpr (R::moves) gpu_settle(&ways_from[i].out);
            gpu_settle(&ways_from[i].left);
        }
    }
};

/* With many they are found when they are asked for. They would lie in local memory, and for a kernel that takes more of
 * that than a context has from the start the driver may wait for all others on the device, of which one may wait for
 * this rank: no kernel does (tests/cuda/device/gpu_test.c). */
template <typename Parts, uint32_t MOST> struct gpu_peers<Parts, MOST, false> {
    const Parts x;
    const struct gpu_start start;

    __device__ __forceinline__ gpu_peers(const Parts &parts, const struct gpu_start &at) : x(parts), start(at) {}
    __device__ __forceinline__ struct gpu_way_to to(uint32_t i) const { return gpu_find_to(x, start, i); }
    __device__ __forceinline__ struct gpu_way_from from(uint32_t r) const { return gpu_find_from(x, start, r); }
    template <typename R> __device__ __forceinline__ void settle() {}
};

/* With few ranks there are ways beyond the last one, too, of no bytes. */
template <uint32_t MOST> GPU_DEVICE bool gpu_is_way(const struct gpu_call &call, uint32_t i)
{
    return MOST <= 8 || i < call.n;
}

/* Where a thread's units go to and come from, as far as it is known before its turn is: found while what is ahead in
 * the stream comes to its end. A launch's parameters are in no cache at first, and looking them up for one peer after
 * another took a third of a small call. Of units further on bytes, and slots, are that much further on. */
template <typename Parts, uint32_t MOST> struct gpu_ways {
    struct gpu_peers<Parts, MOST> peers;
    const char *own;        /* the own part, */
    char *result;           /* and where it, or what is folded, goes, */
    uint32_t kept, left;    /* and how many bytes of each there are: moves keep none that are there already */
    struct gpu_inbox inbox; /* in even turns, */
    uint64_t odd;           /* and how far it is from there to odd ones */
};

template <typename Wire, typename R, uint32_t PHASE, uint32_t MOST, typename Parts>
GPU_DEVICE struct gpu_ways<Parts, MOST> gpu_ways_find(const Parts &x, uint32_t u) {
    const struct gpu_call &call = x.call;
    const struct gpu_start start = {x.at(u), Wire::slot(call, PHASE, 0) + Wire::place(u), gpu_stride<Wire>(call)};
    const char *own = gpu_further(x.in, x.to(call.me).at + start.at);
    char *result = gpu_further(x.out, x.from(call.me).at + start.at);
    const char *exceptions = nullptr;
    if constexpr (Wire::excepts) exceptions = call.base[call.me] + Wire::exceptions(call, start.slot);
    return gpu_ways<Parts, MOST>{{x, start},
                                 own,
                                 result,
                                 R::moves &&own == result ? 0 : gpu_left(x.from(call.me), start.at),
                                 gpu_left(gpu_part{0, x.result_bytes()}, start.at),
                                 {call.base[call.me] + start.slot, start.stride, exceptions},
                                 Wire::slot(call, PHASE, 1) - Wire::slot(call, PHASE, 0)};
}

/* Here and now, and not where they are used. */
template <typename R, typename Ways>
GPU_DEVICE void gpu_ways_settle(Ways *ways)
{
    ways->peers.template settle<R>();
    gpu_settle(&ways->own);
    gpu_settle(&ways->result);
    gpu_settle(&ways->kept);
    gpu_settle(&ways->inbox.slot);
    gpu_settle(&ways->odd);
}

/* Bytes from the first unit to unit u: in buffers, */
GPU_DEVICE uint32_t gpu_unit_on(uint32_t u)
{
    return 16 * u * gpu_threads();
}

/* and from its slot in even turns to its slot in this one. */
template <typename Wire, typename Ways>
GPU_DEVICE uint64_t gpu_slot_on(const Ways &ways, const struct gpu_turn &turn, uint32_t u)
{
    return (turn.count % 2 ? ways.odd : 0) + (Wire::place(u) - Wire::place(0));
}

/* A unit to rank q, if this thread has `any`; by whole warps. */
template <typename Wire, typename R>
GPU_DEVICE void gpu_put_unit(const struct gpu_call &call, uint32_t q, char *slot, bool any, gpu_words unit,
                             uint32_t flag)
{
    unit = gpu_scaled<R>(call, unit);
    if constexpr (Wire::excepts)
        Wire::except(call.base[q] + Wire::exceptions(call, slot - call.base[q]), any, unit, flag);
    if (any) Wire::put(slot, Wire::proper(unit), flag);
}

/* Unit u of all parts to those who get it; the own part to its place, or of a reduction to *own, unless that is NULL.
 * `alike`: all parts are the same. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE void gpu_send_unit(const struct gpu_call &call, const Ways &ways, bool alike, struct gpu_turn *turn,
                              uint32_t u, gpu_words *own)
{
    const uint32_t on = gpu_unit_on(u);
    gpu_words kept = {0, 0, 0, 0};
    if (!alike && on < ways.kept && (R::moves || own)) kept = gpu_take_unit<WHOLE>(ways.own + on, ways.kept - on);
    GPU_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t first = 0; first + 1 < MOST && first + 1 < call.n; first += CHUNK) {
        gpu_words units[CHUNK];
        GPU_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t i = first + k;
            units[k] = gpu_words{0, 0, 0, 0};
            if ((k > 0 && alike) || i + 1 >= MOST || !gpu_is_way<MOST>(call, i + 1)) continue;
            const struct gpu_way_to way = ways.peers.to(i);
            if (on < way.left) units[k] = gpu_take_unit<WHOLE>(way.in + on, way.left - on);
        }
        if (!gpu_turn_pay(call, turn)) return;
        const uint64_t slot = gpu_slot_on<Wire>(ways, *turn, u);
        GPU_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t i = first + k;
            if (i + 1 >= MOST || !gpu_is_way<MOST>(call, i + 1)) continue;
            const gpu_words unit = alike ? units[0] : units[k]; /* no earlier: that would wait for the load */
            const struct gpu_way_to way = ways.peers.to(i);
            gpu_put_unit<Wire, R>(call, gpu_nth(call, i), way.slot + slot, on < way.left, unit, gpu_turn_flag(*turn));
        }
        if (alike) kept = units[0];
    }
    if (R::moves && on < ways.kept) gpu_give_unit<WHOLE>(ways.result + on, kept, ways.kept - on);
    if (!R::moves && own) *own = kept;
}

/* Looks at what came in CHUNK rows from `first` on until it is there. It looks at all at once, wanted or not: a look
 * that waits for the outcome of another costs as much as half the way to a peer. False: the call has failed. */
template <typename Wire, uint32_t MOST, uint32_t CHUNK, typename Ways>
GPU_DEVICE bool gpu_await_units(const struct gpu_call &call, const Ways &ways, struct gpu_turn *turn, uint32_t first,
                                uint32_t u, typename Wire::seen *seen)
{
    const uint32_t flag = gpu_turn_flag(*turn), on = gpu_unit_on(u);
    const struct gpu_inbox inbox = gpu_inbox_on(ways.inbox, gpu_slot_on<Wire>(ways, *turn, u));
    for (;;) {
        uint32_t missing = GPU_MAX_RANKS;
        GPU_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++)
            if (first + k + 1 < MOST) seen[k] = Wire::look(inbox, first + k + 1 < call.n ? first + k : first);
        GPU_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t r = first + k;
            if (r + 1 >= MOST || !gpu_is_way<MOST>(call, r + 1)) continue;
            if (on < ways.peers.from(r).left && !Wire::there(seen[k], flag)) missing = r;
        }
        if (missing == GPU_MAX_RANKS) return true;
        if (!gpu_go_on(&turn->waiter, call, gpu_rank_of(call.me, missing))) return false;
    }
}

/* Unit u of what others sent, to its place. */
template <typename Wire, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE bool gpu_move_unit(const struct gpu_call &call, const Ways &ways, struct gpu_turn *turn, uint32_t u)
{
    const uint32_t on = gpu_unit_on(u);
    const uint64_t slot = gpu_slot_on<Wire>(ways, *turn, u);
    GPU_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t first = 0; first + 1 < MOST && first + 1 < call.n; first += CHUNK) {
        typename Wire::seen seen[CHUNK];
        if (!gpu_await_units<Wire, MOST, CHUNK>(call, ways, turn, first, u, seen)) return false;
        GPU_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t r = first + k;
            if (r + 1 >= MOST || !gpu_is_way<MOST>(call, r + 1)) continue;
            const struct gpu_way_from way = ways.peers.from(r);
            if (on >= way.left) continue;
            gpu_give_unit<WHOLE>(way.out + on, Wire::unit(seen[k]), way.left - on);
            Wire::empty(ways.inbox.row(r) + slot);
        }
    }
    return true;
}

/* What is folded of a unit, so far. */
template <typename R> struct gpu_sum {
    typename R::total total;
    bool any;

    __device__ __forceinline__ void add(const struct gpu_call &call, gpu_words unit)
    {
        if (any)
            R::next(&total, unit, call.op);
        else
            R::first(&total, unit);
        any = true;
    }
};

/* Out of the way, as few calls divide. */
template <typename R> GPU_COLD gpu_words gpu_quotient(typename R::total total, uint32_t divisor)
{
    return R::result(total, divisor);
}

template <typename R> GPU_DEVICE gpu_words gpu_folded(const struct gpu_call &call, const gpu_sum<R> &sum)
{
    return call.divisor ? gpu_quotient<R>(sum.total, call.divisor) : R::result(sum.total, 0);
}

/* Unit u of what others sent and of the own part, folded in rank order; *any: whether there was anything to fold. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, typename Ways>
GPU_DEVICE bool gpu_fold_arrivals(const struct gpu_call &call, const Ways &ways, struct gpu_turn *turn, uint32_t u,
                                  gpu_words own, bool *any, gpu_words *result)
{
    const uint32_t on = gpu_unit_on(u);
    const uint64_t slot = gpu_slot_on<Wire>(ways, *turn, u);
    const bool keeps = on < ways.kept;
    struct gpu_sum<R> sum;
    sum.any = false;
    GPU_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t first = 0; first + 1 < MOST && first + 1 < call.n; first += CHUNK) {
        typename Wire::seen seen[CHUNK];
        if (!gpu_await_units<Wire, MOST, CHUNK>(call, ways, turn, first, u, seen)) return false;
        GPU_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t r = first + k;
            if (r + 1 >= MOST || !gpu_is_way<MOST>(call, r + 1)) continue;
            if (keeps && r == call.me && r + 1 < call.n) sum.add(call, gpu_scaled<R>(call, own));
            if (on >= ways.peers.from(r).left) continue;
            sum.add(call, Wire::unit(seen[k]));
            Wire::empty(ways.inbox.row(r) + slot);
        }
    }
    if (keeps && call.me + 1 == call.n) sum.add(call, gpu_scaled<R>(call, own));
    *any = sum.any;
    if (sum.any) *result = gpu_folded(call, sum);
    return true;
}

/* The own part's unit u: `kept` where there is one a thread; of several it is loaded again, while others are waited
 * for. */
template <bool WHOLE, typename Ways>
GPU_DEVICE gpu_words gpu_own_unit(const Ways &ways, uint32_t units, uint32_t u, gpu_words kept)
{
    const uint32_t on = gpu_unit_on(u);
    return units > 1 && on < ways.kept ? gpu_take_unit<WHOLE>(ways.own + on, ways.kept - on) : kept;
}

template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE bool gpu_receive_unit(const struct gpu_call &call, const Ways &ways, uint32_t units, struct gpu_turn *turn,
                                 uint32_t u, gpu_words kept)
{
    if constexpr (R::moves) {
        return gpu_move_unit<Wire, MOST, CHUNK, WHOLE>(call, ways, turn, u);
    } else {
        const uint32_t on = gpu_unit_on(u);
        const gpu_words own = gpu_own_unit<WHOLE>(ways, units, u, kept);
        gpu_words result;
        bool any;
        if (!gpu_fold_arrivals<Wire, R, MOST, CHUNK>(call, ways, turn, u, own, &any, &result)) return false;
        if (any) gpu_give_unit<WHOLE>(ways.result + on, result, ways.left - on);
        return true;
    }
}

/* How many units receiving stays behind sending, on wires that carry several units a thread: a unit is looked for when
 * those after it are on their way, so that what it costs to look is hidden by the wires, and few are left to look for
 * in the end. Nobody waits for ever: whoever waits for a unit has sent that one, and more. */
GPU_DEVICE uint32_t gpu_lag(uint32_t units)
{
    return units > 2 ? 2 : units - 1;
}

/* What leaves before anything is waited for: the first unit, or all. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE void gpu_begin_units(const struct gpu_exchange &x, const Ways &ways, struct gpu_turn *turn, gpu_words *own)
{
    for (uint32_t u = 0; u < (Wire::lags ? 1 : x.units); u++)
        gpu_send_unit<Wire, R, MOST, CHUNK, WHOLE>(x.call, ways, x.alike != 0, turn, u, own);
}

template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE bool gpu_end_units(const struct gpu_exchange &x, const Ways &ways, struct gpu_turn *turn, gpu_words own)
{
    const uint32_t lag = Wire::lags ? gpu_lag(x.units) : 0;
    for (uint32_t u = 0; u < x.units + lag; u++) {
        if (Wire::lags && u > 0 && u < x.units)
            gpu_send_unit<Wire, R, MOST, CHUNK, WHOLE>(x.call, ways, x.alike != 0, turn, u, nullptr);
        if (u + 1 > lag && !gpu_receive_unit<Wire, R, MOST, CHUNK, WHOLE>(x.call, ways, x.units, turn, u - lag, own))
            return false;
    }
    return true;
}

/* The body of the kernels of one exchange. FAST: with a way of their own for whole units; the other one takes peers in
 * twos. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool FAST>
GPU_DEVICE void gpu_oneshot(const struct gpu_exchange &x)
{
    const struct gpu_exchange_parts parts = {x.call, x, x.in, x.out, x.units};
    const bool whole = FAST && gpu_is_whole(x.units, x.whole);
    auto ways = gpu_ways_find<Wire, R, 0, MOST>(parts, 0);
    struct gpu_audience audience = gpu_audience_of<MOST>(parts, gpu_unit_at(x.units, 0) - 16 * gpu_thread());
    gpu_words own = {0, 0, 0, 0};
    gpu_ways_settle<R>(&ways);
    struct gpu_turn turn = gpu_turn_begin(x.call, &audience);
    if (whole)
        gpu_begin_units<Wire, R, MOST, CHUNK, FAST>(x, ways, &turn, &own);
    else
        gpu_begin_units<Wire, R, MOST, 2, false>(x, ways, &turn, &own);
    gpu_turn_tell(turn, audience);
    if (turn.failed) return;
    if (!(whole ? gpu_end_units<Wire, R, MOST, CHUNK, FAST>(x, ways, &turn, own)
                : gpu_end_units<Wire, R, MOST, 2, false>(x, ways, &turn, own)))
        return;
    gpu_turn_count(x.call, turn, audience);
    gpu_turn_end(x.call, turn);
}

/* ---- kernels ---- */
/* For how many ranks, of how many things in flight, and whether `whole` units are told apart; then the blocks an SM. */
#define GPU_ONESHOT(protocol, wire, name, R, most, chunk, fast, ...)                                                   \
    GPU_KERNEL(protocol##_##name##_##most, struct gpu_exchange, x, GPU_LINE_THREADS, ##__VA_ARGS__)                    \
    {                                                                                                                  \
        gpu_oneshot<wire, R, most, chunk, fast>(x);                                                                    \
    }
#define GPU_ONESHOT_FAST(protocol, wire, name, R)                                                                      \
    GPU_ONESHOT(protocol, wire, name, R, 2, 2, true)                                                                   \
    GPU_ONESHOT(protocol, wire, name, R, 4, 4, true)                                                                   \
    GPU_ONESHOT(protocol, wire, name, R, 8, 8, true)                                                                   \
    GPU_ONESHOT(protocol, wire, name, R, 16, 4, true)
#define GPU_LINES_FAST(name, R) GPU_ONESHOT_FAST(lines, gpu_lines, name, R)
#define GPU_LINES_ANY(name, R) GPU_ONESHOT(lines, gpu_lines, name, R, 16, 2, false)
#define GPU_SENTINEL_FAST(name, R) GPU_ONESHOT_FAST(sentinel, gpu_sentinel<R::type::word>, name, R)
#define GPU_SENTINEL_ANY(name, R) GPU_ONESHOT(sentinel, gpu_sentinel<R::type::word>, name, R, 16, 2, false)
/* Bounds for one block an SM: for two, registers would spill. */
#define GPU_SENTINEL_INTEGER(name, R) GPU_ONESHOT(sentinel, gpu_sentinel<R::type::word>, name, R, 16, 2, false, 1)

#endif
