/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_NUMBERS_CUH
#define TUTTI_DEVICE_CUDA_NUMBERS_CUH

/* The element types as kernels see them: 16 bytes (a unit) as an array of parts to compute with, and back. The results
 * are those of the CPU's kernels (cpu_kernels.h), bit for bit, NaN included, but that 8- and 16-bit floats stay float32
 * from the first rank to the last and are rounded once. Parts are read in the order of memory, complex numbers are
 * pairs of them. Every type has
 *   part, n       what is computed with, and how many are in a unit
 *   take, give    unit to parts, parts to unit (rounding)
 *   sum, product, least, greatest, divide
 *   both, either, one_of     where bits have a meaning (is_integer)
 *   word          bytes of the smallest thing whose bits are all ones only in NaN: 4, 8; 0: there is none */

#include "device/kernels/machine.h"

GPU_DEVICE uint32_t gpu_word(gpu_words unit, uint32_t k)
{
    return k < 2 ? (k == 0 ? unit.x : unit.y) : (k == 2 ? unit.z : unit.w);
}

GPU_DEVICE uint64_t gpu_double_word(gpu_words unit, uint32_t k)
{
    return gpu_word(unit, 2 * k) | (uint64_t)gpu_word(unit, 2 * k + 1) << 32;
}

/* ---- integers: modulo 2^bits; computed in 32 or 64 bits ---- */
template <typename T, typename Wide, typename Unsigned> struct gpu_integer {
    using part = T;
    static constexpr uint32_t bytes = sizeof(T), n = 16 / bytes, word = 0;
    static constexpr bool is_integer = true, is_complex = false, is_bool = false;

    GPU_DEVICE void take(part *parts, gpu_words unit)
    {
        GPU_UNROLL
        for (uint32_t k = 0; k < n; k++) {
            if constexpr (bytes == 8)
                parts[k] = (T)gpu_double_word(unit, k);
            else
                parts[k] = (T)(gpu_word(unit, k * bytes / 4) >> (k * bytes % 4 * 8));
        }
    }
    GPU_DEVICE gpu_words give(const part *parts)
    {
        uint32_t words[4] = {0, 0, 0, 0};
        GPU_UNROLL
        for (uint32_t k = 0; k < n; k++) {
            if constexpr (bytes == 8) {
                words[2 * k] = (uint32_t)parts[k];
                words[2 * k + 1] = (uint32_t)((Unsigned)parts[k] >> 32);
            } else {
                constexpr uint32_t mask = (uint32_t)(~UINT64_C(0) >> (64 - 8 * bytes));
                words[k * bytes / 4] |= ((uint32_t)parts[k] & mask) << (k * bytes % 4 * 8);
            }
        }
        return gpu_words{words[0], words[1], words[2], words[3]};
    }
    GPU_DEVICE part sum(part a, part b) { return (part)((Unsigned)a + (Unsigned)b); }
    GPU_DEVICE part product(part a, part b) { return (part)((Unsigned)a * (Unsigned)b); }
    GPU_DEVICE part least(part a, part b) { return a < b ? a : b; }
    GPU_DEVICE part greatest(part a, part b) { return a > b ? a : b; }
    GPU_DEVICE part both(part a, part b) { return (part)(a & b); }
    GPU_DEVICE part either(part a, part b) { return (part)(a | b); }
    GPU_DEVICE part one_of(part a, part b) { return (part)(a ^ b); }
    GPU_DEVICE part divide(part a, uint32_t divisor) { return (part)((Wide)a / (Wide)divisor); } /* towards zero */
};
using gpu_int8 = gpu_integer<int8_t, int32_t, uint32_t>;
using gpu_uint8 = gpu_integer<uint8_t, uint32_t, uint32_t>;
using gpu_int16 = gpu_integer<int16_t, int32_t, uint32_t>;
using gpu_uint16 = gpu_integer<uint16_t, uint32_t, uint32_t>;
using gpu_int32 = gpu_integer<int32_t, int32_t, uint32_t>;
using gpu_uint32 = gpu_integer<uint32_t, uint32_t, uint32_t>;
using gpu_int64 = gpu_integer<int64_t, int64_t, uint64_t>;
using gpu_uint64 = gpu_integer<uint64_t, uint64_t, uint64_t>;

