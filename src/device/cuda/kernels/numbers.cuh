/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_NUMBERS_CUH
#define TUTTI_DEVICE_CUDA_NUMBERS_CUH

/* The element types as kernels see them: 16 bytes (a unit) as an array of parts to compute with, and back. The results
 * are those of the CPU's kernels (cpu_kernels.h), bit for bit, NaN included, but that 8- and 16-bit floats stay float32
 * from the first rank to the last and are rounded once. Parts are read in the order of memory, complex numbers are
 * pairs of them. Every type has part, n          what is computed with, and how many are in a unit take, give unit to
 * parts, parts to unit (rounding) sum, product, least, greatest; divide; both, either, one_of where bits has a meaning
 * (is_integer) word             bytes of the smallest thing whose bits are all ones only in NaN: 4, 8; 0: there is none
 */

#include "intrinsics.cuh"

CUDA_DEVICE uint32_t cuda_word(cuda_words unit, uint32_t k)
{
    return k < 2 ? (k == 0 ? unit.x : unit.y) : (k == 2 ? unit.z : unit.w);
}

CUDA_DEVICE uint64_t cuda_double_word(cuda_words unit, uint32_t k)
{
    return cuda_word(unit, 2 * k) | (uint64_t)cuda_word(unit, 2 * k + 1) << 32;
}

/* ---- integers: modulo 2^bits; computed in 32 or 64 bits ---- */
template <typename T, typename Wide, typename Unsigned> struct cuda_integer {
    using part = T;
    static constexpr uint32_t bytes = sizeof(T), n = 16 / bytes, word = 0;
    static constexpr bool is_integer = true, is_complex = false, is_bool = false;

    CUDA_DEVICE void take(part *parts, cuda_words unit)
    {
        CUDA_UNROLL
        for (uint32_t k = 0; k < n; k++) {
            if constexpr (bytes == 8)
                parts[k] = (T)cuda_double_word(unit, k);
            else
                parts[k] = (T)(cuda_word(unit, k * bytes / 4) >> (k * bytes % 4 * 8));
        }
    }
    CUDA_DEVICE cuda_words give(const part *parts)
    {
        uint32_t words[4] = {0, 0, 0, 0};
        CUDA_UNROLL
        for (uint32_t k = 0; k < n; k++) {
            if constexpr (bytes == 8) {
                words[2 * k] = (uint32_t)parts[k];
                words[2 * k + 1] = (uint32_t)((Unsigned)parts[k] >> 32);
            } else {
                constexpr uint32_t mask = (uint32_t)(~UINT64_C(0) >> (64 - 8 * bytes));
                words[k * bytes / 4] |= ((uint32_t)parts[k] & mask) << (k * bytes % 4 * 8);
            }
        }
        return cuda_words{words[0], words[1], words[2], words[3]};
    }
    CUDA_DEVICE part sum(part a, part b) { return (part)((Unsigned)a + (Unsigned)b); }
    CUDA_DEVICE part product(part a, part b) { return (part)((Unsigned)a * (Unsigned)b); }
    CUDA_DEVICE part least(part a, part b) { return a < b ? a : b; }
    CUDA_DEVICE part greatest(part a, part b) { return a > b ? a : b; }
    CUDA_DEVICE part both(part a, part b) { return (part)(a & b); }
    CUDA_DEVICE part either(part a, part b) { return (part)(a | b); }
    CUDA_DEVICE part one_of(part a, part b) { return (part)(a ^ b); }
    CUDA_DEVICE part divide(part a, uint32_t divisor) { return (part)((Wide)a / (Wide)divisor); } /* towards zero */
};
using cuda_int8 = cuda_integer<int8_t, int32_t, uint32_t>;
using cuda_uint8 = cuda_integer<uint8_t, uint32_t, uint32_t>;
using cuda_int16 = cuda_integer<int16_t, int32_t, uint32_t>;
using cuda_uint16 = cuda_integer<uint16_t, uint32_t, uint32_t>;
using cuda_int32 = cuda_integer<int32_t, int32_t, uint32_t>;
using cuda_uint32 = cuda_integer<uint32_t, uint32_t, uint32_t>;
using cuda_int64 = cuda_integer<int64_t, int64_t, uint64_t>;
using cuda_uint64 = cuda_integer<uint64_t, uint64_t, uint64_t>;

/* ---- bool: a part is four of them, each a byte of 0 or 1 ---- */
struct cuda_bool {
    using part = uint32_t;
    static constexpr uint32_t n = 4, word = 0;
    static constexpr bool is_integer = true, is_complex = false, is_bool = true;

