/* SPDX-License-Identifier: BSD-3-Clause */

/* Batches of reductions by lines, of every type and operation. */

#include "device/cuda/kernels/batch.cuh"

#define LINES(name, reducer) CUDA_BATCH(lines, cuda_lines, name, reducer, 16, 2)

CUDA_INTEGER_REDUCERS(LINES)
CUDA_FLOAT_REDUCERS(LINES)