/* ---- bool: a part is four of them, each a byte of 0 or 1 ---- */
struct gpu_bool {
    using part = uint32_t;
    static constexpr uint32_t n = 4, word = 0;
    static constexpr bool is_integer = true, is_complex = false, is_bool = true;

    GPU_DEVICE void take(part *parts, gpu_words unit)
    {
        GPU_UNROLL
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t v = gpu_word(unit, k), any = ((v & 0x7f7f7f7fu) + 0x7f7f7f7fu) | v;
            parts[k] = any >> 7 & 0x01010101u;
        }
    }
    GPU_DEVICE gpu_words give(const part *parts) { return gpu_words{parts[0], parts[1], parts[2], parts[3]}; }
    GPU_DEVICE part both(part a, part b) { return a & b; }
    GPU_DEVICE part either(part a, part b) { return a | b; }
    GPU_DEVICE part one_of(part a, part b) { return a ^ b; }
    GPU_DEVICE part sum(part a, part b) { return a | b; }
    GPU_DEVICE part product(part a, part b) { return a & b; }
    GPU_DEVICE part least(part a, part b) { return a & b; }
    GPU_DEVICE part greatest(part a, part b) { return a | b; }
    GPU_DEVICE part divide(part a, uint32_t) { return a; } /* undefined on bool, and refused before any launch */
};

/* ---- floating point: NaN that is computed is the quiet one without payload; -0 is below +0 ---- */
constexpr uint32_t gpu_nan32 = 0x7fc00000u;
constexpr uint64_t gpu_nan64 = UINT64_C(0x7ff8000000000000);

GPU_DEVICE int32_t gpu_key(float v)
{
    const int32_t bits = (int32_t)gpu_bits(v);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

GPU_DEVICE int64_t gpu_key(double v)
{
    const int64_t bits = (int64_t)gpu_bits64(v);
    return bits < 0 ? bits ^ INT64_C(0x7fffffffffffffff) : bits;
}

/* What the float types have in common: computed as Part. */
template <typename Part> struct gpu_real {
    using part = Part;
    static constexpr bool is_integer = false, is_complex = false, is_bool = false;

    GPU_DEVICE part sum(part a, part b) { return gpu_add(a, b); }
    GPU_DEVICE part product(part a, part b) { return gpu_multiply(a, b); }
    GPU_DEVICE part least(part a, part b) { return a != a || (b == b && gpu_key(a) < gpu_key(b)) ? a : b; }
    GPU_DEVICE part greatest(part a, part b) { return a != a || (b == b && gpu_key(a) > gpu_key(b)) ? a : b; }
    GPU_DEVICE part divide(part a, uint32_t divisor) { return gpu_divide(a, (part)divisor); }
};

struct gpu_float32 : gpu_real<float> {
    static constexpr uint32_t n = 4, word = 4;

    GPU_DEVICE void take(float *parts, gpu_words unit)
    {
        GPU_UNROLL
        for (uint32_t k = 0; k < n; k++) parts[k] = gpu_float(gpu_word(unit, k));
    }
    GPU_DEVICE uint32_t code(float v) { return v == v ? gpu_bits(v) : gpu_nan32; }
    GPU_DEVICE gpu_words give(const float *parts)
    {
        return gpu_words{code(parts[0]), code(parts[1]), code(parts[2]), code(parts[3])};
    }
};

struct gpu_float64 : gpu_real<double> {
    static constexpr uint32_t n = 2, word = 8;

    GPU_DEVICE void take(double *parts, gpu_words unit)
    {
        GPU_UNROLL
        for (uint32_t k = 0; k < n; k++) parts[k] = gpu_double(gpu_double_word(unit, k));
    }
    GPU_DEVICE uint64_t code(double v) { return v == v ? gpu_bits64(v) : gpu_nan64; }
    GPU_DEVICE gpu_words give(const double *parts)
    {
        const uint64_t a = code(parts[0]), b = code(parts[1]);
        return gpu_words{(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)};
    }
};

struct gpu_complex64 : gpu_float32 {
    static constexpr bool is_complex = true;
};
struct gpu_complex128 : gpu_float64 {
    static constexpr bool is_complex = true;
};

struct gpu_bfloat16 : gpu_real<float> {
    static constexpr uint32_t n = 8, word = 4;

    GPU_DEVICE void take(float *parts, gpu_words unit)
    {
        GPU_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t pair = gpu_word(unit, k);
            parts[2 * k] = gpu_float(pair << 16);
            parts[2 * k + 1] = gpu_float(pair & 0xffff0000u);
        }
    }
    GPU_DEVICE gpu_words give(const float *parts)
    {
        return gpu_words{gpu_code_bfloat16(parts[0], parts[1]), gpu_code_bfloat16(parts[2], parts[3]),
                         gpu_code_bfloat16(parts[4], parts[5]), gpu_code_bfloat16(parts[6], parts[7])};
    }
};

