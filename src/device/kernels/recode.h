/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_RECODE_H
#define TUTTI_DEVICE_KERNELS_RECODE_H

/* Elements to packed data and back (device/recode.h), with the bits of the CPU's kernels. A team of threads has a
 * group: each thread four neighbours of every gpu_recode_stride elements, in registers, from the sources to the result.
 * The architecture's header says what a team is: a warp, or as many threads of a block as the group has fours. */

#include "device/kernels/machine.h"
#include "device/recode.h"
#include "device/recode_math.h"

struct recode_group {
    uint32_t e;       /* this thread's first element in the group */
    uint32_t part, n; /* elements; 0: there is none for these threads */
    uint64_t number, first;
};

/* ---- the team ---- */
#ifdef GPU_WARPS
constexpr uint32_t recode_quads = TUTTI_RECODE_GROUP_MOST / 4 / GPU_WARP; /* a thread's, at most */
constexpr uint32_t recode_stride = 4 * GPU_WARP;
typedef int recode_votes;
constexpr bool recode_alone = true; /* a team may leave out what the others of its block do */
GPU_IS(uint32_t, recode_lanes, (uint32_t), GPU_WARP)
GPU_IS(float, recode_from_float64, (uint64_t bits), (float)gpu_double(bits))
GPU_IS(uint64_t, recode_to_float64, (float v), v == v ? gpu_bits64((double)v) : UINT64_C(0x7ff8000000000000))
/* The greatest of the team, for all its threads. */
GPU_DEVICE uint32_t recode_greatest_of(uint32_t most, const recode_group &, recode_votes *)
{
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const uint32_t other = gpu_shuffle_xor(most, mask);
        most = gpu_greatest(most, other);
    }
    return most;
}
#else
constexpr uint32_t recode_quads = 1, recode_stride = TUTTI_RECODE_GROUP_MOST;
constexpr bool recode_alone = false;
struct recode_votes {
    uint32_t greatest[256 / (TUTTI_RECODE_GROUP_UNIT / 4)]; /* [team] of the smallest groups */
};
/* A power of two. */
GPU_DEVICE uint32_t recode_lanes(uint32_t group)
{
    uint32_t lanes = TUTTI_RECODE_GROUP_UNIT / 4;
    while (4 * lanes < group) lanes *= 2;
    return lanes;
}
/* float64 goes by integers, since some devices take no module with a double in it: of its bits, rounded to nearest
 * even, those of a float32. */
GPU_DEVICE float recode_from_float64(uint64_t bits)
{
    const uint32_t sign = (uint32_t)(bits >> 63) << 31;
    const int32_t exponent = (int32_t)(bits >> 52 & 0x7ff) - 1023 + 127;
    const uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1), last = UINT64_C(1) << 28;
    if (exponent == 0x7ff - 1023 + 127)
        return gpu_float(sign | (mantissa ? RECODE_NAN | (uint32_t)(mantissa >> 29) : RECODE_INFINITY));
    if (exponent >= 255) return gpu_float(sign | RECODE_INFINITY);
    if (exponent < -23) return gpu_float(sign);
    /* in units of the last place of the result, and 2^-29 of them */
    const uint64_t full = exponent > 0 ? mantissa : mantissa | UINT64_C(1) << 52;
    const uint32_t shift = exponent > 0 ? 0 : (uint32_t)(1 - exponent);
    const uint64_t sticky = full & ((UINT64_C(1) << shift) - 1) ? 1 : 0, value = full >> shift | sticky;
    const uint32_t kept = (uint32_t)(value >> 29) + (exponent > 0 ? (uint32_t)exponent << 23 : 0);
    const uint64_t rest = value & (2 * last - 1);
    return gpu_float(sign | (kept + (rest > last || (rest == last && (kept & 1)) ? 1 : 0)));
}
GPU_DEVICE uint64_t recode_to_float64(float v)
{
    const uint32_t bits = gpu_bits(v), size = bits & 0x7fffffffu;
    const uint64_t sign = (uint64_t)(bits >> 31) << 63;
    if (v != v) return UINT64_C(0x7ff8000000000000);
    if (size >= RECODE_INFINITY) return sign | UINT64_C(0x7ff0000000000000);
    if (size == 0) return sign;
    if (size >= 1u << 23) return sign | (((uint64_t)size << 29) + ((uint64_t)(1023 - 127) << 52));
    uint32_t shift = 0; /* for a subnormal, to a leading one at bit 23 */
    while ((size << shift & 1u << 23) == 0) shift++;
    return sign | (((uint64_t)(size << shift) << 29) + ((uint64_t)(1023 - 127 - shift) << 52));
}
/* All threads of the block come to it. */
GPU_DEVICE uint32_t recode_greatest_of(uint32_t most, const recode_group &g, GPU_LOCAL recode_votes *votes)
{
    const uint32_t team = gpu_thread() - g.e / 4; /* its first thread, unlike another team's */
    GPU_LOCAL uint32_t *greatest = &votes->greatest[team / (TUTTI_RECODE_GROUP_UNIT / 4)];
    gpu_sync(); /* the last group's has been read */
    if (g.e == 0) *greatest = 0;
    gpu_sync();
    gpu_local_max(greatest, most);
    gpu_sync();
    return *greatest;
}
#endif

