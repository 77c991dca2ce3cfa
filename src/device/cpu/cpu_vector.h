/* SPDX-License-Identifier: BSD-3-Clause */

/* Vectors of VECTOR_BYTES for the kernels: types, unaligned access, selection, complex shuffles, and the conversion of
 * 8- and 16-bit floats. Included once by each cpu_<isa>.c, which says how wide a vector is; written with the compilers'
 * vector extensions, so that the arithmetic, and with it every bit of the result, is the same on every machine.
 *
 * NaN: every NaN that a kernel computes is the canonical quiet one (positive, no payload). Payloads and signs of NaN
 * differ between machines and with operand order, and replicas must not. */

#include "device/cpu/cpu.h"

#include <string.h>

#define FORCE static inline __attribute__((always_inline, unused))
#define VECTOR(type, name, bytes) typedef type name __attribute__((vector_size(bytes)))

VECTOR(uint8_t, v_u8, VECTOR_BYTES);
VECTOR(uint16_t, v_u16, VECTOR_BYTES);
VECTOR(uint32_t, v_u32, VECTOR_BYTES);
VECTOR(uint64_t, v_u64, VECTOR_BYTES);
VECTOR(int8_t, v_i8, VECTOR_BYTES);
VECTOR(int16_t, v_i16, VECTOR_BYTES);
VECTOR(int32_t, v_i32, VECTOR_BYTES);
VECTOR(int64_t, v_i64, VECTOR_BYTES);
VECTOR(float, v_f32, VECTOR_BYTES);
VECTOR(double, v_f64, VECTOR_BYTES);

#define LOAD_STORE(type)                                                                                               \
    FORCE v_##type load_##type(const unsigned char *p)                                                                 \
    {                                                                                                                  \
        v_##type v;                                                                                                    \
        memcpy(&v, p, sizeof v);                                                                                       \
        return v;                                                                                                      \
    }                                                                                                                  \
    FORCE void store_##type(unsigned char *p, v_##type v)                                                              \
    {                                                                                                                  \
        memcpy(p, &v, sizeof v);                                                                                       \
    }
LOAD_STORE(u8)
LOAD_STORE(u16)
LOAD_STORE(u32)
LOAD_STORE(u64)
LOAD_STORE(i8)
LOAD_STORE(i16)
LOAD_STORE(i32)
LOAD_STORE(i64)
LOAD_STORE(f32)
LOAD_STORE(f64)

/* Where mask (all ones or all zeros a lane) is set a, else b. */
#define SELECT(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

#define NAN_f32 UINT32_C(0x7fc00000)
#define NAN_f64 UINT64_C(0x7ff8000000000000)

