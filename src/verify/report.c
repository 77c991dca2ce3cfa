/* SPDX-License-Identifier: BSD-3-Clause */
/* The sentence of a refusal: algorithm, kind, shape, rank, round, step, and what is wrong. */

#include "verify/bundle.h"

#include <stdio.h>
#include <string.h>

static void shape_append(const struct tutti_bundle *bundle, char *out, size_t capacity)
{
    const struct tutti_shape *shape = bundle->shape;
    tutti_append(out, capacity, ", size %u", shape->size);
    if (bundle->info && bundle->info->rooted) tutti_append(out, capacity, ", root %u", shape->root);
    if (shape->radix) tutti_append(out, capacity, ", radix %u", shape->radix);
    if (shape->n_levels) {
        char levels[96];
        tutti_shape_levels_text(shape, levels, sizeof levels);
        tutti_append(out, capacity, ", levels %s", levels);
    }
}

void tutti_bundle_refuse(const struct tutti_bundle *bundle, uint32_t slot, uint32_t step, const char *format, ...)
{
    struct tutti_verdict *verdict = bundle->verdict;
    const struct tutti_algorithm *algorithm = bundle->schedules[0]->algorithm;
    char *out = verdict->text;
    const size_t capacity = sizeof verdict->text;
    if (!verdict->ok) return; /* the first finding counts */
    verdict->ok = false;
    verdict->finding = bundle->finding;
    verdict->rank = slot, verdict->step = step;
    out[0] = '\0';
    tutti_append(out, capacity, "%s %s", algorithm && algorithm->name ? algorithm->name : "?",
                 bundle->info ? bundle->info->name : "?");
    shape_append(bundle, out, capacity);
    tutti_append(out, capacity, ": ");
    if (slot != TUTTI_NO_INDEX) tutti_append(out, capacity, "rank %u", slot);
    if (step != TUTTI_NO_INDEX) {
        const uint32_t round = tutti_bundle_step(bundle, slot, step)->round;
        if (round < bundle->schedules[slot]->n_rounds)
            tutti_append(out, capacity, ", round %u, step %u", round, step);
        else /* a copy of the sealer */
            tutti_append(out, capacity, ", after the last round, step %u", step);
    }
    if (slot != TUTTI_NO_INDEX) tutti_append(out, capacity, ": ");
    va_list ap;
    va_start(ap, format);
    const size_t length = strlen(out);
    vsnprintf(out + length, capacity - length, format, ap);
    va_end(ap);
}

void tutti_chunks_text(uint8_t buffer, uint32_t chunk, uint32_t n, char *out, size_t capacity)
{
    static const char *const names[] = {[TUTTI_DATA] = "", [TUTTI_SCRATCH] = "scratch ", [TUTTI_IN] = "input "};
    const char *name = buffer < TUTTI_ARRAY_LEN(names) ? names[buffer] : "unknown ";
    if (n == 1) snprintf(out, capacity, "%schunk %u", name, chunk);
    if (n != 1) snprintf(out, capacity, "%schunks %u to %llu", name, chunk, (unsigned long long)chunk + n - 1);
}

void tutti_step_text(const struct tutti_step *step, char *out, size_t capacity)
{
    char src[48], dst[48];
    tutti_chunks_text(step->src_buffer, step->src, step->n, src, sizeof src);
    tutti_chunks_text(step->dst_buffer, step->dst, step->n, dst, sizeof dst);
    switch (step->op) {
    case TUTTI_STEP_SEND:
        snprintf(out, capacity, "sends %s to rank %u", src, step->peer);
        break;
    case TUTTI_STEP_RECV:
        snprintf(out, capacity, "receives %s from rank %u", dst, step->peer);
        break;
    case TUTTI_STEP_RECV_REDUCE:
        snprintf(out, capacity, "receives from rank %u and reduces into %s", step->peer, dst);
        break;
    case TUTTI_STEP_COPY:
        snprintf(out, capacity, "copies %s to %s", src, dst);
        break;
    case TUTTI_STEP_REDUCE:
        snprintf(out, capacity, "reduces %s into %s", src, dst);
        break;
    default:
        snprintf(out, capacity, "does something unknown (operation %u)", step->op);
    }
}
