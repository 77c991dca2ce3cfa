/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_BLOCK_WAIT_H
#define TUTTI_DEVICE_KERNELS_BLOCK_WAIT_H

/* Waiting for memory that other ranks write: loops that end. A block waits together: in each turn every thread says
 * whether it misses something, and of whom, and all learn whether to go on. Once in GPU_SPINS turns the first thread
 * looks whether to stop, and at the clock. There is none on these devices but the one that the host writes down while
 * calls are under way (struct gpu_control, now_ns), some milliseconds old; where it stands still, the host's word alone
 * ends a wait. Who runs out of time reports its peer, and stops all. What the kernel was to write is undefined then,
 * and so are its counters, but no later wait lasts, since the stop word stays. Launches that come after it begin
 * nothing (has_stopped): with counters of a call that was left half way they would send what peers, who may still wait
 * for that call, take for its data.
 *
 *     struct waiter waiter = {0};
 *     for (;;) {
 *         const uint32_t turn = wait_turn(&votes, &waiter, &x.call, is_missing, peer);
 *         if (turn & WAIT_LEAVE) return;
 *         if (!turn) break;
 *     }
 *     gpu_sync_all();        what one thread acquired is there for all */

#include "device/exchange.h"
#include "device/kernels/machine.h"

enum { WAIT_MISSING = 1, WAIT_LEAVE = 2 };
#define NO_PEER 0xffffffffu /* nobody is to blame */

/* In the block's own memory; zeros at first (wait_clear). */
struct votes {
    uint32_t bits[3]; /* for this turn, the next one, the last one */
    uint32_t peer;    /* the first of those who were missed since the last look */
    uint64_t since;   /* when it first looked at the clock; 0: not yet */
};

/* A thread's own, alike in all. */
struct waiter {
    uint32_t turn;
};

/* All threads come to it. */
GPU_DEVICE void wait_clear(__local struct votes *votes)
{
    if (gpu_thread() < 3) votes->bits[gpu_thread()] = 0;
    if (gpu_thread() == 0) votes->peer = NO_PEER, votes->since = 0;
    gpu_sync();
}

GPU_DEVICE uint64_t stopped_at(__local const struct gpu_call *call)
{
    return (uint64_t)call->base[call->me] + call->layout.stopped;
}

/* Whether this rank has left a call before, as was known when the launch began. */
GPU_IS(bool, has_stopped, (__local const struct gpu_call *call), gpu_load_u32(stopped_at(call)) != 0)

/* The report before the stop word. Of several at the same time one is read, whole. */
GPU_DEVICE void wait_report(__local const struct gpu_call *call, uint32_t peer)
{
    __global struct gpu_control *control = (__global struct gpu_control *)(uint64_t)call->control;
    gpu_host_store_u64((uint64_t)&control->report, GPU_REPORT(call->seq, peer));
    gpu_host_store_u32((uint64_t)&control->stop, GPU_TIMEOUT);
    gpu_store_u32(stopped_at(call), 1);
}

/* By one thread. False: leave. */
GPU_DEVICE bool wait_look(__local const struct gpu_call *call, __local struct votes *votes)
{
    __global struct gpu_control *control = (__global struct gpu_control *)(uint64_t)call->control;
    if (has_stopped(call)) return false;
    if (gpu_host_load_u32((uint64_t)&control->stop)) {
        gpu_store_u32(stopped_at(call), 1);
        return false;
    }
    const uint64_t now = call->timeout_ns ? gpu_host_load_u64((uint64_t)&control->now_ns) : 0;
    if (now == 0) return true;
    if (votes->since == 0) votes->since = now;
    if (now - votes->since < call->timeout_ns || votes->peer == NO_PEER) return true;
    wait_report(call, votes->peer);
    return false;
}

/* All threads come to it; all have the same answer: what any of them said. */
GPU_DEVICE uint32_t wait_turn(__local struct votes *votes, struct waiter *waiter, __local const struct gpu_call *call,
                              bool missing, uint32_t peer)
{
    const uint32_t now = waiter->turn % 3, next = (waiter->turn + 1) % 3;
    if (missing) gpu_local_or(&votes->bits[now], WAIT_MISSING);
    if (missing && peer != NO_PEER) gpu_local_min(&votes->peer, peer);
    waiter->turn++;
    if (gpu_thread() == 0) {
        votes->bits[next] = 0;
        if (waiter->turn % GPU_SPINS == 0) {
            if (!wait_look(call, votes)) gpu_local_or(&votes->bits[now], WAIT_LEAVE);
            votes->peer = NO_PEER;
        }
    }
    gpu_spin();
    gpu_sync();
    return votes->bits[now];
}

#endif
