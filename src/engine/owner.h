/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_OWNER_H
#define TUTTI_ENGINE_OWNER_H

/* The thread that makes progress, and those that sleep. One thread owns an engine at a time: a caller that waits, else
 * the helper thread. An owner does not know what there is to do: the engine gives it the pass as a function. It uses
 * base alone. Begin with owner.c (how the ownership goes from thread to thread, how the owner spins and where it
 * sleeps), then helper.c.
 */

#include "base/bell.h"
#include "base/clock.h"
#include "base/poller.h"

#include <pthread.h>
#include <stdatomic.h>

struct tutti_runner;
struct tutti_transport;

/* What one sleep of the owner waits for, and who is to be told that it is over. */
#define TUTTI_WAKE_SET_MOST 32
struct tutti_wake_set {
    struct tutti_sources sources;
    struct tutti_transport *transports[TUTTI_WAKE_SET_MOST];
    struct tutti_runner *runners[TUTTI_WAKE_SET_MOST];
    struct tutti_bell *bells[TUTTI_WAKE_SET_MOST];
    uint32_t n_transports, n_runners, n_bells;
};

/* What the owner does. All but kick are called by the owner alone, with `arg` of the owner. */
struct tutti_owner_ops {
    bool (*pass)(void *arg); /* does all that can be done now; whether anything happened */
    /* Between two passes, while spinning: looks at what peers write, which is seen sooner than by a pass. *worth: there
     * is something to look at. Whether anything happened. */
    bool (*look)(void *arg, bool *worth);
    bool (*is_calling)(void *arg); /* a whole group of ranks spins for one another: see SPIN_CALLING */
    /* The owner is about to sleep: adds what ends the sleep. False: there is something to do. sleep_end follows in both
     * cases. */
    bool (*sleep_begin)(void *arg, struct tutti_wake_set *wakes);
    void (*sleep_end)(void *arg, struct tutti_wake_set *wakes);
    void (*kick)(void *arg); /* ends the owner's sleep; any thread, with the lock held */
};

struct tutti_waiter { /* on the stack of a sleeping thread; the owner's lock */
    _Atomic uint32_t word;
    const void *key;
    struct tutti_waiter *next, *previous;
};

struct tutti_helper { /* any thread */
    _Atomic bool runs, owns, stop;
    _Atomic bool prompt; /* callers wait at once for what they start */
    _Atomic bool naps;   /* it will look by itself; else it is to be woken */
    _Atomic uint32_t word, sleeps;
    _Atomic uint32_t n_relied;  /* how often work was left behind, for it will look */
    _Atomic uint32_t n_watched; /* calls in flight that somebody wants to be told of */
    _Atomic uint32_t score;     /* the score of prompt waits */
    _Atomic uint64_t waited_ns; /* until when a caller waited last */
    uint64_t nap_ns;
    _Atomic int32_t caller; /* the thread that left work to it last */
    uint64_t looked_ns, queued_ns, aside_ns;
    int32_t looked_at; /* the helper's own, as the line before and the next: see is_crowded */
    bool crowded;
    pthread_t thread;
};

struct tutti_owner {
    const struct tutti_owner_ops *ops;
    void *arg;
    const struct tutti_clock *clock; /* NULL: the system's, */
    struct tutti_poller *poller;     /* and its poller */
    _Atomic uint64_t spin_ns;
    _Atomic uint32_t owned, want, sleeping, n_waiters;
    _Atomic uint32_t n_inflight; /* works that are not complete: while there are some, somebody must own */
    _Atomic uint32_t n_serving;  /* what peers rely on without calls of this process: somebody must own, too */
    _Atomic uint64_t n_sleeps;   /* so far */
    pthread_mutex_t lock;        /* guards the waiters, and of what else several threads touch */
    struct tutti_waiter *waiters;
    struct tutti_helper helper;
};

/* ---- owner.c: any thread ---- */
/* ops, arg, clock and poller are set by the caller. */
void tutti_owner_init(struct tutti_owner *owner, uint64_t spin_ns);
static inline uint64_t tutti_owner_now(const struct tutti_owner *owner)
{
    return tutti_clock_now(owner->clock);
}
static inline uint64_t tutti_owner_deadline(const struct tutti_owner *owner, uint64_t timeout_ns)
{
    return tutti_clock_deadline(owner->clock, timeout_ns);
}
void tutti_owner_fini(struct tutti_owner *owner);
bool tutti_owner_try(struct tutti_owner *owner);
void tutti_owner_enter(struct tutti_owner *owner); /* at once: whoever owns gives way */
void tutti_owner_leave(struct tutti_owner *owner);
void tutti_owner_kick(struct tutti_owner *owner); /* ends the owner's sleep */
/* Somebody must own while there is work: a waiting caller, else the helper. */
void tutti_owner_hand_over(struct tutti_owner *owner);
/* Wakes those who wait for the key. */
void tutti_owner_wake(struct tutti_owner *owner, const void *key);
/* Whether somebody must own. */
static inline bool tutti_owner_needed(const struct tutti_owner *owner)
{
    return atomic_load(&owner->n_inflight) > 0 || atomic_load(&owner->n_serving) > 0;
}
static inline bool tutti_owner_pass(struct tutti_owner *owner) /* the owner's: one pass */
{
    return owner->ops->pass(owner->arg);
}

/* ---- owner.c: progress ---- */
/* The owner's: passes and sleeps until ready, somebody else wants to own, or the time is over. */
void tutti_owner_own(struct tutti_owner *owner, bool (*ready)(const void *), const void *arg, uint64_t until_ns);
/* Any thread: makes progress, or sleeps while others do, until ready(arg) or `until`. key: what it is woken for; may be
 * NULL. */
void tutti_owner_wait(struct tutti_owner *owner, bool (*ready)(const void *), const void *arg, const void *key,
                      uint64_t until_ns);

/* ---- owner.c: whether callers are prompt; any thread ---- */
/* Work is left behind that nobody waits for. */
void tutti_helper_call(struct tutti_owner *owner);
void tutti_helper_wake(struct tutti_owner *owner);
/* Whether work that is left behind is the helper's at once. */
bool tutti_helper_wanted(const struct tutti_owner *owner);
/* n more calls in flight, or fewer, of which somebody wants to be told: they are not left alone. */
void tutti_helper_watch(struct tutti_owner *owner, int32_t n);
/* A caller begins to wait for a call of that start, which is not complete; one has waited until then. */
void tutti_helper_learn(struct tutti_owner *owner, uint64_t start_ns);
void tutti_helper_waited(struct tutti_owner *owner, uint64_t until_ns);

/* ---- helper.c: any thread ---- */
enum tutti_status tutti_helper_start(struct tutti_owner *owner);
void tutti_helper_stop(struct tutti_owner *owner);

#endif
