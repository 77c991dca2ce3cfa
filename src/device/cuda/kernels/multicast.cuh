/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_MULTICAST_CUH
#define TUTTI_DEVICE_CUDA_MULTICAST_CUH

/* An exchange by lines, each stored once for all ranks. Their words lie one by one, since a store at such an address
 * has 8 bytes: of a block's unit u the words w of all threads side by side. Turns, flags and units are those of lines
 * (turn.cuh, oneshot.cuh), on memory of their own; `begun` goes to all at once, too. A rank gets what it sends itself:
 * nobody looks there.
 *
 * Stores go by one address of that memory, and loads by another. PTX promises order between the two by a fence
 * (fence.proxy.alias), which each thread makes before it looks; but it calls no two accesses by different addresses
 * strong to one another: that words arrive whole, and that the order of kernels is theirs, too, rests on what such
 * machines do. So all of it is tried when a communicator is opened (backend/cuda/cuda_multicast.c), and never used unless it
 * is asked for. */

#include "oneshot.cuh"

#define CUDA_CAST_CHUNK 4u /* ranks that are looked for at once */

struct cuda_cast_unit {
    uint64_t word[4];
};

/* Bytes from the beginning of that memory to where the thread's part of a rank's unit u is. */
CUDA_DEVICE uint64_t cuda_cast_at(const struct cuda_call &call, uint32_t rank, uint32_t count, uint32_t u)
{
    const uint64_t block = (uint64_t)(count % 2 * call.n + rank) * call.layout.n_blocks + cuda_block();
    return call.layout.lines + block * 2 * call.layout.line_bytes + 8 * (4 * u * cuda_threads() + cuda_thread());
}

CUDA_DEVICE void cuda_cast_send(const struct cuda_multicast &m, const struct cuda_turn &turn, uint32_t u,
                                cuda_words unit)
{
    const uint32_t flag = cuda_turn_flag(turn), words[4] = {unit.x, unit.y, unit.z, unit.w};
    char *slot = m.all + cuda_cast_at(m.x.call, m.x.call.me, turn.count, u);
    CUDA_UNROLL
    for (uint32_t w = 0; w < 4; w++) cuda_cast_u64(slot + 8 * w * cuda_threads(), cuda_lines::word(words[w], flag));
}

CUDA_DEVICE struct cuda_cast_unit cuda_cast_look(const struct cuda_call &call, uint32_t rank, uint32_t count,
                                                 uint32_t u)
{
    const char *slot = call.base[call.me] + cuda_cast_at(call, rank, count, u);
    struct cuda_cast_unit seen;
    CUDA_UNROLL
    for (uint32_t w = 0; w < 4; w++) seen.word[w] = cuda_load_u64(slot + 8 * w * cuda_threads());
    return seen;
}

CUDA_DEVICE bool cuda_cast_there(const struct cuda_cast_unit &seen, uint32_t flag)
{
    bool there = true;
    CUDA_UNROLL
    for (uint32_t w = 0; w < 4; w++) there &= (uint32_t)(seen.word[w] >> 32) == flag;
    return there;
}

CUDA_DEVICE cuda_words cuda_cast_words(const struct cuda_cast_unit &seen)
{
    return cuda_words{(uint32_t)seen.word[0], (uint32_t)seen.word[1], (uint32_t)seen.word[2], (uint32_t)seen.word[3]};
}

/* Unit u of the ranks from `first` on, of all that send one. False: the call has failed. */
CUDA_DEVICE bool cuda_cast_await(const struct cuda_exchange &x, struct cuda_turn *turn, uint32_t first, uint32_t u,
                                 struct cuda_cast_unit *seen)
{
    const uint32_t flag = cuda_turn_flag(*turn);
    const uint64_t at = cuda_unit_at(x.units, u);
    for (;;) {
        uint32_t missing = CUDA_MAX_RANKS;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CUDA_CAST_CHUNK; k++)
            seen[k] = cuda_cast_look(x.call, first + k < x.call.n ? first + k : first, turn->count, u);
        CUDA_UNROLL
        for (uint32_t k = 0; k < CUDA_CAST_CHUNK; k++) {
            const uint32_t q = first + k;
            if (q >= x.call.n || q == x.call.me || at >= x.recv[q].bytes) continue;
            if (!cuda_cast_there(seen[k], flag)) missing = q;
        }
        if (missing == CUDA_MAX_RANKS) return true;
        if (!cuda_go_on(&turn->waiter, x.call, missing)) return false;
    }
}

/* Unit u of the own part; zeros where there is none. */
CUDA_DEVICE cuda_words cuda_cast_own(const struct cuda_exchange &x, struct cuda_part part, uint32_t u)
{
    const uint64_t at = cuda_unit_at(x.units, u);
    if (at >= part.bytes) return cuda_words{0, 0, 0, 0};
    return cuda_take_unit<false>(x.in + part.at + at, part.bytes - at);
}

