/* SPDX-License-Identifier: BSD-3-Clause */
/* tiles_move_16: whatever the number of ranks, since what comes from one peer has nothing to do with another's. */
#include "device/cuda/kernels/tiles.cuh"

CUDA_TILES(move, cuda_move, 16)
