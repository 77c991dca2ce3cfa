/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank tells the others before an exchange whose counts are on the device, and that exchange. */
#include "device/cuda/kernels/counted.cuh"

CUDA_KERNEL(counted_row, struct tutti_counted_row, x, 64)
{
    cuda_wait_for_launch();
    for (uint32_t k = cuda_thread(); k < counted_words(x.n); k += cuda_threads()) x.row[k] = counted_word(&x, k);
}

CUDA_KERNEL(tiles_counted_16, struct gpu_counted, x, GPU_TILE_THREADS, 2)
{
    counted_tiles(x);
}
