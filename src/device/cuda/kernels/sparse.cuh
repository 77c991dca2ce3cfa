/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_SPARSE_CUH
#define TUTTI_DEVICE_CUDA_SPARSE_CUH

/* Blocks here and there, added up in a dense buffer (device/sparse.h). Row g of the grid has the blocks of `out` whose
 * number is g modulo the rows, and goes through all indices in their order; a thread has a column of them. So nobody
 * else adds where it does, and sums have the order of the indices. */
#include "intrinsics.cuh"

#include "device/sparse.h"

#include "device/recode_math.h"

#include <tutti/status.h>

struct sparse_float32 {
    CUDA_DEVICE void add(void *at, const void *from, uint64_t to, uint64_t i)
    {
        float *out = static_cast<float *>(at) + to;
        *out = recode_canonical(cuda_add(*out, static_cast<const float *>(from)[i]));
    }
    using word = uint32_t;
};
struct sparse_float64 {
    CUDA_DEVICE void add(void *at, const void *from, uint64_t to, uint64_t i)
    {
        double *out = static_cast<double *>(at) + to;
        const double sum = cuda_add(*out, static_cast<const double *>(from)[i]);
        *out = sum == sum ? sum : cuda_double(UINT64_C(0x7ff8000000000000));
    }
    using word = uint64_t;
};
struct sparse_float16 {
    CUDA_DEVICE void add(void *at, const void *from, uint64_t to, uint64_t i)
    {
        uint16_t *out = static_cast<uint16_t *>(at) + to;
        *out = (uint16_t)recode_to_float16(
            cuda_add(recode_from_float16(*out), recode_from_float16(static_cast<const uint16_t *>(from)[i])));
    }
    using word = uint16_t;
};
struct sparse_bfloat16 {
    CUDA_DEVICE void add(void *at, const void *from, uint64_t to, uint64_t i)
    {
        uint16_t *out = static_cast<uint16_t *>(at) + to;
        const uint32_t other = static_cast<const uint16_t *>(from)[i];
        *out = (uint16_t)recode_to_bfloat16(cuda_add(cuda_float((uint32_t)*out << 16), cuda_float(other << 16)), false, 0);
    }
    using word = uint16_t;
};

/* The first block looks whether all indices are right. */
CUDA_DEVICE void sparse_check(const struct tutti_sparse &x)
{
    bool wrong = false;
    for (uint64_t i = cuda_thread(); i < x.n; i += cuda_threads()) wrong |= (uint64_t)x.indices[i] >= x.n_out;
    wrong = cuda_sync_block_any(wrong);
    if (cuda_thread() == 0) *x.status = wrong ? TUTTI_ERR_ARGUMENT : TUTTI_OK;
}

template <class T> CUDA_DEVICE void sparse(const struct tutti_sparse &x)
{
    const uint64_t rows = cuda_blocks(), row = cuda_block();
    cuda_wait_for_launch();
    if (row == 0 && x.status) sparse_check(x);
    for (uint64_t column = cuda_thread(); column < x.block; column += cuda_threads()) {
        for (uint64_t b = row; b < x.n_out; b += rows) static_cast<typename T::word *>(x.out)[b * x.block + column] = 0;
        for (uint64_t i = 0; i < x.n; i++) {
            const uint64_t b = (uint64_t)x.indices[i];
            if (b < x.n_out && b % rows == row) T::add(x.out, x.values, b * x.block + column, i * x.block + column);
        }
    }
}

#define SPARSE(type)                                                                                                   \
    CUDA_KERNEL(sparse_##type, struct tutti_sparse, x, 256)                                                            \
    {                                                                                                                  \
        sparse<struct sparse_##type>(x);                                                                               \
    }

#endif