/* ---- elements ---- */
GPU_DEVICE float recode_widen(enum tutti_dtype dtype, gpu_address at)
{
    if (dtype == TUTTI_FLOAT32) return gpu_float(gpu_read_u32(at));
    if (dtype == TUTTI_FLOAT16) return recode_from_float16(gpu_read_u16(at));
    if (dtype == TUTTI_BFLOAT16) return gpu_float((uint32_t)gpu_read_u16(at) << 16);
    return recode_from_float64(gpu_read_u64(at));
}

GPU_DEVICE void recode_narrow(enum tutti_dtype dtype, float v, gpu_address at)
{
    if (dtype == TUTTI_FLOAT32)
        gpu_write_u32(at, gpu_bits(recode_canonical(v)));
    else if (dtype == TUTTI_FLOAT16)
        gpu_write_u16(at, (uint16_t)recode_to_float16(v));
    else if (dtype == TUTTI_BFLOAT16)
        gpu_write_u16(at, (uint16_t)recode_to_bfloat16(v, false, 0));
    else
        gpu_write_u64(at, recode_to_float64(v));
}

GPU_DEVICE uint32_t recode_bytes(enum tutti_dtype dtype)
{
    return dtype == TUTTI_FLOAT64 ? 8 : dtype == TUTTI_FLOAT32 ? 4 : 2;
}

/* Four neighbours; only the first `left` of them exist. */
GPU_DEVICE void recode_take(enum tutti_dtype dtype, gpu_address at, uint32_t left, float *out)
{
    if (dtype == TUTTI_FLOAT32 && left >= 4 && ((uintptr_t)at & 15) == 0) {
        const gpu_words words = gpu_read_words(at);
        out[0] = gpu_float(words.x), out[1] = gpu_float(words.y);
        out[2] = gpu_float(words.z), out[3] = gpu_float(words.w);
        return;
    }
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) out[k] = k < left ? recode_widen(dtype, at + k * recode_bytes(dtype)) : 0;
}

GPU_DEVICE void recode_give(enum tutti_dtype dtype, const float *in, uint32_t left, gpu_address at)
{
    if (dtype == TUTTI_FLOAT32 && left >= 4 && ((uintptr_t)at & 15) == 0) {
        gpu_write_words(at, gpu_words{gpu_bits(recode_canonical(in[0])), gpu_bits(recode_canonical(in[1])),
                                      gpu_bits(recode_canonical(in[2])), gpu_bits(recode_canonical(in[3]))});
        return;
    }
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        if (k < left) recode_narrow(dtype, in[k], at + k * recode_bytes(dtype));
}

