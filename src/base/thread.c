/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads of the library, which take no signals: those stay with the threads of the application; mutexes. */

#include "base/base.h"

#include <signal.h>
#include <time.h>

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
