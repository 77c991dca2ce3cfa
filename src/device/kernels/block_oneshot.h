/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_BLOCK_ONESHOT_H
#define TUTTI_DEVICE_KERNELS_BLOCK_ONESHOT_H

/* Exchanges by lines and by sentinels: a thread puts its units of all parts into its peers' slots, and takes what peers
 * have put into its own. Turns, slots, flags and exceptions are those of turn.h and wires.h, which say
 * why they are sound; here words of 8 bytes are atomics, so each arrives whole whatever a vector store is made of, and
 * votes of 32 threads go through the block's own memory.
 *
 * As units belong to threads, a buffer may be input and output: what a thread overwrites, it alone has read. All units
 * leave before anything is waited for. */

#include "device/kernels/block_fold.h"
#include "device/kernels/block_wait.h"

/* Ways in which a unit tells by itself that it has arrived: a flag beside each word of 4 bytes; words of 4 or 8 bytes
 * that are not all ones, which floating point never sends; words of 8 bytes, with exceptions for those that are. */
enum wire { WIRE_LINES, WIRE_ONES4, WIRE_ONES8, WIRE_ONES };
enum { TEAM = 32, TEAMS = GPU_LINE_THREADS / TEAM };
#define ONES (~UINT64_C(0))
#define ONES32 0xffffffffu
#define PERIOD 0x80000000u /* calls after which flags come again */

struct oneshot_board {
    struct votes votes;
    uint32_t count, heard;     /* the call's, and those that has begun the one before, as is known without asking */
    uint32_t masks[2 * TEAMS]; /* 32 threads each: those whose first, whose second word is an exception */
};

struct oneshot {
    __local const struct gpu_exchange *x;
    __local struct oneshot_board *board;
    struct waiter waiter;
    uint32_t count, flag;
};

/* ---- a unit in its slot ---- */
GPU_DEVICE uint64_t wire_bytes(__local const struct gpu_call *call, enum wire wire)
{
    return wire == WIRE_LINES ? (uint64_t)2 * call->layout.line_bytes : call->layout.sentinel_bytes;
}

/* From a rank's scratch to this thread's unit u in the slot of a row. */
GPU_DEVICE uint64_t wire_place(const struct oneshot *o, uint32_t row, uint32_t u, enum wire wire)
{
    __local const struct gpu_call *call = &o->x->call;
    const uint64_t rings = wire == WIRE_LINES ? call->layout.lines : call->layout.sentinels;
    const uint64_t slot = (o->count % 2 * (call->n - 1) + row) * call->layout.n_blocks + gpu_block();
    const uint32_t unit = (wire == WIRE_LINES ? 2 * u : u) * gpu_threads() + gpu_thread();
    return rings + slot * wire_bytes(call, wire) + 16 * unit;
}

/* From a rank's scratch to the exceptions of the unit at `place`. */
GPU_DEVICE uint64_t wire_exceptions(__local const struct gpu_call *call, uint64_t place)
{
    return call->layout.exceptions + (place - call->layout.sentinels) / (16 * TEAM) * 16;
}

GPU_IS(uint64_t, two_words, (uint32_t low, uint32_t high), low | (uint64_t)high << 32)
GPU_IS(uint32_t, not_ones, (uint32_t word), word == ONES32 ? 0x7fffffffu : word) /* another NaN in its place */

GPU_DEVICE void wire_put(uint64_t at, gpu_words unit, uint32_t flag, enum wire wire)
{
    if (wire == WIRE_LINES) {
        GPU_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            gpu_store_u64(at + k / 2 * 16 * gpu_threads() + k % 2 * 8, two_words(gpu_word(unit, k), flag));
        return;
    }
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k += 2) {
        uint32_t low = gpu_word(unit, k), high = gpu_word(unit, k + 1);
        if (wire == WIRE_ONES4) low = not_ones(low), high = not_ones(high);
        if (wire == WIRE_ONES8 && low == ONES32) high = not_ones(high);
        gpu_store_u64(at + 4 * k, two_words(low, high));
    }
}

