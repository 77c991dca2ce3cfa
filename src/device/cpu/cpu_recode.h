/* SPDX-License-Identifier: BSD-3-Clause */

/* Packed data (device/recode.h) on CPUs: loops over the elements of a group, which compilers make vectors of. Included
 * by cpu_kernels.h, whose table names these functions. */

#include "device/recode_math.h"

/* ---- elements ---- */
#define WIDEN(name, c_type, expression)                                                                                \
    static void widen_to_f32_##name(float *restrict out, const void *in, size_t n)                                     \
    {                                                                                                                  \
        const unsigned char *from = in;                                                                                \
        for (size_t i = 0; i < n; i++) {                                                                               \
            c_type v;                                                                                                  \
            memcpy(&v, from + i * sizeof v, sizeof v);                                                                 \
            out[i] = expression;                                                                                       \
        }                                                                                                              \
    }
#define NARROW(name, c_type, expression)                                                                               \
    static void narrow_from_f32_##name(void *out, const float *restrict in, size_t n)                                  \
    {                                                                                                                  \
        unsigned char *to = out;                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const float v = in[i];                                                                                     \
            const c_type code = (c_type)(expression);                                                                  \
            memcpy(to + i * sizeof code, &code, sizeof code);                                                          \
        }                                                                                                              \
    }
WIDEN(f32, float, v)
WIDEN(f64, double, (float)v)
WIDEN(f16, uint16_t, recode_from_float16(v))
WIDEN(bf16, uint16_t, RECODE_FLOAT((uint32_t)v << 16))
NARROW(f32, float, recode_canonical(v))
NARROW(f64, double, recode_canonical(v))
NARROW(f16, uint16_t, recode_to_float16(v))
NARROW(bf16, uint16_t, recode_to_bfloat16(v, false, 0))

/* ---- codes ---- */

/* The bits of the largest magnitude, NaN's above all. */
static uint32_t greatest_of(const float *in, size_t n)
{
    uint32_t greatest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = RECODE_BITS(in[i]) & 0x7fffffffu;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return greatest;
}

#define ENCODE(wire, c_type)                                                                                           \
    static void encode_near_##wire(unsigned char *restrict out, const float *restrict in, size_t n, float inverse)     \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const c_type code = (c_type)recode_encode(TUTTI_WIRE_##wire, in[i], inverse, false, 0);                    \
            memcpy(out + i * sizeof code, &code, sizeof code);                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static void encode_##wire(unsigned char *restrict out, const float *restrict in, size_t n, float inverse,          \
                              const uint64_t *random)                                                                  \
    {                                                                                                                  \
        if (!random) {                                                                                                 \
            encode_near_##wire(out, in, n, inverse);                                                                   \
            return;                                                                                                    \
        }                                                                                                              \
        const uint64_t key = *random;                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const uint32_t bits = recode_random(key, (uint32_t)i);                                                     \
            const c_type code = (c_type)recode_encode(TUTTI_WIRE_##wire, in[i], inverse, true, bits);                  \
            memcpy(out + i * sizeof code, &code, sizeof code);                                                         \
        }                                                                                                              \
    }
#define DECODE(wire, c_type)                                                                                           \
    static void decode_##wire(float *restrict out, const unsigned char *restrict in, size_t n, float scale)            \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            c_type code;                                                                                               \
            memcpy(&code, in + i * sizeof code, sizeof code);                                                          \
            out[i] = recode_decode(TUTTI_WIRE_##wire, code, scale);                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static void decode_add_##wire(float *restrict sum, const unsigned char *restrict in, size_t n, float scale)        \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            c_type code;                                                                                               \
            memcpy(&code, in + i * sizeof code, sizeof code);                                                          \
            sum[i] += recode_decode(TUTTI_WIRE_##wire, code, scale);                                                   \
        }                                                                                                              \
    }
#define WIRES(X) X(INT8, uint8_t) X(FLOAT8_E4M3, uint8_t) X(FLOAT8_E5M2, uint8_t) X(BFLOAT16, uint16_t)
WIRES(ENCODE)
WIRES(DECODE)

#define ENCODER(wire, c_type) [TUTTI_WIRE_##wire] = encode_##wire,
#define DECODER(wire, c_type) [TUTTI_WIRE_##wire] = decode_##wire,
#define DECODE_ADDER(wire, c_type) [TUTTI_WIRE_##wire] = decode_add_##wire,
#define RECODERS                                                                                                       \
    {                                                                                                                  \
        .widen = {[TUTTI_FLOAT16] = widen_to_f32_f16,                                                                  \
                  [TUTTI_BFLOAT16] = widen_to_f32_bf16,                                                                \
                  [TUTTI_FLOAT32] = widen_to_f32_f32,                                                                  \
                  [TUTTI_FLOAT64] = widen_to_f32_f64},                                                                 \
        .narrow = {[TUTTI_FLOAT16] = narrow_from_f32_f16,                                                              \
                   [TUTTI_BFLOAT16] = narrow_from_f32_bf16,                                                            \
                   [TUTTI_FLOAT32] = narrow_from_f32_f32,                                                              \
                   [TUTTI_FLOAT64] = narrow_from_f32_f64},                                                             \
        .greatest = greatest_of, .encode = {WIRES(ENCODER)}, .decode = {WIRES(DECODER)},                               \
        .decode_add = {WIRES(DECODE_ADDER)},                                                                           \
    }
