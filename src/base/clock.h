/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_CLOCK_H
#define TUTTI_BASE_CLOCK_H

/* A clock as an object, so that tests and simulators put their own time in the place of the system's. NULL is the
 * system's CLOCK_MONOTONIC. Nanoseconds, which never go back. Any thread.
 *
 *     uint64_t until = tutti_clock_deadline(clock, 5 * TUTTI_NS_PER_S);
 *     while (tutti_clock_now(clock) < until) ...
 */

#include "base/base.h"

struct tutti_clock {
    uint64_t (*now_ns)(const struct tutti_clock *clock);
    void (*sleep_until)(const struct tutti_clock *clock, uint64_t due_ns); /* the calling thread */
};

static inline uint64_t tutti_clock_now(const struct tutti_clock *clock)
{
    return __builtin_expect(clock != NULL, 0) ? clock->now_ns(clock) : tutti_now_ns();
}
/* TUTTI_NEVER where it does not fit. */
static inline uint64_t tutti_clock_deadline(const struct tutti_clock *clock, uint64_t timeout_ns)
{
    uint64_t deadline;
    return __builtin_add_overflow(tutti_clock_now(clock), timeout_ns, &deadline) ? TUTTI_NEVER : deadline;
}
static inline void tutti_clock_sleep(const struct tutti_clock *clock, uint64_t ns)
{
    if (clock)
        clock->sleep_until(clock, tutti_clock_deadline(clock, ns));
    else
        tutti_sleep_ns(ns);
}

#endif
