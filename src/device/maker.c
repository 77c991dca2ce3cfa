/* SPDX-License-Identifier: BSD-3-Clause */
/* Drivers that are found at run time. */
#include "device/maker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { UNOPENED, OPEN, ABSENT };
#define LOOK_NS (10 * TUTTI_NS_PER_MS) /* between two looks for a driver that nobody uses */
#define MAKERS_MOST 8

/* Those that are open, for on_fork. */
static struct tutti_maker *_Atomic opened[MAKERS_MOST];

static void on_fork(void)
{
    for (size_t i = 0; i < MAKERS_MOST; i++) {
        struct tutti_maker *maker = atomic_load(&opened[i]);
        if (maker) atomic_store_explicit(&maker->forked, true, memory_order_relaxed);
    }
}

const char *tutti_maker_file(const struct tutti_maker *maker)
{
    const char *named = getenv(maker->variable);
    return named && *named ? named : maker->file;
}

/* Under the lock, the first time. A process that forks before that has a child that may open it. */
static int open_first(struct tutti_maker *maker)
{
    void *library = dlopen(tutti_maker_file(maker), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(maker->absence, sizeof maker->absence, "there is no %s here: %s", maker->what, dlerror());
        return ABSENT;
    }
    if (!maker->start(maker, library)) return ABSENT; /* stays open: what it registered can not be unloaded */
    snprintf(maker->after_fork, sizeof maker->after_fork,
             "there is no %s after fork: the parent of this process has used the driver; start processes with exec (in "
             "Python: multiprocessing's start method spawn)",
             maker->name);
    for (size_t i = 0; i < MAKERS_MOST; i++) {
        struct tutti_maker *nobody = NULL;
        if (!atomic_compare_exchange_strong(&opened[i], &nobody, maker)) continue;
        if (i == 0) pthread_atfork(NULL, NULL, on_fork);
        break;
    }
    return OPEN;
}

static int state_of(struct tutti_maker *maker)
{
    if (tutti_maker_forked(maker)) return ABSENT;
    int now = atomic_load_explicit(&maker->state, memory_order_acquire);
    if (now != UNOPENED) return now;
    pthread_mutex_lock(&maker->lock);
    now = atomic_load_explicit(&maker->state, memory_order_relaxed);
    if (now == UNOPENED) {
        now = open_first(maker);
        atomic_store_explicit(&maker->state, now, memory_order_release);
    }
    pthread_mutex_unlock(&maker->lock);
    return now;
}

bool tutti_maker_open(struct tutti_maker *maker)
{
    return state_of(maker) == OPEN;
}

static uint64_t coarse_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * TUTTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

static bool is_used_by_others(struct tutti_maker *maker)
{
    const uint64_t looked = atomic_load_explicit(&maker->looked_ns, memory_order_relaxed);
    if (looked != 0 && coarse_now_ns() - looked < LOOK_NS) return false;
    if (getenv(maker->variable)) return true;
    void *library = dlopen(tutti_maker_file(maker), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) {
        atomic_store_explicit(&maker->looked_ns, coarse_now_ns(), memory_order_relaxed);
        return false;
    }
    const bool used = !maker->used || maker->used(library);
    dlclose(library);
    return used;
}

bool tutti_maker_in_use(struct tutti_maker *maker)
{
    if (tutti_maker_forked(maker)) return false;
    const int now = atomic_load_explicit(&maker->state, memory_order_acquire);
    return now == OPEN || (now == UNOPENED && is_used_by_others(maker) && tutti_maker_open(maker));
}

const char *tutti_maker_absence(struct tutti_maker *maker)
{
    const int now = state_of(maker);
    return now == OPEN ? NULL : tutti_maker_forked(maker) ? maker->after_fork : maker->absence;
}
