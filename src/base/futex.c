/* SPDX-License-Identifier: BSD-3-Clause */

/* Sleeping on words, shared between processes or not. The kernel compares the word before it sleeps, so that a wake-up
 * between the caller's look and its sleep is not lost. */

#include "base/base.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449 /* the same on all architectures */
#endif
#define WAITV_MAX 16
#define WAITV_SIZE_U32 2 /* FUTEX_32, absent from older headers */

/* The kernel's struct futex_waitv, absent from older headers. */
struct waitv {
    uint64_t value, address;
    uint32_t flags, reserved;
};

static struct timespec timespec_of(uint64_t ns)
{
    /* TUTTI_NEVER is 584 years: within time_t. */
    return (struct timespec){.tv_sec = (time_t)(ns / TUTTI_NS_PER_S), .tv_nsec = (long)(ns % TUTTI_NS_PER_S)};
}

void tutti_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    struct timespec until = timespec_of(deadline_ns);
    /* WAIT_BITSET, for its timeout is absolute and monotonic. */
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline_ns == TUTTI_NEVER ? NULL : &until, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

void tutti_futex_wake(_Atomic uint32_t *word, uint32_t n_sleepers)
{
    uint32_t n = n_sleepers < INT32_MAX ? n_sleepers : INT32_MAX;
    syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
}

/* For kernels before 5.16 and emulators: short sleeps on the first word, looking at all of them in between. */
static void wait_any_nap(_Atomic uint32_t *const *words, const uint32_t *expected, uint32_t n, uint64_t deadline_ns)
{
    for (;;) {
        for (uint32_t i = 0; i < n; i++)
            if (atomic_load(words[i]) != expected[i]) return;
        uint64_t now = tutti_now_ns();
        if (now >= deadline_ns) return;
        uint64_t nap = now + TUTTI_NS_PER_MS;
        tutti_futex_wait(words[0], expected[0], nap < deadline_ns ? nap : deadline_ns);
    }
}

void tutti_futex_wait_any(_Atomic uint32_t *const *words, const uint32_t *expected, uint32_t n, uint64_t deadline_ns)
{
    struct waitv waiters[WAITV_MAX];
    struct timespec until = timespec_of(deadline_ns);
    if (n == 0) return;
    if (n > WAITV_MAX) {
        wait_any_nap(words, expected, n, deadline_ns);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        waiters[i] =
            (struct waitv){.value = expected[i], .address = (uint64_t)(uintptr_t)words[i], .flags = WAITV_SIZE_U32};
    long rc = syscall(SYS_futex_waitv, waiters, n, 0, deadline_ns == TUTTI_NEVER ? NULL : &until, CLOCK_MONOTONIC);
    if (rc < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL)) wait_any_nap(words, expected, n, deadline_ns);
}
