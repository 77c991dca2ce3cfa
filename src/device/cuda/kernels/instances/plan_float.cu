/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs with reductions of floating-point types, of any operation. */
#include "device/cuda/kernels/plan.cuh"

CUDA_FLOAT_REDUCERS(CUDA_PLAN)
