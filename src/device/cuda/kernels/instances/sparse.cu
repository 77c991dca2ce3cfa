/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse blocks, of the floats that are summed. */
#include "device/cuda/kernels/sparse.cuh"

SPARSE(float16)
SPARSE(bfloat16)
SPARSE(float32)
SPARSE(float64)
