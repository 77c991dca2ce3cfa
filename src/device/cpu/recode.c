/* SPDX-License-Identifier: BSD-3-Clause */

/* Elements to packed data and back (device/recode.h): one group after the other, as float32 in a small buffer. */

#include "device/cpu/cpu.h"
#include "device/recode_math.h"

#include <string.h>

struct group {
    const struct tutti_recode *recode;
    const struct tutti_cpu_kernels *kernels;
    uint32_t p;         /* the part, */
    size_t number;      /* the how manieth, */
    size_t first, n;    /* its elements there */
    size_t at, element; /* bytes: where it is in packed parts; of an element */
};

/* The sum of all sources, in their order. */
static void group_sum(const struct group *g, float *sum)
{
    const struct tutti_recode *r = g->recode;
    const struct tutti_recoders *recoders = &g->kernels->recoders;
    const size_t scales = r->packing.wire == TUTTI_WIRE_BFLOAT16 ? 0 : sizeof(float);
    float own[TUTTI_RECODE_GROUP_MOST];

    for (uint32_t q = 0; q < r->n; q++) {
        if (q == r->me) {
            const unsigned char *from = (const unsigned char *)r->own + (g->p * r->part + g->first) * g->element;
            recoders->widen[r->dtype](q == 0 ? sum : own, from, g->n);
            if (q > 0) g->kernels->reduce[TUTTI_FLOAT32][TUTTI_SUM](sum, sum, own, g->n);
            continue;
        }
        const unsigned char *from =
            (const unsigned char *)r->packed + q * r->source_bytes + g->p * r->part_bytes + g->at;
        float scale = 1;
        memcpy(&scale, from, scales);
        (q == 0 ? recoders->decode : recoders->decode_add)[r->packing.wire](sum, from + scales, g->n, scale);
    }
    if (r->divisor > 1) g->kernels->divide[TUTTI_FLOAT32](sum, sum, g->n, r->divisor);
}

static void group_pack(const struct group *g, const float *values)
{
    const struct tutti_recode *r = g->recode;
    const struct tutti_recoders *recoders = &g->kernels->recoders;
    unsigned char *to = (unsigned char *)r->repacked + g->p * r->part_bytes + g->at;
    const uint64_t seed = r->seed + (r->seeds ? *r->seeds : 0);
    const uint64_t random = recode_key(seed, r->stream, (uint64_t)g->p << 40 | g->number);
    float inverse = 1;

    if (r->packing.wire != TUTTI_WIRE_BFLOAT16) {
        const uint32_t greatest = recoders->greatest(values, g->n);
        const float most = recode_most(r->packing.wire), scale = recode_scale(greatest, most);
        inverse = recode_inverse(greatest, most);
        memcpy(to, &scale, sizeof scale);
        to += sizeof scale;
    }
    recoders->encode[r->packing.wire](to, values, g->n, inverse, r->stochastic ? &random : NULL);
}

static void part_recode(struct group *g)
{
    const struct tutti_recode *r = g->recode;
    const size_t all = tutti_recode_part(r, g->p), end = r->end < all ? r->end : all;
    float values[TUTTI_RECODE_GROUP_MOST];

    for (g->first = r->begin; g->first < end; g->first += g->n) {
        g->n = end - g->first < r->packing.group ? end - g->first : r->packing.group;
        g->number = g->first / r->packing.group;
        g->at = g->number * tutti_packed_group_bytes(&r->packing);
        group_sum(g, values);
        if (r->repacked)
            group_pack(g, values);
        else
            g->kernels->recoders.narrow[r->dtype](
                (unsigned char *)r->elements + (g->p * r->part + g->first) * g->element, values, g->n);
    }
}

void tutti_recode_on_cpu(const struct tutti_recode *recode, const char *isa)
{
    struct group group = {.recode = recode, .kernels = tutti_kernels_find(isa)};
    group.element = tutti_dtype_bytes(recode->dtype);
    for (group.p = 0; group.p < recode->n_parts; group.p++)
        if (group.p != recode->skip) part_recode(&group);
}
