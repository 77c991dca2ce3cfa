/* SPDX-License-Identifier: BSD-3-Clause */

/* Exchanges by multicast: moves, and reductions of every type and operation. Not by CUDA 12.0, which knows no such
 * stores. */

#include "multicast.cuh"

#define MULTICAST(name, reducer)                                                                                       \
    CUDA_KERNEL(multicast_##name##_16, struct cuda_multicast, m, CUDA_LINE_THREADS)                                    \
    {                                                                                                                  \
        cuda_multicast_run<reducer>(m);                                                                                \
    }

#if !defined(__CUDACC__) || __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ > 0
MULTICAST(move, cuda_move)
CUDA_FAST_REDUCERS(MULTICAST)
CUDA_INTEGER_REDUCERS(MULTICAST)
CUDA_FLOAT_REDUCERS(MULTICAST)
#endif
