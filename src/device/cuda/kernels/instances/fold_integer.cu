/* SPDX-License-Identifier: BSD-3-Clause */
/* Folds of all operations on integers. */
#include "device/cuda/kernels/fold_kernels.cuh"

#define ALL(name, reducer) CUDA_FOLD(name, reducer, 16)
CUDA_INTEGER_REDUCERS(ALL)