/* By all threads of the block: what of the units that leave is all ones, said beside the slots of rank q. */
GPU_DEVICE void wire_except(const struct oneshot *o, uint32_t q, uint64_t place, bool any, gpu_words unit)
{
    const uint32_t lane = gpu_thread() % TEAM, team = gpu_thread() / TEAM;
    __local uint32_t *masks = o->board->masks;
    gpu_sync();
    if (lane < 2) masks[2 * team + lane] = 0;
    gpu_sync();
    if (any && (unit.x & unit.y) == ONES32) gpu_local_or(&masks[2 * team], 1u << lane);
    if (any && (unit.z & unit.w) == ONES32) gpu_local_or(&masks[2 * team + 1], 1u << lane);
    gpu_sync();
    if (lane > 0 || (masks[2 * team] | masks[2 * team + 1]) == 0) return;
    const uint64_t at = (uint64_t)o->x->call.base[q] + wire_exceptions(&o->x->call, place);
    gpu_store_u64(at, two_words(masks[2 * team], o->flag));
    gpu_store_u64(at + 8, two_words(masks[2 * team + 1], o->flag));
}

GPU_DEVICE gpu_words wire_get(uint64_t at, enum wire wire)
{
    const uint64_t a = gpu_load_u64(at), b = gpu_load_u64(at + 8);
    if (wire != WIRE_LINES) return gpu_words{(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)};
    const uint64_t more = at + 16 * gpu_threads();
    return gpu_words{(uint32_t)a, (uint32_t)b, (uint32_t)gpu_load_u64(more), (uint32_t)gpu_load_u64(more + 8)};
}

GPU_DEVICE bool wire_there(const struct oneshot *o, uint64_t place, enum wire wire)
{
    __local const struct gpu_call *call = &o->x->call;
    const uint64_t base = (uint64_t)call->base[call->me], at = base + place;
    bool there = true;
    if (wire == WIRE_LINES) {
        GPU_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            there &= (uint32_t)(gpu_load_u64(at + k / 2 * 16 * gpu_threads() + k % 2 * 8) >> 32) == o->flag;
        return there;
    }
    GPU_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        const uint64_t word = gpu_load_u64(at + 8 * k);
        if (wire == WIRE_ONES4) there &= (uint32_t)word != ONES32 && (uint32_t)(word >> 32) != ONES32;
        if (wire == WIRE_ONES8) there &= word != ONES;
        if (wire == WIRE_ONES && word == ONES) {
            const uint64_t exceptions = gpu_load_u64(base + wire_exceptions(call, place) + 8 * k);
            there &= (uint32_t)(exceptions >> 32) == o->flag && ((uint32_t)exceptions >> gpu_thread() % TEAM & 1);
        }
    }
    return there;
}

/* For the call after the next one. Flags age by themselves. */
GPU_DEVICE void wire_empty(uint64_t at, enum wire wire)
{
    if (wire == WIRE_LINES) return;
    gpu_store_u64(at, ONES);
    gpu_store_u64(at + 8, ONES);
}

/* ---- turns ---- */
/* Bytes from the beginning of each part to this thread's unit u. */
GPU_DEVICE uint64_t unit_at(const struct oneshot *o, uint32_t u)
{
    return (uint64_t)16 * ((gpu_block() * o->x->units + u) * gpu_threads() + gpu_thread());
}
GPU_DEVICE uint64_t block_at(const struct oneshot *o)
{
    return (uint64_t)16 * gpu_block() * o->x->units * gpu_threads();
}
GPU_IS(uint64_t, bytes_left, (struct gpu_part part, uint64_t at), at < part.bytes ? part.bytes - at : 0)

