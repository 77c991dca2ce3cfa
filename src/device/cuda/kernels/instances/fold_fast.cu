/* SPDX-License-Identifier: BSD-3-Clause */
/* Folds of the sums that training is made of. */
#include "device/cuda/kernels/fold_kernels.cuh"

#define ALL(name, reducer)                                                                                             \
    CUDA_FOLD(name, reducer, 2)                                                                                        \
    CUDA_FOLD(name, reducer, 4)                                                                                        \
    CUDA_FOLD(name, reducer, 16)
CUDA_FAST_REDUCERS(ALL)
