/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_RECODE_CUH
#define TUTTI_DEVICE_CUDA_RECODE_CUH

/* Elements to packed data and back (device/recode.h), with the bits of the CPU's kernels. A warp has a group: each lane
 * four neighbours of every 128 elements, in registers, from the sources to the result. */

#include "units.cuh"

#include "device/recode.h"
#include "device/recode_math.h"

constexpr uint32_t recode_quads = TUTTI_RECODE_GROUP_MOST / 4 / CUDA_WARP; /* of a lane, at most */

struct recode_group {
    uint32_t part, n; /* elements */
    uint64_t number, first;
};

/* ---- elements ---- */

template <typename Code> CUDA_DEVICE Code recode_load(const char *at)
{
    return *reinterpret_cast<const Code *>(at);
}

CUDA_DEVICE float recode_widen(enum tutti_dtype dtype, const char *at)
{
    if (dtype == TUTTI_FLOAT32) return cuda_float(recode_load<uint32_t>(at));
    if (dtype == TUTTI_FLOAT16) return recode_from_float16(recode_load<uint16_t>(at));
    if (dtype == TUTTI_BFLOAT16) return cuda_float((uint32_t)recode_load<uint16_t>(at) << 16);
    return (float)cuda_double(recode_load<uint64_t>(at));
}

CUDA_DEVICE void recode_narrow(enum tutti_dtype dtype, float v, char *at)
{
    if (dtype == TUTTI_FLOAT32) {
        *reinterpret_cast<uint32_t *>(at) = cuda_bits(recode_canonical(v));
    } else if (dtype == TUTTI_FLOAT16) {
        *reinterpret_cast<uint16_t *>(at) = (uint16_t)recode_to_float16(v);
    } else if (dtype == TUTTI_BFLOAT16) {
        *reinterpret_cast<uint16_t *>(at) = (uint16_t)recode_to_bfloat16(v, false, 0);
    } else {
        const uint64_t bits = v == v ? cuda_bits64((double)v) : UINT64_C(0x7ff8000000000000);
        *reinterpret_cast<uint64_t *>(at) = bits;
    }
}

CUDA_DEVICE uint32_t recode_bytes(enum tutti_dtype dtype)
{
    return dtype == TUTTI_FLOAT64 ? 8 : dtype == TUTTI_FLOAT32 ? 4 : 2;
}

/* Four neighbours; only the first `left` of them exist. */
CUDA_DEVICE void recode_take(enum tutti_dtype dtype, const char *at, uint32_t left, float *out)
{
    if (dtype == TUTTI_FLOAT32 && left >= 4 && (reinterpret_cast<uintptr_t>(at) & 15) == 0) {
        const cuda_words words = cuda_read_words(at);
        out[0] = cuda_float(words.x), out[1] = cuda_float(words.y);
        out[2] = cuda_float(words.z), out[3] = cuda_float(words.w);
        return;
    }
    CUDA_UNROLL for (uint32_t k = 0; k < 4; k++) out[k] =
        k < left ? recode_widen(dtype, at + k * recode_bytes(dtype)) : 0;
}

CUDA_DEVICE void recode_give(enum tutti_dtype dtype, const float *in, uint32_t left, char *at)
{
    if (dtype == TUTTI_FLOAT32 && left >= 4 && (reinterpret_cast<uintptr_t>(at) & 15) == 0) {
        cuda_write_words(at, cuda_words{cuda_bits(recode_canonical(in[0])), cuda_bits(recode_canonical(in[1])),
                                        cuda_bits(recode_canonical(in[2])), cuda_bits(recode_canonical(in[3]))});
        return;
    }
    CUDA_UNROLL for (uint32_t k = 0; k < 4; k++)
    {
        if (k < left) recode_narrow(dtype, in[k], at + k * recode_bytes(dtype));
    }
}

/* ---- a group ---- */

template <enum tutti_wire WIRE> constexpr uint32_t recode_code_bytes = WIRE == TUTTI_WIRE_BFLOAT16 ? 2 : 1;
template <enum tutti_wire WIRE> constexpr uint32_t recode_scale_bytes = WIRE == TUTTI_WIRE_BFLOAT16 ? 0 : 4;

/* Where the group is in packed data. */
template <enum tutti_wire WIRE> CUDA_DEVICE uint64_t recode_place(const struct tutti_recode &x, const recode_group &g)
{
    return g.part * x.part_bytes + g.number * (recode_scale_bytes<WIRE> + x.packing.group * recode_code_bytes<WIRE>);
}

/* What source q has of the group, into or onto the sum. Packed data has room for four whole codes at its end. */
template <enum tutti_wire WIRE>
CUDA_DEVICE void recode_add(const struct tutti_recode &x, const recode_group &g, uint32_t q, float (*sum)[4])
{
    const bool own = q == x.me;
    const char *from = own ? static_cast<const char *>(x.own) + (g.part * x.part + g.first) * recode_bytes(x.dtype)
                           : static_cast<const char *>(x.packed) + q * x.source_bytes + recode_place<WIRE>(x, g);
    float scale = 1;
    if (!own && recode_scale_bytes<WIRE>) scale = cuda_float(recode_load<uint32_t>(from)), from += 4;
    CUDA_UNROLL for (uint32_t j = 0; j < recode_quads; j++)
    {
        const uint32_t e = (j * CUDA_WARP + cuda_lane()) * 4;
        if (e >= g.n) continue;
        float values[4];
        if (own) {
            recode_take(x.dtype, from + (uint64_t)e * recode_bytes(x.dtype), g.n - e, values);
        } else {
            uint32_t words[2];
            words[0] = recode_load<uint32_t>(from + e * recode_code_bytes<WIRE>);
            words[1] = recode_code_bytes<WIRE> == 2 ? recode_load<uint32_t>(from + e * 2 + 4) : 0;
            CUDA_UNROLL for (uint32_t k = 0; k < 4; k++)
            {
                const uint32_t code =
                    recode_code_bytes<WIRE> == 2 ? words[k / 2] >> (k % 2 * 16) & 0xffff : words[0] >> (k * 8) & 0xff;
                values[k] = recode_decode(WIRE, code, scale);
            }
        }
        CUDA_UNROLL for (uint32_t k = 0; k < 4; k++) sum[j][k] = q == 0 ? values[k] : cuda_add(sum[j][k], values[k]);
    }
}