GPU_DEVICE uint64_t begun_at(__local const struct gpu_call *call, uint32_t at_rank, uint32_t of_rank)
{
    return (uint64_t)call->base[at_rank] + call->layout.begun +
           sizeof(uint32_t) * (of_rank * call->layout.n_blocks + gpu_block());
}
GPU_DEVICE uint64_t called_at(__local const struct gpu_call *call)
{
    return (uint64_t)call->base[call->me] + call->layout.called + sizeof(uint64_t) * gpu_block();
}

/* The last call on each slot of 2^31. */
GPU_IS(bool, oneshot_is_last, (const struct oneshot *o), (o->count + 2) % PERIOD < 2)

/* All threads come to it: until all peers have begun the call before this one, so that their slots are free. False: the
 * rank has left a call before, or leaves this one. */
GPU_DEVICE bool oneshot_begin(struct oneshot *o)
{
    __local const struct gpu_call *call = &o->x->call;
    const uint32_t peer = gpu_thread();
    if (peer == 0) {
        const uint64_t called = gpu_load_u64(called_at(call));
        o->board->count = (uint32_t)called;
        o->board->heard = (uint32_t)(called >> 32) | 1u << call->me;
        o->board->masks[0] = has_stopped(call);
    }
    wait_clear(&o->board->votes);
    const bool stopped = o->board->masks[0] != 0;
    o->count = o->board->count, o->flag = o->count % PERIOD + 1;
    const bool asks = peer < call->n && !(o->board->heard >> peer & 1);
    gpu_sync();
    if (stopped) return false;
    for (;;) {
        const bool missing = asks && gpu_acquire_u32(begun_at(call, call->me, peer)) - (o->count - 1) > 2;
        const uint32_t turn = wait_turn(&o->board->votes, &o->waiter, call, missing, peer);
        if (turn & WAIT_LEAVE) return false;
        if (!turn) break;
    }
    gpu_sync_all();
    return true;
}

/* After the stores to peers: tells those of the call that this block sends nothing; and all of them once in a while, so
 * that `begun` is never so old that it seems new. */
GPU_DEVICE void oneshot_tell(const struct oneshot *o)
{
    __local const struct gpu_call *call = &o->x->call;
    const uint32_t peer = gpu_thread();
    if (peer >= call->n || peer == call->me) return;
    if (block_at(o) >= o->x->send[peer].bytes || oneshot_is_last(o))
        gpu_release_u32(begun_at(call, peer, call->me), o->count);
}

/* All threads come to it: until unit u of all parts is there. */
GPU_DEVICE bool oneshot_wait(struct oneshot *o, uint32_t u, enum wire wire)
{
    __local const struct gpu_call *call = &o->x->call;
    const uint64_t at = unit_at(o, u);
    uint32_t have = 1u << call->me;
    for (;;) {
        uint32_t missing = NO_PEER;
        for (uint32_t q = call->n; q-- > 0;) {
            if (have >> q & 1) continue;
            if (at >= o->x->recv[q].bytes || wire_there(o, wire_place(o, gpu_row(call->me, q), u, wire), wire))
                have |= 1u << q;
            else
                missing = q;
        }
        const uint32_t turn = wait_turn(&o->board->votes, &o->waiter, call, missing != NO_PEER, missing);
        if (turn & WAIT_LEAVE) return false;
        if (!turn) return true;
    }
}

/* What flags tell the age of, in the rings at `rings`. */
GPU_DEVICE void oneshot_clear(const struct oneshot *o, uint64_t rings, uint64_t bytes)
{
    __local const struct gpu_call *call = &o->x->call;
    for (uint32_t row = 0; row < call->n - 1; row++) {
        const uint64_t slot = (o->count % 2 * (call->n - 1) + row) * call->layout.n_blocks + gpu_block();
        for (uint64_t at = 8 * gpu_thread(); at < bytes; at += 8 * gpu_threads())
            gpu_store_u64((uint64_t)call->base[call->me] + rings + slot * bytes + at, 0);
    }
}

