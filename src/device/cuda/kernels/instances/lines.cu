/* SPDX-License-Identifier: BSD-3-Clause */

/* Exchanges by lines: moves, and the fast reductions. */

#include "device/cuda/kernels/oneshot.cuh"

#define LINES(name, reducer, most, chunk)                                                                              \
    CUDA_KERNEL(lines_##name##_##most, struct gpu_exchange, x, GPU_LINE_THREADS)                                     \
    {                                                                                                                  \
        cuda_oneshot<cuda_lines, reducer, most, chunk, true>(x);                                                       \
    }
#define LINES_OF(name, reducer)                                                                                        \
    LINES(name, reducer, 2, 2) LINES(name, reducer, 4, 4) LINES(name, reducer, 8, 8) LINES(name, reducer, 16, 4)

LINES_OF(move, cuda_move)
CUDA_FAST_REDUCERS(LINES_OF)
