/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements to packed data and back (device/recode.h), with the bits of the CPU's kernels. A team of threads has a
 * group, each thread four neighbours, from the sources to the result. float64 goes by integers, since some devices take
 * no module with a double in it. */
#include "units.clh"

#include "device/recode.h"
#include "device/recode_math.h"

enum { TEAMS_MOST = 256 / (TUTTI_RECODE_GROUP_UNIT / 4) };

struct group {
    uint32_t team, e; /* of this thread; and its first element in the group */
    uint32_t part, n; /* elements; 0: there is none for these threads */
    uint64_t number, first;
};

/* ---- elements ---- */
/* Of a float64's bits, rounded to nearest even, those of a float32. */
XPU_DEVICE float recode_from_float64(uint64_t bits)
{
    const uint32_t sign = (uint32_t)(bits >> 63) << 31;
    const int32_t exponent = (int32_t)(bits >> 52 & 0x7ff) - 1023 + 127;
    const uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1), last = UINT64_C(1) << 28;
    if (exponent == 0x7ff - 1023 + 127)
        return xpu_float(sign | (mantissa ? RECODE_NAN | (uint32_t)(mantissa >> 29) : RECODE_INFINITY));
    if (exponent >= 255) return xpu_float(sign | RECODE_INFINITY);
    if (exponent < -23) return xpu_float(sign);
    /* in units of the last place of the result, and 2^-29 of them */
    const uint64_t full = exponent > 0 ? mantissa : mantissa | UINT64_C(1) << 52;
    const uint32_t shift = exponent > 0 ? 0 : (uint32_t)(1 - exponent);
    const uint64_t sticky = full & ((UINT64_C(1) << shift) - 1) ? 1 : 0, value = full >> shift | sticky;
    const uint32_t kept = (uint32_t)(value >> 29) + (exponent > 0 ? (uint32_t)exponent << 23 : 0);
    const uint64_t rest = value & (2 * last - 1);
    return xpu_float(sign | (kept + (rest > last || (rest == last && (kept & 1)) ? 1 : 0)));
}
XPU_DEVICE uint64_t recode_to_float64(float v)
{
    const uint32_t bits = xpu_bits(v), size = bits & 0x7fffffffu;
    const uint64_t sign = (uint64_t)(bits >> 31) << 63;
    if (v != v) return UINT64_C(0x7ff8000000000000);
    if (size >= RECODE_INFINITY) return sign | UINT64_C(0x7ff0000000000000);
    if (size == 0) return sign;
    if (size >= 1u << 23) return sign | (((uint64_t)size << 29) + ((uint64_t)(1023 - 127) << 52));
    uint32_t shift = 0; /* of a subnormal, to a leading one at bit 23 */
    while ((size << shift & 1u << 23) == 0) shift++;
    return sign | (((uint64_t)(size << shift) << 29) + ((uint64_t)(1023 - 127 - shift) << 52));
}

XPU_DEVICE float recode_widen(enum tutti_dtype dtype, uint64_t at)
{
    if (dtype == TUTTI_FLOAT32) return xpu_float(xpu_read_u32(at));
    if (dtype == TUTTI_FLOAT16) return recode_from_float16(xpu_read_u16(at));
    if (dtype == TUTTI_BFLOAT16) return xpu_float((uint32_t)xpu_read_u16(at) << 16);
    return recode_from_float64(xpu_read_u64(at));
}

XPU_DEVICE void recode_narrow(enum tutti_dtype dtype, float v, uint64_t at)
{
    if (dtype == TUTTI_FLOAT32)
        xpu_write_u32(at, xpu_bits(recode_canonical(v)));
    else if (dtype == TUTTI_FLOAT16)
        xpu_write_u16(at, (uint16_t)recode_to_float16(v));
    else if (dtype == TUTTI_BFLOAT16)
        xpu_write_u16(at, (uint16_t)recode_to_bfloat16(v, false, 0));
    else
        xpu_write_u64(at, recode_to_float64(v));
}

XPU_DEVICE uint32_t recode_bytes(enum tutti_dtype dtype)
{
    return dtype == TUTTI_FLOAT64 ? 8 : dtype == TUTTI_FLOAT32 ? 4 : 2;
}

/* ---- a group ---- */
XPU_IS(uint32_t, code_bytes, (enum tutti_wire wire), wire == TUTTI_WIRE_BFLOAT16 ? 2 : 1)
XPU_IS(uint32_t, scale_bytes, (enum tutti_wire wire), wire == TUTTI_WIRE_BFLOAT16 ? 0 : 4)

/* Where the group is in packed data. */
XPU_DEVICE uint64_t group_place(const struct tutti_recode *x, const struct group *g, enum tutti_wire wire)
{
    return g->part * x->part_bytes + g->number * (scale_bytes(wire) + x->packing.group * code_bytes(wire));
}

/* What source q has of the group, into or onto the sum. Packed data has room for four whole codes at its end. */
XPU_DEVICE void group_add(const struct tutti_recode *x, const struct group *g, uint32_t q, float *sum,
                          enum tutti_wire wire)
{
    const bool own = q == x->me;
    const uint64_t elements = (uint64_t)x->own + (g->part * x->part + g->first) * recode_bytes(x->dtype);
    uint64_t from = own ? elements : (uint64_t)x->packed + q * x->source_bytes + group_place(x, g, wire);
    uint32_t words[2] = {0, 0};
    float scale = 1;
    if (!own) {
        if (scale_bytes(wire)) scale = xpu_float(xpu_read_u32(from)), from += 4;
        words[0] = xpu_read_u32(from + g->e * code_bytes(wire));
        if (code_bytes(wire) == 2) words[1] = xpu_read_u32(from + g->e * 2 + 4);
    }
    XPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t two = words[k / 2] >> (k % 2 * 16) & 0xffff, one = words[0] >> (k * 8) & 0xff;
        float value = 0;
        if (!own)
            value = recode_decode(wire, code_bytes(wire) == 2 ? two : one, scale);
        else if (g->e + k < g->n)
            value = recode_widen(x->dtype, from + (uint64_t)(g->e + k) * recode_bytes(x->dtype));
        sum[k] = q == 0 ? value : xpu_add(sum[k], value);
    }
}

