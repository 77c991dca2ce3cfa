/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_FOLD_CUH
#define TUTTI_DEVICE_CUDA_FOLD_CUH

/* One unit of a reduction's result from the contributions of several ranks, in rank order. `Sources` says where they
 * are: unit(sources, q, wanted) gives rank q's, which is wanted of those whose bit is set in `ranks`. Four loads are on
 * their way at once. */

#include "device/kernels/reduce.h"

/* ranks: at least one bit; N: the most ranks; HELD: units at once. All threads of a warp call it, since sources may ask
 * other lanes; `left` of a source is 0 where this thread has no unit. */
template <class R, uint32_t N, uint32_t HELD, class Sources>
GPU_DEVICE void gpu_fold_ranks(const Sources *sources, uint32_t ranks, const struct gpu_call &call, gpu_words *out)
{
    constexpr uint32_t group = N < 4 ? N : 4;
    const uint32_t first = gpu_lowest(ranks);
    typename R::total totals[HELD] = {};
    for (uint32_t begin = 0; begin < (N == group ? 1 : call.n); begin += group) {
        gpu_words units[group][HELD];
        GPU_UNROLL for (uint32_t i = 0; i < group * HELD; i++)
        {
            const uint32_t k = i / HELD, u = i % HELD;
            const bool wanted = sources[u].left > 0 && (ranks >> (begin + k) & 1);
            units[k][u] = Sources::unit(sources[u], begin + k, wanted);
        }
        GPU_UNROLL for (uint32_t i = 0; i < group * HELD; i++)
        {
            const uint32_t u = i / group, q = begin + i % group;
            gpu_words *unit = &units[i % group][u];
            if ((ranks >> q & 1) == 0) continue;
            if (q == call.me && call.scales) *unit = R::scale(*unit, call.factor);
            if (q == first) {
                R::first(&totals[u], *unit);
            } else {
                R::next(&totals[u], *unit, call.op);
            }
        }
    }
    GPU_UNROLL for (uint32_t u = 0; u < HELD; u++) out[u] = R::result(totals[u], call.divisor);
}

#endif
