/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_REFERENCE_H
#define TUTTI_TESTS_REFERENCE_H

/* What every type and operation means, written from their definitions in double and 64-bit integer arithmetic, one
 * element at a time. It shares no code with the library, on purpose: kernels and collectives are tested against it. */

#include <tutti/types.h>

size_t ref_bytes(enum tutti_dtype dtype);
bool ref_is_small_float(enum tutti_dtype dtype); /* a float of 8 or 16 bits */
bool ref_defined(enum tutti_dtype dtype, enum tutti_op op);

/* Real floats only. Encoding rounds once, to nearest even; beyond the largest number lies infinity, or NaN in
 * float8_e4m3fn. */
double ref_decode(enum tutti_dtype dtype, const void *element);
void ref_encode(enum tutti_dtype dtype, double value, void *element);

/* One hop: out[i] = left[i] op right[i], rounded as a hop rounds (8- and 16-bit floats: computed in float32, then
 * rounded). avg and premul_sum add. */
void ref_hop(enum tutti_dtype dtype, enum tutti_op op, void *out, const void *left, const void *right, size_t n);
void ref_divide(enum tutti_dtype dtype, void *inout, size_t n, uint32_t divisor);
void ref_scale(enum tutti_dtype dtype, void *inout, size_t n, const void *factor);
/* A whole reduction in the order of the inputs: premul_sum scales each input by *factor first, avg divides at last. */
void ref_reduce(enum tutti_dtype dtype, enum tutti_op op, const void *const *inputs, size_t n_inputs, size_t n,
                const void *factor, void *out);

/* Bitwise, but that all NaN are alike. False: *where (may be NULL) is the first element that differs. */
bool ref_equal(enum tutti_dtype dtype, const void *got, const void *want, size_t n, size_t *where);
/* Whether got may be the reduction of finite inputs in any order: exact where order does not matter, else within the
 * rounding errors of n_inputs hops. Sums and products of 8-bit floats are too coarse for it: see ref_fill_exact. */
bool ref_close(enum tutti_dtype dtype, enum tutti_op op, const void *const *inputs, size_t n_inputs, size_t n,
               const void *factor, const void *got, size_t *where);

enum ref_values {
    REF_BITS,   /* any bits at all: NaN, infinities, subnormals; bool is any byte */
    REF_FINITE, /* numbers around 1, which 64 ranks may add and multiply without overflow in float16 and wider */
    REF_EDGES,  /* zeros, ones, least and greatest numbers, subnormals, infinities, NaN, of both signs */
};
void ref_fill(enum tutti_dtype dtype, enum ref_values values, uint64_t seed, void *out, size_t n);
/* Input of one rank such that reducing all n_ranks inputs of the same seed is exact in every order, so that results may
 * be compared bit for bit whatever the algorithm. Factors of premul_sum must be 1 or 2. */
void ref_fill_exact(enum tutti_dtype dtype, enum tutti_op op, uint64_t seed, size_t rank, size_t n_ranks, void *out,
                    size_t n);
/* "1.5", "(0.5, nan)", "-7": for messages. */
void ref_print(enum tutti_dtype dtype, const void *element, char *out, size_t capacity);

#endif
