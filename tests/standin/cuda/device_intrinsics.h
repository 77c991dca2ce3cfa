/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CUDA_DEVICE_INTRINSICS_H
#define TUTTI_STANDIN_CUDA_DEVICE_INTRINSICS_H

/* What tutti/device.cuh asks of the machine, for a host compiler: see machine.h. */

#include "device/kernels/machine.h"

#define TUTTI_DEVICE_IS static inline
#define TUTTI_DEVICE_COLD __attribute__((noinline, unused)) static
#define TUTTI_DEVICE_MEMBER inline
#define TUTTI_DEVICE_SPINS GPU_SPINS

namespace tutti::machine
{
TUTTI_DEVICE_IS uint32_t load(const uint32_t *p)
{
    return gpu_load_u32(p);
}
TUTTI_DEVICE_IS uint64_t load(const uint64_t *p)
{
    return gpu_load_u64(p);
}
TUTTI_DEVICE_IS uint32_t acquire(const uint32_t *p)
{
    return gpu_acquire_u32(p);
}
TUTTI_DEVICE_IS uint64_t acquire(const uint64_t *p)
{
    return gpu_acquire_u64(p);
}
TUTTI_DEVICE_IS void store(uint32_t *p, uint32_t v)
{
    gpu_store_u32(p, v);
}
TUTTI_DEVICE_IS void store(uint64_t *p, uint64_t v)
{
    gpu_store_u64(p, v);
}
/* As after the fence that callers make: the thread sanitizer knows none. */
TUTTI_DEVICE_IS uint64_t add(uint64_t *p, uint64_t v)
{
    return __atomic_fetch_add(cuda_standin_at<uint64_t>(p, 8), v, __ATOMIC_ACQ_REL);
}
TUTTI_DEVICE_IS uint64_t swap_if(uint64_t *p, uint64_t expected, uint64_t v)
{
    __atomic_compare_exchange_n(cuda_standin_at<uint64_t>(p, 8), &expected, v, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
    return expected;
}
TUTTI_DEVICE_IS uint32_t swap_if_here(uint32_t *p, uint32_t expected, uint32_t v)
{
    __atomic_compare_exchange_n(cuda_standin_at<uint32_t>(p, 4), &expected, v, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return expected;
}
TUTTI_DEVICE_IS void fence()
{
    gpu_fence_system();
}
TUTTI_DEVICE_IS uint64_t clock_ns()
{
    return gpu_clock_ns();
}
TUTTI_DEVICE_IS void spin()
{
    gpu_spin();
}
TUTTI_DEVICE_IS uint32_t thread()
{
    return gpu_thread();
}
TUTTI_DEVICE_IS uint32_t threads()
{
    return gpu_threads();
}
TUTTI_DEVICE_IS void sync_warp()
{
    gpu_sync_warp();
}
TUTTI_DEVICE_IS bool any_of_warp(bool flag)
{
    return gpu_any(flag);
}
TUTTI_DEVICE_IS void sync_block()
{
    gpu_sync();
}
TUTTI_DEVICE_IS bool any_of_block(bool flag)
{
    return gpu_any_of_block(flag);
}
} // namespace tutti::machine

#endif