/* take(q, unit): unit u of the own part and of all that comes, in rank order. */
template <typename Take>
CUDA_DEVICE bool cuda_cast_each(const struct cuda_exchange &x, struct cuda_turn *turn, uint32_t u, Take take)
{
    const uint64_t at = cuda_unit_at(x.units, u);
    for (uint32_t first = 0; first < x.call.n; first += CUDA_CAST_CHUNK) {
        struct cuda_cast_unit seen[CUDA_CAST_CHUNK];
        if (!cuda_cast_await(x, turn, first, u, seen)) return false;
        CUDA_UNROLL
        for (uint32_t k = 0; k < CUDA_CAST_CHUNK; k++) {
            const uint32_t q = first + k;
            if (q >= x.call.n || at >= x.recv[q].bytes) continue;
            take(q, q == x.call.me ? cuda_cast_own(x, x.send[q], u) : cuda_cast_words(seen[k]));
        }
    }
    return true;
}

template <typename R>
CUDA_DEVICE bool cuda_cast_receive(const struct cuda_exchange &x, struct cuda_turn *turn, uint32_t u)
{
    const uint64_t at = cuda_unit_at(x.units, u);
    if constexpr (R::moves) {
        return cuda_cast_each(x, turn, u, [&](uint32_t q, cuda_words unit) {
            cuda_give_unit<false>(x.out + x.recv[q].at + at, unit, x.recv[q].bytes - at);
        });
    } else {
        struct cuda_sum<R> sum;
        sum.any = false;
        if (!cuda_cast_each(x, turn, u, [&](uint32_t q, cuda_words unit) {
                sum.add(x.call, q == x.call.me ? cuda_scaled<R>(x.call, unit) : unit);
            }))
            return false;
        if (sum.any)
            cuda_give_unit<false>(x.out + x.recv[x.call.me].at + at, cuda_folded(x.call, sum), x.result_bytes - at);
        return true;
    }
}

/* By all threads, after the first stores, which it must not delay: as cuda_turn_tell, to all. */
CUDA_DEVICE void cuda_cast_tell(const struct cuda_multicast &m, const struct cuda_turn &turn, bool sends)
{
    const struct cuda_call &call = m.x.call;
    if (cuda_thread() == 0 && !turn.failed && (!sends || cuda_turn_is_last(turn)))
        cuda_cast_u32(m.all + call.layout.begun + 4 * (call.me * call.layout.n_blocks + cuda_block()), turn.count);
    cuda_sync_block(); /* all threads have read the count */
}

/* As cuda_turn_end: no flag of 2^31 calls ago is found. */
CUDA_COLD void cuda_cast_clear(const struct cuda_call &call, uint32_t count)
{
    cuda_sync_block(); /* all that came in this call has been read */
    for (uint32_t rank = 0; rank < call.n; rank++) {
        char *slot = call.base[call.me] + cuda_cast_at(call, rank, count, 0) - 8 * cuda_thread();
        for (uint64_t at = 16 * cuda_thread(); at < 2 * call.layout.line_bytes; at += 16 * cuda_threads())
            cuda_store_pair(slot + at, cuda_pair{0, 0});
    }
}

/* The part that goes to all others: that for one of them. */
CUDA_DEVICE struct cuda_part cuda_cast_part(const struct cuda_exchange &x)
{
    return x.send[x.call.me == 0 ? x.call.n - 1 : 0];
}

template <typename R> CUDA_DEVICE void cuda_multicast_run(const struct cuda_multicast &m)
{
    const struct cuda_exchange &x = m.x;
    const struct cuda_exchange_parts parts = {x.call, x, x.in, x.out, x.units};
    const uint64_t begin = cuda_unit_at(x.units, 0) - 16 * cuda_thread();
    const struct cuda_part part = cuda_cast_part(x);
    struct cuda_audience audience = cuda_audience_of<CUDA_MAX_RANKS>(parts, begin);
    struct cuda_turn turn = cuda_turn_begin(x.call, &audience);
    if ((turn.heard | 1u << x.call.me) != (1u << x.call.n) - 1) cuda_fence_alias(); /* it asks what others have cast */
    for (uint32_t u = 0; u < x.units; u++) {
        const bool any = cuda_unit_at(x.units, u) < part.bytes;
        const cuda_words unit = cuda_scaled<R>(x.call, cuda_cast_own(x, part, u));
        if (!cuda_turn_pay(x.call, &turn)) break;
        if (any) cuda_cast_send(m, turn, u, unit);
    }
    cuda_cast_tell(m, turn, begin < part.bytes);
    if (turn.failed) return;
    cuda_fence_alias();
    for (uint32_t u = 0; u < x.units; u++)
        if (!cuda_cast_receive<R>(x, &turn, u)) return;
    cuda_turn_count(x.call, turn, audience);
    if (cuda_turn_is_last(turn)) cuda_cast_clear(x.call, turn.count);
}

#endif
