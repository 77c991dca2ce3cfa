/* SPDX-License-Identifier: BSD-3-Clause */

/* Bytes into place: local copies and reductions, and what arrives. Places are gathered from runs (bind.c), so no step
 * ever needs staging. First touch makes reductions three-operand: the old value may be the user's input. */

#include "device/cpu/copy.h"
#include "engine/flight/flight.h"

#include <string.h>

/* dst = old op in, or in op old. */
static void combine(const struct tutti_flight *flight, const struct tutti_step *step, void *dst, const void *old,
                    const void *in, size_t bytes)
{
    const struct tutti_bind *bind = &flight->bind;
    bool left = (step->flags & TUTTI_STEP_LEFT) != 0;
    size_t n = bytes / flight->layout.element;

    if (bind->reduce)
        bind->reduce(dst, left ? in : old, left ? old : in, n);
    else if (bind->user)
        bind->user(left ? in : old, left ? old : in, dst, n, bind->dtype, bind->user_arg);
    /* else a barrier: its tokens mean nothing */
}

static void copy(const struct tutti_flight *flight, unsigned char *to, const unsigned char *from, size_t bytes)
{
    size_t apart = to > from ? (size_t)(to - from) : (size_t)(from - to);

    if (flight->past_cache && apart >= bytes)
        tutti_copy_past_cache(to, from, bytes);
    else if (apart > 0)
        memmove(to, from, bytes);
}

/* `bytes` of the step's destination from `offset` on; payload: what comes in, NULL: it is the step's source. */
static inline void put(const struct tutti_slice *slice, const struct tutti_step *step, size_t offset, size_t bytes,
                       const unsigned char *payload)
{
    const struct tutti_flight *flight = slice->flight;
    const struct tutti_layout *l = &flight->layout;
    struct tutti_operand src = tutti_operand_src(step), dst = tutti_operand_dst(step), old = tutti_operand_old(step);
    bool stores = !tutti_step_reduces(step);

    for (size_t at = 0; at < bytes;) {
        unsigned char *to, *was, *in = NULL;
        size_t run = tutti_layout_run(l, &dst, slice->index, offset + at, bytes - at, &to);
        if (!payload) run = tutti_layout_run(l, &src, slice->index, offset + at, run, &in);
        if (run == 0) break;
        const unsigned char *from = payload ? payload + at : in;
        if (stores) {
            copy(flight, to, from, run);
        } else {
            run = tutti_layout_run(l, &old, slice->index, offset + at, run, &was);
            combine(flight, step, to, was, from, run);
        }
        at += run;
    }
}

void tutti_step_local(const struct tutti_slice *slice, const struct tutti_step *step)
{
    struct tutti_operand dst = tutti_operand_dst(step);
    put(slice, step, 0, tutti_layout_bytes(&slice->flight->layout, &dst, slice->index), NULL);
}

void tutti_step_apply(const struct tutti_slice *slice, const struct tutti_step *step, size_t offset, size_t bytes,
                      const unsigned char *payload)
{
    put(slice, step, offset, bytes, payload);
}
