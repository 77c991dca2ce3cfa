/* SPDX-License-Identifier: BSD-3-Clause */

/* The reference of types and operations: definitions, not kernels; slow and plain. Complex numbers are pairs of their
 * real type. */

#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum class { CLASS_SIGNED, CLASS_UNSIGNED, CLASS_BOOL, CLASS_FLOAT, CLASS_COMPLEX };

/* The form of a float: significand bits behind the point, exponent bias, and whether the largest exponent is infinity
 * and NaN; if not, its codes are numbers but for the last one. */
static const struct type {
    size_t bytes; /* an element's; a part's, if complex */
    enum class class;
    int mantissa, bias;
    bool has_infinity;
} types[TUTTI_N_DTYPES] = {
    [TUTTI_INT8] = {1, CLASS_SIGNED, 0, 0, false},
    [TUTTI_UINT8] = {1, CLASS_UNSIGNED, 0, 0, false},
    [TUTTI_INT16] = {2, CLASS_SIGNED, 0, 0, false},
    [TUTTI_UINT16] = {2, CLASS_UNSIGNED, 0, 0, false},
    [TUTTI_INT32] = {4, CLASS_SIGNED, 0, 0, false},
    [TUTTI_UINT32] = {4, CLASS_UNSIGNED, 0, 0, false},
    [TUTTI_INT64] = {8, CLASS_SIGNED, 0, 0, false},
    [TUTTI_UINT64] = {8, CLASS_UNSIGNED, 0, 0, false},
    [TUTTI_BOOL] = {1, CLASS_BOOL, 0, 0, false},
    [TUTTI_FLOAT8_E4M3FN] = {1, CLASS_FLOAT, 3, 7, false},
    [TUTTI_FLOAT8_E5M2] = {1, CLASS_FLOAT, 2, 15, true},
    [TUTTI_FLOAT16] = {2, CLASS_FLOAT, 10, 15, true},
    [TUTTI_BFLOAT16] = {2, CLASS_FLOAT, 7, 127, true},
    [TUTTI_FLOAT32] = {4, CLASS_FLOAT, 23, 127, true},
    [TUTTI_FLOAT64] = {8, CLASS_FLOAT, 52, 1023, true},
    [TUTTI_COMPLEX64] = {4, CLASS_COMPLEX, 23, 127, true},
    [TUTTI_COMPLEX128] = {8, CLASS_COMPLEX, 52, 1023, true},
};

size_t ref_bytes(enum tutti_dtype dtype)
{
    return types[dtype].bytes * (types[dtype].class == CLASS_COMPLEX ? 2 : 1);
}

bool ref_is_small_float(enum tutti_dtype dtype)
{
    return types[dtype].class == CLASS_FLOAT && types[dtype].bytes <= 2;
}

bool ref_defined(enum tutti_dtype dtype, enum tutti_op op)
{
    const enum class class = types[dtype].class;
    if (op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR) return class <= CLASS_BOOL;
    if (op == TUTTI_MIN || op == TUTTI_MAX) return class != CLASS_COMPLEX;
    if (op == TUTTI_AVG || op == TUTTI_PREMUL_SUM) return class != CLASS_BOOL;
    return true;
}

static uint64_t load_bits(const void *p, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, p, bytes); /* little-endian, as every machine that the library runs on */
    return bits;
}

static uint64_t float_nan(const struct type *t)
{
    const int sign_bit = (int)t->bytes * 8 - 1;
    if (!t->has_infinity || t->mantissa == 2) return (UINT64_C(1) << sign_bit) - 1; /* 8 bits: all ones, as PyTorch */
    return ((UINT64_C(1) << sign_bit) - 1) & ~((UINT64_C(1) << (t->mantissa - 1)) - 1);
}

static double decode(const struct type *t, uint64_t code)
{
    const int sign_bit = (int)t->bytes * 8 - 1;
    const uint64_t magnitude = code & ((UINT64_C(1) << sign_bit) - 1);
    const int exponent = (int)(magnitude >> t->mantissa), all_ones = (1 << (sign_bit - t->mantissa)) - 1;
    const uint64_t fraction = magnitude & ((UINT64_C(1) << t->mantissa) - 1);
    double value;
    if (t->has_infinity && exponent == all_ones)
        value = fraction ? NAN : INFINITY;
    else if (!t->has_infinity && magnitude == (UINT64_C(1) << sign_bit) - 1)
        value = NAN;
    else if (exponent == 0)
        value = ldexp((double)fraction, 1 - t->bias - t->mantissa);
    else
        value = ldexp((double)(fraction + (UINT64_C(1) << t->mantissa)), exponent - t->bias - t->mantissa);
    return code >> sign_bit & 1 ? -value : value;
}

