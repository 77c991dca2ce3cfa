/* SPDX-License-Identifier: BSD-3-Clause */

/* Reductions of integers by sentinels, every operation. Bounds for one block an SM: for two, registers would spill. */

#include "device/cuda/kernels/oneshot.cuh"

#define SENTINEL(name, reducer)                                                                                        \
    CUDA_KERNEL(sentinel_##name##_16, struct gpu_exchange, x, GPU_LINE_THREADS, 1)                                   \
    {                                                                                                                  \
        cuda_oneshot<cuda_sentinel<reducer::type::word>, reducer, 16, 2, false>(x);                                    \
    }

CUDA_INTEGER_REDUCERS(SENTINEL)
