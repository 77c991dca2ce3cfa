/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_TEAM_SLICE_H
#define TUTTI_ENGINE_TEAM_SLICE_H

/* What is in progress. A flight is a collective. A slice is one of its slices that is active. A lane carries out call
 * steps of schedules. A followed work goes on elsewhere, on a device. All of it is the owner's. */

#include "engine/bind/bind.h"
#include "engine/work/work.h"

#define TUTTI_ACTIVE 64 /* slices of a team that are worked on at once, the oldest ones */

struct tutti_region { /* private memory of a call */
    unsigned char *base;
    size_t bytes;
};

struct tutti_flight {
    struct tutti_work work; /* first */
    struct tutti_flight *next;
    struct tutti_call_info info;
    struct tutti_runner *runner; /* in `room`: then there is neither schedule nor region, and one slice */
    bool blocked;                /* runner: it waits for the peer that it awaits */
    struct tutti_bind bind;
    struct tutti_layout layout;
    struct tutti_region region;
    uint32_t next_slice, n_finished;
    uint64_t compare_ns;                /* when the boards are compared next */
    uint32_t n_compared;                /* boards so far */
    bool past_cache;                    /* results are too much for the caches, and not read again */
    bool told_missing, in_vain;         /* in_vain: at the last look a peer had completed what it waits for */
    uint64_t packed_call, packed_count; /* what packets say of the call */
    _Alignas(16) unsigned char room[];  /* of runners: TUTTI_RUNNER_BYTES */
};

/* Masks are relative to base: bit 63 - k is step base + k. */
struct tutti_slice {
    struct tutti_flight *flight; /* NULL: free */
    uint32_t index, base;
    uint64_t done, busy;              /* busy: posted, granted or offered; waits for an arrival */
    uint64_t ack;                     /* of busy: an offer was read, and the sender must be told */
    bool dirty, stalled;              /* something became possible; a send found no room or credit */
    uint32_t called[TUTTI_MAX_LANES]; /* by lane: so many of the schedule's first calls are over, or of other lanes */
};
static inline uint64_t tutti_slice_bit(uint32_t k)
{
    return UINT64_C(1) << (63 - k);
}
static inline bool tutti_slice_over(const struct tutti_slice *slice)
{
    const struct tutti_schedule *schedule = slice->flight->bind.schedule;
    return schedule && slice->base >= schedule->n_steps;
}
static inline void tutti_slice_complete(struct tutti_slice *slice, uint32_t step)
{
    uint64_t bit = tutti_slice_bit(step - slice->base);

    slice->done |= bit;
    slice->busy &= ~bit;
    slice->ack &= ~bit;
    slice->dirty = true;
}
/* Whether the hazards of step base + k are clear. */
static inline bool tutti_step_ready(const struct tutti_slice *slice, uint32_t k)
{
    if (k == 0) return true;
    uint64_t wait = slice->flight->bind.schedule->steps[slice->base + k].wait;
    return (wait & ~(slice->done >> (64 - k) | ~UINT64_C(0) << k)) == 0;
}
/* A lane, and the call that it carries out. */
struct tutti_calling {
    struct tutti_lane group;
    struct tutti_slice *slice; /* whose call it is; NULL: none */
    uint32_t call;             /* in its schedule's calls */
    bool blocked;              /* it waits for the peer that it awaits */
    _Alignas(16) unsigned char room[TUTTI_RUNNER_BYTES];
};
static inline struct tutti_runner *tutti_calling_runner(struct tutti_calling *calling)
{
    return (struct tutti_runner *)(void *)calling->room;
}

struct tutti_followed {
    struct tutti_work work; /* first */
    struct tutti_followed *next;
    const struct tutti_followed_ops *ops;
    void *arg;
};

#endif
