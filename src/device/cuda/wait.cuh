/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_WAIT_CUH
#define TUTTI_DEVICE_CUDA_WAIT_CUH

/* Waiting for memory that other ranks write: loops that end. Every thread that waits has a cuda_waiter, and calls
 * cuda_go_on once a turn until it has what it waits for. Once in CUDA_SPINS turns it looks at the stop word and the
 * clock; who runs out of time reports its peer, and stops all. False means: leave. What the kernel
 * was to write is undefined then, and so are its counters, but no later wait lasts, since the stop word stays.
 *
 *     struct cuda_waiter waiter = {};
 *     while (!there()) if (!cuda_go_on(&waiter, x.call, peer)) return; */

#include "exchange.h"
#include "intrinsics.cuh"

struct cuda_waiter {
    uint32_t spins;
    uint64_t since; /* of its first look at the clock; 0: not yet */
};

/* The report before the stop word. Of several at the same time one is read, whole. */
CUDA_COLD void cuda_report(struct cuda_control *control, uint64_t seq, uint32_t peer)
{
    cuda_store_u64(&control->report, CUDA_REPORT(seq, peer));
    cuda_release_u32(&control->stop, CUDA_TIMEOUT);
}

/* False: leave. */
CUDA_DEVICE bool cuda_look_up(struct cuda_waiter *waiter, const struct cuda_call &call, uint32_t peer)
{
    if (cuda_load_u32(&call.control->stop)) return false;
    if (call.timeout_ns == 0) return true;
    const uint64_t now = cuda_clock_ns();
    if (waiter->since == 0) waiter->since = now;
    if (now - waiter->since < call.timeout_ns) return true;
    cuda_report(call.control, call.seq, peer);
    return false;
}

CUDA_DEVICE bool cuda_go_on(struct cuda_waiter *waiter, const struct cuda_call &call, uint32_t peer)
{
    cuda_spin();
    return ++waiter->spins % CUDA_SPINS != 0 || cuda_look_up(waiter, call, peer);
}

#endif
