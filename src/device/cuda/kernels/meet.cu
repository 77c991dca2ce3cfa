/* SPDX-License-Identifier: BSD-3-Clause */
/* meet: all ranks have come this far in their streams' order. A lane a peer: it says so to the peer, then waits for the
 * peer to say it. What the stream wrote before is visible to who acquires that; so it is to what comes after the peers'
 * meetings, copy engines included. A rank is at most one meeting ahead.
 * roll_call: all blocks of a launch have come this far, at the same time. */
#include "device/roll_call.h"
#include "wait.cuh"

CUDA_DEVICE void cuda_meet(const struct gpu_call &call)
{
    const struct gpu_layout &layout = call.layout;
    const uint32_t peer = cuda_lane();
    char *own = call.base[call.me];
    const uint32_t now = cuda_load_u32(own + layout.met_own) + 1;
    struct cuda_waiter waiter = {};
    bool met = cuda_all(!cuda_has_stopped(call));
    if (met && peer < call.n && peer != call.me) {
        const char *flag = own + layout.met + peer * sizeof(uint32_t);
        cuda_release_before_u32(call.base[peer] + layout.met + call.me * sizeof(uint32_t), now);
        while ((int32_t)(cuda_acquire_u32(flag) - now) < 0) {
            if (cuda_go_on(&waiter, call, peer)) continue;
            met = false;
            break;
        }
    }
    if (cuda_all(met) && peer == 0) cuda_store_u32(own + layout.met_own, now);
}

CUDA_KERNEL(meet, struct gpu_meeting, x, CUDA_WARP)
{
    cuda_wait_for_launch();
    cuda_meet(x.call);
}

CUDA_DEVICE uint64_t cuda_count_in(void *here)
{
    uint64_t before = cuda_load_u64(here), seen;
    while ((seen = cuda_exchange_if(here, before, before + 1)) != before) before = seen;
    return before + 1;
}

/* All threads stay, since a block needs the room of all. */
CUDA_KERNEL(roll_call, struct gpu_roll_call, x, GPU_TILE_THREADS)
{
    if (cuda_thread() == 0) {
        uint64_t n = cuda_count_in(x.here);
        for (uint64_t look = 1; n < cuda_blocks() && look < x.looks; look++) {
            if (look % CUDA_SPINS == 0 && cuda_load_u32(x.stop)) break;
            cuda_spin();
            n = cuda_load_u64(x.here);
        }
        cuda_store_u64(x.seen + cuda_block(), n);
    }
    cuda_sync_block();
}