static uint64_t encode(const struct type *t, double value)
{
    const int sign_bit = (int)t->bytes * 8 - 1;
    const uint64_t sign = signbit(value) ? UINT64_C(1) << sign_bit : 0;
    const int all_ones = (1 << (sign_bit - t->mantissa)) - 1;
    const uint64_t infinity = t->has_infinity ? (uint64_t)all_ones << t->mantissa : (UINT64_C(1) << sign_bit) - 1;
    if (isnan(value)) return float_nan(t);
    if (isinf(value)) return t->has_infinity ? sign | infinity : float_nan(t);
    if (value == 0) return sign;
    int exponent;
    frexp(value, &exponent); /* value = [0.5, 1) * 2^exponent */
    exponent--;
    if (exponent < 1 - t->bias) exponent = 1 - t->bias;
    /* In units of the last place: the code counts those from zero up, across all exponents. */
    const double units = nearbyint(ldexp(fabs(value), t->mantissa - exponent));
    const uint64_t code = (uint64_t)units + ((uint64_t)(exponent + t->bias - 1) << t->mantissa);
    if (code >= infinity) return t->has_infinity ? sign | infinity : float_nan(t);
    return sign | code;
}

double ref_decode(enum tutti_dtype dtype, const void *element)
{
    return decode(&types[dtype], load_bits(element, types[dtype].bytes));
}

void ref_encode(enum tutti_dtype dtype, double value, void *element)
{
    const uint64_t code = encode(&types[dtype], value);
    memcpy(element, &code, types[dtype].bytes);
}

/* What float32 arithmetic makes of the exact or, where 53 bits are too few, once rounded result of one operation on
 * float32 values: with 53 >= 2 * 24 + 2 bits, rounding twice is rounding once. */
static double to_float32(double value)
{
    return decode(&types[TUTTI_FLOAT32], encode(&types[TUTTI_FLOAT32], value));
}

static double computed(const struct type *t, double value)
{
    return t->bytes == 8 ? value : to_float32(value);
}

static double extreme(enum tutti_op op, double a, double b)
{
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return (op == TUTTI_MIN) == (signbit(a) != 0) ? a : b; /* -0 is below +0 */
    return (op == TUTTI_MIN) == (a < b) ? a : b;
}

static void hop_float(const struct type *t, enum tutti_op op, void *out, const void *left, const void *right)
{
    const double a = decode(t, load_bits(left, t->bytes)), b = decode(t, load_bits(right, t->bytes));
    double value;
    if (op == TUTTI_MIN || op == TUTTI_MAX)
        value = extreme(op, a, b);
    else if (op == TUTTI_PROD)
        value = computed(t, a * b);
    else
        value = computed(t, a + b);
    const uint64_t code = encode(t, value);
    memcpy(out, &code, t->bytes);
}

static void multiply_complex(const struct type *t, void *out, const void *left, const void *right)
{
    const unsigned char *l = left, *r = right;
    const double a = decode(t, load_bits(l, t->bytes)), b = decode(t, load_bits(l + t->bytes, t->bytes));
    const double c = decode(t, load_bits(r, t->bytes)), d = decode(t, load_bits(r + t->bytes, t->bytes));
    const volatile double ac = computed(t, a * c), bd = computed(t, b * d); /* volatile: never fused */
    const volatile double ad = computed(t, a * d), bc = computed(t, b * c);
    const uint64_t real = encode(t, computed(t, ac - bd)), imaginary = encode(t, computed(t, ad + bc));
    memcpy(out, &real, t->bytes);
    memcpy((unsigned char *)out + t->bytes, &imaginary, t->bytes);
}

static uint64_t load_integer(const struct type *t, const void *p)
{
    const uint64_t bits = load_bits(p, t->bytes), sign = UINT64_C(1) << (t->bytes * 8 - 1);
    return t->class == CLASS_SIGNED ? (bits ^ sign) - sign : bits;
}

static bool integer_less(const struct type *t, uint64_t a, uint64_t b)
{
    const uint64_t flip = t->class == CLASS_SIGNED ? UINT64_C(1) << 63 : 0;
    return (a ^ flip) < (b ^ flip);
}

static void hop_integer(const struct type *t, enum tutti_op op, void *out, const void *left, const void *right)
{
    const uint64_t a = load_integer(t, left), b = load_integer(t, right);
    uint64_t value = 0;
    switch (op) {
    case TUTTI_PROD:
        value = a * b;
        break;
    case TUTTI_MIN:
        value = integer_less(t, b, a) ? b : a;
        break;
    case TUTTI_MAX:
        value = integer_less(t, a, b) ? b : a;
        break;
    case TUTTI_BAND:
        value = a & b;
        break;
    case TUTTI_BOR:
        value = a | b;
        break;
    case TUTTI_BXOR:
        value = a ^ b;
        break;
    default:
        value = a + b;
        break;
    }
    memcpy(out, &value, t->bytes);
}

