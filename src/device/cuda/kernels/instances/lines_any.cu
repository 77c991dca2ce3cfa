/* SPDX-License-Identifier: BSD-3-Clause */

/* Reductions by lines of every type and operation. */

#include "device/cuda/kernels/oneshot.cuh"

#define LINES(name, reducer)                                                                                           \
    CUDA_KERNEL(lines_##name##_16, struct gpu_exchange, x, GPU_LINE_THREADS)                                         \
    {                                                                                                                  \
        cuda_oneshot<cuda_lines, reducer, 16, 2, false>(x);                                                            \
    }

CUDA_INTEGER_REDUCERS(LINES)
CUDA_FLOAT_REDUCERS(LINES)
