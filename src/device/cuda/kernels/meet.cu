/* SPDX-License-Identifier: BSD-3-Clause */
/* meet: all ranks have come this far in their streams' order. A lane a peer: it says so to the peer, then waits for the
 * peer to say it. What the stream wrote before is visible to who acquires that; so it is to what comes after the peers'
 * meetings, copy engines included. A rank is at most one meeting ahead. */
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
