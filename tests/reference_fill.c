/* SPDX-License-Identifier: BSD-3-Clause */

/* Inputs for tests, random by seed. */

#include "reference.h"

#include <math.h>
#include <string.h>

/* splitmix64, of the seed and a position: element i is the same whatever the size of the buffer. */
static uint64_t random_at(uint64_t seed, uint64_t i)
{
    uint64_t x = seed * UINT64_C(0xd1342543de82ef95) + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static bool is_float(enum tutti_dtype dtype)
{
    return dtype >= TUTTI_FLOAT8_E4M3FN && dtype <= TUTTI_FLOAT64;
}

/* The real type of a complex one. */
static enum tutti_dtype part_of(enum tutti_dtype dtype)
{
    if (dtype == TUTTI_COMPLEX64) return TUTTI_FLOAT32;
    return dtype == TUTTI_COMPLEX128 ? TUTTI_FLOAT64 : dtype;
}

static void fill_edge(enum tutti_dtype dtype, uint64_t random, unsigned char *out)
{
    const size_t bytes = ref_bytes(dtype);
    const uint64_t top = UINT64_C(1) << (bytes * 8 - 1);
    /* Bits around both ends, and, for floats, numbers whose sums and products over- and underflow. */
    static const double numbers[] = {0.0, 1.0, 1.5, 2.0, 0.5, 3.0, 240.0, 448.0, 464.0, 57344.0, 65504.0, 3e38, 1e-38};
    uint64_t bits = random >> 8 & 3;
    if (is_float(dtype) && (random & 1)) {
        const double value = numbers[(random >> 16) % (sizeof numbers / sizeof numbers[0])];
        ref_encode(dtype, random & 2 ? -value : value, out);
        return;
    }
    if (is_float(dtype) && (random & 4)) {
        unsigned char code[8];
        ref_encode(dtype, random & 8 ? INFINITY : NAN, code);
        memcpy(&bits, code, bytes);
    } else if (random & 16) {
        bits = top - 1 - bits; /* the greatest */
    }
    if (random & 2) bits |= top;
    if (random & 32) bits = 0 - bits;
    memcpy(out, &bits, bytes);
}

void ref_fill(enum tutti_dtype dtype, enum ref_values values, uint64_t seed, void *out, size_t n)
{
    const enum tutti_dtype part = part_of(dtype);
    const size_t bytes = ref_bytes(part), n_parts = n * (ref_bytes(dtype) / bytes);
    for (size_t i = 0; i < n_parts; i++) {
        unsigned char *element = (unsigned char *)out + i * bytes;
        const uint64_t random = random_at(seed, i);
        if (values == REF_EDGES) {
            fill_edge(part, random, element);
        } else if (values == REF_FINITE && is_float(part)) {
            const double magnitude = 0.75 + (double)(random >> 12) * 0x1p-53; /* [0.75, 1.25) */
            ref_encode(part, random & 1 ? -magnitude : magnitude, element);
        } else {
            memcpy(element, &random, bytes);
            if (values == REF_FINITE && part == TUTTI_BOOL) *element &= 1;
        }
    }
}

/* 2 + i in any quarter, or 1: no part of a product of these is zero, whose sign would depend on the order. */
static double complex_factor(bool inside, uint64_t random, size_t part)
{
    static const double quarters[4][2] = {{2, 1}, {-1, 2}, {-2, -1}, {1, -2}};
    return inside ? quarters[random & 3][part] : part == 0;
}

/* At most eight ranks, a window that moves with the element, hold +-1 (sum) or a factor (prod: a power of two, of a
 * complex type 2 + i, turned): every partial sum then needs three bits at most, every partial product one, of a complex
 * type ten. Integers and extremes are exact anyway. */
void ref_fill_exact(enum tutti_dtype dtype, enum tutti_op op, uint64_t seed, size_t rank, size_t n_ranks, void *out,
                    size_t n)
{
    const enum tutti_dtype part = part_of(dtype);
    const size_t bytes = ref_bytes(part), parts = ref_bytes(dtype) / bytes;
    if (!is_float(part) || op == TUTTI_MIN || op == TUTTI_MAX) {
        ref_fill(dtype, REF_FINITE, seed + rank * UINT64_C(0x632be59bd9b4e019), out, n);
        return;
    }
    for (size_t i = 0; i < n * parts; i++) {
        const uint64_t window = random_at(seed, i / parts), random = random_at(seed + rank + 1, i);
        const bool inside = (rank + (size_t)(window % n_ranks)) % n_ranks < 8;
        double value = inside ? 1 : 0;
        if (op == TUTTI_PROD) value = inside && (random & 2) ? (random & 4 ? 2 : 0.5) : 1;
        if (random & 1) value = -value;
        if (op == TUTTI_PROD && parts == 2) value = complex_factor(inside, random_at(seed + rank + 1, i / 2), i % 2);
        ref_encode(part, value, (unsigned char *)out + i * bytes);
    }
}
