/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_WAIT_CUH
#define TUTTI_DEVICE_CUDA_WAIT_CUH

/* Waiting for memory that other ranks write: loops that end. Every thread that waits has a cuda_waiter, and calls
 * cuda_go_on once a turn until it has what it waits for. Once in CUDA_SPINS turns it looks whether to stop, and at the
 * clock; who runs out of time reports its peer, and stops all. False means: leave. What the kernel was to write is
 * undefined then, and so are its counters, but no later wait lasts, since the stop word stays. Launches that come after
 * it begin nothing (cuda_has_stopped): with counters of a call that was left half way they would send what peers, who
 * may still wait for that call, take for its data.
 *
 *     struct cuda_waiter waiter = {};
 *     while (!there()) if (!cuda_go_on(&waiter, x.call, peer)) return; */

#include "device/exchange.h"
#include "intrinsics.cuh"

struct cuda_waiter {
    uint32_t spins;
    uint64_t since; /* of its first look at the clock; 0: not yet */
};

/* The report before the stop word. Of several at the same time one is read, whole. */
CUDA_COLD void cuda_report(const struct gpu_call &call, uint32_t peer)
{
    cuda_store_u64(&call.control->report, GPU_REPORT(call.seq, peer));
    cuda_release_u32(&call.control->stop, GPU_TIMEOUT);
    cuda_store_u32(call.base[call.me] + call.layout.stopped, 1);
}

/* Whether this rank has left a call before, as was known when the launch began. */
CUDA_DEVICE bool cuda_has_stopped(const struct gpu_call &call)
{
    return cuda_load_u32(call.base[call.me] + call.layout.stopped) != 0;
}

/* One thread a while goes and sees, the others hear of it. */
CUDA_DEVICE bool cuda_is_stopped(const struct gpu_call &call, uint64_t now)
{
    char *own = call.base[call.me];
    if (cuda_load_u32(own + call.layout.stopped)) return true;
    const uint64_t asked = cuda_load_u64(own + call.layout.asked);
    if ((int64_t)(now - asked) < GPU_ASK_NS) return false;
    if (cuda_exchange_if(own + call.layout.asked, asked, now) != asked) return false;
    if (!cuda_load_u32(&call.control->stop)) return false;
    cuda_store_u32(own + call.layout.stopped, 1);
    return true;
}

#define CUDA_LEAVE (~UINT64_C(0))

/* Out of the way, as what waits is small. Since when it waits, or CUDA_LEAVE. */
CUDA_COLD uint64_t cuda_look_up(uint64_t since, const struct gpu_call &call, uint32_t peer)
{
    const uint64_t now = cuda_clock_ns();
    if (cuda_is_stopped(call, now)) return CUDA_LEAVE;
    if (call.timeout_ns == 0) return since;
    if (since == 0) return now;
    if (now - since < call.timeout_ns) return since;
    cuda_report(call, peer);
    return CUDA_LEAVE;
}

CUDA_DEVICE bool cuda_go_on(struct cuda_waiter *waiter, const struct gpu_call &call, uint32_t peer)
{
    cuda_spin();
    if (++waiter->spins % CUDA_SPINS != 0) return true;
    waiter->since = cuda_look_up(waiter->since, call, peer);
    return waiter->since != CUDA_LEAVE;
}

#endif
