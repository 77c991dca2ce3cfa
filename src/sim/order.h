/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_ORDER_H
#define TUTTI_SIM_ORDER_H

/* Where one rank stands for many, whether events that meet at a CPU or port come in the same order on all of them.
 *
 * Events of one time go by the order in which they came to be. Of two, the first is the one that was made at the
 * earlier time; if both were made at one time, the one whose maker was first, and so on back to the start, where ranks
 * go by their numbers. Times are the same on all ranks that one stands for, numbers are not. So the order is the same
 * everywhere if one maker made both, or the times differ at which they were made, or at which their makers were. If
 * none of that holds, the order is called unclear, and the run tells how often that was; it looks no further back,
 * so it may say so where it need not, but never the other way round. */

#include "base/base.h"

struct tutti_sim_birth {
    uint64_t born;   /* when it was made; TUTTI_NEVER: it was not */
    uint64_t before; /* when its maker was */
    uint32_t maker;  /* the number of the event that made it; 0: it is not the same on all ranks */
};
/* The bit of a maker on another rank, which the one that stands for both would mistake for its own. */
#define TUTTI_SIM_MADE_ELSEWHERE (UINT32_C(1) << 31)

struct tutti_sim_births {
    struct tutti_sim_birth
        *events; /* an operation has its begin, later its end; the arrival of its message, then all of it */
    struct tutti_sim_passed {
        uint64_t time;
        struct tutti_sim_birth birth;
    } * passed;                 /* by CPU or port: the last that went through */
    struct tutti_sim_birth now; /* the event at hand */
    uint64_t time;
    uint32_t n_makers;
    uint64_t n_unclear;
};

/* What the event at hand makes. */
static inline struct tutti_sim_birth tutti_sim_birth_made(const struct tutti_sim_births *births)
{
    return (struct tutti_sim_birth){births->time, births->now.born, births->n_makers};
}

static inline bool tutti_sim_birth_unclear(struct tutti_sim_birth a, struct tutti_sim_birth b)
{
    return a.born == b.born && a.before == b.before && (a.maker != b.maker || a.maker == 0);
}

static inline void tutti_sim_birth_enter(struct tutti_sim_births *births, size_t event, uint64_t time)
{
    births->now = births->events[event];
    births->time = time;
    births->n_makers++;
}

/* An operation waits for one thing less, or for none any more. */
static inline void tutti_sim_birth_freed(struct tutti_sim_births *births, size_t event)
{
    struct tutti_sim_birth made = tutti_sim_birth_made(births), prior = births->events[event];
    births->events[event] = made;
    if (tutti_sim_birth_unclear(prior, made)) births->events[event].maker = 0; /* each of the two may be the last */
}

/* The event (which is not at hand) meets at a CPU or port with the one at hand, or with the last that passed. */
static inline void tutti_sim_birth_meet(struct tutti_sim_births *births, struct tutti_sim_birth a,
                                        struct tutti_sim_birth b)
{
    births->n_unclear += tutti_sim_birth_unclear(a, b);
}

static inline void tutti_sim_birth_held_up(struct tutti_sim_births *births, size_t event, uint32_t port)
{
    const struct tutti_sim_passed *last = &births->passed[port];
    if (last->time == births->time) tutti_sim_birth_meet(births, last->birth, births->events[event]);
}

static inline void tutti_sim_birth_pass(struct tutti_sim_births *births, uint32_t port)
{
    struct tutti_sim_passed *last = &births->passed[port];
    if (last->time == births->time) tutti_sim_birth_meet(births, last->birth, births->now);
    *last = (struct tutti_sim_passed){births->time, births->now};
}

#endif