/* ---- a group ---- */
template <enum tutti_wire WIRE>
GPU_IS(constexpr uint32_t, recode_code_bytes, (), WIRE == TUTTI_WIRE_BFLOAT16 ? 2 : 1)
template <enum tutti_wire WIRE>
GPU_IS(constexpr uint32_t, recode_scale_bytes, (), WIRE == TUTTI_WIRE_BFLOAT16 ? 0 : 4)

/* Where the group is in packed data. */
template <enum tutti_wire WIRE>
GPU_DEVICE uint64_t recode_place(const struct tutti_recode &x, const recode_group &g)
{
    return g.part * x.part_bytes +
           g.number * (recode_scale_bytes<WIRE>() + x.packing.group * recode_code_bytes<WIRE>());
}

/* What source q has of the group, into or onto the sum. Packed data has room for four whole codes at its end. */
template <enum tutti_wire WIRE>
GPU_DEVICE void recode_add(const struct tutti_recode &x, const recode_group &g, uint32_t q, float (*sum)[4])
{
    const bool own = q == x.me;
    gpu_address from = own ? GPU_AT(x.own) + (g.part * x.part + g.first) * recode_bytes(x.dtype)
                           : GPU_AT(x.packed) + (q * x.source_bytes + recode_place<WIRE>(x, g));
    float scale = 1;
    if (!own && recode_scale_bytes<WIRE>() && (recode_alone || g.e < g.n))
        scale = gpu_float(gpu_read_u32(from)), from += 4;
    GPU_UNROLL
    for (uint32_t j = 0; j < recode_quads; j++) {
        const uint32_t e = j * recode_stride + g.e;
        if (e >= g.n) continue;
        float values[4];
        if (own) {
            recode_take(x.dtype, from + (uint64_t)e * recode_bytes(x.dtype), g.n - e, values);
        } else {
            uint32_t words[2];
            words[0] = gpu_read_u32(from + e * recode_code_bytes<WIRE>());
            words[1] = recode_code_bytes<WIRE>() == 2 ? gpu_read_u32(from + (e * 2 + 4)) : 0;
            GPU_UNROLL
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t code =
                    recode_code_bytes<WIRE>() == 2 ? words[k / 2] >> (k % 2 * 16) & 0xffff : words[0] >> (k * 8) & 0xff;
                values[k] = recode_decode(WIRE, code, scale);
            }
        }
        GPU_UNROLL
        for (uint32_t k = 0; k < 4; k++) sum[j][k] = q == 0 ? values[k] : gpu_add(sum[j][k], values[k]);
    }
}

/* The bits of the group's largest magnitude, for all its threads. */
GPU_DEVICE uint32_t recode_greatest(const recode_group &g, const float (*sum)[4], GPU_LOCAL recode_votes *votes)
{
    uint32_t greatest = 0;
    GPU_UNROLL
    for (uint32_t i = 0; i < recode_quads * 4; i++) {
        const uint32_t e = i / 4 * recode_stride + g.e + i % 4, size = gpu_bits(sum[i / 4][i % 4]) & 0x7fffffffu;
        if (e < g.n) greatest = greatest > size ? greatest : size;
    }
    return recode_greatest_of(greatest, g, votes);
}

template <enum tutti_wire WIRE>
GPU_DEVICE void recode_pack(const struct tutti_recode &x, const recode_group &g, const float (*sum)[4],
                            GPU_LOCAL recode_votes *votes)
{
    gpu_address to = GPU_AT(x.repacked) + recode_place<WIRE>(x, g);
    const uint64_t seed = x.seed + (x.seeds ? gpu_read_u64(GPU_AT(x.seeds)) : 0);
    const uint64_t key = recode_key(seed, x.stream, (uint64_t)g.part << 40 | g.number);
    float inverse = 1;
    if (recode_scale_bytes<WIRE>()) {
        const uint32_t greatest = recode_greatest(g, sum, votes);
        if (g.e == 0 && g.n > 0) gpu_write_u32(to, gpu_bits(recode_scale(greatest, recode_most(WIRE))));
        inverse = recode_inverse(greatest, recode_most(WIRE));
        to += 4;
    }
    GPU_UNROLL
    for (uint32_t j = 0; j < recode_quads; j++) {
        const uint32_t e = j * recode_stride + g.e;
        uint32_t words[2] = {0, 0};
        if (e >= g.n) continue;
        GPU_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t random = x.stochastic ? recode_random(key, e + k) : 0;
            const uint32_t code = recode_encode(WIRE, sum[j][k], inverse, x.stochastic, random);
            if (recode_code_bytes<WIRE>() == 2)
                words[k / 2] |= code << (k % 2 * 16);
            else
                words[0] |= code << (k * 8);
        }
        gpu_write_u32(to + e * recode_code_bytes<WIRE>(), words[0]);
        if (recode_code_bytes<WIRE>() == 2) gpu_write_u32(to + (e * 2 + 4), words[1]);
    }
}

