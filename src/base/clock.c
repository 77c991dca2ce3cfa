/* SPDX-License-Identifier: BSD-3-Clause */

/* The one clock of the library: CLOCK_MONOTONIC in nanoseconds, and deadlines on it. */

#include "base/base.h"

#include <errno.h>
#include <time.h>

uint64_t tutti_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TUTTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

void tutti_sleep_ns(uint64_t ns)
{
    struct timespec rest = {.tv_sec = (time_t)(ns / TUTTI_NS_PER_S), .tv_nsec = (long)(ns % TUTTI_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR) {
    }
}

uint64_t tutti_deadline_ns(uint64_t timeout_ns)
{
    uint64_t deadline;
    return __builtin_add_overflow(tutti_now_ns(), timeout_ns, &deadline) ? TUTTI_NEVER : deadline;
}
