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

enum tutti_dtype {
    TUTTI_INT8,
    TUTTI_UINT8,
    TUTTI_INT16,
    TUTTI_UINT16,
    TUTTI_INT32,
    TUTTI_UINT32,
    TUTTI_INT64,
    TUTTI_UINT64,
    TUTTI_BOOL,          /* one byte, 0 or 1; any other value counts as 1 and is written as 1 by reductions */
    TUTTI_FLOAT8_E4M3FN, /* OCP 8-bit floating point, no infinity */
    TUTTI_FLOAT8_E5M2,
    TUTTI_FLOAT16,
    TUTTI_BFLOAT16,
    TUTTI_FLOAT32,
    TUTTI_FLOAT64,
    TUTTI_COMPLEX64,
    TUTTI_COMPLEX128,
    TUTTI_N_DTYPES
};

/* Built-in operations. Integers wrap. 16- and 8-bit floats are accumulated in float32 and rounded to nearest even once
 * per hop. min and max propagate NaN. bool: sum, max, bor are or; prod, min, band are and; bxor is xor; avg and
 * premul_sum are errors. Undefined pairs (band on floats, min on complex) are TUTTI_ERR_UNSUPPORTED. Values from
 * TUTTI_N_OPS on are handles of user-defined operations (tutti_op_create). */
enum tutti_op {
    TUTTI_SUM,
    TUTTI_PROD,
    TUTTI_MIN,
    TUTTI_MAX,
    TUTTI_AVG,        /* sum divided by the number of contributors; integers truncate towards zero */
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
