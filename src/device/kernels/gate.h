/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_GATE_H
#define TUTTI_DEVICE_KERNELS_GATE_H

/* gate (device/gate.h): a meeting behind a call. A rank comes to it only with its whole result, since a call that was
 * left half way says so (gpu_has_stopped). It is the one kernel that waits on after it was told to stop: for the host,
 * which then makes the result itself. That takes one block, and copies need none. */

#include "device/gate.h"
#include "device/kernels/meet.h"

#define GPU_GATE_NAP_NS 2000

/* What this launch and the ones before it wrote is visible to who reads the word. */
GPU_DEVICE void gpu_gate_hold(const struct gpu_gate &x, bool has_result)
{
    gpu_fence_system();
    gpu_store_u64(&x.words->held, x.number << 1 | has_result);
    while (gpu_acquire_u64(&x.words->open) < x.number) {
        gpu_nap(GPU_GATE_NAP_NS);
        gpu_spin();
    }
}

GPU_KERNEL(gate, struct gpu_gate, x, GPU_WARP)
{
    gpu_wait_for_launch();
    const bool has_result = !gpu_has_stopped(x.call), passed = gpu_meet(x.call);
    if (gpu_lane() > 0) return;
    if (passed)
        gpu_store_u64(&x.words->passed, x.number);
    else
        gpu_gate_hold(x, has_result);
}

#endif