struct gpu_float16 : gpu_real<float> {
    static constexpr uint32_t n = 8, word = 4;

    GPU_DEVICE void take(float *parts, gpu_words unit)
    {
        GPU_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t pair = gpu_word(unit, k);
            parts[2 * k] = gpu_unpack_float16(pair & 0xffffu);
            parts[2 * k + 1] = gpu_unpack_float16(pair >> 16);
        }
    }
    GPU_DEVICE gpu_words give(const float *parts)
    {
        return gpu_words{gpu_code_float16(parts[0], parts[1]), gpu_code_float16(parts[2], parts[3]),
                         gpu_code_float16(parts[4], parts[5]), gpu_code_float16(parts[6], parts[7])};
    }
};

/* 8-bit floats by integer arithmetic, since the machine's conversions saturate and PyTorch's do not. MANTISSA bits, a
 * bias, and the code of infinity; beyond it lies NaN; the format without infinity has its only NaN there. Subnormals go
 * through an addition that aligns them to their last place. */
template <uint32_t MANTISSA, uint32_t BIAS, uint32_t LIMIT> struct gpu_float8 : gpu_real<float> {
    static constexpr uint32_t n = 16, word = 4, nan = 0x7f;
    static constexpr uint32_t shift = 23 - MANTISSA, rebias = (127 - BIAS) << 23;
    static constexpr uint32_t magic = (127 + 24 - BIAS - MANTISSA) << 23; /* its last place: the least subnormal */

    GPU_DEVICE float widen(uint32_t code)
    {
        const uint32_t sign = code >> 7 << 31, magnitude = code & 0x7f;
        if (magnitude >= LIMIT) return gpu_float(magnitude == LIMIT && LIMIT != nan ? sign | 0x7f800000u : gpu_nan32);
        const uint32_t normal = (magnitude << shift) + rebias;
        const uint32_t tiny = gpu_bits(gpu_add(gpu_float(magnitude | magic), -gpu_float(magic)));
        return gpu_float((magnitude < 1u << MANTISSA ? tiny : normal) | sign);
    }
    GPU_DEVICE uint32_t narrow(float value)
    {
        constexpr uint32_t limit = rebias + (LIMIT << shift); /* becomes infinity or NaN, as all beyond */
        const uint32_t bits = gpu_bits(value), all = bits & 0x7fffffffu, sign = bits >> 31 << 7;
        if (value != value) return nan;
        const uint32_t magnitude = all < limit ? all : limit;
        const uint32_t below = ((magnitude >> shift) & 1) + ((1u << (shift - 1)) - 1); /* just below a half when even */
        const uint32_t normal = (magnitude - rebias + below) >> shift;
        const uint32_t tiny = gpu_bits(gpu_add(gpu_float(magnitude), gpu_float(magic))) - magic;
        const uint32_t number = magnitude < (128 - BIAS) << 23 ? tiny : normal;
        return LIMIT == nan && number == nan ? nan : number | sign;
    }
    GPU_DEVICE void take(float *parts, gpu_words unit)
    {
        GPU_UNROLL
        for (uint32_t k = 0; k < n; k++) parts[k] = widen(gpu_word(unit, k / 4) >> (k % 4 * 8) & 0xff);
    }
    GPU_DEVICE gpu_words give(const float *parts)
    {
        uint32_t words[4] = {0, 0, 0, 0};
        GPU_UNROLL
        for (uint32_t k = 0; k < n; k++) words[k / 4] |= narrow(parts[k]) << (k % 4 * 8);
        return gpu_words{words[0], words[1], words[2], words[3]};
    }
};
using gpu_float8_e4m3fn = gpu_float8<3, 7, 0x7f>;
using gpu_float8_e5m2 = gpu_float8<2, 15, 0x7c>;

#endif