/* All threads come to it, after everything else. */
GPU_DEVICE void oneshot_end(const struct oneshot *o)
{
    __local const struct gpu_call *call = &o->x->call;
    uint32_t heard = 0;
    for (uint32_t q = 0; q < call->n; q++)
        if (block_at(o) < o->x->recv[q].bytes) heard |= 1u << q;
    if (gpu_thread() == 0) gpu_store_u64(called_at(call), (uint64_t)heard << 32 | (uint32_t)(o->count + 1));
    if (!oneshot_is_last(o)) return;
    gpu_sync_all(); /* all that came in this call has been read */
    oneshot_clear(o, call->layout.lines, (uint64_t)2 * call->layout.line_bytes);
    oneshot_clear(o, call->layout.exceptions, call->layout.sentinel_bytes / TEAM);
}

/* ---- units that leave and come ---- */
/* The i-th other rank: each begins with another, so that they do not all push at one at a time. */
GPU_DEVICE uint32_t oneshot_nth(__local const struct gpu_call *call, uint32_t i)
{
    const uint32_t q = call->me + 1 + i;
    return q < call->n ? q : q - call->n;
}

/* This thread's unit u for rank q, zeros where there is none; *left: how many bytes there are. */
GPU_DEVICE gpu_words oneshot_take(const struct oneshot *o, uint32_t q, uint32_t u, uint64_t *left)
{
    *left = bytes_left(o->x->send[q], unit_at(o, u));
    if (*left == 0) return gpu_words{0, 0, 0, 0};
    return unit_take((uint64_t)o->x->in + o->x->send[q].at + unit_at(o, u), *left);
}

/* By all threads. */
GPU_DEVICE void oneshot_put(const struct oneshot *o, uint32_t q, uint32_t u, bool any, gpu_words unit, enum wire wire)
{
    __local const struct gpu_call *call = &o->x->call;
    const uint64_t place = wire_place(o, gpu_row(q, call->me), u, wire);
    if (wire == WIRE_ONES) wire_except(o, q, place, any, unit);
    if (any) wire_put((uint64_t)call->base[q] + place, unit, o->flag, wire);
}

/* Unit u that came from rank q; the slot is empty afterwards. */
GPU_DEVICE gpu_words oneshot_get(const struct oneshot *o, uint32_t q, uint32_t u, enum wire wire)
{
    __local const struct gpu_call *call = &o->x->call;
    const uint64_t at = (uint64_t)call->base[call->me] + wire_place(o, gpu_row(call->me, q), u, wire);
    const gpu_words unit = wire_get(at, wire);
    wire_empty(at, wire);
    return unit;
}

/* ---- an exchange that moves ---- */
GPU_DEVICE void oneshot_move_own(const struct oneshot *o, uint32_t u)
{
    const uint32_t me = o->x->call.me;
    const uint64_t from = (uint64_t)o->x->in + o->x->send[me].at, to = (uint64_t)o->x->out + o->x->recv[me].at;
    const uint64_t at = unit_at(o, u), left = bytes_left(o->x->recv[me], at);
    if (left && from != to) unit_give(to + at, unit_take(from + at, left), left);
}

GPU_DEVICE void oneshot_move(struct oneshot *o, enum wire wire)
{
    __local const struct gpu_exchange *x = o->x;
    if (!oneshot_begin(o)) return;
    for (uint32_t u = 0; u < x->units; u++) {
        for (uint32_t i = 0; i + 1 < x->call.n; i++) {
            uint64_t left;
            const uint32_t q = oneshot_nth(&x->call, i);
            const gpu_words unit = oneshot_take(o, q, u, &left);
            oneshot_put(o, q, u, left > 0, unit, wire);
        }
        oneshot_move_own(o, u);
    }
    oneshot_tell(o);
    for (uint32_t u = 0; u < x->units; u++) {
        if (!oneshot_wait(o, u, wire)) return;
        for (uint32_t q = 0; q < x->call.n; q++) {
            const uint64_t left = q == x->call.me ? 0 : bytes_left(x->recv[q], unit_at(o, u));
            if (left) unit_give((uint64_t)x->out + x->recv[q].at + unit_at(o, u), oneshot_get(o, q, u, wire), left);
        }
    }
    oneshot_end(o);
}

