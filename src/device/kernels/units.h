/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_UNITS_CUH
#define TUTTI_DEVICE_CUDA_UNITS_CUH

/* Units of 16 bytes in users' buffers: at any address, and short at the end of a part. Memory is never touched beyond
 * `left` bytes. WHOLE says that there are 16 bytes at a multiple of 16: one access. */

#include "device/kernels/machine.h"

/* The first `bytes` of a unit by accesses of the size of Piece, of which address and bytes are multiples. */
template <typename Piece> GPU_DEVICE gpu_words gpu_gather(const char *p, uint32_t bytes)
{
    constexpr uint32_t size = sizeof(Piece);
    uint32_t words[4] = {0, 0, 0, 0};
    GPU_UNROLL
    for (uint32_t at = 0; at < 16; at += size) {
        if (at >= bytes) continue;
        const Piece piece = *reinterpret_cast<const Piece *>(p + at);
        words[at / 4] |= (uint32_t)piece << (at % 4 * 8);
        if constexpr (size == 8) words[at / 4 + 1] = (uint32_t)(piece >> 32);
    }
    return gpu_words{words[0], words[1], words[2], words[3]};
}

template <typename Piece> GPU_DEVICE void gpu_scatter(char *p, gpu_words unit, uint32_t bytes)
{
    constexpr uint32_t size = sizeof(Piece);
    const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
    GPU_UNROLL
    for (uint32_t at = 0; at < 16; at += size) {
        if (at >= bytes) continue;
        uint64_t piece = words[at / 4] >> (at % 4 * 8);
        if constexpr (size == 8) piece |= (uint64_t)words[at / 4 + 1] << 32;
        *reinterpret_cast<Piece *>(p + at) = (Piece)piece;
    }
}

/* The largest power of two, at most 16, that divides all address and length. */
GPU_DEVICE uint32_t gpu_grain(const void *p, uint32_t bytes)
{
    const uint32_t all = (uint32_t) reinterpret_cast<uintptr_t>(p) | bytes | 16;
    return all & (0 - all);
}

/* Out of the way: each kernel has many places for it, which seldom run. */
GPU_COLD gpu_words gpu_take_ragged(const char *p, uint32_t bytes)
{
    const uint32_t grain = gpu_grain(p, bytes);
    if (grain == 8) return gpu_gather<uint64_t>(p, bytes);
    if (grain == 4) return gpu_gather<uint32_t>(p, bytes);
    return grain == 2 ? gpu_gather<uint16_t>(p, bytes) : gpu_gather<uint8_t>(p, bytes);
}

GPU_COLD void gpu_give_ragged(char *p, gpu_words unit, uint32_t bytes)
{
    const uint32_t grain = gpu_grain(p, bytes);
    if (grain == 8) return gpu_scatter<uint64_t>(p, unit, bytes);
    if (grain == 4) return gpu_scatter<uint32_t>(p, unit, bytes);
    return grain == 2 ? gpu_scatter<uint16_t>(p, unit, bytes) : gpu_scatter<uint8_t>(p, unit, bytes);
}

template <bool WHOLE> GPU_DEVICE gpu_words gpu_take_unit(const char *p, uint64_t left)
{
    if constexpr (WHOLE) return gpu_read_words(p);
    const uint32_t bytes = left < 16 ? (uint32_t)left : 16;
    return gpu_grain(p, bytes) == 16 ? gpu_read_words(p) : gpu_take_ragged(p, bytes);
}

template <bool WHOLE> GPU_DEVICE void gpu_give_unit(char *p, gpu_words unit, uint64_t left)
{
    if constexpr (WHOLE) return gpu_write_words(p, unit);
    const uint32_t bytes = left < 16 ? (uint32_t)left : 16;
    if (gpu_grain(p, bytes) == 16)
        gpu_write_words(p, unit);
    else
        gpu_give_ragged(p, unit, bytes);
}

#endif
