/* SPDX-License-Identifier: BSD-3-Clause */
/* Folds of all operations on floating-point types. */
#include "device/cuda/kernels/fold_kernels.cuh"

#define ALL(name, reducer) CUDA_FOLD(name, reducer, 16)
CUDA_FLOAT_REDUCERS(ALL)
