/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads of the library, which take no signals: those stay with the threads of the application. */

#include "base/base.h"

#include <signal.h>

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
