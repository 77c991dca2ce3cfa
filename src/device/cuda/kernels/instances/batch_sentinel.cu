/* SPDX-License-Identifier: BSD-3-Clause */

/* Batches by sentinels: moves, and the fast reductions and those of floating point. */

#include "device/cuda/kernels/batch.cuh"

#define SENTINEL(name, reducer, most, chunk)                                                                           \
    CUDA_BATCH(sentinel, cuda_sentinel<reducer::type::word>, name, reducer, most, chunk)
#define SENTINEL_FAST(name, reducer)                                                                                   \
    SENTINEL(name, reducer, 4, 4)                                                                                      \
    SENTINEL(name, reducer, 16, 4)
#define SENTINEL_ANY(name, reducer) SENTINEL(name, reducer, 16, 2)

SENTINEL_FAST(move, cuda_move)
CUDA_FAST_REDUCERS(SENTINEL_FAST)
CUDA_FLOAT_REDUCERS(SENTINEL_ANY)
