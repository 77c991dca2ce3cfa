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

#include "reduce.cuh"
#include "units.cuh"
#include "wires.cuh"

/* Bytes from the beginning of each part to this thread's unit u. */
CUDA_DEVICE uint64_t cuda_unit_at(uint32_t units, uint32_t u)
{
    return (uint64_t)16 * ((cuda_block() * units + u) * cuda_threads() + cuda_thread());
}

/* The parts of a struct gpu_exchange. */
struct cuda_exchange_parts {
    const struct gpu_call &call;
    const struct gpu_exchange &x;
    const char *in;
    char *out;
    uint32_t units;

    __device__ __forceinline__ struct gpu_part to(uint32_t q) const { return x.send[q]; }
    __device__ __forceinline__ struct gpu_part from(uint32_t q) const { return x.recv[q]; }
    __device__ __forceinline__ uint64_t at(uint32_t u) const { return cuda_unit_at(units, u); }
    __device__ __forceinline__ uint64_t result_bytes() const { return x.result_bytes; }
};

/* Whether all units of this warp are below `whole`; the last thread's last one is the greatest. */
CUDA_DEVICE bool cuda_is_whole(uint32_t units, uint32_t whole)
{
    return (cuda_block() * units + units - 1) * cuda_threads() + (cuda_thread() | (CUDA_WARP - 1)) < whole;
}

/* Out of the way: each kernel has many places for it, and few calls scale. */
template <typename R> CUDA_COLD cuda_words cuda_scale_unit(const struct gpu_call &call, cuda_words unit)
{
    return R::scale(unit, call.factor);
}

template <typename R> CUDA_DEVICE cuda_words cuda_scaled(const struct gpu_call &call, cuda_words unit)
{
    if constexpr (R::moves)
        return unit;
    else
        return call.scales ? cuda_scale_unit<R>(call, unit) : unit;
}

/* The i-th other rank to send to: each rank begins with another, so that they do not all push at one at a time. */
CUDA_DEVICE uint32_t cuda_nth(const struct gpu_call &call, uint32_t i)
{
    const uint32_t q = call.me + 1 + i;
    return q < call.n ? q : q - call.n;
}

/* An address so much further on, which need not mean anything: who gets nothing may have no buffer. */
template <typename T> CUDA_DEVICE T *cuda_further(T *p, uint64_t by)
{
    return reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(p) + by);
}

/* Of `part`, from `at` on: what travels by lines and sentinels is not long. */
CUDA_DEVICE uint32_t cuda_left(struct gpu_part part, uint64_t at)
{
    return at < part.bytes ? (uint32_t)(part.bytes - at) : 0;
}

/* Where a unit is in parts, and its slot in even turns: in row 0, and from there to the next row. */
struct cuda_start {
    uint64_t at, slot, stride;
};
struct cuda_way_to { /* another rank: */
    const char *in;  /* the unit, */
    char *slot;      /* its slot there in even turns, */
    uint32_t left;   /* and how many bytes there are from it on */
};
struct cuda_way_from { /* the rank of a row, likewise */
    char *out;         /* of moves */
    uint32_t left;
};

/* The i-th other rank. */
template <typename Parts>
CUDA_DEVICE struct cuda_way_to cuda_find_to(const Parts &x, const struct cuda_start &start, uint32_t i)
{
    const struct gpu_call &call = x.call;
    const uint32_t q = cuda_nth(call, i);
    const struct gpu_part part = x.to(q);
    return cuda_way_to{cuda_further(x.in, part.at + start.at),
                       call.base[q] + start.slot + gpu_row(q, call.me) * start.stride,
                       i + 1 < call.n ? cuda_left(part, start.at) : 0};
}

template <typename Parts>
CUDA_DEVICE struct cuda_way_from cuda_find_from(const Parts &x, const struct cuda_start &start, uint32_t r)
{
    const struct gpu_part part = x.from(gpu_rank_of(x.call.me, r));
    return cuda_way_from{cuda_further(x.out, part.at + start.at), r + 1 < x.call.n ? cuda_left(part, start.at) : 0};
}

