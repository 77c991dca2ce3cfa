/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_FOLD_CUH
#define TUTTI_DEVICE_CUDA_FOLD_CUH

/* One unit of a reduction's result from the contributions of several ranks, in rank order. `Sources` says where they
 * are: unit(sources, q, wanted) gives rank q's, which is wanted of those whose bit is set in `ranks`. Four loads are on
 * their way at once. */

#include "reduce.cuh"

/* ranks: at least one bit; N: the most ranks; n: how many there are. `here`: this thread has a unit; all threads of a
 * warp call it, since sources may ask other lanes. */
template <class R, uint32_t N, class Sources>
CUDA_DEVICE cuda_words cuda_fold_ranks(const Sources &sources, uint32_t ranks, const struct cuda_call &call, bool here)
{
    constexpr uint32_t group = N < 4 ? N : 4;
    const uint32_t first = cuda_lowest(ranks);
    typename R::total total = {};
    for (uint32_t begin = 0; begin < (N == group ? 1 : call.n); begin += group) {
        cuda_words units[group];
        CUDA_UNROLL for (uint32_t k = 0; k < group; k++)
        {
            units[k] = Sources::unit(sources, begin + k, here && (ranks >> (begin + k) & 1));
        }
        CUDA_UNROLL for (uint32_t k = 0; k < group; k++)
        {
            const uint32_t q = begin + k;
            if ((ranks >> q & 1) == 0) continue;
            if (q == call.me && call.scales) units[k] = R::scale(units[k], call.factor);
            if (q == first) {
                R::first(&total, units[k]);
            } else {
                R::next(&total, units[k], call.op);
            }
        }
    }
    return R::result(total, call.divisor);
}

#endif
