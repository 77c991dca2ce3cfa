/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_FOLD_KERNELS_CUH
#define TUTTI_DEVICE_CUDA_FOLD_KERNELS_CUH

/* Folding chunks that lie on this device, after copy engines have brought them: every thread takes units in turns of
 * the grid. The grid's size is the caller's: some 64 blocks of 512 threads read at most of the memory's speed. */

#include "fold.cuh"
#include "units.cuh"

struct cuda_chunk_sources {
    const struct gpu_fold *x;
    uint64_t at, left; /* of the unit */

    CUDA_DEVICE cuda_words unit(const cuda_chunk_sources &s, uint32_t q, bool wanted)
    {
        return wanted ? cuda_take_unit<false>(s.x->from[q] + s.at, s.left) : cuda_words{};
    }
};

template <class R, uint32_t N> CUDA_DEVICE void cuda_fold_chunks(const struct gpu_fold &x)
{
    constexpr uint32_t held = N == 2 ? 2 : 1;
    const uint64_t turn = (uint64_t)cuda_threads() * cuda_blocks() * 16;
    const uint32_t ranks = (1u << x.call.n) - 1;
    for (uint64_t begin = (cuda_block() * cuda_threads() + cuda_thread()) * (uint64_t)16; begin < x.bytes;
         begin += held * turn) {
        cuda_chunk_sources sources[held];
        cuda_words units[held];
        CUDA_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            const uint64_t at = begin + u * turn;
            sources[u] = {&x, at, at < x.bytes ? x.bytes - at : 0};
        }
        cuda_fold_ranks<R, N, held>(sources, ranks, x.call, units);
        CUDA_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            if (sources[u].left > 0) cuda_give_unit<false>(x.out + sources[u].at, units[u], sources[u].left);
        }
    }
}

#define CUDA_FOLD(name, reducer, ranks)                                                                                \
    CUDA_KERNEL(fold_##name##_##ranks, struct gpu_fold, x, 512)                                                       \
    {                                                                                                                  \
        cuda_wait_for_launch();                                                                                        \
        cuda_fold_chunks<reducer, ranks>(x);                                                                           \
    }

#endif
