/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_DIRECT_CUH
#define TUTTI_DEVICE_CUDA_DIRECT_CUH

/* The meetings of calls that store to where peers want their data: block b of a rank meets the same block of the
 * others, so that none waits for a whole grid. All ranks launch the same grids, so a block's own count of such calls is
 * the same on all of them. Of a source's flags here the greatest tells all: it is never more than one call ahead, since
 * no call ends before all have come to its end. */

#include "device/kernels/wait.h"

GPU_DEVICE uint32_t *gpu_directs(const struct gpu_call &call)
{
    return reinterpret_cast<uint32_t *>(call.base[call.me] + call.layout.directs) + gpu_block();
}

GPU_DEVICE char *gpu_landed(const struct gpu_call &call, uint32_t at_rank, uint32_t of_rank)
{
    return call.base[at_rank] + call.layout.landed + 4 * (of_rank * call.layout.n_blocks + gpu_block());
}

/* By one warp, a lane a peer. */
GPU_DEVICE bool gpu_meets(const struct gpu_call &call)
{
    return gpu_lane() < call.n && gpu_lane() != call.me;
}

/* Until all others have told `now`. False: the call has failed. */
GPU_DEVICE bool gpu_direct_wait(const struct gpu_call &call, uint32_t now)
{
    const uint32_t peer = gpu_lane();
    struct gpu_waiter waiter = {};
    bool met = true;
    if (gpu_meets(call)) {
        const char *flag = gpu_landed(call, call.me, peer);
        while (met && (int32_t)(gpu_acquire_u32(flag) - now) < 0) met = gpu_go_on(&waiter, call, peer);
    }
    return gpu_all(met);
}

/* Before anything is stored: tells that what came before in the stream is over. */
GPU_DEVICE bool gpu_direct_begin(const struct gpu_call &call, uint32_t count)
{
    const uint32_t now = 2 * count + 1;
    if (gpu_meets(call)) gpu_release_before_u32(gpu_landed(call, gpu_lane(), call.me), now);
    return gpu_direct_wait(call, now);
}

/* After everything that the block has stored, which this warp has to know: by a barrier, or by what it has read. */
GPU_DEVICE bool gpu_direct_end(const struct gpu_call &call, uint32_t count)
{
    const uint32_t now = 2 * count + 2;
    gpu_fence_system();
    if (gpu_meets(call)) gpu_store_u32(gpu_landed(call, gpu_lane(), call.me), now);
    if (!gpu_direct_wait(call, now)) return false;
    if (gpu_lane() == 0) gpu_store_u32(gpu_directs(call), count + 1);
    return true;
}

#endif
