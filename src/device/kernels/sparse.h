/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_SPARSE_H
#define TUTTI_DEVICE_KERNELS_SPARSE_H

/* Blocks here and there, added up in a dense buffer (device/sparse.h). Row g of the grid has the blocks of `out` whose
 * number is g modulo the rows, and goes through all indices in their order; a thread has a column of them. So nobody
 * else adds where it does, and sums have the order of the indices. */

#include "device/kernels/machine.h"
#include "device/recode_math.h"
#include "device/sparse.h"

#include <tutti/status.h>

/* The sum of two codes. */
GPU_IS(uint32_t, sparse_add_float32, (uint32_t a, uint32_t b),
       gpu_bits(recode_canonical(gpu_add(gpu_float(a), gpu_float(b)))))
GPU_IS(uint16_t, sparse_add_float16, (uint32_t a, uint32_t b),
       (uint16_t)recode_to_float16(gpu_add(recode_from_float16(a), recode_from_float16(b))))
GPU_IS(uint16_t, sparse_add_bfloat16, (uint32_t a, uint32_t b),
       (uint16_t)recode_to_bfloat16(gpu_add(gpu_float(a << 16), gpu_float(b << 16)), false, 0))
GPU_DEVICE uint64_t sparse_add_float64(uint64_t a, uint64_t b)
{
    const double sum = gpu_add(gpu_double(a), gpu_double(b));
    return sum == sum ? gpu_bits64(sum) : UINT64_C(0x7ff8000000000000);
}

/* Whether all indices are right: by the first block, of which each thread sees some. */
GPU_DEVICE bool sparse_is_wrong(const struct tutti_sparse &x)
{
    bool wrong = false;
    for (uint64_t i = gpu_thread(); i < x.n; i += gpu_threads())
        wrong |= gpu_read_u64(GPU_AT(x.indices) + 8 * i) >= x.n_out;
    return wrong;
}

#define GPU_SPARSE(type, bits)                                                                                         \
    GPU_KERNEL(sparse_##type, struct tutti_sparse, x, 256)                                                             \
    {                                                                                                                  \
        GPU_VOTE(vote);                                                                                                \
        const uint64_t rows = gpu_blocks(), row = gpu_block(), size = (bits) / 8;                                      \
        gpu_wait_for_launch();                                                                                         \
        if (row == 0 && x.status) {                                                                                    \
            const bool wrong = GPU_ANY(sparse_is_wrong(x), vote);                                                      \
            if (gpu_thread() == 0) gpu_write_u32(GPU_AT(x.status), (uint32_t)(wrong ? TUTTI_ERR_ARGUMENT : TUTTI_OK)); \
        }                                                                                                              \
        for (uint64_t column = gpu_thread(); column < x.block; column += gpu_threads()) {                              \
            for (uint64_t b = row; b < x.n_out; b += rows)                                                             \
                gpu_write_u##bits(GPU_AT(x.out) + (b * x.block + column) * size, 0);                                   \
            for (uint64_t i = 0; i < x.n; i++) {                                                                       \
                const uint64_t b = gpu_read_u64(GPU_AT(x.indices) + 8 * i);                                            \
                if (b >= x.n_out || b % rows != row) continue;                                                         \
                const gpu_address to = GPU_AT(x.out) + (b * x.block + column) * size;                                  \
                const gpu_address from = GPU_AT(x.values) + (i * x.block + column) * size;                             \
                gpu_write_u##bits(to, sparse_add_##type(gpu_read_u##bits(to), gpu_read_u##bits(from)));                \
            }                                                                                                          \
        }                                                                                                              \
    }

#endif
