/* SPDX-License-Identifier: BSD-3-Clause */

/* The kernels and their table, for the vectors of cpu_vector.h. Included last by each cpu_<isa>.c, which has set
 * VECTOR_BYTES and KERNEL_TABLE and defined widen_f16 and narrow_f16. A kernel is a step on one block, run over the
 * buffer; the front of a last, partial block goes through the same step on a padded copy, so that the position of an
 * element never changes its result. A step loads before it stores, hence dst may be left or right. */

typedef void (*block_step)(unsigned char *dst, const unsigned char *left, const unsigned char *right);

FORCE void run_blocks(void *dst, const void *left, const void *right, size_t bytes, block_step step)
{
    unsigned char *d = dst;
    const unsigned char *l = left, *r = right;
    size_t at = 0;
    for (; bytes - at >= VECTOR_BYTES; at += VECTOR_BYTES) step(d + at, l + at, r + at);
    if (at == bytes) return;
    unsigned char a[VECTOR_BYTES] = {0}, b[VECTOR_BYTES] = {0};
    memcpy(a, l + at, bytes - at);
    memcpy(b, r + at, bytes - at);
    step(a, a, b);
    memcpy(d + at, a, bytes - at);
}

/* The same for one operand and a constant, which the step finds repeated over a whole block. */
FORCE void run_blocks_constant(void *dst, const void *src, size_t bytes, const void *constant, size_t element_bytes,
                               block_step step)
{
    unsigned char *d = dst, a[VECTOR_BYTES] = {0}, repeated[VECTOR_BYTES];
    const unsigned char *s = src;
    size_t at = 0;
    for (size_t i = 0; i < VECTOR_BYTES; i += element_bytes) memcpy(repeated + i, constant, element_bytes);
    for (; bytes - at >= VECTOR_BYTES; at += VECTOR_BYTES) step(d + at, s + at, repeated);
    if (at == bytes) return;
    memcpy(a, s + at, bytes - at);
    step(a, a, repeated);
    memcpy(d + at, a, bytes - at);
}

/* NAME_TYPE: what the step computes from a and b. */
#define STEP(name, type, vector, load, store, expression)                                                              \
    FORCE void step_##name##_##type(unsigned char *dst, const unsigned char *left, const unsigned char *right)         \
    {                                                                                                                  \
        const vector a = load(left), b = load(right);                                                                  \
        store(dst, expression);                                                                                        \
    }