static void hop_bool(enum tutti_op op, unsigned char *out, const unsigned char *left, const unsigned char *right)
{
    const bool a = *left != 0, b = *right != 0;
    if (op == TUTTI_PROD || op == TUTTI_MIN || op == TUTTI_BAND)
        *out = a && b;
    else
        *out = op == TUTTI_BXOR ? a != b : a || b;
}

void ref_hop(enum tutti_dtype dtype, enum tutti_op op, void *out, const void *left, const void *right, size_t n)
{
    const struct type *t = &types[dtype];
    const size_t bytes = ref_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        unsigned char *o = (unsigned char *)out + i * bytes;
        const unsigned char *l = (const unsigned char *)left + i * bytes, *r = (const unsigned char *)right + i * bytes;
        if (t->class == CLASS_BOOL)
            hop_bool(op, o, l, r);
        else if (t->class == CLASS_SIGNED || t->class == CLASS_UNSIGNED)
            hop_integer(t, op, o, l, r);
        else if (t->class == CLASS_COMPLEX && op == TUTTI_PROD)
            multiply_complex(t, o, l, r);
        else
            for (size_t part = 0; part < bytes; part += t->bytes) hop_float(t, op, o + part, l + part, r + part);
    }
}

static void divide_integer(const struct type *t, unsigned char *element, uint32_t divisor)
{
    const uint64_t value = load_integer(t, element);
    const bool negative = t->class == CLASS_SIGNED && value >> 63;
    const uint64_t quotient = (negative ? 0 - value : value) / divisor; /* magnitudes are divided: towards zero */
    const uint64_t out = negative ? 0 - quotient : quotient;
    memcpy(element, &out, t->bytes);
}

void ref_divide(enum tutti_dtype dtype, void *inout, size_t n, uint32_t divisor)
{
    const struct type *t = &types[dtype];
    const size_t parts = ref_bytes(dtype) / t->bytes;
    const double by = computed(t, divisor); /* the type that divides may not hold it exactly */
    for (size_t i = 0; i < n * parts; i++) {
        unsigned char *element = (unsigned char *)inout + i * t->bytes;
        if (t->class == CLASS_SIGNED || t->class == CLASS_UNSIGNED) {
            divide_integer(t, element, divisor);
            continue;
        }
        const uint64_t code = encode(t, computed(t, decode(t, load_bits(element, t->bytes)) / by));
        memcpy(element, &code, t->bytes);
    }
}

void ref_scale(enum tutti_dtype dtype, void *inout, size_t n, const void *factor)
{
    const size_t bytes = ref_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        unsigned char *element = (unsigned char *)inout + i * bytes;
        ref_hop(dtype, TUTTI_PROD, element, element, factor, 1);
    }
}

static void reduce_element(enum tutti_dtype dtype, enum tutti_op op, const void *const *inputs, size_t n_inputs,
                           size_t element, const void *factor, unsigned char *out)
{
    const size_t bytes = ref_bytes(dtype);
    for (size_t k = 0; k < n_inputs; k++) {
        unsigned char scaled[16];
        memcpy(scaled, (const unsigned char *)inputs[k] + element * bytes, bytes);
        if (op == TUTTI_PREMUL_SUM) ref_scale(dtype, scaled, 1, factor);
        if (k == 0)
            memcpy(out, scaled, bytes);
        else
            ref_hop(dtype, op, out, out, scaled, 1);
    }
    if (op == TUTTI_AVG && n_inputs > 0) ref_divide(dtype, out, 1, (uint32_t)n_inputs);
}

void ref_reduce(enum tutti_dtype dtype, enum tutti_op op, const void *const *inputs, size_t n_inputs, size_t n,
                const void *factor, void *out)
{
    for (size_t i = 0; i < n; i++)
        reduce_element(dtype, op, inputs, n_inputs, i, factor, (unsigned char *)out + i * ref_bytes(dtype));
}

bool ref_equal(enum tutti_dtype dtype, const void *got, const void *want, size_t n, size_t *where)
{
    const struct type *t = &types[dtype];
    const size_t parts = ref_bytes(dtype) / t->bytes;
    for (size_t i = 0; i < n * parts; i++) {
        const uint64_t a = load_bits((const unsigned char *)got + i * t->bytes, t->bytes);
        const uint64_t b = load_bits((const unsigned char *)want + i * t->bytes, t->bytes);
        if (a == b || (t->class >= CLASS_FLOAT && isnan(decode(t, a)) && isnan(decode(t, b)))) continue;
        if (where) *where = i / parts;
        return false;
    }
    return true;
}

