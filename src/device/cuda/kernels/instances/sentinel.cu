/* SPDX-License-Identifier: BSD-3-Clause */

/* Exchanges by sentinels: moves, and the fast reductions and those of floating point. */

#include "device/cuda/kernels/oneshot.cuh"

#define SENTINEL(name, reducer, most, chunk, fast)                                                                     \
    CUDA_KERNEL(sentinel_##name##_##most, struct gpu_exchange, x, GPU_LINE_THREADS)                                  \
    {                                                                                                                  \
        cuda_oneshot<cuda_sentinel<reducer::type::word>, reducer, most, chunk, fast>(x);                               \
    }
#define SENTINEL_FAST(name, reducer)                                                                                   \
    SENTINEL(name, reducer, 2, 2, true)                                                                                \
    SENTINEL(name, reducer, 4, 4, true)                                                                                \
    SENTINEL(name, reducer, 8, 8, true)                                                                                \
    SENTINEL(name, reducer, 16, 4, true)
#define SENTINEL_ANY(name, reducer) SENTINEL(name, reducer, 16, 2, false)

SENTINEL_FAST(move, cuda_move)
CUDA_FAST_REDUCERS(SENTINEL_FAST)
CUDA_FLOAT_REDUCERS(SENTINEL_ANY)
