/* SPDX-License-Identifier: BSD-3-Clause */

/* Where threads sleep, and how they wait before. The owner of the progress spins a little, then sleeps in the poller
 * until something ends its sleep; a thread that submits work or wants the ownership ends it, too. A thread that waits
 * and does not own sleeps until its call is complete or the ownership is free. */

#include "engine/owner/owner.h"

#include <sched.h>

/* Whom it waits for may be on the same CPU: it spins alone for no longer than an answer takes, a part of the time for
 * which it spins at all, then lets others run. */
#define SPIN_ALONE 8
/* Turns given up before a sleep where ranks outnumber CPUs: up to some eight, each spares more sleeps than it costs. */
#define YIELDS 8
#define LOOKS 8 /* between two passes of who spins */
/* So much longer it spins while a lane is in a call: all of its group are, too, and whoever sleeps lets all wait. */
#define SPIN_CALLING 8

static void owner_sleep(struct tutti_owner *owner, uint64_t until_ns)
{
    struct tutti_bed bed;

    bed.n_transports = bed.n_runners = bed.n_bells = 0;
    tutti_sources_init(&bed.sources);
    tutti_sources_until(&bed.sources, until_ns);
    atomic_store(&owner->sleeping, 1);
    bool quiet = owner->ops->sleep_begin(owner->arg, &bed);
    /* After sleep_begin, so that a kick from now on is seen by the futex. */
    if (quiet && atomic_load(&owner->want) == 0 && !atomic_load(&owner->helper.stop)) {
        atomic_store_explicit(&owner->n_sleeps, owner->n_sleeps + 1, memory_order_relaxed);
        tutti_poller_wait(owner->poller, &bed.sources);
    }
    owner->ops->sleep_end(owner->arg, &bed);
    atomic_store(&owner->sleeping, 0);
}

/* Whether anything happened. */
static bool linger(struct tutti_owner *owner, bool alone)
{
    for (int i = 0; i < LOOKS; i++) {
        bool worth = false;
        if (owner->ops->look(owner->arg, &worth)) return true;
        if (alone)
            tutti_cpu_relax();
        else if (!worth)
            break;
    }
    return false;
}

void tutti_owner_own(struct tutti_owner *owner, bool (*ready)(const void *), const void *arg, uint64_t until_ns)
{
    uint64_t spin = atomic_load_explicit(&owner->spin_ns, memory_order_relaxed), idle_ns = 0;
    /* The helper does not yield: it works beside the caller's threads, and a turn that it gives up is theirs for as
     * long as the scheduler likes. If it sleeps instead, it runs again as soon as it is woken. */
    bool yields = !atomic_load(&owner->helper.owns);
    bool lingered = false;
    int n_yields = 0;

    for (;;) {
        bool any = lingered || tutti_owner_pass(owner);
        lingered = false;
        if (ready(arg) || atomic_load(&owner->want) > 0) return;
        if (any) {
            idle_ns = 0, n_yields = 0;
            continue;
        }
        uint64_t now = tutti_owner_now(owner);
        if (now >= until_ns) return;
        if (idle_ns == 0) idle_ns = now;
        bool spins = now - idle_ns < (owner->ops->is_calling(owner->arg) ? SPIN_CALLING * spin : spin),
             alone = spins && now - idle_ns < spin / SPIN_ALONE;
        if (spins && (alone || yields)) lingered = linger(owner, alone);
        if (alone || lingered) continue;
        if (yields && (spins || (spin == 0 && n_yields < YIELDS))) {
            sched_yield();
            n_yields++;
        } else {
            owner_sleep(owner, until_ns);
            idle_ns = 0;
        }
    }
}

/* ---- waiting ---- */

static void waiter_sleep(struct tutti_owner *owner, bool (*ready)(const void *), const void *arg, const void *key,
                         uint64_t until_ns)
{
    struct tutti_waiter me = {.key = key};
    uint64_t deadline = tutti_owner_deadline(owner, key ? TUTTI_NS_PER_S : 10 * TUTTI_NS_PER_MS);

    if (until_ns < deadline) deadline = until_ns;
    pthread_mutex_lock(&owner->lock);
    me.next = owner->waiters;
    if (me.next) me.next->previous = &me;
    owner->waiters = &me;
    pthread_mutex_unlock(&owner->lock);
    atomic_fetch_add(&owner->n_waiters, 1);
    /* Who completes or leaves looks at the counts after doing so. */
    if (!ready(arg) && (atomic_load(&owner->owned) || atomic_load(&owner->want) > 0))
        tutti_poller_wait_word(owner->poller, &me.word, 0, deadline);
    atomic_fetch_sub(&owner->n_waiters, 1);
    pthread_mutex_lock(&owner->lock);
    if (me.next) me.next->previous = me.previous;
    *(me.previous ? &me.previous->next : &owner->waiters) = me.next;
    pthread_mutex_unlock(&owner->lock);
}

void tutti_owner_wait(struct tutti_owner *owner, bool (*ready)(const void *), const void *arg, const void *key,
                      uint64_t until_ns)
{
    bool mine = true;

    while (!ready(arg)) {
        if (until_ns != TUTTI_NEVER && tutti_owner_now(owner) >= until_ns) break;
        mine = tutti_owner_try(owner);
        if (!mine && atomic_load(&owner->helper.owns)) {
            tutti_owner_enter(owner);
            mine = true;
        }
        if (mine) {
            if (!ready(arg)) tutti_owner_own(owner, ready, arg, until_ns);
            tutti_owner_leave(owner);
        } else {
            waiter_sleep(owner, ready, arg, key, until_ns);
        }
    }
    if (!mine)
        tutti_owner_hand_over(owner); /* the ownership may have been meant for this thread, which needs it no more */
}
