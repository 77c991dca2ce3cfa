/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ALGO_PARTS_H
#define TUTTI_ALGO_PARTS_H

/* What several algorithms have in common: slots as a circle, and numbers that many of them need. Pure. */

#include "algo/algo.h"

/* A kind that an algorithm offers: TUTTI_OPS(.rounds = ..., .round = ...). */
#define TUTTI_OPS(...)                                                                                                 \
    &(const struct tutti_schedule_ops)                                                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* The slot that is k further on in the circle, or k back. */
static inline uint32_t tutti_ahead(const struct tutti_shape *shape, uint64_t k)
{
    return (uint32_t)((shape->slot + k) % shape->size);
}
static inline uint32_t tutti_behind(const struct tutti_shape *shape, uint64_t k)
{
    return (uint32_t)((shape->slot + shape->size - k % shape->size) % shape->size);
}

/* For chunks, scratch and rounds. */
static inline uint32_t tutti_one(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}
static inline uint32_t tutti_one_a_slot(const struct tutti_shape *shape)
{
    return shape->size;
}

/* Powers of a radix: how many there are below the size, and the k-th. */
static inline uint32_t tutti_powers(const struct tutti_shape *shape, uint32_t radix)
{
    uint32_t n = 0;

    for (uint64_t d = 1; d < shape->size; d *= radix) n++;
    return n;
}
static inline uint64_t tutti_power(uint32_t radix, uint32_t k)
{
    uint64_t d = 1;

    for (uint32_t i = 0; i < k; i++) d *= radix;
    return d;
}

#endif
