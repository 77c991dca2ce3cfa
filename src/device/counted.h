/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_COUNTED_H
#define TUTTI_DEVICE_COUNTED_H

/* What ranks tell one another before an all_to_all_v whose counts only the senders know, for hosts and kernels: a row
 * of each rank, in rank order, gathered by all. Then every rank can tell for every rank whether its blocks fit, so all
 * come to one verdict without another word. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/device.h>

#if defined(GPU_DEVICE)
#define COUNTED GPU_DEVICE
#else
#define COUNTED static inline
#endif
#if defined(__OPENCL_CPP_VERSION__)
#define COUNTED_WORDS const __global uint64_t *
#else
#define COUNTED_WORDS const uint64_t *
#endif

/* Words of a row: n counts of what is sent; n displacements of what is received; the rest: */
enum { COUNTED_PACKED, COUNTED_CAPACITY, COUNTED_WRONG, COUNTED_REST };
COUNTED uint32_t counted_words(uint32_t n)
{
    return 2 * n + COUNTED_REST;
}

/* The arguments of one rank; on devices in the device's memory. */
struct tutti_counted_row {
    TUTTI_DEVICE_POINTER(const uint64_t) counts;
    TUTTI_DEVICE_POINTER(const uint64_t) send_displs; /* NULL: packed; so is */
    TUTTI_DEVICE_POINTER(const uint64_t) recv_displs;
    uint64_t send_capacity, recv_capacity;
    TUTTI_DEVICE_POINTER(uint64_t) row; /* out */
    uint32_t n;
};

/* Whether so many elements from `begin` on are within the capacity. */
COUNTED bool counted_within(uint64_t begin, uint64_t count, uint64_t capacity)
{
    return count == 0 || (begin <= capacity && count <= capacity - begin);
}

/* Where block q of rank r begins in its recv; packed blocks follow those before, which end at `packed`. */
COUNTED uint64_t counted_begin(COUNTED_WORDS rows, uint32_t n, uint32_t r, uint32_t q, uint64_t packed)
{
    COUNTED_WORDS row = rows + (size_t)r * counted_words(n);
    return row[2 * n + COUNTED_PACKED] ? packed : row[n + q];
}
COUNTED uint64_t counted_count(COUNTED_WORDS rows, uint32_t n, uint32_t from, uint32_t to)
{
    return rows[(size_t)from * counted_words(n) + to];
}

/* Whether all that rank r sends lies in its buffer, and all that it receives fits into its other one. */
COUNTED bool counted_fits(COUNTED_WORDS rows, uint32_t n, uint32_t r)
{
    COUNTED_WORDS rest = rows + (size_t)r * counted_words(n) + 2 * n;
    uint64_t packed = 0;
    if (rest[COUNTED_WRONG]) return false;
    for (uint32_t q = 0; q < n; q++) {
        const uint64_t count = counted_count(rows, n, q, r);
        if (!counted_within(counted_begin(rows, n, r, q, packed), count, rest[COUNTED_CAPACITY])) return false;
        packed += count; /* not beyond the capacity where it is packed; else without meaning */
    }
    return true;
}

/* The k-th word of a row; all are computed alike, so that threads may share them. */
COUNTED uint64_t counted_word(const struct tutti_counted_row *x, uint32_t k)
{
    const uint32_t n = x->n;
    COUNTED_WORDS counts = (COUNTED_WORDS)x->counts;
    COUNTED_WORDS sends = (COUNTED_WORDS)x->send_displs;
    COUNTED_WORDS receives = (COUNTED_WORDS)x->recv_displs;
    uint64_t at = 0, wrong = 0;
    if (k < n) return counts[k];
    if (k < 2 * n) return receives ? receives[k - n] : 0;
    if (k == 2 * n + COUNTED_PACKED) return receives == NULL;
    if (k == 2 * n + COUNTED_CAPACITY) return x->recv_capacity;
    for (uint32_t q = 0; q < n && !wrong; q++) {
        wrong = !counted_within(sends ? sends[q] : at, counts[q], x->send_capacity);
        at += counts[q];
    }
    return wrong;
}

#endif
