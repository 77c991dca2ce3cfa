/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_RECODE_H
#define TUTTI_DEVICE_RECODE_H

/* Packed data, and what turns elements into it and back: the job that devices carry out for quantised calls
 * (docs/quantized.md). Results are the same bits on all devices; recode_math.h has the arithmetic of one element.
 *
 * Packed elements lie in groups: a float32 scale (but for bfloat16, which has none), then a code for each element, and
 * after the last group bytes without meaning, up to a multiple of 16. An element is its code times the scale. A group
 * with NaN or an infinity has a scale of NaN; one whose elements are all below TUTTI_RECODE_LEAST has a scale of 0. */

#include <stddef.h>
#include <tutti/device.h>

struct tutti_packing {
    enum tutti_wire wire;
    uint32_t group; /* elements that share a scale */
};
#define TUTTI_RECODE_GROUP 256
#define TUTTI_RECODE_GROUP_MOST 1024
#define TUTTI_RECODE_GROUP_UNIT 32  /* groups are a multiple */
#define TUTTI_RECODE_LEAST 0x1p-100 /* what is smaller counts as 0 */

/* Where the elements come from and go to. One part after the other, all alike. */
struct tutti_recode {
    struct tutti_packing packing;
    enum tutti_dtype dtype; /* the elements': float16, bfloat16, float32, float64 */
    /* What is summed, in the order of the n sources: the me-th are elements, the others are packed. */
    uint32_t n, me;                          /* me n: all are packed */
    TUTTI_DEVICE_POINTER(const void) own;    /* elements of the first part; the next part's follow */
    TUTTI_DEVICE_POINTER(const void) packed; /* the first source and part, */
    uint64_t source_bytes, part_bytes;       /* from one source to the next, from one part to the next */
    uint32_t divisor;                        /* the sum's; 1 */
    TUTTI_DEVICE_POINTER(void) elements;     /* the result, in one of these forms; the other one is NULL */
    TUTTI_DEVICE_POINTER(void) repacked;
    uint32_t n_parts, skip; /* part `skip` is left out; n_parts: none is */
    uint64_t part, total;   /* elements of a part, but for the last ones, and of all */
    uint64_t begin, end;    /* in each part only these; begin is a multiple of the group */
    /* Rounding of what is repacked: to nearest, or stochastic by seed and stream, which tells calls of one seed apart.
     */
    uint8_t stochastic; /* 0 or 1 */
    uint64_t seed, stream;
    TUTTI_DEVICE_POINTER(const uint64_t) seeds; /* NULL, or a number that is added, in memory that the device reads */
};

static inline size_t tutti_packed_group_bytes(const struct tutti_packing *packing)
{
    return packing->wire == TUTTI_WIRE_BFLOAT16 ? 2 * (size_t)packing->group : 4 + (size_t)packing->group;
}
/* Bytes of n elements; they grow with n, and never overflow where n elements of 4 bytes do not. */
static inline size_t tutti_packed_bytes(const struct tutti_packing *packing, size_t n)
{
    const size_t groups = n / packing->group, rest = n % packing->group;
    const size_t tail = packing->wire == TUTTI_WIRE_BFLOAT16 ? 2 * rest : rest ? 4 + rest : 0;
    return (groups * tutti_packed_group_bytes(packing) + tail + 15) & ~(size_t)15;
}
/* The elements of whole groups among the first so many bytes. */
static inline size_t tutti_packed_elements(const struct tutti_packing *packing, size_t bytes)
{
    return bytes / tutti_packed_group_bytes(packing) * packing->group;
}
/* Elements of the p-th part. */
static inline size_t tutti_recode_part(const struct tutti_recode *recode, uint32_t p)
{
    const size_t before = p * recode->part;
    if (before >= recode->total) return 0;
    return recode->total - before < recode->part ? recode->total - before : recode->part;
}

#endif
