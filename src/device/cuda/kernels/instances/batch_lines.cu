/* SPDX-License-Identifier: BSD-3-Clause */

/* Batches by lines: moves, and the fast reductions. */

#include "device/cuda/kernels/batch.cuh"

#define LINES_OF(name, reducer)                                                                                        \
    CUDA_BATCH(lines, cuda_lines, name, reducer, 4, 4)                                                                 \
    CUDA_BATCH(lines, cuda_lines, name, reducer, 16, 4)

LINES_OF(move, cuda_move)
CUDA_FAST_REDUCERS(LINES_OF)
