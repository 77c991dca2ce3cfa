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