/* ---- an exchange that folds ---- */
/* Unit u of what others sent and of the own part, folded in rank order, to its place. */
template <class R>
GPU_DEVICE void oneshot_fold(const struct oneshot *o, const struct fold *fold, uint64_t own, uint32_t u, enum wire wire)
{
    __local const struct gpu_exchange *x = o->x;
    const uint64_t at = unit_at(o, u);
    typename R::total total = {{0}};
    bool any = false;
    for (uint32_t q = 0; q < fold->n; q++) {
        const uint64_t left = bytes_left(x->recv[q], at);
        if (!left) continue;
        const gpu_words unit = q == fold->me ? unit_take(own + at, left) : oneshot_get(o, q, u, wire);
        fold_add<R>(fold, q, unit, &total, &any);
    }
    if (any)
        unit_give((uint64_t)x->out + x->recv[fold->me].at + at, R::result(total, fold->divisor), x->result_bytes - at);
}

template <class R> GPU_DEVICE void oneshot_reduce(struct oneshot *o, enum wire wire)
{
    __local const struct gpu_exchange *x = o->x;
    if (!oneshot_begin(o)) return;
    const struct fold fold = fold_of<R>(&x->call, 0, 0);
    const uint64_t own = (uint64_t)x->in + x->send[x->call.me].at;
    for (uint32_t u = 0; u < x->units; u++) {
        for (uint32_t i = 0; i + 1 < x->call.n; i++) {
            uint64_t left;
            const uint32_t q = oneshot_nth(&x->call, i);
            gpu_words unit = oneshot_take(o, q, u, &left);
            if (fold.scales) unit = R::scale_by(unit, fold.factor);
            oneshot_put(o, q, u, left > 0, unit, wire);
        }
    }
    oneshot_tell(o);
    for (uint32_t u = 0; u < x->units; u++) {
        if (!oneshot_wait(o, u, wire)) return;
        oneshot_fold<R>(o, &fold, own, u, wire);
    }
    oneshot_end(o);
}

/* ---- kernels ---- */
template <class R> constexpr enum wire sentinel_of()
{
    return R::type::word == 0 ? WIRE_ONES : R::type::word == 8 ? WIRE_ONES8 : WIRE_ONES4;
}
#define GPU_BLOCK_ONESHOT(protocol, wire, name, R)                                                                     \
    GPU_KERNEL(protocol##_##name, struct gpu_exchange, parameter, GPU_LINE_THREADS)                                    \
    {                                                                                                                  \
        GPU_SHARED(struct gpu_exchange, x);                                                                            \
        GPU_SHARED(struct oneshot_board, board);                                                                       \
        struct oneshot o = {&x, &board, {0}, 0, 0};                                                                    \
        GPU_SHARE(x, parameter);                                                                                       \
        if constexpr (R::moves)                                                                                        \
            oneshot_move(&o, wire);                                                                                    \
        else                                                                                                           \
            oneshot_reduce<R>(&o, wire);                                                                               \
    }
#define GPU_LINES_ANY(name, R) GPU_BLOCK_ONESHOT(lines, WIRE_LINES, name##_16, R)
#define GPU_SENTINEL_ANY(name, R) GPU_BLOCK_ONESHOT(sentinel, sentinel_of<R>(), name##_16, R)
#define GPU_SENTINEL_INTEGER GPU_SENTINEL_ANY
/* Loops go over ranks: there is one kernel for all numbers of them, by two names. */
#define GPU_LINES_FAST(name, R) GPU_BLOCK_ONESHOT(lines, WIRE_LINES, name##_2, R) GPU_LINES_ANY(name, R)
#define GPU_SENTINEL_FAST(name, R) GPU_BLOCK_ONESHOT(sentinel, sentinel_of<R>(), name##_2, R) GPU_SENTINEL_ANY(name, R)

#endif