#define CANONICAL(type, bits)                                                                                          \
    FORCE v_##type canonical_##type(v_##type v)                                                                        \
    {                                                                                                                  \
        return (v_##type)SELECT((v_##bits)(v == v), (v_##bits)v, (v_##bits){} + NAN_##type);                           \
    }
CANONICAL(f32, u32)
CANONICAL(f64, u64)

/* Least and greatest of floats of any width by their codes, which are in order but for negative ones, and those turn
 * round. `top` is the last code that is not NaN. So -0 is below +0, and with one NaN for all, both operations commute
 * bit for bit. */
#define EXTREMES(type, bits, top, nan)                                                                                 \
    FORCE v_##bits key_##type(v_##bits code)                                                                           \
    {                                                                                                                  \
        return code ^ ((v_##bits)(code < 0) & MAGNITUDE_##bits);                                                       \
    }                                                                                                                  \
    FORCE v_##bits unless_nan_##type(v_##bits chosen, v_##bits a, v_##bits b)                                          \
    {                                                                                                                  \
        const v_##bits a_is_nan = (v_##bits)((a & MAGNITUDE_##bits) > top);                                            \
        const v_##bits b_is_nan = (v_##bits)((b & MAGNITUDE_##bits) > top);                                            \
        return SELECT(a_is_nan | b_is_nan, (v_##bits){} + nan, chosen);                                                \
    }                                                                                                                  \
    FORCE v_##bits least_##type(v_##bits a, v_##bits b)                                                                \
    {                                                                                                                  \
        return unless_nan_##type(SELECT((v_##bits)(key_##type(a) < key_##type(b)), a, b), a, b);                       \
    }                                                                                                                  \
    FORCE v_##bits greatest_##type(v_##bits a, v_##bits b)                                                             \
    {                                                                                                                  \
        return unless_nan_##type(SELECT((v_##bits)(key_##type(a) > key_##type(b)), a, b), a, b);                       \
    }
#define MAGNITUDE_i8 INT8_MAX
#define MAGNITUDE_i16 INT16_MAX
#define MAGNITUDE_i32 INT32_MAX
#define MAGNITUDE_i64 INT64_MAX
/* Codes of a format without its sign: the greatest exponent, NaN, and infinity, which is NaN where the format has none.
 * The NaN of 8 bits has all bits, as PyTorch's. */
#define CODE_TOP(bits, mantissa) (((1 << ((bits)-1 - (mantissa))) - 1) << (mantissa))
#define CODE_NAN(bits, mantissa)                                                                                       \
    ((bits) == 8 ? (1 << ((bits)-1)) - 1 : CODE_TOP(bits, mantissa) | 1 << (mantissa ? (mantissa)-1 : 0))
#define CODE_INFINITY(bits, mantissa, infinity) ((infinity) ? CODE_TOP(bits, mantissa) : CODE_NAN(bits, mantissa))
#define SMALL_EXTREMES(id, name, class, bits, mantissa, bias, infinity, torch)                                         \
    EXTREMES(name, i##bits, CODE_INFINITY(bits, mantissa, infinity) - !(infinity), CODE_NAN(bits, mantissa))
TUTTI_SMALL_FLOATS(SMALL_EXTREMES)
EXTREMES(f32, i32, 0x7f800000, (int32_t)NAN_f32)
EXTREMES(f64, i64, INT64_C(0x7ff0000000000000), (int64_t)NAN_f64)

/* Pairs of lanes (real and imaginary parts): lanes 2i + a and 2i + b of v and w, where w's lanes follow v's. */
#if VECTOR_BYTES == 16
#define PAIRS_f64(v, w, a, b) __builtin_shufflevector(v, w, a, b)
#define PAIRS_f32(v, w, a, b) __builtin_shufflevector(v, w, a, b, 2 + a, 2 + b)
#elif VECTOR_BYTES == 32
#define PAIRS_f64(v, w, a, b) __builtin_shufflevector(v, w, a, b, 2 + a, 2 + b)
#define PAIRS_f32(v, w, a, b) __builtin_shufflevector(v, w, a, b, 2 + a, 2 + b, 4 + a, 4 + b, 6 + a, 6 + b)
#elif VECTOR_BYTES == 64
#define PAIRS_f64(v, w, a, b) __builtin_shufflevector(v, w, a, b, 2 + a, 2 + b, 4 + a, 4 + b, 6 + a, 6 + b)
#define PAIRS_f32(v, w, a, b)                                                                                          \
    __builtin_shufflevector(v, w, a, b, 2 + a, 2 + b, 4 + a, 4 + b, 6 + a, 6 + b, 8 + a, 8 + b, 10 + a, 10 + b,        \
                            12 + a, 12 + b, 14 + a, 14 + b)
#else
#error "VECTOR_BYTES is 16, 32 or 64"
#endif

/* (ar br - ai bi, ar bi + ai br), each product rounded: no fused multiply-add, which not every machine has. */
#define COMPLEX_MULTIPLY(type, lanes)                                                                                  \
    FORCE v_##type multiply_##type(v_##type a, v_##type b)                                                             \
    {                                                                                                                  \
        const v_##type x = PAIRS_##type(a, a, 0, 0) * b;                                                               \
        const v_##type y = PAIRS_##type(a, a, 1, 1) * PAIRS_##type(b, b, 1, 0);                                        \
        const v_##type minus = x - y, plus = x + y;                                                                    \
        return PAIRS_##type(minus, plus, 0, (lanes) + 1);                                                              \
    }
COMPLEX_MULTIPLY(f32, VECTOR_BYTES / 4)
COMPLEX_MULTIPLY(f64, VECTOR_BYTES / 8)

/* ---- 16- and 8-bit floats: to float32 exactly, from float32 rounded once, to nearest even ----
 * A vector of codes becomes 2 or 4 vectors of float32, part k from every 2nd or 4th code beginning with the k-th: a
 * shift and a mask, where neighbours in order would cost shuffles. All operations are by element, so order is free. */

/* A format of one sign bit, exponent and mantissa. Infinity has code `infinity`, beyond it lies NaN; the format without
 * infinity has its only NaN there. Subnormals go through an addition that aligns them to their last place: no float32
 * subnormal ever occurs, so that a process that flushes those gets the same bits. Comparisons are signed, as the
 * magnitudes allow, since old instruction sets have no others. */
struct code_format {
    unsigned sign_bit, mantissa_bits, bias;
    int32_t infinity, nan;
};
/* A float whose last place is the format's least subnormal. */
#define CODE_MAGIC(f) ((127 + 24 - (f).bias - (f).mantissa_bits) << 23)

/* NaN keeps sign and payload here: what is computed from it is made canonical when it is narrowed. */
FORCE v_f32 widen_code(v_u32 code, struct code_format f)
{
    const v_u32 sign = (code >> f.sign_bit) << 31, magnitude = code & ((1u << f.sign_bit) - 1);
    const v_u32 normal = (magnitude << (23 - f.mantissa_bits)) + ((127 - f.bias) << 23);
    const v_u32 tiny = (v_u32)((v_f32)(magnitude | CODE_MAGIC(f)) - (v_f32)((v_u32){} + CODE_MAGIC(f)));
    const v_u32 is_tiny = (v_u32)((v_i32)magnitude < (1 << f.mantissa_bits));
    const v_u32 is_special = (v_u32)((v_i32)magnitude >= f.infinity);
    const v_u32 number = SELECT(is_tiny, tiny, normal);
    if (f.infinity == f.nan) return (v_f32)(number | (is_special & NAN_f32) | sign);
    return (v_f32)((number + (is_special & ((127 - f.bias) << 23))) | sign); /* to the last exponent of float32 */
}

FORCE v_u32 narrow_code(v_f32 value, struct code_format f)
{
    const unsigned shift = 23 - f.mantissa_bits;
    const int32_t limit = (int32_t)((127 - f.bias) << 23) + (f.infinity << shift); /* becomes infinity, as all beyond */
    const v_u32 bits = (v_u32)value, all = bits & 0x7fffffff, sign = (bits >> 31) << f.sign_bit;
    const v_u32 magnitude = SELECT((v_u32)((v_i32)all < limit), all, (v_u32){} + (uint32_t)limit);
    const v_u32 half = ((magnitude >> shift) & 1) + ((1u << (shift - 1)) - 1); /* just below a half when even */
    const v_u32 normal = (magnitude - ((127 - f.bias) << 23) + half) >> shift;
    const v_u32 tiny = (v_u32)((v_f32)magnitude + (v_f32)((v_u32){} + CODE_MAGIC(f))) - CODE_MAGIC(f);
    const v_u32 is_tiny = (v_u32)((v_i32)magnitude < (int32_t)((128 - f.bias) << 23));
    const v_u32 number = SELECT(is_tiny, tiny, normal);
    const v_u32 is_nan = f.infinity == f.nan ? (v_u32)(number == (uint32_t)f.nan) : (v_u32)((v_i32)all > 0x7f800000);
    return number | (is_nan & (uint32_t)f.nan) | (sign & ~is_nan);
}

/* Vectors of float32 that a vector of codes becomes. */
#define PARTS(id, name, class, bits, mantissa, bias, infinity, torch) PARTS_##name = 32 / (bits),
enum { TUTTI_SMALL_FLOATS(PARTS) };

FORCE void widen_bfloat16_codes(const unsigned char *p, v_f32 *out)
{
    const v_u32 pairs = load_u32(p);
    out[0] = (v_f32)(pairs << 16);
    out[1] = (v_f32)(pairs & 0xffff0000);
}

FORCE void narrow_bfloat16_codes(unsigned char *p, const v_f32 *in)
{
    v_u32 code[2];
    for (int k = 0; k < 2; k++) {
        const v_u32 bits = (v_u32)in[k], rounded = bits + 0x7fff + ((bits >> 16) & 1);
        code[k] = SELECT((v_u32)(in[k] == in[k]), rounded, (v_u32){} + NAN_f32);
    }
    store_u32(p, (code[0] >> 16) | (code[1] & 0xffff0000));
}

/* float16 by the instructions of the including file, which defines both; false: it has none. */
FORCE bool widen_half(const unsigned char *p, v_f32 *out);
FORCE bool narrow_half(unsigned char *p, const v_f32 *in);
#define NO_HALF_INSTRUCTIONS                                                                                           \
    FORCE bool widen_half(const unsigned char *p, v_f32 *out)                                                          \
    {                                                                                                                  \
        (void)p, (void)out;                                                                                            \
        return false;                                                                                                  \
    }                                                                                                                  \
    FORCE bool narrow_half(unsigned char *p, const v_f32 *in)                                                          \
    {                                                                                                                  \
        (void)p, (void)in;                                                                                             \
        return false;                                                                                                  \
    }

/* Whether a format has a faster conversion than by integer arithmetic, which is then done. */
FORCE bool widen_fast(const unsigned char *p, v_f32 *out, unsigned bias, unsigned mantissa)
{
    if (bias == 127 && mantissa == 7) return widen_bfloat16_codes(p, out), true;
    return bias == 15 && mantissa == 10 && widen_half(p, out);
}
FORCE bool narrow_fast(unsigned char *p, const v_f32 *in, unsigned bias, unsigned mantissa)
{
    if (bias == 127 && mantissa == 7) return narrow_bfloat16_codes(p, in), true;
    return bias == 15 && mantissa == 10 && narrow_half(p, in);
}

/* Infinity included, float8_e5m2 and float16 are the same format at two widths; float8_e4m3fn is not: beyond 464, which
 * still rounds to 448, it has only NaN. As PyTorch converts: no saturation. */
#define CODE_CONVERSIONS(id, name, class, bits, mantissa, bias, infinity, torch)                                       \
    FORCE void widen_##name(const unsigned char *p, v_f32 *out)                                                        \
    {                                                                                                                  \
        const struct code_format format = {(bits)-1, mantissa, bias, CODE_INFINITY(bits, mantissa, infinity),          \
                                           CODE_NAN(bits, mantissa)};                                                  \
        if (widen_fast(p, out, bias, mantissa)) return;                                                                \
        const v_u32 word = load_u32(p);                                                                                \
        for (unsigned k = 0; k < PARTS_##name; k++)                                                                    \
            out[k] = widen_code((word >> (k * (bits))) & ((1u << (bits)) - 1), format);                                \
    }                                                                                                                  \
    FORCE void narrow_##name(unsigned char *p, const v_f32 *in)                                                        \
    {                                                                                                                  \
        const struct code_format format = {(bits)-1, mantissa, bias, CODE_INFINITY(bits, mantissa, infinity),          \
                                           CODE_NAN(bits, mantissa)};                                                  \
        if (narrow_fast(p, in, bias, mantissa)) return;                                                                \
        v_u32 word = {};                                                                                               \
        for (unsigned k = 0; k < PARTS_##name; k++) word |= narrow_code(in[k], format) << (k * (bits));                \
        store_u32(p, word);                                                                                            \
    }
TUTTI_SMALL_FLOATS(CODE_CONVERSIONS)