template <enum tutti_wire WIRE>
GPU_DEVICE void recode_one(const struct tutti_recode &x, const recode_group &g, GPU_LOCAL recode_votes *votes)
{
    float sum[recode_quads][4] = {};
    for (uint32_t q = 0; q < x.n; q++) recode_add<WIRE>(x, g, q, sum);
    if (x.divisor > 1) {
        GPU_UNROLL
        for (uint32_t i = 0; i < recode_quads * 4; i++)
            sum[i / 4][i % 4] = gpu_divide(sum[i / 4][i % 4], (float)x.divisor);
    }
    if (x.repacked) return recode_pack<WIRE>(x, g, sum, votes);
    GPU_UNROLL
    for (uint32_t j = 0; j < recode_quads; j++) {
        const uint32_t e = j * recode_stride + g.e;
        const gpu_address to = GPU_AT(x.elements) + (g.part * x.part + g.first + e) * recode_bytes(x.dtype);
        if (e < g.n) recode_give(x.dtype, sum[j], g.n - e, to);
    }
}

/* The i-th of all groups of the parts, if this thread has a place in it. */
GPU_DEVICE void recode_find(const struct tutti_recode &x, uint64_t i, uint64_t groups, uint64_t most, recode_group *g)
{
    const uint64_t group = x.packing.group;
    g->part = (uint32_t)(i / groups), g->number = x.begin / group + i % groups;
    const uint64_t before = g->part * x.part, left = before < x.total ? x.total - before : 0;
    const uint64_t end = left < most ? left : most;
    g->first = g->number * group;
    if (g->part != x.skip && g->first < end) g->n = (uint32_t)(end - g->first < group ? end - g->first : group);
}

/* All threads of the block come to it. */
template <enum tutti_wire WIRE> GPU_DEVICE void recode(const struct tutti_recode &x, GPU_LOCAL recode_votes *votes)
{
    const uint64_t most = x.end < x.part ? x.end : x.part, group = x.packing.group;
    const uint64_t groups = most > x.begin ? (most - x.begin + group - 1) / group : 0, all = groups * x.n_parts;
    const uint32_t lanes = recode_lanes((uint32_t)group), teams = gpu_threads() / lanes, team = gpu_thread() / lanes;
    const uint64_t turn = (uint64_t)gpu_blocks() * teams, late = recode_alone ? 0 : team;
    for (uint64_t i = (uint64_t)gpu_block() * teams + team; i - late < all; i += turn) {
        recode_group g = {gpu_thread() % lanes * 4, 0, 0, 0, 0};
        if (i < all) recode_find(x, i, groups, most, &g);
        if (recode_alone && g.n == 0) continue;
        recode_one<WIRE>(x, g, votes);
    }
}

/* Launches have 256 threads a block: a team of the largest group. */
#define GPU_RECODE(name, wire)                                                                                         \
    GPU_KERNEL(recode_##name, struct tutti_recode, x, 256)                                                             \
    {                                                                                                                  \
        GPU_SHARED(recode_votes, votes);                                                                               \
        gpu_wait_for_launch();                                                                                         \
        recode<wire>(x, &votes);                                                                                       \
    }

#endif
