/* SPDX-License-Identifier: BSD-3-Clause */

/* Streaming copies: whole cache lines by stores that bypass the caches, the rest as usual. SSE2 is in every x86-64, and
 * wider stores gain nothing: a line is written at once when all of it was stored. */

#include "device/cpu/copy.h"

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

/* dst is the start of a line; bytes a multiple of a line. */
static void lines_copy(unsigned char *dst, const unsigned char *src, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += TUTTI_CACHE_LINE) {
        __m128i line[TUTTI_CACHE_LINE / sizeof(__m128i)];
        memcpy(line, src + at, sizeof(line));
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(line); i++) _mm_stream_si128((__m128i *)(void *)(dst + at) + i, line[i]);
    }
}

void tutti_copy_fence(void)
{
    _mm_sfence(); /* such stores pass others, unlike all else on x86 */
}
#else
static void lines_copy(unsigned char *dst, const unsigned char *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void tutti_copy_fence(void) {}
#endif

void tutti_copy_stream(void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t front = -(uintptr_t)to % TUTTI_CACHE_LINE;

    if (front > bytes) front = bytes;
    size_t lines = (bytes - front) / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
    memcpy(to, from, front);
    lines_copy(to + front, from + front, lines);
    memcpy(to + front + lines, from + front + lines, bytes - front - lines);
}

void tutti_copy_past_cache(void *dst, const void *src, size_t bytes)
{
    tutti_copy_stream(dst, src, bytes);
    tutti_copy_fence();
}
