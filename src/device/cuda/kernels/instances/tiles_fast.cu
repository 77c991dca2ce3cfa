/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of the sums that training is made of, for two ranks, for four, and for more. */
#include "device/cuda/kernels/tiles.cuh"

#define ALL(name, reducer)                                                                                             \
    CUDA_TILES(name, reducer, 2)                                                                                       \
    CUDA_TILES(name, reducer, 4)                                                                                       \
    CUDA_TILES(name, reducer, 16)
CUDA_FAST_REDUCERS(ALL)
