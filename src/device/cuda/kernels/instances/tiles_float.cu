/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of all operations on floating-point types. */
#include "device/cuda/kernels/tiles.cuh"

#define ALL(name, reducer) CUDA_TILES(name, reducer, 16)
CUDA_FLOAT_REDUCERS(ALL)