#define REDUCE(name, type, element_bytes)                                                                              \
    static void name##_##type(void *dst, const void *left, const void *right, size_t n)                                \
    {                                                                                                                  \
        run_blocks(dst, left, right, n *(element_bytes), step_##name##_##type);                                        \
    }
#define SCALE(name, type, element_bytes, step)                                                                         \
    static void name##_##type(void *dst, const void *src, size_t n, const void *factor)                                \
    {                                                                                                                  \
        run_blocks_constant(dst, src, n *(element_bytes), factor, element_bytes, step);                                \
    }
#define PLAIN(name, type, element_bytes, expression)                                                                   \
    STEP(name, type, v_##type, load_##type, store_##type, expression)                                                  \
    REDUCE(name, type, element_bytes)

/* ---- integers: sums and products modulo 2^bits, alike for signed and unsigned ---- */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
#define INTEGER_DIVIDE(type, c_type, wide)                                                                             \
    static void divide_##type(void *dst, const void *src, size_t n, uint32_t divisor)                                  \
    {                                                                                                                  \
        unsigned char *d = dst;                                                                                        \
        const unsigned char *s = src;                                                                                  \
        const wide by = (wide)divisor;                                                                                 \
        INDEPENDENT for (size_t i = 0; i < n; i++)                                                                     \
        {                                                                                                              \
            c_type value;                                                                                              \
            memcpy(&value, s + i * sizeof value, sizeof value);                                                        \
            value = (c_type)((wide)value / by);                                                                        \
            memcpy(d + i * sizeof value, &value, sizeof value);                                                        \
        }                                                                                                              \
    }
#define INTEGER_KERNELS(s, u, element_bytes)                                                                           \
    PLAIN(sum, u, element_bytes, a + b)                                                                                \
    PLAIN(prod, u, element_bytes, a *b)                                                                                \
    PLAIN(band, u, element_bytes, a &b)                                                                                \
    PLAIN(bor, u, element_bytes, a | b)                                                                                \
    PLAIN(bxor, u, element_bytes, a ^ b)                                                                               \
    PLAIN(min, s, element_bytes, SELECT((v_##s)(a < b), a, b))                                                         \
    PLAIN(max, s, element_bytes, SELECT((v_##s)(a > b), a, b))                                                         \
    PLAIN(min, u, element_bytes, SELECT((v_##u)(a < b), a, b))                                                         \
    PLAIN(max, u, element_bytes, SELECT((v_##u)(a > b), a, b))                                                         \
    SCALE(scale, u, element_bytes, step_prod_##u)
INTEGER_KERNELS(i8, u8, 1)
INTEGER_KERNELS(i16, u16, 2)
INTEGER_KERNELS(i32, u32, 4)
INTEGER_KERNELS(i64, u64, 8)
/* Up to 32 bits a double holds both exactly, and their quotient never rounds up to the next integer: its distance from
 * one is at least 1 / divisor, far above a last place. Doubles divide in vectors, integers do not. */
#define QUOTIENT_8(c_type) double
#define QUOTIENT_16(c_type) double
#define QUOTIENT_32(c_type) double
#define QUOTIENT_64(c_type) c_type
#define DIVIDE(id, name, class, bits, mantissa, bias, infinity, torch)                                                 \
    INTEGER_DIVIDE(name, name##_t, QUOTIENT_##bits(name##_t))
TUTTI_INTEGERS(DIVIDE)

/* ---- bool: a byte, of which anything but 0 counts as 1 ---- */
#define TRUTH(v) ((v_u8)((v) != 0) & 1)
STEP(bool_and, u8, v_u8, load_u8, store_u8, TRUTH(a) & TRUTH(b))
STEP(bool_or, u8, v_u8, load_u8, store_u8, TRUTH(a | b))
STEP(bool_xor, u8, v_u8, load_u8, store_u8, TRUTH(a) ^ TRUTH(b))
REDUCE(bool_and, u8, 1)
REDUCE(bool_or, u8, 1)
REDUCE(bool_xor, u8, 1)

/* ---- float32, float64 and their complex pairs ---- */
#define FLOAT_KERNELS(type, c_type)                                                                                    \
    PLAIN(sum, type, sizeof(c_type), canonical_##type(a + b))                                                          \
    PLAIN(prod, type, sizeof(c_type), canonical_##type(a *b))                                                          \
    SCALE(scale, type, sizeof(c_type), step_prod_##type)                                                               \
    STEP(quotient, type, v_##type, load_##type, store_##type, canonical_##type(a / b))                                 \
    static void divide_##type(void *dst, const void *src, size_t n, uint32_t divisor)                                  \
    {                                                                                                                  \
        const c_type by = (c_type)divisor;                                                                             \
        run_blocks_constant(dst, src, n * sizeof by, &by, sizeof by, step_quotient_##type);                            \
    }                                                                                                                  \
    static void divide_complex_##type(void *dst, const void *src, size_t n, uint32_t divisor)                          \
    {                                                                                                                  \
        divide_##type(dst, src, 2 * n, divisor);                                                                       \
    }                                                                                                                  \
    static void sum_complex_##type(void *dst, const void *left, const void *right, size_t n)                           \
    {                                                                                                                  \
        sum_##type(dst, left, right, 2 * n);                                                                           \
    }                                                                                                                  \
    STEP(prod_complex, type, v_##type, load_##type, store_##type, canonical_##type(multiply_##type(a, b)))             \
    REDUCE(prod_complex, type, 2 * sizeof(c_type))                                                                     \
    SCALE(scale_complex, type, 2 * sizeof(c_type), step_prod_complex_##type)
FLOAT_KERNELS(f32, float)
FLOAT_KERNELS(f64, double)

/* ---- 16- and 8-bit floats: computed in float32, rounded once ---- */
#define CODE_STEP(name, type, expression)                                                                              \
    FORCE void step_##name##_##type(unsigned char *dst, const unsigned char *left, const unsigned char *right)         \
    {                                                                                                                  \
        v_f32 x[PARTS_##type], y[PARTS_##type];                                                                        \
        widen_##type(left, x);                                                                                         \
        widen_##type(right, y);                                                                                        \
        for (int k = 0; k < PARTS_##type; k++) {                                                                       \
            const v_f32 a = x[k], b = y[k];                                                                            \
            x[k] = expression;                                                                                         \
        }                                                                                                              \
        narrow_##type(dst, x);                                                                                         \
    }
#define CODE_REDUCE(name, type, expression)                                                                            \
    CODE_STEP(name, type, expression)                                                                                  \
    REDUCE(name, type, 4 / PARTS_##type)
/* Numbers beyond the greatest one of a format, whose code without its bias these bits are, become that. */
FORCE v_f32 within_f32(v_f32 value, uint32_t greatest, uint32_t bias)
{
    const v_u32 bits = (v_u32)value, all = bits & 0x7fffffff;
    const v_u32 is_beyond =
        (v_u32)((v_i32)all > (int32_t)(greatest + bias)) & (v_u32)((v_i32)all < (int32_t)0x7f800000);
    return (v_f32)SELECT(is_beyond, (bits & 0x80000000) | (greatest + bias), bits);
}
#define CODE_KERNELS(id, type, class, bits, mantissa, bias, infinity, torch)                                           \
    CODE_REDUCE(sum, type, a + b)                                                                                      \
    CODE_REDUCE(prod, type, a *b)                                                                                      \
    SCALE(scale, type, 4 / PARTS_##type, step_prod_##type)                                                             \
    /* The divisor stays a float32: it need not be a number of the small format. An average of numbers is one, though  \
     * their sum was rounded up. */                                                                                    \
    FORCE void step_quotient_##type(unsigned char *dst, const unsigned char *src, const unsigned char *divisor)        \
    {                                                                                                                  \
        const v_f32 by = load_f32(divisor);                                                                            \
        v_f32 x[PARTS_##type];                                                                                         \
        widen_##type(src, x);                                                                                          \
        for (int k = 0; k < PARTS_##type; k++)                                                                         \
            x[k] = within_f32(x[k] / by, (uint32_t)(CODE_INFINITY(bits, mantissa, infinity) - 1) << (23 - (mantissa)), \
                              (uint32_t)(127 - (bias)) << 23);                                                         \
        narrow_##type(dst, x);                                                                                         \
    }                                                                                                                  \
    static void divide_##type(void *dst, const void *src, size_t n, uint32_t divisor)                                  \
    {                                                                                                                  \
        const float by =                                                                                               \
            (float)(divisor & ((1u << TUTTI_DIVISOR_SHIFT) - 1)) / (float)(1u << (divisor >> TUTTI_DIVISOR_SHIFT));    \
        run_blocks_constant(dst, src, n *(4 / PARTS_##type), &by, sizeof by, step_quotient_##type);                    \
    }
TUTTI_SMALL_FLOATS(CODE_KERNELS)

/* ---- min and max of every float ---- */
#define EXTREME_KERNELS(type, bits, element_bytes)                                                                     \
    STEP(min, type, v_##bits, load_##bits, store_##bits, least_##type(a, b))                                           \
    STEP(max, type, v_##bits, load_##bits, store_##bits, greatest_##type(a, b))                                        \
    REDUCE(min, type, element_bytes)                                                                                   \
    REDUCE(max, type, element_bytes)
#define SMALL_EXTREME_KERNELS(id, name, class, bits, mantissa, bias, infinity, torch)                                  \
    EXTREME_KERNELS(name, i##bits, (bits) / 8)
TUTTI_SMALL_FLOATS(SMALL_EXTREME_KERNELS)
EXTREME_KERNELS(f32, i32, 4)
EXTREME_KERNELS(f64, i64, 8)

#include "device/cpu/cpu_recode.h"

/* ---- the table: what each class of types has. avg and premul_sum fold by sums ---- */
#define NUMBER_ROW(sum, prod, min, max)                                                                                \
    [TUTTI_SUM] = sum, [TUTTI_PROD] = prod, [TUTTI_MIN] = min, [TUTTI_MAX] = max, [TUTTI_AVG] = sum,                   \
    [TUTTI_PREMUL_SUM] = sum
#define INTEGER_ROW(bits, sign)                                                                                        \
    {                                                                                                                  \
        NUMBER_ROW(sum_u##bits, prod_u##bits, min_##sign##bits, max_##sign##bits),                                     \
            [TUTTI_BAND] = band_u##bits, [TUTTI_BOR] = bor_u##bits, [TUTTI_BXOR] = bxor_u##bits,                       \
    }
#define FOLDS_SIGNED(name, bits) INTEGER_ROW(bits, i)
#define FOLDS_UNSIGNED(name, bits) INTEGER_ROW(bits, u)
#define FOLDS_BOOLEAN(name, bits)                                                                                      \
    {                                                                                                                  \
        [TUTTI_SUM] = bool_or_u8, [TUTTI_PROD] = bool_and_u8, [TUTTI_MIN] = bool_and_u8, [TUTTI_MAX] = bool_or_u8,     \
        [TUTTI_BAND] = bool_and_u8, [TUTTI_BOR] = bool_or_u8, [TUTTI_BXOR] = bool_xor_u8,                              \
    }
#define FOLDS_SMALL_FLOAT(name, bits)                                                                                  \
    {                                                                                                                  \
        NUMBER_ROW(sum_##name, prod_##name, min_##name, max_##name)                                                    \
    }
#define FOLDS_FLOAT(name, bits)                                                                                        \
    {                                                                                                                  \
        NUMBER_ROW(sum_f##bits, prod_f##bits, min_f##bits, max_f##bits)                                                \
    }
#define FOLDS_COMPLEX(name, bits)                                                                                      \
    {                                                                                                                  \
        NUMBER_ROW(sum_complex_f##bits, prod_complex_f##bits, NULL, NULL)                                              \
    }

#define DIVIDE_SIGNED(name, bits) divide_##name
#define DIVIDE_UNSIGNED(name, bits) divide_##name
#define DIVIDE_BOOLEAN(name, bits) NULL
#define DIVIDE_SMALL_FLOAT(name, bits) divide_##name
#define DIVIDE_FLOAT(name, bits) divide_f##bits
#define DIVIDE_COMPLEX(name, bits) divide_complex_f##bits

#define SCALE_SIGNED(name, bits) scale_u##bits
#define SCALE_UNSIGNED(name, bits) scale_u##bits
#define SCALE_BOOLEAN(name, bits) NULL
#define SCALE_SMALL_FLOAT(name, bits) scale_##name
#define SCALE_FLOAT(name, bits) scale_f##bits
#define SCALE_COMPLEX(name, bits) scale_complex_f##bits

#define FOLDS(id, name, class, bits, mantissa, bias, infinity, torch) [TUTTI_##id] = FOLDS_##class(name, bits),
#define DIVIDES(id, name, class, bits, mantissa, bias, infinity, torch) [TUTTI_##id] = DIVIDE_##class(name, bits),
#define SCALES(id, name, class, bits, mantissa, bias, infinity, torch) [TUTTI_##id] = SCALE_##class(name, bits),
const struct tutti_cpu_kernels KERNEL_TABLE = {
    .recoders = RECODERS,
    .reduce = {TUTTI_DTYPES(FOLDS)},
    .divide = {TUTTI_DTYPES(DIVIDES)},
    .scale = {TUTTI_DTYPES(SCALES)},
};
