/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_MEET_H
#define TUTTI_DEVICE_KERNELS_MEET_H

/* meet: all ranks have come this far in their streams' order. A lane a peer: it says so to the peer, then waits for the
 * peer to say it. What the stream wrote before is visible to who acquires that; so it is to what comes after the peers'
 * meetings, copy engines included. A rank is at most one meeting ahead.
 * roll_call: all blocks of a launch have come this far, at the same time. */

#include "device/kernels/wait.h"
#include "device/roll_call.h"

/* By one warp. False: it was stopped. */
GPU_DEVICE bool gpu_meet(const struct gpu_call &call)
{
    const struct gpu_layout &layout = call.layout;
    const uint32_t peer = gpu_lane();
    char *own = call.base[call.me];
    const uint32_t now = gpu_load_u32(own + layout.met_own) + 1;
    struct gpu_waiter waiter = {};
    bool met = gpu_all(!gpu_has_stopped(call));
    if (met && peer < call.n && peer != call.me) {
        const char *flag = own + layout.met + peer * sizeof(uint32_t);
        gpu_release_before_u32(call.base[peer] + layout.met + call.me * sizeof(uint32_t), now);
        while ((int32_t)(gpu_acquire_u32(flag) - now) < 0) {
            if (gpu_go_on(&waiter, call, peer)) continue;
            met = false;
            break;
        }
    }
    met = gpu_all(met);
    if (met && peer == 0) gpu_store_u32(own + layout.met_own, now);
    return met;
}

GPU_KERNEL(meet, struct gpu_meeting, x, GPU_WARP)
{
    gpu_wait_for_launch();
    gpu_meet(x.call);
}

GPU_DEVICE uint64_t gpu_count_in(void *here)
{
    uint64_t before = gpu_load_u64(here), seen;
    while ((seen = gpu_exchange_if(here, before, before + 1)) != before) before = seen;
    return before + 1;
}

/* All threads stay, since a block needs the room of all. */
GPU_KERNEL(roll_call, struct gpu_roll_call, x, GPU_TILE_THREADS)
{
    if (gpu_thread() == 0) {
        uint64_t n = gpu_count_in(x.here);
        for (uint64_t look = 1; n < gpu_blocks() && look < x.looks; look++) {
            if (look % GPU_SPINS == 0 && gpu_load_u32(x.stop)) break;
            gpu_spin();
            n = gpu_load_u64(x.here);
        }
        gpu_store_u64(x.seen + gpu_block(), n);
    }
    gpu_sync();
}

#endif
