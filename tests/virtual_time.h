/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_VIRTUAL_TIME_H
#define TUTTI_TESTS_VIRTUAL_TIME_H

/* A clock and a poller for threads that share one time, which passes only when all of them sleep: then it jumps to the
 * first moment for which one of them waits. Deadlines of hours pass in milliseconds, in the same order as ever. A
 * thread takes part from its first sleep or virtual_join on until it ends or leaves; while it waits elsewhere (a
 * barrier, a mutex that is held for long) it must have left, or time stands still. */

#include "base/clock.h"
#include "base/poller.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define VIRTUAL_PATIENCE                                                                                               \
    3000 /* waits of 1 ms in which time stood still, after which a thread counts as stuck elsewhere */

struct virtual_sleeper {
    const struct tutti_sources *sources;
    struct virtual_sleeper *next;
};
struct virtual_time {
    struct tutti_clock clock;
    struct tutti_poller poller;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    pthread_key_t taking_part; /* a thread's: this, while it takes part: this, while it does */
    _Atomic uint64_t now_ns;
    uint32_t n_awake;
    struct virtual_sleeper *sleepers;
};

static inline struct virtual_time *virtual_of(const void *part, size_t offset)
{
    return (struct virtual_time *)(void *)((char *)(uintptr_t)part - offset);
}

static inline uint64_t virtual_now(const struct tutti_clock *clock)
{
    return atomic_load(&virtual_of(clock, offsetof(struct virtual_time, clock))->now_ns);
}

static inline bool virtual_fired(const struct virtual_time *time, const struct tutti_sources *sources)
{
    if (sources->due_ns <= atomic_load(&time->now_ns)) return true;
    for (uint32_t i = 0; i < sources->n; i++)
        if (sources->at[i].word && atomic_load(sources->at[i].word) != sources->at[i].expected) return true;
    return false;
}

/* With the lock: wakes whoever has something to do, else lets time pass, stuck: also though a thread seems awake. */
static inline void virtual_move(struct virtual_time *time, bool stuck)
{
    uint64_t first = TUTTI_NEVER;
    bool fired = false;
    for (const struct virtual_sleeper *s = time->sleepers; s; s = s->next) {
        fired |= virtual_fired(time, s->sources);
        if (s->sources->due_ns < first) first = s->sources->due_ns;
    }
    if (!fired && (stuck || time->n_awake == 0) && first != TUTTI_NEVER) {
        atomic_store(&time->now_ns, first);
        fired = true;
    }
    if (fired) pthread_cond_broadcast(&time->moved);
}

static inline void virtual_join(struct virtual_time *time)
{
    if (pthread_getspecific(time->taking_part)) return;
    pthread_setspecific(time->taking_part, time);
    pthread_mutex_lock(&time->lock);
    time->n_awake++;
    pthread_mutex_unlock(&time->lock);
}

static inline void virtual_end(void *arg)
{
    struct virtual_time *time = arg;
    pthread_mutex_lock(&time->lock);
    time->n_awake--;
    virtual_move(time, false);
    pthread_mutex_unlock(&time->lock);
}

static inline void virtual_leave(struct virtual_time *time)
{
    if (!pthread_getspecific(time->taking_part)) return;
    pthread_setspecific(time->taking_part, NULL);
    virtual_end(time);
}

static inline void virtual_wait(struct tutti_poller *poller, const struct tutti_sources *sources)
{
    struct virtual_time *time = virtual_of(poller, offsetof(struct virtual_time, poller));
    struct virtual_sleeper me = {.sources = sources};
    virtual_join(time);
    pthread_mutex_lock(&time->lock);
    me.next = time->sleepers;
    time->sleepers = &me;
    time->n_awake--;
    virtual_move(time, false);
    uint64_t seen_ns = atomic_load(&time->now_ns);
    uint32_t in_vain = 0;
    while (!virtual_fired(time, sources)) { /* a thread that changes a word does not tell us, so look now and then */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&time->moved, &time->lock, &until) == ETIMEDOUT) in_vain++;
        if (atomic_load(&time->now_ns) != seen_ns) in_vain = 0, seen_ns = atomic_load(&time->now_ns);
        if (virtual_fired(time, sources)) break;
        virtual_move(time, in_vain >= VIRTUAL_PATIENCE);
    }
    time->n_awake++;
    struct virtual_sleeper **at = &time->sleepers;
    while (*at != &me) at = &(*at)->next;
    *at = me.next;
    pthread_mutex_unlock(&time->lock);
}

static inline void virtual_sleep_until(const struct tutti_clock *clock, uint64_t due_ns)
{
    struct virtual_time *time = virtual_of(clock, offsetof(struct virtual_time, clock));
    struct tutti_sources sources;
    tutti_sources_init(&sources);
    tutti_sources_until(&sources, due_ns);
    virtual_wait(&time->poller, &sources);
}

static inline struct virtual_time *virtual_time_create(void)
{
    struct virtual_time *time = calloc(1, sizeof *time);
    time->clock = (struct tutti_clock){virtual_now, virtual_sleep_until};
    time->poller = (struct tutti_poller){virtual_wait};
    atomic_init(&time->now_ns, TUTTI_NS_PER_S);
    pthread_mutex_init(&time->lock, NULL);
    pthread_cond_init(&time->moved, NULL);
    pthread_key_create(&time->taking_part, virtual_end);
    return time;
}

static inline void virtual_time_destroy(struct virtual_time *time) /* no thread takes part any more */
{
    pthread_key_delete(time->taking_part);
    pthread_cond_destroy(&time->moved);
    pthread_mutex_destroy(&time->lock);
    free(time);
}

#endif
