/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_WINDOW_H
#define TUTTI_DEVICE_KERNELS_WINDOW_H

/* One-sided calls of the host on windows: `window_access` stores some bytes and changes a word, `window_await` waits
 * for a word of this rank. As kernels of users do it: by tutti/device.cuh. */

#include "device/accesses.h"
#include "device/kernels/machine.h"

#include <tutti/device.cuh>

/* What comes behind a call that failed begins nothing. */
GPU_KERNEL(window_access, struct gpu_one_access, x, GPU_ACCESS_THREADS)
{
    namespace machine = tutti::machine;
    const bool goes_on = machine::load(x.alarm.stopped) == 0;
    if (goes_on) tutti::inside::copy(x.to, x.from, x.bytes, gpu_thread(), gpu_threads());
    gpu_sync();
    if (gpu_thread() != 0 || !goes_on) return;
    machine::fence();
    uint64_t before = 0;
    if (x.change == GPU_CHANGE_SET)
        machine::store(x.word, x.value);
    else
        before =
            x.change == GPU_CHANGE_ADD ? machine::add(x.word, x.value) : machine::swap_if(x.word, x.expected, x.value);
    if (!x.before) return;
    machine::fence();
    machine::store(x.before, before);
    if (!x.there) return;
    machine::fence();
    machine::store(x.there, 1u);
}

GPU_KERNEL(window_await, struct gpu_one_await, x, GPU_WARP)
{
    const tutti::inside::wanted want = {x.index, x.compare, x.value, x.timeout_ns, x.from};
    if (gpu_thread() == 0 && tutti::machine::load(x.alarm.stopped) == 0)
        (void)tutti::inside::wait(x.word, x.alarm, want);
}

#endif
