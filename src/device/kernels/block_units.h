/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_BLOCK_UNITS_H
#define TUTTI_DEVICE_KERNELS_BLOCK_UNITS_H

/* Units of 16 bytes in users' buffers: at any address, and short at the end of a part. Memory is never written beyond
 * `left` bytes, nor read but for what is in one word of 4 bytes with them. */

#include "device/kernels/machine.h"

/* Whether all of this is 16 bytes at multiples of 16. */
GPU_IS(bool, is_whole, (uint64_t at_or_bytes), (at_or_bytes & 15) == 0)

/* For a unit that is not whole. Words of 4 bytes that hold some of it are read, as they lie; its bytes are moved down.
 */
GPU_DEVICE gpu_words unit_gather(uint64_t at, uint32_t bytes)
{
    const uint64_t first = at & ~UINT64_C(3), end = at + bytes;
    const uint32_t shift = (uint32_t)(at & 3) * 8;
    uint32_t words[4];
    uint64_t pair = gpu_read_u32(first);
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        const uint64_t next = first + 4 * k + 4;
        if (next < end) pair |= (uint64_t)gpu_read_u32(next) << 32;
        words[k] = (uint32_t)(pair >> shift);
        pair >>= 32;
    }
    return gpu_words{words[0], words[1], words[2], words[3]};
}

/* By pieces of 1, 2 or 4 bytes, whichever address and length are multiples of. */
GPU_DEVICE void unit_scatter(uint64_t at, gpu_words unit, uint32_t bytes)
{
    const uint32_t all = (uint32_t)at | bytes | 4, size = all & (0 - all);
    uint64_t low = unit.x | (uint64_t)unit.y << 32, high = unit.z | (uint64_t)unit.w << 32;
    GPU_NO_UNROLL
    for (uint32_t k = 0; k < bytes; k += size) {
        if (size == 4)
            gpu_write_u32(at + k, (uint32_t)low);
        else if (size == 2)
            gpu_write_u16(at + k, (uint16_t)low);
        else
            gpu_write_u8(at + k, (uint8_t)low);
        low = low >> size * 8 | high << (64 - size * 8);
        high >>= size * 8;
    }
}

GPU_DEVICE gpu_words unit_take(uint64_t at, uint64_t left)
{
    const uint32_t bytes = left < 16 ? (uint32_t)left : 16;
    return is_whole(at | bytes) ? gpu_read_words(at) : unit_gather(at, bytes);
}

GPU_DEVICE void unit_give(uint64_t at, gpu_words unit, uint64_t left)
{
    const uint32_t bytes = left < 16 ? (uint32_t)left : 16;
    if (is_whole(at | bytes))
        gpu_write_words(at, unit);
    else
        unit_scatter(at, unit, bytes);
}

#endif
