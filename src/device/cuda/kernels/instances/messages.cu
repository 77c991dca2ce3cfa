/* SPDX-License-Identifier: BSD-3-Clause */
/* messages_16: what a group sends and receives, any number of messages with each peer. */
#include "device/cuda/kernels/messages.cuh"

CUDA_KERNEL(messages_16, struct gpu_lists, x, GPU_TILE_THREADS, 2)
{
    cuda_tiles<cuda_move, 16>(x);
}
