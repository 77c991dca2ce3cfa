/* SPDX-License-Identifier: BSD-3-Clause */

/* The factor of premul_sum, given as a double, as one element of any type. */

#define VECTOR_BYTES 16
#include "device/cpu/cpu_vector.h"

PORTABLE_F16

/* Towards zero, and to the nearest end when out of range: C leaves that conversion undefined. NaN is 0. */
#define ENCODE_INTEGER(name, c_type, least, greatest)                                                                  \
    static void encode_##name(double value, void *out)                                                                 \
    {                                                                                                                  \
        c_type element = 0;                                                                                            \
        if (value >= (double)(greatest))                                                                               \
            element = greatest;                                                                                        \
        else if (value <= (double)(least))                                                                             \
            element = least;                                                                                           \
        else if (value == value)                                                                                       \
            element = (c_type)value;                                                                                   \
        memcpy(out, &element, sizeof element);                                                                         \
    }
ENCODE_INTEGER(i8, int8_t, INT8_MIN, INT8_MAX)
ENCODE_INTEGER(u8, uint8_t, 0, UINT8_MAX)
ENCODE_INTEGER(i16, int16_t, INT16_MIN, INT16_MAX)
ENCODE_INTEGER(u16, uint16_t, 0, UINT16_MAX)
ENCODE_INTEGER(i32, int32_t, INT32_MIN, INT32_MAX)
ENCODE_INTEGER(u32, uint32_t, 0, UINT32_MAX)
ENCODE_INTEGER(i64, int64_t, INT64_MIN, INT64_MAX)
ENCODE_INTEGER(u64, uint64_t, 0, UINT64_MAX)

static void encode_bool(double value, void *out)
{
    *(unsigned char *)out = value != 0;
}

/* Through float32, as PyTorch does. */
#define ENCODE_CODE(type)                                                                                              \
    static void encode_##type(double value, void *out)                                                                 \
    {                                                                                                                  \
        unsigned char codes[VECTOR_BYTES];                                                                             \
        v_f32 parts[PARTS_##type];                                                                                     \
        for (int k = 0; k < PARTS_##type; k++) parts[k] = (v_f32){} + (float)value;                                    \
        narrow_##type(codes, parts);                                                                                   \
        memcpy(out, codes, 4 / PARTS_##type);                                                                          \
    }
ENCODE_CODE(e4m3fn)
ENCODE_CODE(e5m2)
ENCODE_CODE(f16)
ENCODE_CODE(bf16)

static void encode_f32(double value, void *out)
{
    const float element = (float)value;
    memcpy(out, &element, sizeof element);
}

static void encode_f64(double value, void *out)
{
    memcpy(out, &value, sizeof value);
}

static void encode_c64(double value, void *out)
{
    const float element[2] = {(float)value, 0};
    memcpy(out, element, sizeof element);
}

static void encode_c128(double value, void *out)
{
    const double element[2] = {value, 0};
    memcpy(out, element, sizeof element);
}

void tutti_factor_encode(enum tutti_dtype dtype, double value, void *out)
{
    static void (*const encoders[TUTTI_N_DTYPES])(double, void *) = {
        [TUTTI_INT8] = encode_i8,          [TUTTI_UINT8] = encode_u8,
        [TUTTI_INT16] = encode_i16,        [TUTTI_UINT16] = encode_u16,
        [TUTTI_INT32] = encode_i32,        [TUTTI_UINT32] = encode_u32,
        [TUTTI_INT64] = encode_i64,        [TUTTI_UINT64] = encode_u64,
        [TUTTI_BOOL] = encode_bool,        [TUTTI_FLOAT8_E4M3FN] = encode_e4m3fn,
        [TUTTI_FLOAT8_E5M2] = encode_e5m2, [TUTTI_FLOAT16] = encode_f16,
        [TUTTI_BFLOAT16] = encode_bf16,    [TUTTI_FLOAT32] = encode_f32,
        [TUTTI_FLOAT64] = encode_f64,      [TUTTI_COMPLEX64] = encode_c64,
        [TUTTI_COMPLEX128] = encode_c128,
    };
    if ((unsigned)dtype < TUTTI_N_DTYPES) encoders[dtype](value, out);
}
