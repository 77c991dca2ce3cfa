/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_UNIT_CUH
#define TUTTI_DEVICE_CUDA_UNIT_CUH

/* Units of 16 bytes of users' buffers, which may begin anywhere and end within a unit: one access where the unit is
 * aligned and whole, else as many as its alignment and its length ask for. */

#include "intrinsics.cuh"

/* Types of accesses that may alias anything. */
typedef uint32_t __attribute__((may_alias)) cuda_piece4;
typedef uint16_t __attribute__((may_alias)) cuda_piece2;
typedef uint8_t __attribute__((may_alias)) cuda_piece1;

CUDA_DEVICE bool cuda_is_whole(const void *p, uint64_t left)
{
    return left >= 16 && (uintptr_t)p % 16 == 0;
}

template <typename T> CUDA_DEVICE cuda_words cuda_get_pieces(const char *from, uint32_t bytes)
{
    const T *p = (const T *)from;
    uint32_t words[4] = {0, 0, 0, 0};
    CUDA_UNROLL for (uint32_t i = 0; i < 16 / sizeof(T); i++)
    {
        const uint32_t at = i * (uint32_t)sizeof(T);
        if (at < bytes) words[at / 4] |= (uint32_t)p[i] << (at % 4 * 8);
    }
    return cuda_words{words[0], words[1], words[2], words[3]};
}

template <typename T> CUDA_DEVICE void cuda_put_pieces(char *to, const cuda_words &unit, uint32_t bytes)
{
    T *p = (T *)to;
    const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
    CUDA_UNROLL for (uint32_t i = 0; i < 16 / sizeof(T); i++)
    {
        const uint32_t at = i * (uint32_t)sizeof(T);
        if (at < bytes) p[i] = (T)(words[at / 4] >> (at % 4 * 8));
    }
}

/* bytes: 1 to 16; what is beyond reads as 0. */
CUDA_DEVICE cuda_words cuda_get_ragged(const char *from, uint32_t bytes)
{
    const uint32_t misfit = (uint32_t)(uintptr_t)from | bytes;
    if (misfit % 4 == 0) return cuda_get_pieces<cuda_piece4>(from, bytes);
    if (misfit % 2 == 0) return cuda_get_pieces<cuda_piece2>(from, bytes);
    return cuda_get_pieces<cuda_piece1>(from, bytes);
}

CUDA_DEVICE void cuda_put_ragged(char *to, cuda_words unit, uint32_t bytes)
{
    const uint32_t misfit = (uint32_t)(uintptr_t)to | bytes;
    if (misfit % 4 == 0) return cuda_put_pieces<cuda_piece4>(to, unit, bytes);
    if (misfit % 2 == 0) return cuda_put_pieces<cuda_piece2>(to, unit, bytes);
    cuda_put_pieces<cuda_piece1>(to, unit, bytes);
}

/* `left` bytes of the buffer, at least 1, begin at the pointer. */
CUDA_DEVICE cuda_words cuda_get(const char *from, uint64_t left)
{
    if (cuda_is_whole(from, left)) return cuda_read_words(from);
    return cuda_get_ragged(from, left < 16 ? (uint32_t)left : 16);
}

CUDA_DEVICE void cuda_put(char *to, const cuda_words &unit, uint64_t left)
{
    if (cuda_is_whole(to, left)) return cuda_write_words(to, unit);
    cuda_put_ragged(to, unit, left < 16 ? (uint32_t)left : 16);
}

#endif