/* Of few ranks the ways to all are found at once, and lie in registers. */
template <typename Parts, uint32_t MOST, bool FEW = (MOST <= 8)> struct cuda_peers {
    struct cuda_way_to ways_to[MOST];
    struct cuda_way_from ways_from[MOST];

    __device__ __forceinline__ cuda_peers(const Parts &x, const struct cuda_start &start)
    {
        CUDA_UNROLL
        for (uint32_t i = 0; i + 1 < MOST; i++) ways_to[i] = cuda_find_to(x, start, i);
        CUDA_UNROLL
        for (uint32_t r = 0; r + 1 < MOST; r++) ways_from[r] = cuda_find_from(x, start, r);
    }
    __device__ __forceinline__ const struct cuda_way_to &to(uint32_t i) const { return ways_to[i]; }
    __device__ __forceinline__ const struct cuda_way_from &from(uint32_t r) const { return ways_from[r]; }
    template <typename R> __device__ __forceinline__ void settle()
    {
        CUDA_UNROLL
        for (uint32_t i = 0; i + 1 < MOST; i++) {
            cuda_settle(&ways_to[i].in);
            cuda_settle(&ways_to[i].slot);
            cuda_settle(&ways_to[i].left);
            if constexpr (R::moves) cuda_settle(&ways_from[i].out);
            cuda_settle(&ways_from[i].left);
        }
    }
};

/* Of many they are found when they are asked for. They would lie in local memory, and for a kernel that takes more of
 * that than a context has from the start the driver may wait for all others on the device, of which one may wait for
 * this rank: no kernel does (tests/cuda/device/gpu_test.c). */
template <typename Parts, uint32_t MOST> struct cuda_peers<Parts, MOST, false> {
    const Parts x;
    const struct cuda_start start;

    __device__ __forceinline__ cuda_peers(const Parts &parts, const struct cuda_start &at) : x(parts), start(at) {}
    __device__ __forceinline__ struct cuda_way_to to(uint32_t i) const { return cuda_find_to(x, start, i); }
    __device__ __forceinline__ struct cuda_way_from from(uint32_t r) const { return cuda_find_from(x, start, r); }
    template <typename R> __device__ __forceinline__ void settle() {}
};

/* Of few ranks there are ways beyond the last one, too, of no bytes. */
template <uint32_t MOST> CUDA_DEVICE bool cuda_is_way(const struct gpu_call &call, uint32_t i)
{
    return MOST <= 8 || i < call.n;
}

/* Where a thread's units go to and come from, as far as it is known before its turn is: found while what is ahead in
 * the stream comes to its end. A launch's parameters are in no cache at first, and looking them up for one peer after
 * another took a third of a small call. Of units further on bytes, and slots, are that much further on. */
template <typename Parts, uint32_t MOST> struct cuda_ways {
    struct cuda_peers<Parts, MOST> peers;
    const char *own;         /* the own part, */
    char *result;            /* and where it, or what is folded, goes, */
    uint32_t kept, left;     /* and how many bytes of each there are: moves keep none that are there already */
    struct cuda_inbox inbox; /* in even turns, */
    uint64_t odd;            /* and how far it is from there to odd ones */
};

template <typename Wire, typename R, uint32_t PHASE, uint32_t MOST, typename Parts>
CUDA_DEVICE struct cuda_ways<Parts, MOST> cuda_ways_find(const Parts &x, uint32_t u) {
    const struct gpu_call &call = x.call;
    const struct cuda_start start = {x.at(u), Wire::slot(call, PHASE, 0) + Wire::place(u), cuda_stride<Wire>(call)};
    const char *own = cuda_further(x.in, x.to(call.me).at + start.at);
    char *result = cuda_further(x.out, x.from(call.me).at + start.at);
    const char *exceptions = nullptr;
    if constexpr (Wire::excepts) exceptions = call.base[call.me] + Wire::exceptions(call, start.slot);
    return cuda_ways<Parts, MOST>{{x, start},
                                  own,
                                  result,
                                  R::moves &&own == result ? 0 : cuda_left(x.from(call.me), start.at),
                                  cuda_left(gpu_part{0, x.result_bytes()}, start.at),
                                  {call.base[call.me] + start.slot, start.stride, exceptions},
                                  Wire::slot(call, PHASE, 1) - Wire::slot(call, PHASE, 0)};
}