/* The bits of the group's largest magnitude, for all lanes. */
CUDA_DEVICE uint32_t recode_greatest(const recode_group &g, const float (*sum)[4])
{
    uint32_t greatest = 0;
    CUDA_UNROLL for (uint32_t i = 0; i < recode_quads * 4; i++)
    {
        const uint32_t e = (i / 4 * CUDA_WARP + cuda_lane()) * 4 + i % 4;
        if (e < g.n) greatest = cuda_greatest(greatest, cuda_bits(sum[i / 4][i % 4]) & 0x7fffffffu);
    }
    for (uint32_t mask = CUDA_WARP / 2; mask > 0; mask /= 2)
        greatest = cuda_greatest(greatest, cuda_shuffle_xor(greatest, mask));
    return greatest;
}

template <enum tutti_wire WIRE>
CUDA_DEVICE void recode_pack(const struct tutti_recode &x, const recode_group &g, const float (*sum)[4])
{
    char *to = static_cast<char *>(x.repacked) + recode_place<WIRE>(x, g);
    const uint64_t seed = x.seed + (x.seeds ? *x.seeds : 0);
    const uint64_t key = recode_key(seed, x.stream, (uint64_t)g.part << 40 | g.number);
    float inverse = 1;
    if (recode_scale_bytes<WIRE>) {
        const uint32_t greatest = recode_greatest(g, sum);
        if (cuda_lane() == 0) *reinterpret_cast<uint32_t *>(to) = cuda_bits(recode_scale(greatest, recode_most(WIRE)));
        inverse = recode_inverse(greatest, recode_most(WIRE));
        to += 4;
    }
    CUDA_UNROLL for (uint32_t j = 0; j < recode_quads; j++)
    {
        const uint32_t e = (j * CUDA_WARP + cuda_lane()) * 4;
        uint32_t words[2] = {0, 0};
        if (e >= g.n) continue;
        CUDA_UNROLL for (uint32_t k = 0; k < 4; k++)
        {
            const uint32_t random = x.stochastic ? recode_random(key, e + k) : 0;
            const uint32_t code = recode_encode(WIRE, sum[j][k], inverse, x.stochastic, random);
            if (recode_code_bytes<WIRE> == 2)
                words[k / 2] |= code << (k % 2 * 16);
            else
                words[0] |= code << (k * 8);
        }
        *reinterpret_cast<uint32_t *>(to + e * recode_code_bytes<WIRE>) = words[0];
        if (recode_code_bytes<WIRE> == 2) *reinterpret_cast<uint32_t *>(to + e * 2 + 4) = words[1];
    }
}

template <enum tutti_wire WIRE> CUDA_DEVICE void recode_one(const struct tutti_recode &x, const recode_group &g)
{
    float sum[recode_quads][4] = {};
    for (uint32_t q = 0; q < x.n; q++) recode_add<WIRE>(x, g, q, sum);
    if (x.divisor > 1) {
        CUDA_UNROLL for (uint32_t i = 0; i < recode_quads * 4; i++) sum[i / 4][i % 4] =
            cuda_divide(sum[i / 4][i % 4], (float)x.divisor);
    }
    if (x.repacked) return recode_pack<WIRE>(x, g, sum);
    CUDA_UNROLL for (uint32_t j = 0; j < recode_quads; j++)
    {
        const uint32_t e = (j * CUDA_WARP + cuda_lane()) * 4;
        char *to = static_cast<char *>(x.elements) + (g.part * x.part + g.first + e) * recode_bytes(x.dtype);
        if (e < g.n) recode_give(x.dtype, sum[j], g.n - e, to);
    }
}

template <enum tutti_wire WIRE> CUDA_DEVICE void recode(const struct tutti_recode &x)
{
    const uint64_t most = x.end < x.part ? x.end : x.part, group = x.packing.group;
    const uint64_t groups = most > x.begin ? (most - x.begin + group - 1) / group : 0, skipped = x.begin / group;
    const uint64_t warps = (uint64_t)cuda_blocks() * (cuda_threads() / CUDA_WARP);
    for (uint64_t i = (uint64_t)cuda_block() * (cuda_threads() / CUDA_WARP) + cuda_warp(); i < groups * x.n_parts;
         i += warps) {
        recode_group g = {(uint32_t)(i / groups), 0, skipped + i % groups, 0};
        const uint64_t before = g.part * x.part, left = before < x.total ? x.total - before : 0;
        const uint64_t end = left < most ? left : most;
        g.first = g.number * group;
        if (g.part == x.skip || g.first >= end) continue;
        g.n = (uint32_t)(end - g.first < group ? end - g.first : group);
        recode_one<WIRE>(x, g);
    }
}

#define CUDA_RECODE(name, wire)                                                                                        \
    CUDA_KERNEL(recode_##name, struct tutti_recode, x, 256)                                                            \
    {                                                                                                                  \
        cuda_wait_for_launch();                                                                                        \
        recode<wire>(x);                                                                                               \
    }

#endif
