/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_DIRECT_CUH
#define TUTTI_DEVICE_CUDA_DIRECT_CUH

/* The meetings of calls that store to where peers want their data: block b of a rank meets the same block of the
 * others, so that none waits for a whole grid. All ranks launch the same grids, so a block's own count of such calls is
 * the same on all of them. Of a source's flags here the greatest tells all: it is never more than one call ahead, since
 * no call ends before all have come to its end. */

#include "wait.cuh"

CUDA_DEVICE uint32_t *cuda_directs(const struct gpu_call &call)
{
    return reinterpret_cast<uint32_t *>(call.base[call.me] + call.layout.directs) + cuda_block();
}

CUDA_DEVICE char *cuda_landed(const struct gpu_call &call, uint32_t at_rank, uint32_t of_rank)
{
    return call.base[at_rank] + call.layout.landed + 4 * (of_rank * call.layout.n_blocks + cuda_block());
}

/* By one warp, a lane a peer. */
CUDA_DEVICE bool cuda_meets(const struct gpu_call &call)
{
    return cuda_lane() < call.n && cuda_lane() != call.me;
}

/* Until all others have told `now`. False: the call has failed. */
CUDA_DEVICE bool cuda_direct_wait(const struct gpu_call &call, uint32_t now)
{
    const uint32_t peer = cuda_lane();
    struct cuda_waiter waiter = {};
    bool met = true;
    if (cuda_meets(call)) {
        const char *flag = cuda_landed(call, call.me, peer);
        while (met && (int32_t)(cuda_acquire_u32(flag) - now) < 0) met = cuda_go_on(&waiter, call, peer);
    }
    return cuda_all(met);
}

/* Before anything is stored: tells that what came before in the stream is over. */
CUDA_DEVICE bool cuda_direct_begin(const struct gpu_call &call, uint32_t count)
{
    const uint32_t now = 2 * count + 1;
    if (cuda_meets(call)) cuda_release_before_u32(cuda_landed(call, cuda_lane(), call.me), now);
    return cuda_direct_wait(call, now);
}

/* After everything that the block has stored, which this warp has to know: by a barrier, or by what it has read. */
CUDA_DEVICE bool cuda_direct_end(const struct gpu_call &call, uint32_t count)
{
    const uint32_t now = 2 * count + 2;
    cuda_fence_system();
    if (cuda_meets(call)) cuda_store_u32(cuda_landed(call, cuda_lane(), call.me), now);
    if (!cuda_direct_wait(call, now)) return false;
    if (cuda_lane() == 0) cuda_store_u32(cuda_directs(call), count + 1);
    return true;
}

#endif