/* Here and now, and not where they are used. */
template <typename R, typename Ways>
CUDA_DEVICE void cuda_ways_settle(Ways *ways)
{
    ways->peers.template settle<R>();
    cuda_settle(&ways->own);
    cuda_settle(&ways->result);
    cuda_settle(&ways->kept);
    cuda_settle(&ways->inbox.slot);
    cuda_settle(&ways->odd);
}

/* Bytes from the first unit to unit u: in buffers, */
CUDA_DEVICE uint32_t cuda_unit_on(uint32_t u)
{
    return 16 * u * cuda_threads();
}

/* and from its slot in even turns to its slot in this one. */
template <typename Wire, typename Ways>
CUDA_DEVICE uint64_t cuda_slot_on(const Ways &ways, const struct cuda_turn &turn, uint32_t u)
{
    return (turn.count % 2 ? ways.odd : 0) + (Wire::place(u) - Wire::place(0));
}

/* A unit to rank q, if this thread has `any`; by whole warps. */
template <typename Wire, typename R>
CUDA_DEVICE void cuda_put_unit(const struct gpu_call &call, uint32_t q, char *slot, bool any, cuda_words unit,
                               uint32_t flag)
{
    unit = cuda_scaled<R>(call, unit);
    if constexpr (Wire::excepts)
        Wire::except(call.base[q] + Wire::exceptions(call, slot - call.base[q]), any, unit, flag);
    if (any) Wire::put(slot, Wire::proper(unit), flag);
}

/* Unit u of all parts to those who get it; the own part to its place, or of a reduction to *own, unless that is NULL.
 * `alike`: all parts are the same. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
CUDA_DEVICE void cuda_send_unit(const struct gpu_call &call, const Ways &ways, bool alike, struct cuda_turn *turn,
                                uint32_t u, cuda_words *own)
{
    const uint32_t on = cuda_unit_on(u);
    cuda_words kept = {0, 0, 0, 0};
    if (!alike && on < ways.kept && (R::moves || own)) kept = cuda_take_unit<WHOLE>(ways.own + on, ways.kept - on);
    CUDA_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t first = 0; first + 1 < MOST && first + 1 < call.n; first += CHUNK) {
        cuda_words units[CHUNK];
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t i = first + k;
            units[k] = cuda_words{0, 0, 0, 0};
            if ((k > 0 && alike) || i + 1 >= MOST || !cuda_is_way<MOST>(call, i + 1)) continue;
            const struct cuda_way_to way = ways.peers.to(i);
            if (on < way.left) units[k] = cuda_take_unit<WHOLE>(way.in + on, way.left - on);
        }
        if (!cuda_turn_pay(call, turn)) return;
        const uint64_t slot = cuda_slot_on<Wire>(ways, *turn, u);
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t i = first + k;
            if (i + 1 >= MOST || !cuda_is_way<MOST>(call, i + 1)) continue;
            const cuda_words unit = alike ? units[0] : units[k]; /* no earlier: that would wait for the load */
            const struct cuda_way_to way = ways.peers.to(i);
            cuda_put_unit<Wire, R>(call, cuda_nth(call, i), way.slot + slot, on < way.left, unit,
                                   cuda_turn_flag(*turn));
        }
        if (alike) kept = units[0];
    }
    if (R::moves && on < ways.kept) cuda_give_unit<WHOLE>(ways.result + on, kept, ways.kept - on);
    if (!R::moves && own) *own = kept;
}

/* Looks at what came in CHUNK rows from `first` on until it is there. It looks at all at once, wanted or not: a look
 * that waits for the outcome of another costs as much as half the way to a peer. False: the call has failed. */
