/* SPDX-License-Identifier: BSD-3-Clause */

/* The factor of premul_sum, given as a double, as one element of any type. */

#define VECTOR_BYTES 16
#include "device/cpu/cpu_vector.h"

NO_HALF_INSTRUCTIONS

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
#define LEAST_SIGNED(bits) INT##bits##_MIN
#define LEAST_UNSIGNED(bits) 0
#define MOST_SIGNED(bits) INT##bits##_MAX
#define MOST_UNSIGNED(bits) UINT##bits##_MAX
#define INTEGER(id, name, class, bits, mantissa, bias, infinity, torch)                                                \
    ENCODE_INTEGER(name, name##_t, LEAST_##class(bits), MOST_##class(bits))
TUTTI_INTEGERS(INTEGER)

static void encode_boolean(double value, void *out)
{
    *(unsigned char *)out = value != 0;
}

/* Through float32, as PyTorch does. */
#define SMALL_FLOAT(id, name, class, bits, mantissa, bias, infinity, torch)                                            \
    static void encode_##name(double value, void *out)                                                                 \
    {                                                                                                                  \
        unsigned char codes[VECTOR_BYTES];                                                                             \
        v_f32 parts[PARTS_##name];                                                                                     \
        for (int k = 0; k < PARTS_##name; k++) parts[k] = (v_f32){} + (float)value;                                    \
        narrow_##name(codes, parts);                                                                                   \
        memcpy(out, codes, (bits) / 8);                                                                                \
    }
TUTTI_SMALL_FLOATS(SMALL_FLOAT)

/* A float, or a complex number without imaginary part. */
#define C_TYPE_32 float
#define C_TYPE_64 double
#define ENCODE_PARTS(name, bits, n)                                                                                    \
    static void encode_##name(double value, void *out)                                                                 \
    {                                                                                                                  \
        const C_TYPE_##bits element[n] = {(C_TYPE_##bits)value};                                                       \
        memcpy(out, element, sizeof element);                                                                          \
    }
#define FLOAT(id, name, class, bits, mantissa, bias, infinity, torch) ENCODE_PARTS(name, bits, 1)
TUTTI_FLOATS(FLOAT)
#define COMPLEX(id, name, class, bits, mantissa, bias, infinity, torch) ENCODE_PARTS(name, bits, 2)
TUTTI_COMPLEX_NUMBERS(COMPLEX)

void tutti_factor_encode(enum tutti_dtype dtype, double value, void *out)
{
#define ENCODER(id, name, class, bits, mantissa, bias, infinity, torch) [TUTTI_##id] = encode_##name,
    static void (*const encoders[])(double,
                                    void *) = {TUTTI_INTEGERS(ENCODER) TUTTI_SMALL_FLOATS(ENCODER) TUTTI_FLOATS(ENCODER)
                                                   TUTTI_COMPLEX_NUMBERS(ENCODER)[TUTTI_BOOL] = encode_boolean};
    if ((unsigned)dtype < TUTTI_ARRAY_LEN(encoders)) encoders[dtype](value, out);
}
