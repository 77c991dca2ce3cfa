/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls of the host on windows: `window_access` stores some bytes and changes a word, `window_await` waits
 * for a word of this rank. As kernels of users do it: by tutti/device.cuh. */
#include "device/accesses.h"
#include "intrinsics.cuh"

#include <tutti/device.cuh>

/* What comes behind a call that failed begins nothing. */
CUDA_KERNEL(window_access, struct gpu_one_access, x, GPU_ACCESS_THREADS)
{
    namespace machine = tutti::machine;
    const bool goes_on = machine::load(x.alarm.stopped) == 0;
    if (goes_on) tutti::inside::copy(x.to, x.from, x.bytes, cuda_thread(), cuda_threads());
    cuda_sync_block();
    if (cuda_thread() != 0 || !goes_on) return;
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

CUDA_KERNEL(window_await, struct gpu_one_await, x, CUDA_WARP)
{
    const tutti::inside::wanted want = {x.index, x.compare, x.value, x.timeout_ns, x.from};
    if (cuda_thread() == 0 && tutti::machine::load(x.alarm.stopped) == 0)
        (void)tutti::inside::wait(x.word, x.alarm, want);
}
