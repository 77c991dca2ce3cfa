/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_SPARSE_H
#define TUTTI_DEVICE_SPARSE_H

/* Blocks that lie here and there in a dense buffer: a job that devices carry out for all_reduce_sparse_block. */

#include <stddef.h>
#include <tutti/device.h>

/* out = 0; then for each i in order: block indices[i] of out += block i of values. Blocks that are not in out are left
 * out, and *status becomes TUTTI_ERR_ARGUMENT; else TUTTI_OK. */
struct tutti_sparse {
    enum tutti_dtype dtype; /* on devices with memory of their own: float16, bfloat16, float32, float64 */
    TUTTI_DEVICE_POINTER(const void) values;
    TUTTI_DEVICE_POINTER(const int64_t) indices;
    uint64_t n, block; /* blocks; elements of one */
    TUTTI_DEVICE_POINTER(void) out;
    uint64_t n_out; /* its blocks */
    TUTTI_DEVICE_POINTER(int32_t) status;
};

#endif
