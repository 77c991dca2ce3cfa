/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_FOLD_KERNELS_CUH
#define TUTTI_DEVICE_CUDA_FOLD_KERNELS_CUH

/* Folding chunks that lie on this device, after copy engines have brought them: every thread takes units in turns of
 * the grid. The grid's size is the caller's: some 64 blocks of 512 threads read at most of the memory's speed. */

#include "device/kernels/fold.h"
#include "device/kernels/units.h"

struct gpu_chunk_sources {
    const struct gpu_fold *x;
    uint64_t at, left; /* the unit's */

    GPU_DEVICE gpu_words unit(const gpu_chunk_sources &s, uint32_t q, bool wanted)
    {
        return wanted ? gpu_take_unit<false>(s.x->from[q] + s.at, s.left) : gpu_words{};
    }
};

template <class R, uint32_t N> GPU_DEVICE void gpu_fold_chunks(const struct gpu_fold &x)
{
    constexpr uint32_t held = N == 2 ? 2 : 1;
    const uint64_t turn = (uint64_t)gpu_threads() * gpu_blocks() * 16;
    const uint32_t ranks = (1u << x.call.n) - 1;
    for (uint64_t begin = (gpu_block() * gpu_threads() + gpu_thread()) * (uint64_t)16; begin < x.bytes;
         begin += held * turn) {
        gpu_chunk_sources sources[held];
        gpu_words units[held];
        GPU_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            const uint64_t at = begin + u * turn;
            sources[u] = {&x, at, at < x.bytes ? x.bytes - at : 0};
        }
        gpu_fold_ranks<R, N, held>(sources, ranks, x.call, units);
        GPU_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            if (sources[u].left > 0) gpu_give_unit<false>(x.out + sources[u].at, units[u], sources[u].left);
        }
    }
}

#define GPU_FOLD(name, reducer, ranks)                                                                                 \
    GPU_KERNEL(fold_##name##_##ranks, struct gpu_fold, x, 512)                                                         \
    {                                                                                                                  \
        gpu_wait_for_launch();                                                                                         \
        gpu_fold_chunks<reducer, ranks>(x);                                                                            \
    }

#define GPU_FOLD_FAST(name, R) GPU_FOLD(name, R, 2) GPU_FOLD(name, R, 4) GPU_FOLD(name, R, 16)

#endif
