/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_RECODE_MATH_H
#define TUTTI_DEVICE_RECODE_MATH_H

/* The arithmetic of packed data (recode.h), one element at a time, for C, CUDA and OpenCL C, so that all have the same
 * bits: each operation is rounded once (products and sums are never fused), and nothing depends on numbers below
 * 2^-126, which some processes flush to zero. Written without branches, for compilers that make vectors of it. */

#include <tutti/types.h>

#if defined(GPU_DEVICE)
#define RECODE GPU_DEVICE
#define RECODE_BITS gpu_bits
#define RECODE_FLOAT gpu_float
#define RECODE_ADD(a, b) gpu_add(a, b)
#define RECODE_MULTIPLY(a, b) gpu_multiply(a, b)
#define RECODE_DIVIDE(a, b) gpu_divide(a, b)
#else
#include <string.h>
#define RECODE static inline __attribute__((always_inline, unused))
RECODE uint32_t RECODE_BITS(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
RECODE float RECODE_FLOAT(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
#define RECODE_ADD(a, b) ((a) + (b))
#define RECODE_MULTIPLY(a, b) ((a) * (b))
#define RECODE_DIVIDE(a, b) ((a) / (b))
#endif

#define RECODE_NAN 0x7fc00000u
#define RECODE_INFINITY 0x7f800000u
#define RECODE_LEAST_BITS ((127u - 100u) << 23) /* TUTTI_RECODE_LEAST */

/* ---- random numbers, by counting ---- */

/* Two words for a group: by seed, stream and the group's number. */
RECODE uint64_t recode_mix(uint64_t x)
{
    x ^= x >> 30, x *= UINT64_C(0xbf58476d1ce4e5b9), x ^= x >> 27, x *= UINT64_C(0x94d049bb133111eb), x ^= x >> 31;
    return x;
}
RECODE uint64_t recode_key(uint64_t seed, uint64_t stream, uint64_t group)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    return recode_mix(recode_mix(recode_mix(seed + golden) + stream * golden + golden) + group * golden + golden);
}
/* 32 random bits for the i-th element of a group. */
RECODE uint32_t recode_random(uint64_t key, uint32_t i)
{
    uint32_t x = (uint32_t)key + i;
    x = (x ^ x >> 16) * 0x7feb352du;
    x ^= (uint32_t)(key >> 32);
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* ---- rounding to integers; |v| < 2^22 ---- */
RECODE float recode_round(float v, bool stochastic, uint32_t random)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: its last place is 1 */
    const float near = RECODE_ADD(RECODE_ADD(v, magic), -magic);
    const float low = near > v ? RECODE_ADD(near, -1.0f) : near;
    const float share = RECODE_MULTIPLY((float)(int32_t)(random >> 8), 0x1p-24f); /* in [0, 1) */
    const float high = RECODE_ADD(low, 1.0f);
    const float chosen = RECODE_ADD(v, -low) > share ? high : low;
    return stochastic ? chosen : near;
}

/* ---- codes ---- */

/* The largest code of a wire as a number; 1: it has no scales. */
RECODE float recode_most(enum tutti_wire wire)
{
    return wire == TUTTI_WIRE_INT8          ? 127.0f
           : wire == TUTTI_WIRE_FLOAT8_E4M3 ? 448.0f
           : wire == TUTTI_WIRE_FLOAT8_E5M2 ? 57344.0f
                                            : 1.0f;
}
/* Scale and its inverse for a group whose largest magnitude has these bits. */
RECODE float recode_scale(uint32_t greatest, float most)
{
    if (greatest >= RECODE_INFINITY) return RECODE_FLOAT(RECODE_NAN);
    return greatest < RECODE_LEAST_BITS ? 0.0f : RECODE_DIVIDE(RECODE_FLOAT(greatest), most);
}
RECODE float recode_inverse(uint32_t greatest, float most)
{
    if (greatest >= RECODE_INFINITY || greatest < RECODE_LEAST_BITS) return 0.0f;
    return RECODE_DIVIDE(most, RECODE_FLOAT(greatest));
}

RECODE uint32_t recode_to_int8(float x, float inverse, bool stochastic, uint32_t random)
{
    float v = RECODE_MULTIPLY(x, inverse);
    v = v > -127.0f ? v : -127.0f; /* NaN, too, which the scale tells */
    v = v < 127.0f ? v : 127.0f;
    return (uint32_t)(int32_t)recode_round(v, stochastic, random) & 0xff;
}
RECODE float recode_from_int8(uint32_t code)
{
    return (float)((int32_t)(code << 24) >> 24);
}

/* 8-bit floats of so many bits of mantissa. Below the least normal number the steps are equal. The codes beyond `most`,
 * infinity and NaN, do not occur. */
RECODE uint32_t recode_to_float8(float x, float inverse, uint32_t mantissa, uint32_t bias, float most, bool stochastic,
                                 uint32_t random)
{
    const uint32_t least = (128u - bias) << 23;
    const float v = RECODE_MULTIPLY(x, inverse), magnitude = RECODE_FLOAT(RECODE_BITS(v) & 0x7fffffffu);
    const float a = magnitude < most ? magnitude : most;
    const uint32_t exponent = RECODE_BITS(a) & RECODE_INFINITY;
    const uint32_t step = (exponent > least ? exponent : least) - (mantissa << 23);
    const float steps = recode_round(RECODE_MULTIPLY(a, RECODE_FLOAT((254u << 23) - step)), stochastic, random);
    const uint32_t bits = RECODE_BITS(RECODE_MULTIPLY(steps, RECODE_FLOAT(step)));
    const uint32_t normal = (bits - ((127u - bias) << 23)) >> (23 - mantissa);
    return (bits < least ? (uint32_t)(int32_t)steps : normal) | (RECODE_BITS(x) >> 24 & 0x80u); /* for NaN, too */
}
RECODE float recode_from_float8(uint32_t code, uint32_t mantissa, uint32_t bias)
{
    const uint32_t magnitude = code & 0x7f, sign = (code & 0x80) << 24;
    const uint32_t normal = (magnitude << (23 - mantissa)) + ((127u - bias) << 23);
    const uint32_t tiny =
        RECODE_BITS(RECODE_MULTIPLY((float)(int32_t)magnitude, RECODE_FLOAT((128u - bias - mantissa) << 23)));
    return RECODE_FLOAT((magnitude < (1u << mantissa) ? tiny : normal) | sign);
}

RECODE uint32_t recode_to_bfloat16(float x, bool stochastic, uint32_t random)
{
    const uint32_t bits = RECODE_BITS(x);
    const uint32_t rounded = (bits + (stochastic ? random & 0xffffu : 0x7fffu + (bits >> 16 & 1))) >> 16;
    return (bits & 0x7fffffffu) > RECODE_INFINITY ? RECODE_NAN >> 16 : rounded;
}

RECODE uint32_t recode_encode(enum tutti_wire wire, float x, float inverse, bool stochastic, uint32_t random)
{
    if (wire == TUTTI_WIRE_INT8) return recode_to_int8(x, inverse, stochastic, random);
    if (wire == TUTTI_WIRE_FLOAT8_E4M3) return recode_to_float8(x, inverse, 3, 7, 448.0f, stochastic, random);
    if (wire == TUTTI_WIRE_FLOAT8_E5M2) return recode_to_float8(x, inverse, 2, 15, 57344.0f, stochastic, random);
    return recode_to_bfloat16(x, stochastic, random);
}
RECODE float recode_decode(enum tutti_wire wire, uint32_t code, float scale)
{
    if (wire == TUTTI_WIRE_INT8) return RECODE_MULTIPLY(recode_from_int8(code), scale);
    if (wire == TUTTI_WIRE_FLOAT8_E4M3) return RECODE_MULTIPLY(recode_from_float8(code, 3, 7), scale);
    if (wire == TUTTI_WIRE_FLOAT8_E5M2) return RECODE_MULTIPLY(recode_from_float8(code, 2, 15), scale);
    return RECODE_FLOAT(code << 16);
}

/* ---- elements: to float32, and rounded to nearest even ---- */
RECODE float recode_from_float16(uint32_t code)
{
    const uint32_t magnitude = code & 0x7fff, sign = (code & 0x8000) << 16, bias = 112u << 23;
    const uint32_t normal = (magnitude << 13) + (magnitude < 0x7c00 ? bias : 2 * bias);
    const uint32_t tiny = RECODE_BITS(RECODE_MULTIPLY((float)(int32_t)magnitude, 0x1p-24f));
    return RECODE_FLOAT((magnitude < 0x400 ? tiny : normal) | sign);
}
RECODE uint32_t recode_to_float16(float v)
{
    const uint32_t bits = RECODE_BITS(v), all = bits & 0x7fffffffu, most = 0x47800000u;
    const uint32_t magnitude = all < most ? all : most; /* all beyond becomes infinity */
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    const uint32_t tiny = RECODE_BITS(RECODE_ADD(RECODE_FLOAT(magnitude), 0.5f)) - RECODE_BITS(0.5f);
    const uint32_t number = (magnitude < 0x38800000u ? tiny : normal) | (bits >> 16 & 0x8000u);
    return all > RECODE_INFINITY ? 0x7e00u : number;
}
RECODE float recode_canonical(float v)
{
    return v == v ? v : RECODE_FLOAT(RECODE_NAN);
}

#endif