    CUDA_DEVICE void take(part *parts, cuda_words unit)
    {
        CUDA_UNROLL
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t v = cuda_word(unit, k), any = ((v & 0x7f7f7f7fu) + 0x7f7f7f7fu) | v;
            parts[k] = any >> 7 & 0x01010101u;
        }
    }
    CUDA_DEVICE cuda_words give(const part *parts) { return cuda_words{parts[0], parts[1], parts[2], parts[3]}; }
    CUDA_DEVICE part both(part a, part b) { return a & b; }
    CUDA_DEVICE part either(part a, part b) { return a | b; }
    CUDA_DEVICE part one_of(part a, part b) { return a ^ b; }
    CUDA_DEVICE part sum(part a, part b) { return a | b; }
    CUDA_DEVICE part product(part a, part b) { return a & b; }
    CUDA_DEVICE part least(part a, part b) { return a & b; }
    CUDA_DEVICE part greatest(part a, part b) { return a | b; }
    CUDA_DEVICE part divide(part a, uint32_t) { return a; } /* undefined on bool, and refused before any launch */
};

/* ---- floating point: NaN that is computed is the quiet one without payload; -0 is below +0 ---- */
constexpr uint32_t cuda_nan32 = 0x7fc00000u;
constexpr uint64_t cuda_nan64 = UINT64_C(0x7ff8000000000000);

CUDA_DEVICE int32_t cuda_key(float v)
{
    const int32_t bits = (int32_t)cuda_bits(v);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

CUDA_DEVICE int64_t cuda_key(double v)
{
    const int64_t bits = (int64_t)cuda_bits64(v);
    return bits < 0 ? bits ^ INT64_C(0x7fffffffffffffff) : bits;
}

/* What the float types have in common: computed as Part. */
template <typename Part> struct cuda_real {
    using part = Part;
    static constexpr bool is_integer = false, is_complex = false, is_bool = false;

    CUDA_DEVICE part sum(part a, part b) { return cuda_add(a, b); }
    CUDA_DEVICE part product(part a, part b) { return cuda_multiply(a, b); }
    CUDA_DEVICE part least(part a, part b) { return a != a || (b == b && cuda_key(a) < cuda_key(b)) ? a : b; }
    CUDA_DEVICE part greatest(part a, part b) { return a != a || (b == b && cuda_key(a) > cuda_key(b)) ? a : b; }
    CUDA_DEVICE part divide(part a, uint32_t divisor) { return cuda_divide(a, (part)divisor); }
};

struct cuda_float32 : cuda_real<float> {
    static constexpr uint32_t n = 4, word = 4;

    CUDA_DEVICE void take(float *parts, cuda_words unit)
    {
        CUDA_UNROLL
        for (uint32_t k = 0; k < n; k++) parts[k] = cuda_float(cuda_word(unit, k));
    }
    CUDA_DEVICE uint32_t code(float v) { return v == v ? cuda_bits(v) : cuda_nan32; }
    CUDA_DEVICE cuda_words give(const float *parts)
    {
        return cuda_words{code(parts[0]), code(parts[1]), code(parts[2]), code(parts[3])};
    }
};

struct cuda_float64 : cuda_real<double> {
    static constexpr uint32_t n = 2, word = 8;

    CUDA_DEVICE void take(double *parts, cuda_words unit)
    {
        CUDA_UNROLL
        for (uint32_t k = 0; k < n; k++) parts[k] = cuda_double(cuda_double_word(unit, k));
    }
    CUDA_DEVICE uint64_t code(double v) { return v == v ? cuda_bits64(v) : cuda_nan64; }
    CUDA_DEVICE cuda_words give(const double *parts)
    {
        const uint64_t a = code(parts[0]), b = code(parts[1]);
        return cuda_words{(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)};
    }
};

struct cuda_complex64 : cuda_float32 {
    static constexpr bool is_complex = true;
};
struct cuda_complex128 : cuda_float64 {
    static constexpr bool is_complex = true;
};

struct cuda_bfloat16 : cuda_real<float> {
    static constexpr uint32_t n = 8, word = 4;

    CUDA_DEVICE void take(float *parts, cuda_words unit)
    {
        CUDA_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t pair = cuda_word(unit, k);
            parts[2 * k] = cuda_float(pair << 16);
            parts[2 * k + 1] = cuda_float(pair & 0xffff0000u);
        }
    }
    CUDA_DEVICE uint32_t code(float low, float high)
    {
        uint32_t pair = cuda_pack_bfloat16(low, high);
        if (low != low) pair = (pair & 0xffff0000u) | 0x7fc0u;
        if (high != high) pair = (pair & 0xffffu) | 0x7fc00000u;
        return pair;
    }
    CUDA_DEVICE cuda_words give(const float *parts)
    {
        return cuda_words{code(parts[0], parts[1]), code(parts[2], parts[3]), code(parts[4], parts[5]),
                          code(parts[6], parts[7])};
    }
};

