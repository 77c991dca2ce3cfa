/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CPU_REDUCE_H
#define TUTTI_DEVICE_CPU_REDUCE_H

/* Reduction kernels on CPU memory, one table [dtype][op], chosen once by instruction set. */

#include "base/base.h"

/* dst[i] = left[i] op right[i]; dst may equal left or right, no other overlap; any alignment; n elements. */
typedef void (*tutti_reduce_kernel)(void *dst, const void *left, const void *right, size_t n);
/* dst[i] = src[i] scaled: divided by `divisor` (avg; at least 1), or multiplied by *factor (premul). dst may equal src.
 */
typedef void (*tutti_divide_kernel)(void *dst, const void *src, size_t n, uint32_t divisor);
typedef void (*tutti_scale_kernel)(void *dst, const void *src, size_t n, const void *factor);

/* The divisor of avg: so many contributors, fewer than 2^24, of inputs that were scaled by 2^-shift. Integers and
 * floats of a wide range have shift 0; the sum of others, which are 8 or 16 bits, might leave their range. */
#define TUTTI_DIVISOR_SHIFT 24
static inline uint32_t tutti_divisor(uint32_t contributors, uint32_t shift)
{
    return contributors | shift << TUTTI_DIVISOR_SHIFT;
}
static inline uint32_t tutti_divisor_contributors(uint32_t divisor)
{
    return divisor & ((1u << TUTTI_DIVISOR_SHIFT) - 1);
}
/* The shift for so many ranks: twice the least power of two that is not below, as far as the type has its inverse. */
uint32_t tutti_average_shift(enum tutti_dtype dtype, uint32_t n_ranks);

/* NULL if the pair is undefined. avg and premul_sum give sum's kernel. isa: "auto", "scalar", "avx2", ... from options;
 * one that this machine lacks falls back to the best it has. Pure after the first call; any thread. */
tutti_reduce_kernel tutti_reduce_find(enum tutti_dtype dtype, enum tutti_op op, const char *isa);
tutti_divide_kernel tutti_divide_find(enum tutti_dtype dtype); /* NULL for bool */
tutti_scale_kernel tutti_scale_find(enum tutti_dtype dtype);   /* NULL for bool */
/* Writes `value` as one element of dtype (the factor of premul_sum given by value). Integers: towards zero, out of
 * range to the nearest end. */
void tutti_factor_encode(enum tutti_dtype dtype, double value, void *out);
/* Why a pair is undefined, as a clause: "band is not defined on float32"; NULL if it is defined. */
const char *tutti_reduce_refusal(enum tutti_dtype dtype, enum tutti_op op);
/* "avx512", ... of what "auto" chooses here. */
const char *tutti_reduce_isa(void);

#endif
