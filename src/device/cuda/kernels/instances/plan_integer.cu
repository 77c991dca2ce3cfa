/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs with reductions of integers, of any operation. */
#include "device/cuda/kernels/plan.cuh"

CUDA_INTEGER_REDUCERS(CUDA_PLAN)
