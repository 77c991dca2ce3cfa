/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_WAIT_CUH
#define TUTTI_DEVICE_CUDA_WAIT_CUH

/* Waiting for memory that other ranks write: loops that end. Every thread that waits has a gpu_waiter, and calls
 * gpu_go_on once a turn until it has what it waits for. Once in GPU_SPINS turns it looks whether to stop, and at the
 * clock; who runs out of time reports its peer, and stops all. False means: leave. What the kernel was to write is
 * undefined then, and so are its counters, but no later wait lasts, since the stop word stays. Launches that come after
 * it begin nothing (gpu_has_stopped): with counters of a call that was left half way they would send what peers, who
 * may still wait for that call, take for its data.
 *
 *     struct gpu_waiter waiter = {};
 *     while (!there()) if (!gpu_go_on(&waiter, x.call, peer)) return; */

#include "device/exchange.h"
#include "device/kernels/machine.h"

struct gpu_waiter {
    uint32_t spins;
    uint64_t since; /* when it first looked at the clock; 0: not yet */
};

/* The report before the stop word. Of several at the same time one is read, whole. */
GPU_COLD void gpu_report(const struct gpu_call &call, uint32_t peer)
{
    gpu_store_u64(&call.control->report, GPU_REPORT(call.seq, peer));
    gpu_release_u32(&call.control->stop, GPU_TIMEOUT);
    gpu_store_u32(call.base[call.me] + call.layout.stopped, 1);
}

/* Whether this rank has left a call before, as was known when the launch began. */
GPU_DEVICE bool gpu_has_stopped(const struct gpu_call &call)
{
    return gpu_load_u32(call.base[call.me] + call.layout.stopped) != 0;
}

/* One thread a while goes and sees, the others hear of it. */
GPU_DEVICE bool gpu_is_stopped(const struct gpu_call &call, uint64_t now)
{
    char *own = call.base[call.me];
    if (gpu_load_u32(own + call.layout.stopped)) return true;
    const uint64_t asked = gpu_load_u64(own + call.layout.asked);
    if ((int64_t)(now - asked) < GPU_ASK_NS) return false;
    if (gpu_exchange_if(own + call.layout.asked, asked, now) != asked) return false;
    if (!gpu_load_u32(&call.control->stop)) return false;
    gpu_store_u32(own + call.layout.stopped, 1);
    return true;
}

#define GPU_LEAVE (~UINT64_C(0))

/* Out of the way, as what waits is small. Since when it waits, or GPU_LEAVE. */
GPU_COLD uint64_t gpu_look_up(uint64_t since, const struct gpu_call &call, uint32_t peer)
{
    const uint64_t now = gpu_clock_ns();
    if (gpu_is_stopped(call, now)) return GPU_LEAVE;
    if (call.timeout_ns == 0) return since;
    if (since == 0) return now;
    if (now - since < call.timeout_ns) return since;
    gpu_report(call, peer);
    return GPU_LEAVE;
}

GPU_DEVICE bool gpu_go_on(struct gpu_waiter *waiter, const struct gpu_call &call, uint32_t peer)
{
    gpu_spin();
    if (++waiter->spins % GPU_SPINS != 0) return true;
    waiter->since = gpu_look_up(waiter->since, call, peer);
    return waiter->since != GPU_LEAVE;
}

#endif
