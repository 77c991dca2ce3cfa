/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_TURN_CUH
#define TUTTI_DEVICE_CUDA_TURN_CUH

/* The turns that calls by lines and by sentinels take at the two slots that each rank has for each source and block.
 * All ranks launch the same grids in the same order, so that a block's own count of calls is the same on all of them:
 * the number of the call, whose parity is its slot. Before a rank writes into a peer's slot in call c, it has to know
 * that the peer has begun call c - 1: then call c - 2, the last one that can have used the slot, is over there, with
 * its reads and its clearing. It knows from the peer's data of call c - 1, as a rule; a peer that sends it nothing in a
 * call stores `begun` there instead. So `called` of a block is its count and a mask of those who sent it something in
 * the last call, and for all others it looks at `begun`. Nobody waits for ever: of the ranks that are furthest behind,
 * at call m, each has what it needs, since all others have been in call m - 1.
 *
 * Why that orders memory: between two kernels of a stream lies what is at least a fence. In the peer's kernel of call
 * c - 1 any store comes after such a fence, hence with it makes a release pattern of all that call c - 2 did. The first
 * thread of a block here read the data, and the next kernel's fence makes that an acquire pattern; `begun` is read by
 * acquiring loads of one lane, which the warp's barrier passes on. So the peer's reads and clears of call c - 2 happen
 * before this rank's writes of call c.
 *
 * Counts wrap after 2^32 calls, that is hours. What is found in `begun` is a call of the last 2^31, and right if it is
 * c - 1, c or c + 1: a peer may be in c + 1 while the last warps here still ask for c, but no further. Flags of lines
 * and of exceptions are the count modulo 2^31, plus one, so never 0; and at the end of the last call of 2^31 on a slot,
 * whatever its kind, its reader clears them: nobody writes there before the reader has begun another call (but what
 * this one has not waited for, exceptions without lanes), and no flag of 2^31 calls ago is ever found. */

#include "device/kernels/wait.h"

#define GPU_PERIOD 0x80000000u

struct gpu_turn {
    uint32_t count;
    uint32_t heard; /* ranks that have begun the call before this one, as is known without asking */
    struct gpu_waiter waiter;
    bool paid; /* all peers have room */
    bool failed;
};

GPU_DEVICE uint32_t *gpu_begun(const struct gpu_call &call, uint32_t at_rank, uint32_t of_rank)
{
    const uint64_t at = call.layout.begun + 4 * (of_rank * call.layout.n_blocks + gpu_block());
    return reinterpret_cast<uint32_t *>(call.base[at_rank] + at);
}

GPU_DEVICE uint64_t *gpu_called(const struct gpu_call &call)
{
    return reinterpret_cast<uint64_t *>(call.base[call.me] + call.layout.called) + gpu_block();
}

/* Bytes from a rank's scratch to the slot of row 0 for this block, of rings that begin at `rings`. */
GPU_DEVICE uint64_t gpu_slot(const struct gpu_call &call, uint64_t rings, uint64_t block_bytes, uint32_t count)
{
    const uint32_t first = count % 2 * (call.n - 1) * call.layout.n_blocks + gpu_block();
    return rings + first * block_bytes;
}

/* Which peers learn of this block's progress from data, and which need an explicit flag. A thread a peer; known before
 * the turn is. */
struct gpu_audience {
    uint32_t *begun; /* the peer's word in which this thread tells it */
    bool tells;      /* there is a peer to tell: once in 2^31 calls, if the block sends it data in each */
    bool tells_now;  /* ... in this call, since the block sends it nothing */
    uint32_t heard;  /* ranks that send the block something, a bit each */
};

/* `first`: where the block's first unit is in parts. */
template <uint32_t MOST, typename Parts> GPU_DEVICE struct gpu_audience gpu_audience_of(const Parts &x, uint64_t first)
{
    const uint32_t peer = gpu_thread();
    struct gpu_audience audience = {nullptr, peer < x.call.n && peer != x.call.me, false, 0};
    if (audience.tells) {
        audience.begun = gpu_begun(x.call, peer, x.call.me);
        audience.tells_now = first >= x.to(peer).bytes;
    }
    GPU_UNROLL
    for (uint32_t q = 0; q < MOST; q++)
        if (q < x.call.n && first < x.from(q).bytes) audience.heard |= 1u << q;
    return audience;
}