struct cuda_float16 : cuda_real<float> {
    static constexpr uint32_t n = 8, word = 4;

    CUDA_DEVICE void take(float *parts, cuda_words unit)
    {
        CUDA_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t pair = cuda_word(unit, k);
            parts[2 * k] = cuda_unpack_float16(pair & 0xffffu);
            parts[2 * k + 1] = cuda_unpack_float16(pair >> 16);
        }
    }
    CUDA_DEVICE uint32_t code(float low, float high)
    {
        uint32_t pair = cuda_pack_float16(low, high);
        if (low != low) pair = (pair & 0xffff0000u) | 0x7e00u;
        if (high != high) pair = (pair & 0xffffu) | 0x7e000000u;
        return pair;
    }
    CUDA_DEVICE cuda_words give(const float *parts)
    {
        return cuda_words{code(parts[0], parts[1]), code(parts[2], parts[3]), code(parts[4], parts[5]),
                          code(parts[6], parts[7])};
    }
};

/* 8-bit floats by integer arithmetic, since the machine's conversions saturate and PyTorch's do not. MANTISSA bits, a
 * bias, and the code of infinity; beyond it lies NaN; the format without infinity has its only NaN there. Subnormals go
 * through an addition that aligns them to their last place. */
template <uint32_t MANTISSA, uint32_t BIAS, uint32_t LIMIT> struct cuda_float8 : cuda_real<float> {
    static constexpr uint32_t n = 16, word = 4, nan = 0x7f;
    static constexpr uint32_t shift = 23 - MANTISSA, rebias = (127 - BIAS) << 23;
    static constexpr uint32_t magic = (127 + 24 - BIAS - MANTISSA) << 23; /* its last place: the least subnormal */

    CUDA_DEVICE float widen(uint32_t code)
    {
        const uint32_t sign = code >> 7 << 31, magnitude = code & 0x7f;
        if (magnitude >= LIMIT) return cuda_float(magnitude == LIMIT && LIMIT != nan ? sign | 0x7f800000u : cuda_nan32);
        const uint32_t normal = (magnitude << shift) + rebias;
        const uint32_t tiny = cuda_bits(cuda_add(cuda_float(magnitude | magic), -cuda_float(magic)));
        return cuda_float((magnitude < 1u << MANTISSA ? tiny : normal) | sign);
    }
    CUDA_DEVICE uint32_t narrow(float value)
    {
        constexpr uint32_t limit = rebias + (LIMIT << shift); /* becomes infinity or NaN, as all beyond */
        const uint32_t bits = cuda_bits(value), all = bits & 0x7fffffffu, sign = bits >> 31 << 7;
        if (value != value) return nan;
        const uint32_t magnitude = all < limit ? all : limit;
        const uint32_t half = ((magnitude >> shift) & 1) + ((1u << (shift - 1)) - 1); /* just below a half when even */
        const uint32_t normal = (magnitude - rebias + half) >> shift;
        const uint32_t tiny = cuda_bits(cuda_add(cuda_float(magnitude), cuda_float(magic))) - magic;
        const uint32_t number = magnitude < (128 - BIAS) << 23 ? tiny : normal;
        return LIMIT == nan && number == nan ? nan : number | sign;
    }
    CUDA_DEVICE void take(float *parts, cuda_words unit)
    {
        CUDA_UNROLL
        for (uint32_t k = 0; k < n; k++) parts[k] = widen(cuda_word(unit, k / 4) >> (k % 4 * 8) & 0xff);
    }
    CUDA_DEVICE cuda_words give(const float *parts)
    {
        uint32_t words[4] = {0, 0, 0, 0};
        CUDA_UNROLL
        for (uint32_t k = 0; k < n; k++) words[k / 4] |= narrow(parts[k]) << (k % 4 * 8);
        return cuda_words{words[0], words[1], words[2], words[3]};
    }
};
using cuda_float8_e4m3fn = cuda_float8<3, 7, 0x7f>;
using cuda_float8_e5m2 = cuda_float8<2, 15, 0x7c>;

#endif