template <typename Wire, uint32_t MOST, uint32_t CHUNK, typename Ways>
CUDA_DEVICE bool cuda_await_units(const struct gpu_call &call, const Ways &ways, struct cuda_turn *turn,
                                  uint32_t first, uint32_t u, typename Wire::seen *seen)
{
    const uint32_t flag = cuda_turn_flag(*turn), on = cuda_unit_on(u);
    const struct cuda_inbox inbox = cuda_inbox_on(ways.inbox, cuda_slot_on<Wire>(ways, *turn, u));
    for (;;) {
        uint32_t missing = GPU_MAX_RANKS;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++)
            if (first + k + 1 < MOST) seen[k] = Wire::look(inbox, first + k + 1 < call.n ? first + k : first);
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t r = first + k;
            if (r + 1 >= MOST || !cuda_is_way<MOST>(call, r + 1)) continue;
            if (on < ways.peers.from(r).left && !Wire::there(seen[k], flag)) missing = r;
        }
        if (missing == GPU_MAX_RANKS) return true;
        if (!cuda_go_on(&turn->waiter, call, gpu_rank_of(call.me, missing))) return false;
    }
}

/* Unit u of what others sent, to its place. */
template <typename Wire, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
CUDA_DEVICE bool cuda_move_unit(const struct gpu_call &call, const Ways &ways, struct cuda_turn *turn, uint32_t u)
{
    const uint32_t on = cuda_unit_on(u);
    const uint64_t slot = cuda_slot_on<Wire>(ways, *turn, u);
    CUDA_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t first = 0; first + 1 < MOST && first + 1 < call.n; first += CHUNK) {
        typename Wire::seen seen[CHUNK];
        if (!cuda_await_units<Wire, MOST, CHUNK>(call, ways, turn, first, u, seen)) return false;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t r = first + k;
            if (r + 1 >= MOST || !cuda_is_way<MOST>(call, r + 1)) continue;
            const struct cuda_way_from way = ways.peers.from(r);
            if (on >= way.left) continue;
            cuda_give_unit<WHOLE>(way.out + on, Wire::unit(seen[k]), way.left - on);
            Wire::empty(ways.inbox.row(r) + slot);
        }
    }
    return true;
}

/* What is folded of a unit, so far. */
template <typename R> struct cuda_sum {
    typename R::total total;
    bool any;

    __device__ __forceinline__ void add(const struct gpu_call &call, cuda_words unit)
    {
        if (any)
            R::next(&total, unit, call.op);
        else
            R::first(&total, unit);
        any = true;
    }
};

/* Out of the way, as few calls divide. */
template <typename R> CUDA_COLD cuda_words cuda_quotient(typename R::total total, uint32_t divisor)
{
    return R::result(total, divisor);
}

template <typename R> CUDA_DEVICE cuda_words cuda_folded(const struct gpu_call &call, const cuda_sum<R> &sum)
{
    return call.divisor ? cuda_quotient<R>(sum.total, call.divisor) : R::result(sum.total, 0);
}

/* Unit u of what others sent and of the own part, folded in rank order; *any: whether there was anything to fold. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, typename Ways>
CUDA_DEVICE bool cuda_fold_arrivals(const struct gpu_call &call, const Ways &ways, struct cuda_turn *turn, uint32_t u,
                                    cuda_words own, bool *any, cuda_words *result)
{
    const uint32_t on = cuda_unit_on(u);
    const uint64_t slot = cuda_slot_on<Wire>(ways, *turn, u);
    const bool keeps = on < ways.kept;
    struct cuda_sum<R> sum;
    sum.any = false;
    CUDA_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t first = 0; first + 1 < MOST && first + 1 < call.n; first += CHUNK) {
        typename Wire::seen seen[CHUNK];
        if (!cuda_await_units<Wire, MOST, CHUNK>(call, ways, turn, first, u, seen)) return false;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CHUNK; k++) {
            const uint32_t r = first + k;
            if (r + 1 >= MOST || !cuda_is_way<MOST>(call, r + 1)) continue;
            if (keeps && r == call.me && r + 1 < call.n) sum.add(call, cuda_scaled<R>(call, own));
            if (on >= ways.peers.from(r).left) continue;
            sum.add(call, Wire::unit(seen[k]));
            Wire::empty(ways.inbox.row(r) + slot);
        }
    }
    if (keeps && call.me + 1 == call.n) sum.add(call, cuda_scaled<R>(call, own));
    *any = sum.any;
    if (sum.any) *result = cuda_folded(call, sum);
    return true;
}

/* The own part's unit u: `kept` where there is one a thread; of several it is loaded again, while others are waited
 * for. */
