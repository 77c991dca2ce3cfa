/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads of the library, which take no signals: those stay with the threads of the application; mutexes; what
 * a thread and a forked process must know of themselves. */

#include "base/base.h"

#include <signal.h>
#include <time.h>

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