/* The exact sum of one part over the inputs, or the product's real and imaginary parts, and the scale of its errors. */
struct exact {
    long double value, scale;
};

static struct exact exact_sum(enum tutti_dtype dtype, enum tutti_op op, const void *const *inputs, size_t n_inputs,
                              size_t element, size_t part, const void *factor)
{
    const struct type *t = &types[dtype];
    const size_t bytes = ref_bytes(dtype);
    struct exact sum = {0, 0};
    for (size_t k = 0; k < n_inputs; k++) {
        unsigned char scaled[16];
        memcpy(scaled, (const unsigned char *)inputs[k] + element * bytes, bytes);
        if (op == TUTTI_PREMUL_SUM) ref_scale(dtype, scaled, 1, factor);
        const double value = decode(t, load_bits(scaled + part * t->bytes, t->bytes));
        sum.value += value;
        sum.scale += fabs(value);
    }
    if (op == TUTTI_AVG) sum.value /= (long double)n_inputs, sum.scale /= (long double)n_inputs;
    return sum;
}

static struct exact exact_product(enum tutti_dtype dtype, const void *const *inputs, size_t n_inputs, size_t element,
                                  size_t part)
{
    const struct type *t = &types[dtype];
    const size_t bytes = ref_bytes(dtype);
    long double real = 1, imaginary = 0, scale = 1;
    for (size_t k = 0; k < n_inputs; k++) {
        const unsigned char *p = (const unsigned char *)inputs[k] + element * bytes;
        const long double x = decode(t, load_bits(p, t->bytes));
        const long double y = t->class == CLASS_COMPLEX ? decode(t, load_bits(p + t->bytes, t->bytes)) : 0;
        const long double r = real * x - imaginary * y;
        imaginary = real * y + imaginary * x;
        real = r;
        scale *= fabsl(x) + fabsl(y);
    }
    return (struct exact){part ? imaginary : real, scale};
}

bool ref_close(enum tutti_dtype dtype, enum tutti_op op, const void *const *inputs, size_t n_inputs, size_t n,
               const void *factor, const void *got, size_t *where)
{
    const struct type *t = &types[dtype];
    const size_t bytes = ref_bytes(dtype), parts = bytes / t->bytes;
    const bool any_order = t->class < CLASS_FLOAT || op == TUTTI_MIN || op == TUTTI_MAX;
    /* A hop errs by half a last place, twice that with a complex product and with the detour over float32. */
    const long double error = ldexpl((long double)(n_inputs + 1), -t->mantissa) * (t->class == CLASS_COMPLEX ? 2 : 1);
    const long double least = ldexpl((long double)(n_inputs + 1), 1 - t->bias - t->mantissa);
    for (size_t i = 0; i < n * parts; i++) {
        const unsigned char *p = (const unsigned char *)got + i * t->bytes;
        const size_t element = i / parts;
        bool good;
        if (any_order) {
            unsigned char want[16];
            reduce_element(dtype, op, inputs, n_inputs, element, factor, want);
            good = ref_equal(dtype, p, want, 1, NULL);
        } else {
            const struct exact want = op == TUTTI_PROD
                                          ? exact_product(dtype, inputs, n_inputs, element, i % parts)
                                          : exact_sum(dtype, op, inputs, n_inputs, element, i % parts, factor);
            const long double value = decode(t, load_bits(p, t->bytes));
            good = fabsl(value - want.value) <= error * want.scale + least; /* false for NaN */
        }
        if (good) continue;
        if (where) *where = element;
        return false;
    }
    return true;
}

void ref_print(enum tutti_dtype dtype, const void *element, char *out, size_t capacity)
{
    const struct type *t = &types[dtype];
    const unsigned char *p = element;
    if (t->class == CLASS_SIGNED)
        snprintf(out, capacity, "%lld", (long long)load_integer(t, p));
    else if (t->class == CLASS_UNSIGNED || t->class == CLASS_BOOL)
        snprintf(out, capacity, "%llu", (unsigned long long)load_integer(t, p));
    else if (t->class == CLASS_FLOAT)
        snprintf(out, capacity, "%.17g", decode(t, load_bits(p, t->bytes)));
    else
        snprintf(out, capacity, "(%.17g, %.17g)", decode(t, load_bits(p, t->bytes)),
                 decode(t, load_bits(p + t->bytes, t->bytes)));
}
