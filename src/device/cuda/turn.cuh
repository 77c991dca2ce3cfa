/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_TURN_CUH
#define TUTTI_DEVICE_CUDA_TURN_CUH

/* The turns that calls by lines and by sentinels take at the two slots that each rank has for each source and block.
 * All ranks launch the same grids in the same order, so that a block's own count of calls, `called`, is the same on all
 * of them: the number of the call, whose parity is its slot. Early in call c a block tells its peers that it has begun
 * it, so all before is over: its reads of their slots, its clearing of them. Before it writes into a peer's slot in
 * call c it needs that peer's `begun` at c - 1: then call c - 2, the last one that can have used the slot, is over
 * there. Nobody waits for ever: of the ranks that are furthest behind, at call m, each has what it needs, since all
 * others have told c - 1 >= m - 1.
 *
 * Why that orders memory: in q's kernel of call c - 1, `begun` is stored after the boundary between two kernels of one
 * stream, which is a release and an acquire of all that the one before did (a fence, hence with the store a release
 * pattern). A lane of each warp here loads it by an acquire, and the warp's barrier passes that on to the lanes that
 * store. So q's reads and clears of call c - 2 happen before this rank's writes of call c.
 *
 * Counts wrap after 2^32 calls, that is hours; comparisons are by difference. Flags of lines are the count modulo 2^31,
 * plus one, so never 0; and at the end of the last call of 2^31 on a slot, whatever its kind, its reader clears it:
 * nobody writes there before the reader has begun another call, and no flag of 2^31 calls ago is ever found. */

#include "wait.cuh"

#define CUDA_PERIOD 0x80000000u

struct cuda_turn {
    uint32_t count;
    struct cuda_waiter waiter;
    bool paid; /* all peers have room */
    bool failed;
};

CUDA_DEVICE uint32_t *cuda_begun(const struct cuda_call &call, uint32_t at_rank, uint32_t of_rank)
{
    const uint64_t at = call.layout.begun + 4 * (of_rank * call.layout.n_blocks + cuda_block());
    return reinterpret_cast<uint32_t *>(call.base[at_rank] + at);
}

CUDA_DEVICE uint32_t *cuda_called(const struct cuda_call &call)
{
    return reinterpret_cast<uint32_t *>(call.base[call.me] + call.layout.called) + cuda_block();
}

/* Bytes from a rank's scratch to the slot of a source for this block, of rings that begin at `rings`. */
CUDA_DEVICE uint64_t cuda_slot(const struct cuda_call &call, uint64_t rings, uint64_t block_bytes, uint32_t count,
                               uint32_t source)
{
    const uint32_t row = (count % 2 * call.n + source) * call.layout.n_blocks + cuda_block();
    return rings + row * block_bytes;
}

/* Begins with the loads that everything waits for. */
CUDA_DEVICE struct cuda_turn cuda_turn_begin(const struct cuda_call &call)
{
    return cuda_turn{cuda_load_u32(cuda_called(call)), {0, 0}, false, false};
}

/* Before the first store to a peer, after the loads of what is stored: by whole warps. */
CUDA_DEVICE bool cuda_turn_pay(const struct cuda_call &call, struct cuda_turn *turn)
{
    if (turn->paid || turn->failed) return turn->paid;
    const uint32_t peer = cuda_lane();
    bool room = true;
    if (peer < call.n && peer != call.me) {
        const uint32_t *begun = cuda_begun(call, call.me, peer);
        while (room && (int32_t)(cuda_acquire_u32(begun) - (turn->count - 1)) < 0)
            room = cuda_go_on(&turn->waiter, call, peer);
    }
    turn->paid = cuda_all(room);
    turn->failed = !turn->paid;
    cuda_sync_warp();
    return turn->paid;
}

/* By all threads, after the first stores to peers, which it must not delay: tells peers that this call has begun, and
 * counts it. Nothing that is stored to a peer at a kernel's end would be faster. */
CUDA_DEVICE void cuda_turn_count(const struct cuda_call &call, const struct cuda_turn &turn)
{
    const uint32_t peer = cuda_thread();
    if (peer < call.n && peer != call.me) cuda_store_u32(cuda_begun(call, peer, call.me), turn.count);
    cuda_sync_block(); /* all threads have read the count */
    if (cuda_thread() == 0) cuda_store_u32(cuda_called(call), turn.count + 1);
}

CUDA_DEVICE uint32_t cuda_turn_flag(const struct cuda_turn &turn)
{
    return turn.count % CUDA_PERIOD + 1;
}

/* By all threads, after everything else. */
CUDA_DEVICE void cuda_turn_end(const struct cuda_call &call, const struct cuda_turn &turn)
{
    if ((turn.count + 2) % CUDA_PERIOD >= 2) return;
    cuda_sync_block(); /* all lines of this call have been read */
    const uint64_t bytes = (uint64_t)2 * call.layout.line_bytes;
    for (uint32_t q = 0; q < call.n; q++) {
        char *slot = call.base[call.me] + cuda_slot(call, call.layout.lines, bytes, turn.count, q);
        for (uint64_t at = 16 * cuda_thread(); at < bytes; at += 16 * cuda_threads())
            cuda_store_pair(slot + at, cuda_pair{0, 0});
    }
}

#endif
