/* SPDX-License-Identifier: BSD-3-Clause */

/* Exchanges by multicast: moves, and reductions of every type and operation. There are none for devices before sm_90,
 * nor by CUDA 12.0: neither knows such stores, and the back end asks whether it has the kernels. */

#include "device/cuda/kernels/multicast.cuh"

#define MULTICAST(name, reducer)                                                                                       \
    CUDA_KERNEL(multicast_##name##_16, struct cuda_multicast, m, CUDA_LINE_THREADS)                                    \
    {                                                                                                                  \
        cuda_multicast_run<reducer>(m);                                                                                \
    }

#ifdef __CUDACC__
#define KNOWN (__CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ > 0)
#else
#define KNOWN 1
#endif
#if KNOWN && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
MULTICAST(move, cuda_move)
CUDA_FAST_REDUCERS(MULTICAST)
CUDA_INTEGER_REDUCERS(MULTICAST)
CUDA_FLOAT_REDUCERS(MULTICAST)
#endif
