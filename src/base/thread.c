/* SPDX-License-Identifier: BSD-3-Clause */

/* Time, sleeping on words, and threads: CLOCK_MONOTONIC in nanoseconds, which is the one clock of the library; futexes,
 * shared between processes or not; threads that take no signals. */

#include "base/base.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- time ---- */

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

/* ---- sleeping on words ---- */

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

/* ---- threads ---- */

_Thread_local uint32_t tutti_inside;
uint32_t tutti_n_forks;

static void on_fork(void)
{
    tutti_n_forks++;
}

static void count_forks(void)
{
    pthread_atfork(NULL, NULL, on_fork);
}

void tutti_forks_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_forks);
}

int tutti_thread_start(pthread_t *thread, size_t stack_bytes, void *(*function)(void *), void *arg)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    pthread_attr_init(&attributes);
    if (stack_bytes > 0) pthread_attr_setstacksize(&attributes, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, &attributes, function, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

bool tutti_mutex_lock_within(pthread_mutex_t *mutex, uint64_t ns)
{
    struct timespec until;
    if (pthread_mutex_trylock(mutex) == 0) return true;
    clock_gettime(CLOCK_REALTIME, &until); /* as timedlock wants it */
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / TUTTI_NS_PER_S);
    until.tv_nsec = (long)(ns % TUTTI_NS_PER_S);
    return pthread_mutex_timedlock(mutex, &until) == 0;
}