/* The bits of the group's largest magnitude, for all its threads; all threads of the block come to it. */
XPU_DEVICE uint32_t group_greatest(const struct group *g, const float *sum, __local uint32_t *greatest)
{
    uint32_t most = 0;
    XPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t size = xpu_bits(sum[k]) & 0x7fffffffu;
        if (g->e + k < g->n && size > most) most = size;
    }
    xpu_sync(); /* the last group's has been read */
    if (g->e == 0) greatest[g->team] = 0;
    xpu_sync();
    xpu_local_max(&greatest[g->team], most);
    xpu_sync();
    return greatest[g->team];
}

XPU_DEVICE void group_pack(const struct tutti_recode *x, const struct group *g, const float *sum, uint32_t greatest,
                           enum tutti_wire wire)
{
    uint64_t to = (uint64_t)x->repacked + group_place(x, g, wire);
    const uint64_t seed = x->seed + (x->seeds ? xpu_read_u64((uint64_t)x->seeds) : 0);
    const uint64_t key = recode_key(seed, x->stream, (uint64_t)g->part << 40 | g->number);
    uint32_t words[2] = {0, 0};
    float inverse = 1;
    if (scale_bytes(wire)) {
        if (g->e == 0) xpu_write_u32(to, xpu_bits(recode_scale(greatest, recode_most(wire))));
        inverse = recode_inverse(greatest, recode_most(wire));
        to += 4;
    }
    XPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t random = x->stochastic ? recode_random(key, g->e + k) : 0;
        const uint32_t code = recode_encode(wire, sum[k], inverse, x->stochastic, random);
        if (code_bytes(wire) == 2)
            words[k / 2] |= code << (k % 2 * 16);
        else
            words[0] |= code << (k * 8);
    }
    xpu_write_u32(to + g->e * code_bytes(wire), words[0]);
    if (code_bytes(wire) == 2) xpu_write_u32(to + g->e * 2 + 4, words[1]);
}

/* All threads of the block come to it. */
XPU_DEVICE void group_recode(const struct tutti_recode *x, const struct group *g, __local uint32_t *greatest,
                             enum tutti_wire wire)
{
    const bool some = g->e < g->n;
    float sum[4] = {0, 0, 0, 0};
    for (uint32_t q = 0; q < x->n && some; q++) group_add(x, g, q, sum, wire);
    if (x->divisor > 1) {
        XPU_UNROLL
        for (uint32_t k = 0; k < 4; k++) sum[k] = xpu_divide(sum[k], (float)x->divisor);
    }
    const uint32_t most = x->repacked && scale_bytes(wire) ? group_greatest(g, sum, greatest) : 0;
    if (some && x->repacked) group_pack(x, g, sum, most, wire);
    if (!some || x->repacked) return;
    const uint64_t to = (uint64_t)x->elements + (g->part * x->part + g->first) * recode_bytes(x->dtype);
    XPU_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        if (g->e + k < g->n) recode_narrow(x->dtype, sum[k], to + (uint64_t)(g->e + k) * recode_bytes(x->dtype));
}

XPU_DEVICE void recode(const struct tutti_recode *x, __local uint32_t *greatest, enum tutti_wire wire)
{
    const uint64_t most = x->end < x->part ? x->end : x->part, of = x->packing.group;
    const uint64_t groups = most > x->begin ? (most - x->begin + of - 1) / of : 0, all = groups * x->n_parts;
    uint32_t lanes = TUTTI_RECODE_GROUP_UNIT / 4; /* of a team: a power of two */
    while (4 * lanes < of) lanes *= 2;
    const uint64_t teams = xpu_threads() / lanes, turn = xpu_blocks() * teams;
    for (uint64_t begin = xpu_block() * teams; begin < all; begin += turn) {
        const uint64_t i = begin + xpu_thread() / lanes;
        struct group g = {xpu_thread() / lanes, xpu_thread() % lanes * 4, 0, 0, 0, 0};
        if (i < all) {
            g.part = (uint32_t)(i / groups), g.number = x->begin / of + i % groups, g.first = g.number * of;
            const uint64_t before = g.part * x->part, left = before < x->total ? x->total - before : 0;
            const uint64_t end = left < most ? left : most;
            if (g.part != x->skip && g.first < end) g.n = (uint32_t)(end - g.first < of ? end - g.first : of);
        }
        group_recode(x, &g, greatest, wire);
    }
}

/* Launches have 256 threads a block: a team of the largest group. */
struct teams {
    uint32_t greatest[TEAMS_MOST];
};
#define RECODE_KERNEL(name, wire)                                                                                      \
    XPU_KERNEL(recode_##name, struct tutti_recode, x, 256)                                                             \
    {                                                                                                                  \
        XPU_LOCAL(struct teams, teams);                                                                                \
        recode(&x, teams.greatest, wire);                                                                              \
    }
RECODE_KERNEL(bfloat16, TUTTI_WIRE_BFLOAT16)
RECODE_KERNEL(float8_e4m3, TUTTI_WIRE_FLOAT8_E4M3)
RECODE_KERNEL(float8_e5m2, TUTTI_WIRE_FLOAT8_E5M2)
RECODE_KERNEL(int8, TUTTI_WIRE_INT8)
