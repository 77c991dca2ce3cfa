/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TYPES_H
#define TUTTI_TYPES_H

#include <tutti/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one table of element types, in the order of the enumeration: X(id, name, class, bits, mantissa, bias, infinity,
 * torch). `bits` are those of an element, of a complex number those of a part. Floats: bits of the mantissa, bias of
 * the exponent, and whether the greatest exponent means infinity and NaN (else only the last code is NaN). `torch` is
 * the type's name in PyTorch (c10::ScalarType). Names, checks, kernels and bindings are derived from it. */
#define TUTTI_INTEGERS(X)                                                                                              \
    X(INT8, int8, SIGNED, 8, 0, 0, 0, Char)                                                                            \
    X(UINT8, uint8, UNSIGNED, 8, 0, 0, 0, Byte)                                                                        \
    X(INT16, int16, SIGNED, 16, 0, 0, 0, Short)                                                                        \
    X(UINT16, uint16, UNSIGNED, 16, 0, 0, 0, UInt16)                                                                   \
    X(INT32, int32, SIGNED, 32, 0, 0, 0, Int)                                                                          \
    X(UINT32, uint32, UNSIGNED, 32, 0, 0, 0, UInt32)                                                                   \
    X(INT64, int64, SIGNED, 64, 0, 0, 0, Long)                                                                         \
    X(UINT64, uint64, UNSIGNED, 64, 0, 0, 0, UInt64)
/* One byte, 0 or 1; any other value counts as 1, and reductions write 1. */
#define TUTTI_BOOLEANS(X) X(BOOL, bool, BOOLEAN, 8, 0, 0, 0, Bool)
/* Floats that are computed in float32. FLOAT8_E4M3FN is OCP's 8-bit float without infinity. */
#define TUTTI_SMALL_FLOATS(X)                                                                                          \
    X(FLOAT8_E4M3FN, float8_e4m3fn, SMALL_FLOAT, 8, 3, 7, 0, Float8_e4m3fn)                                            \
    X(FLOAT8_E5M2, float8_e5m2, SMALL_FLOAT, 8, 2, 15, 1, Float8_e5m2)                                                 \
    X(FLOAT16, float16, SMALL_FLOAT, 16, 10, 15, 1, Half)                                                              \
    X(BFLOAT16, bfloat16, SMALL_FLOAT, 16, 7, 127, 1, BFloat16)
#define TUTTI_FLOATS(X)                                                                                                \
    X(FLOAT32, float32, FLOAT, 32, 23, 127, 1, Float)                                                                  \
    X(FLOAT64, float64, FLOAT, 64, 52, 1023, 1, Double)
#define TUTTI_COMPLEX_NUMBERS(X)                                                                                       \
    X(COMPLEX64, complex64, COMPLEX, 32, 23, 127, 1, ComplexFloat)                                                     \
    X(COMPLEX128, complex128, COMPLEX, 64, 52, 1023, 1, ComplexDouble)
#define TUTTI_DTYPES(X)                                                                                                \
    TUTTI_INTEGERS(X) TUTTI_BOOLEANS(X) TUTTI_SMALL_FLOATS(X) TUTTI_FLOATS(X) TUTTI_COMPLEX_NUMBERS(X)

/* TUTTI_INT8, TUTTI_UINT8, ... */
#define TUTTI_DTYPE_ID(id, name, class, bits, mantissa, bias, infinity, torch) TUTTI_##id,
enum tutti_dtype { TUTTI_DTYPES(TUTTI_DTYPE_ID) TUTTI_N_DTYPES };
#undef TUTTI_DTYPE_ID

/* Built-in operations. Integers wrap. 16- and 8-bit floats are accumulated in float32 and rounded to nearest even once
 * per hop. min and max propagate NaN. bool: sum, max, bor are or; prod, min, band are and; bxor is xor; avg and
 * premul_sum are errors. Undefined pairs (band on floats, min on complex) are TUTTI_ERR_UNSUPPORTED. Values from
 * TUTTI_N_OPS on are handles of user-defined operations (tutti_op_create). */
enum tutti_op {
    TUTTI_SUM,
    TUTTI_PROD,
    TUTTI_MIN,
    TUTTI_MAX,
    TUTTI_AVG,        /* sum divided by the number of contributors; integers truncate towards zero. float16 and 8-bit
                         floats are scaled by a power of two before, so that numbers have a number for their average */
    TUTTI_PREMUL_SUM, /* sum of factor * input; the factor is in the call's options (premul) */
    TUTTI_BAND,
    TUTTI_BOR,
    TUTTI_BXOR,
    TUTTI_N_OPS
};

/* In what form data travels in a quantised all_reduce or reduce_scatter (tutti_call_options.wire; docs/quantized.md).
 * Sums are float32's in all of them. */
enum tutti_wire {
    TUTTI_WIRE_NONE,        /* as it is: not quantised */
    TUTTI_WIRE_BFLOAT16,    /* 2 bytes an element */
    TUTTI_WIRE_FLOAT8_E4M3, /* 1 byte an element, and a scale for each block, as the two below */
    TUTTI_WIRE_FLOAT8_E5M2,
    TUTTI_WIRE_INT8,
    TUTTI_N_WIRES
};

TUTTI_API const char *tutti_dtype_name(enum tutti_dtype dtype); /* "float32"; "?" if unknown */
TUTTI_API size_t tutti_dtype_bytes(enum tutti_dtype dtype);     /* 0 if unknown */
TUTTI_API const char *tutti_op_name(enum tutti_op op);          /* "sum"; "user" for handles */
TUTTI_API const char *tutti_wire_name(enum tutti_wire wire);    /* "float8_e4m3"; "?" if unknown */

#ifdef __cplusplus
}
#endif

#endif
