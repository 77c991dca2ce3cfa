/* SPDX-License-Identifier: BSD-3-Clause */
/* Inputs and expected outputs of `tutti bench --check`. Inputs are small integers, so that every result of every type
 * is exact up to the rounding of its sums: the expected value is computed in float64 (floats) or modulo 2^64
 * (integers). */

#include "bench.h"

#include <math.h>
#include <string.h>

/* 1 almost everywhere and 2 now and then: sums stay small, products of up to a thousand ranks stay in range. */
static uint32_t value_at(int32_t rank, size_t index, uint32_t round, int32_t n_ranks)
{
    return ((size_t)rank + index + round) % (size_t)n_ranks == 0 ? 2 : 1;
}

/* Small integers: neither zero's sign, infinities nor NaN can be right, so they need no case of their own. */
static double small_float_decode(const struct tutti_dtype_info *f, uint32_t bits)
{
    const int sign_bit = (int)f->bytes * 8 - 1, digits = (int)f->mantissa_bits, bias = (int)f->bias;
    uint32_t mantissa = bits & ((1u << digits) - 1);
    int exponent = (int)((bits & ~(1u << sign_bit)) >> digits);
    double magnitude =
        exponent ? ldexp(1.0 + ldexp(mantissa, -digits), exponent - bias) : ldexp(mantissa, 1 - bias - digits);
    return bits >> sign_bit ? -magnitude : magnitude;
}

static uint32_t small_float_encode(const struct tutti_dtype_info *f, uint32_t value)
{
    return (f->bias + (value >= 2)) << f->mantissa_bits; /* only 1 and 2 are written */
}

static bool is_integer(enum tutti_dtype dtype)
{
    return tutti_dtypes[dtype].class <= TUTTI_UNSIGNED;
}

static void element_write(enum tutti_dtype dtype, unsigned char *at, uint32_t value)
{
    size_t bytes = tutti_dtype_bytes(dtype);
    uint64_t integer = value;
    if (tutti_dtypes[dtype].class == TUTTI_SMALL_FLOAT) integer = small_float_encode(&tutti_dtypes[dtype], value);
    if (dtype == TUTTI_BOOL) integer = value == 2;
    if (dtype == TUTTI_FLOAT32 || dtype == TUTTI_COMPLEX64) {
        float parts[2] = {(float)value, 0};
        memcpy(at, parts, bytes);
    } else if (dtype == TUTTI_FLOAT64 || dtype == TUTTI_COMPLEX128) {
        double parts[2] = {value, 0};
        memcpy(at, parts, bytes);
    } else {
        memcpy(at, &integer, bytes); /* little endian */
    }
}

void bench_fill(const struct bench_case *c, void *buffer, size_t n, int32_t rank, uint32_t round)
{
    size_t bytes = tutti_dtype_bytes(c->dtype);
    for (size_t i = 0; i < n; i++)
        element_write(c->dtype, (unsigned char *)buffer + i * bytes, value_at(rank, i, round, c->n_ranks));
}

static double float_read(enum tutti_dtype dtype, const unsigned char *at)
{
    float f32;
    double f64;
    uint32_t bits = 0;
    if (dtype == TUTTI_FLOAT32 || dtype == TUTTI_COMPLEX64) return memcpy(&f32, at, sizeof f32), (double)f32;
    if (dtype == TUTTI_FLOAT64 || dtype == TUTTI_COMPLEX128) return memcpy(&f64, at, sizeof f64), f64;
    memcpy(&bits, at, tutti_dtype_bytes(dtype));
    return small_float_decode(&tutti_dtypes[dtype], bits);
}

static uint64_t integer_read(enum tutti_dtype dtype, const unsigned char *at)
{
    uint64_t value = 0;
    memcpy(&value, at, tutti_dtype_bytes(dtype));
    return value;
}

/* Modulo the type's width; every value is positive unless it wrapped, which no bench of this size reaches. */
static uint64_t fold(const struct bench_case *c, size_t index, size_t n, uint32_t round)
{
    uint64_t result = 0;
    for (size_t r = 0; r < n; r++) {
        uint64_t v = value_at((int32_t)r, index, round, c->n_ranks);
        if (r == 0) {
            result = v;
            continue;
        }
        switch (c->reduction) {
        case TUTTI_PROD:
            result *= v;
            break;
        case TUTTI_MIN:
            result = v < result ? v : result;
            break;
        case TUTTI_MAX:
            result = v > result ? v : result;
            break;
        case TUTTI_BAND:
            result &= v;
            break;
        case TUTTI_BOR:
            result |= v;
            break;
        case TUTTI_BXOR:
            result ^= v;
            break;
        default:
            result += v;
            break;
        }
    }
    if (c->reduction == TUTTI_PREMUL_SUM) result *= (uint64_t)BENCH_FACTOR;
    return result;
}

static bool fold_bool(const struct bench_case *c, size_t index, size_t n, uint32_t round)
{
    size_t n_true = 0;
    for (size_t r = 0; r < n; r++) n_true += value_at((int32_t)r, index, round, c->n_ranks) == 2;
    if (c->reduction == TUTTI_BXOR) return n_true % 2;
    bool all = c->reduction == TUTTI_PROD || c->reduction == TUTTI_MIN || c->reduction == TUTTI_BAND;
    return all ? n_true == n : n_true > 0;
}

/* Half an ulp for each of the roundings that a sum of n operands may see. */
static double tolerance(enum tutti_dtype dtype, size_t n)
{
    return ldexp((double)n, -(int)tutti_dtypes[dtype].mantissa_bits - 1);
}

static bool is_right(const struct bench_case *c, const unsigned char *at, size_t i, uint32_t round)
{
    const struct bench_origin origin = bench_origin(c, i);
    const int32_t from = origin.from;
    const size_t index = origin.index, n_from = origin.n_from;
    if (n_from == 0) return true;
    bool moved = from >= 0, average = !moved && c->reduction == TUTTI_AVG;
    if (c->dtype == TUTTI_BOOL) {
        bool expected = moved ? value_at(from, index, round, c->n_ranks) == 2 : fold_bool(c, index, n_from, round);
        return *at == expected;
    }
    uint64_t sum = moved ? value_at(from, index, round, c->n_ranks) : fold(c, index, n_from, round);
    if (is_integer(c->dtype)) {
        if (average) sum /= n_from;
        size_t bits = 8 * tutti_dtype_bytes(c->dtype);
        return integer_read(c->dtype, at) == (bits == 64 ? sum : sum & ((UINT64_C(1) << bits) - 1));
    }
    double expected = average ? (double)sum / (double)n_from : (double)sum;
    return fabs(float_read(c->dtype, at) - expected) <= (moved ? 0 : tolerance(c->dtype, n_from) * expected);
}

size_t bench_wrong(const struct bench_case *c, const void *recv, uint32_t round)
{
    size_t n = bench_recv_elements(c), bytes = tutti_dtype_bytes(c->dtype), wrong = 0;
    for (size_t i = 0; i < n; i++) wrong += !is_right(c, (const unsigned char *)recv + i * bytes, i, round);
    return wrong;
}
