/* SPDX-License-Identifier: BSD-3-Clause */
/* The conversions that a device has instructions for, in integers. */

#include <cstdint>
#include <cstring>

uint32_t cuda_standin_bfloat16(float v);
uint32_t cuda_standin_float16(float v);
float cuda_standin_from_float16(uint32_t bits);

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* The value without its `n` last bits, rounded to nearest, ties to even. n < 32. */
static uint32_t drop(uint32_t value, uint32_t n)
{
    const uint32_t half = 1u << (n - 1), rest = value & ((1u << n) - 1), kept = value >> n;
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint32_t cuda_standin_bfloat16(float v)
{
    const uint32_t bits = bits_of(v);
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : drop(bits, 16); /* a carry into the exponent is right, too */
}

uint32_t cuda_standin_float16(float v)
{
    const uint32_t bits = bits_of(v), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x47800000) return sign | 0x7c00;                      /* 65536 and more */
    if (size >= 0x38800000) return sign | drop(size - 0x38000000, 13); /* normal; may round up to infinity */
    if (size < 0x33000000) return sign;                                /* less than half of the smallest */
    const uint32_t mantissa = (size & 0x7fffff) | 0x800000;
    return sign | drop(mantissa, 126 - (size >> 23));
}

float cuda_standin_from_float16(uint32_t bits)
{
    const uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    uint32_t made = sign | (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 31) made = sign | 0x7f800000 | mantissa << 13;
    float v;
    if (exponent == 0) { /* mantissa * 2^-24, exactly */
        v = (float)mantissa * (1.0f / 16777216.0f);
        made = bits_of(v) | sign;
    }
    memcpy(&v, &made, sizeof v);
    return v;
}
