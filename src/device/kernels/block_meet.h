/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_BLOCK_MEET_H
#define TUTTI_DEVICE_KERNELS_BLOCK_MEET_H

/* meet: all ranks have come this far in their streams' order. A thread a peer: it says so to the peer, then waits for
 * the peer to say it. What the stream wrote before is visible to who acquires that; so it is to what comes after the
 * peers' meetings, copy engines included. A rank is at most one meeting ahead.
 * roll_call: all blocks of a launch have come this far, at the same time. */

#include "device/kernels/block_wait.h"
#include "device/roll_call.h"

GPU_DEVICE bool meet_all(__local const struct gpu_call *call, __local struct votes *votes)
{
    const uint32_t peer = gpu_thread();
    const uint64_t own = (uint64_t)call->base[call->me], flag = own + call->layout.met + peer * sizeof(uint32_t);
    const uint32_t now = gpu_load_u32(own + call->layout.met_own) + 1;
    const bool waits = peer < call->n && peer != call->me;
    struct waiter waiter = {0};
    if (waits) gpu_release_u32((uint64_t)call->base[peer] + call->layout.met + call->me * sizeof(uint32_t), now);
    for (;;) {
        const bool missing = waits && (int32_t)(gpu_acquire_u32(flag) - now) < 0;
        const uint32_t turn = wait_turn(votes, &waiter, call, missing, peer);
        if (turn & WAIT_LEAVE) return false;
        if (!turn) break;
    }
    if (peer == 0) gpu_store_u32(own + call->layout.met_own, now);
    return true;
}

GPU_KERNEL(meet, struct gpu_meeting, parameter, 32)
{
    GPU_SHARED(struct gpu_meeting, x);
    GPU_SHARED(struct votes, votes);
    GPU_SHARE(x, parameter);
    wait_clear(&votes);
    if (!has_stopped(&x.call)) meet_all(&x.call, &votes);
}

/* All threads stay, since a block needs the room of all. */
GPU_KERNEL(roll_call, struct gpu_roll_call, x, GPU_TILE_THREADS)
{
    if (gpu_thread() == 0) {
        uint64_t n = gpu_add_u64((uint64_t)x.here, 1) + 1;
        for (uint64_t look = 1; n < gpu_blocks() && look < x.looks; look++) {
            if (look % GPU_SPINS == 0 && gpu_host_load_u32((uint64_t)x.stop)) break;
            gpu_spin();
            n = gpu_load_u64((uint64_t)x.here);
        }
        gpu_store_u64((uint64_t)x.seen + gpu_block() * sizeof(uint64_t), n);
    }
    gpu_sync_all();
}

#endif