/* The first thing to do after what can be done before. Launches may be allowed to overlap: then the next one may take
 * its place now, and waits here until this one is over. With the load that everything waits for. */
GPU_DEVICE struct gpu_turn gpu_turn_begin(const struct gpu_call &call, struct gpu_audience *audience)
{
    const uint64_t *called = gpu_called(call);
    const char *has_stopped = call.base[call.me] + call.layout.stopped;
    gpu_settle(&called);
    gpu_settle(&has_stopped);
    gpu_settle(&audience->heard);
    gpu_wait_for_launch();
    gpu_launch_next();
    const uint64_t turn = gpu_load_u64(called);
    const bool stopped = gpu_load_u32(has_stopped) != 0;
    return gpu_turn{(uint32_t)turn, (uint32_t)(turn >> 32), {0, 0}, false, gpu_any(stopped)};
}

/* Waits for the peers that have not been heard of: by whole warps. */
GPU_COLD bool gpu_turn_ask(const struct gpu_call &call, uint32_t count, uint32_t heard)
{
    struct gpu_waiter waiter = {0, 0};
    const uint32_t peer = gpu_lane();
    bool room = true;
    if (peer < call.n && peer != call.me && !(heard >> peer & 1)) {
        const uint32_t *begun = gpu_begun(call, call.me, peer);
        while (room && gpu_acquire_u32(begun) - (count - 1) > 2) room = gpu_go_on(&waiter, call, peer);
    }
    room = gpu_all(room);
    gpu_sync_warp();
    return room;
}

/* Before the first store to a peer, after the loads of what is stored: by whole warps. */
GPU_DEVICE bool gpu_turn_pay(const struct gpu_call &call, struct gpu_turn *turn)
{
    if (turn->paid || turn->failed) return turn->paid;
    const uint32_t all = (1u << call.n) - 1;
    turn->paid = (turn->heard | 1u << call.me) == all || gpu_turn_ask(call, turn->count, turn->heard);
    turn->failed = !turn->paid;
    return turn->paid;
}

/* The last call on each slot of 2^31. */
GPU_DEVICE bool gpu_turn_is_last(const struct gpu_turn &turn)
{
    return (turn.count + 2) % GPU_PERIOD < 2;
}

/* By all threads, after the first stores to peers, which it must not delay: tells those peers of the call that this
 * block sends nothing; and all of them once in a while, so that `begun` is never so old that it seems new. */
GPU_DEVICE void gpu_turn_tell(const struct gpu_turn &turn, const struct gpu_audience &audience)
{
    if (!turn.failed && (audience.tells_now || (audience.tells && gpu_turn_is_last(turn))))
        gpu_store_u32(audience.begun, turn.count);
    gpu_sync(); /* all threads have read the count */
}

/* By all threads, after everything that the first thread waits for. */
GPU_DEVICE void gpu_turn_count(const struct gpu_call &call, const struct gpu_turn &turn,
                               const struct gpu_audience &audience)
{
    if (gpu_thread() > 0) return;
    gpu_store_u64(gpu_called(call), (uint64_t)audience.heard << 32 | (uint32_t)(turn.count + 1));
}

GPU_DEVICE uint32_t gpu_turn_flag(const struct gpu_turn &turn)
{
    return turn.count % GPU_PERIOD + 1;
}

/* By all threads: what flags tell the age of, in the rings at `rings`. */
GPU_COLD void gpu_turn_clear(const struct gpu_call &call, uint32_t count, uint64_t rings, uint64_t bytes)
{
    for (uint32_t row = 0; row < call.n - 1; row++) {
        char *slot = call.base[call.me] + gpu_slot(call, rings, bytes, count) + row * call.layout.n_blocks * bytes;
        for (uint64_t at = 16 * gpu_thread(); at < bytes; at += 16 * gpu_threads())
            gpu_store_pair(slot + at, gpu_pair{0, 0});
    }
}

/* By all threads, after everything else. */
GPU_DEVICE void gpu_turn_end(const struct gpu_call &call, const struct gpu_turn &turn)
{
    if (!gpu_turn_is_last(turn)) return;
    gpu_sync(); /* all that came in this call has been read */
    gpu_turn_clear(call, turn.count, call.layout.lines, (uint64_t)2 * call.layout.line_bytes);
    gpu_turn_clear(call, turn.count, call.layout.exceptions, call.layout.sentinel_bytes / GPU_WARP);
}

#endif