template <bool WHOLE, typename Ways>
CUDA_DEVICE cuda_words cuda_own_unit(const Ways &ways, uint32_t units, uint32_t u, cuda_words kept)
{
    const uint32_t on = cuda_unit_on(u);
    return units > 1 && on < ways.kept ? cuda_take_unit<WHOLE>(ways.own + on, ways.kept - on) : kept;
}

template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
CUDA_DEVICE bool cuda_receive_unit(const struct gpu_call &call, const Ways &ways, uint32_t units,
                                   struct cuda_turn *turn, uint32_t u, cuda_words kept)
{
    if constexpr (R::moves) {
        return cuda_move_unit<Wire, MOST, CHUNK, WHOLE>(call, ways, turn, u);
    } else {
        const uint32_t on = cuda_unit_on(u);
        const cuda_words own = cuda_own_unit<WHOLE>(ways, units, u, kept);
        cuda_words result;
        bool any;
        if (!cuda_fold_arrivals<Wire, R, MOST, CHUNK>(call, ways, turn, u, own, &any, &result)) return false;
        if (any) cuda_give_unit<WHOLE>(ways.result + on, result, ways.left - on);
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
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
CUDA_DEVICE void cuda_begin_units(const struct gpu_exchange &x, const Ways &ways, struct cuda_turn *turn,
                                  cuda_words *own)
{
    for (uint32_t u = 0; u < (Wire::lags ? 1 : x.units); u++)
        cuda_send_unit<Wire, R, MOST, CHUNK, WHOLE>(x.call, ways, x.alike != 0, turn, u, own);
}

template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
CUDA_DEVICE bool cuda_end_units(const struct gpu_exchange &x, const Ways &ways, struct cuda_turn *turn, cuda_words own)
{
    const uint32_t lag = Wire::lags ? cuda_lag(x.units) : 0;
    for (uint32_t u = 0; u < x.units + lag; u++) {
        if (Wire::lags && u > 0 && u < x.units)
            cuda_send_unit<Wire, R, MOST, CHUNK, WHOLE>(x.call, ways, x.alike != 0, turn, u, nullptr);
        if (u + 1 > lag && !cuda_receive_unit<Wire, R, MOST, CHUNK, WHOLE>(x.call, ways, x.units, turn, u - lag, own))
            return false;
    }
    return true;
}

/* The body of the kernels of one exchange. FAST: with a way of their own for whole units; the other one takes peers in
 * twos. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool FAST>
CUDA_DEVICE void cuda_oneshot(const struct gpu_exchange &x)
{
    const struct cuda_exchange_parts parts = {x.call, x, x.in, x.out, x.units};
    const bool whole = FAST && cuda_is_whole(x.units, x.whole);
    auto ways = cuda_ways_find<Wire, R, 0, MOST>(parts, 0);
    struct cuda_audience audience = cuda_audience_of<MOST>(parts, cuda_unit_at(x.units, 0) - 16 * cuda_thread());
    cuda_words own = {0, 0, 0, 0};
    cuda_ways_settle<R>(&ways);
    struct cuda_turn turn = cuda_turn_begin(x.call, &audience);
    if (whole)
        cuda_begin_units<Wire, R, MOST, CHUNK, FAST>(x, ways, &turn, &own);
    else
        cuda_begin_units<Wire, R, MOST, 2, false>(x, ways, &turn, &own);
    cuda_turn_tell(turn, audience);
    if (turn.failed) return;
    if (!(whole ? cuda_end_units<Wire, R, MOST, CHUNK, FAST>(x, ways, &turn, own)
                : cuda_end_units<Wire, R, MOST, 2, false>(x, ways, &turn, own)))
        return;
    cuda_turn_count(x.call, turn, audience);
    cuda_turn_end(x.call, turn);
}

#endif
