/* SPDX-License-Identifier: BSD-3-Clause */
/* How the ownership goes from thread to thread. A waiting caller takes it if it is free; others sleep until their call
 * is complete, or until the owner leaves and hands over: to one of them, else to the helper (helper.c). */
#include "engine/owner.h"

#include <sched.h>

#define SPINS_ENTER 64 /* 1 to 3 us */
#define ENTER_NS (100 * TUTTI_NS_PER_MS)

void tutti_owner_init(struct tutti_owner *owner, uint64_t spin_ns)
{
    atomic_init(&owner->spin_ns, spin_ns);
    atomic_init(&owner->helper.prompt, true); /* until callers show otherwise */
    pthread_mutex_init(&owner->lock, NULL);
}

void tutti_owner_fini(struct tutti_owner *owner)
{
    pthread_mutex_destroy(&owner->lock);
}

bool tutti_owner_try(struct tutti_owner *owner)
{
    uint32_t free_word = 0;
    return atomic_load(&owner->want) == 0 && atomic_compare_exchange_strong(&owner->owned, &free_word, 1);
}

void tutti_owner_kick(struct tutti_owner *owner)
{
    if (atomic_load(&owner->sleeping) == 0) return;
    pthread_mutex_lock(&owner->lock);
    owner->ops->kick(owner->arg);
    pthread_mutex_unlock(&owner->lock);
}

/* Whether the owner gives way while one spins: one that is awake does so after its next pass. */
static bool owner_leaves(struct tutti_owner *owner)
{
    if (atomic_load_explicit(&owner->spin_ns, memory_order_relaxed) == 0) return false;
    for (int i = 0; i < SPINS_ENTER; i++) {
        if (atomic_load_explicit(&owner->owned, memory_order_relaxed) == 0) return true;
        tutti_cpu_relax();
    }
    return false;
}

void tutti_owner_enter(struct tutti_owner *owner)
{
    uint32_t free_word = 0;

    atomic_fetch_add(&owner->want, 1);
    while (!atomic_compare_exchange_strong(&owner->owned, &free_word, 1)) {
        tutti_owner_kick(owner);
        if (!owner_leaves(owner))
            tutti_poller_wait_word(owner->poller, &owner->owned, 1, tutti_owner_deadline(owner, ENTER_NS));
        free_word = 0;
    }
    atomic_fetch_sub(&owner->want, 1);
}

/* Somebody must own while there is work: a waiting caller, else the helper. */
void tutti_owner_hand_over(struct tutti_owner *owner)
{
    bool found = false;

    if (atomic_load(&owner->want) > 0 || atomic_load(&owner->owned)) return;
    if (atomic_load(&owner->n_waiters) > 0) {
        pthread_mutex_lock(&owner->lock);
        if (owner->waiters) {
            found = true;
            atomic_store(&owner->waiters->word, 1);
            tutti_futex_wake(&owner->waiters->word, 1);
        }
        pthread_mutex_unlock(&owner->lock);
    }
    if (!found && tutti_owner_needed(owner)) tutti_helper_call(owner);
}

void tutti_owner_leave(struct tutti_owner *owner)
{
    atomic_store(&owner->owned, 0);
    if (atomic_load(&owner->want) > 0) tutti_futex_wake(&owner->owned, UINT32_MAX);
    tutti_owner_hand_over(owner);
}

void tutti_owner_wake(struct tutti_owner *owner, const void *key)
{
    if (atomic_load(&owner->n_waiters) == 0) return;
    pthread_mutex_lock(&owner->lock);
    for (struct tutti_waiter *w = owner->waiters; w; w = w->next) {
        if (w->key != key) continue;
        atomic_store(&w->word, 1);
        tutti_futex_wake(&w->word, 1);
    }
    pthread_mutex_unlock(&owner->lock);
}

/* ---- Where threads sleep, and how they wait before. The owner of the progress spins a little, then sleeps in the
 * poller until something ends its sleep; a thread that submits work or wants the ownership ends it, too. A thread that
 * waits and does not own sleeps until its call is complete or the ownership is free. ---- */

/* The awaited rank may be on the same CPU: this one spins alone for no longer than an answer takes, a part of the time
 * for which it spins at all, then lets others run. */
#define SPIN_ALONE 8
/* Turns given up before a sleep where ranks outnumber CPUs: up to some eight, each spares more sleeps than it costs. */
#define YIELDS 8
#define LOOKS 8 /* between two passes of who spins */
/* So much longer it spins while a lane is in a call: all of its group are, too, and whoever sleeps lets all wait. */
#define SPIN_CALLING 8

static void owner_sleep(struct tutti_owner *owner, uint64_t until_ns)
{
    struct tutti_wake_set wakes;

    wakes.n_transports = wakes.n_runners = wakes.n_bells = 0;
    tutti_sources_init(&wakes.sources);
    tutti_sources_until(&wakes.sources, until_ns);
    atomic_store(&owner->sleeping, 1);
    bool quiet = owner->ops->sleep_begin(owner->arg, &wakes);
    /* After sleep_begin, so that a kick from now on is seen by the futex. */
    if (quiet && atomic_load(&owner->want) == 0 && !atomic_load(&owner->helper.stop)) {
        atomic_store_explicit(&owner->n_sleeps, owner->n_sleeps + 1, memory_order_relaxed);
        tutti_poller_wait(owner->poller, &wakes.sources);
    }
    owner->ops->sleep_end(owner->arg, &wakes);
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
    /* A thread that completes or leaves looks at the counts after doing so. */
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

/* ---- Whether callers are prompt. Most callers wait at once for what they started. Waking a thread for each such call
 * would cost more than the call, and then the two would struggle for the ownership. So while callers are prompt, they
 * do not wake the helper: it naps, and looks after each nap whether a call was left alone all the while. If one was, or
 * if a caller came late to wait, callers are not prompt any more, and whoever leaves work behind wakes the helper,
 * until callers are prompt again. ---- */

/* A caller that starts to wait within this time of the call counts as prompt: less than waking and giving way are
 * worth. */
#define PROMPT_NS (25 * UINT64_C(1000))
/* Two late ones in a row, and callers are not prompt: one may be the scheduler's doing. Eight, and they are again. */
#define SCORE_MOST 8
#define SCORE_LATE 4

void tutti_helper_wake(struct tutti_owner *owner)
{
    atomic_fetch_add(&owner->helper.word, 1);
    if (atomic_exchange(&owner->helper.sleeps, 0)) tutti_futex_wake(&owner->helper.word, 1);
}

bool tutti_helper_wanted(const struct tutti_owner *owner)
{
    return !atomic_load(&owner->helper.prompt) || atomic_load(&owner->helper.n_watched) > 0;
}

void tutti_helper_call(struct tutti_owner *owner)
{
    struct tutti_helper *helper = &owner->helper;

    if (!atomic_load(&helper->runs)) return;
    if (tutti_helper_wanted(owner) || !atomic_load(&helper->naps))
        tutti_helper_wake(owner);
    else
        atomic_fetch_add(&helper->n_relied, 1);
    /* Where the helper was woken on this CPU it has run first: that is no delay of the caller's. */
    if (!atomic_load(&helper->prompt)) tutti_helper_waited(owner, tutti_owner_now(owner));
}

void tutti_helper_watch(struct tutti_owner *owner, int32_t n)
{
    atomic_fetch_add(&owner->helper.n_watched, (uint32_t)n);
}

void tutti_helper_learn(struct tutti_owner *owner, uint64_t start_ns)
{
    struct tutti_helper *helper = &owner->helper;
    uint64_t since = atomic_load_explicit(&helper->waited_ns, memory_order_relaxed);

    if (!atomic_load(&helper->runs)) return;
    if (since < start_ns) since = start_ns;
    uint32_t score = atomic_load_explicit(&helper->score, memory_order_relaxed), before = score;
    if (tutti_owner_now(owner) - since > PROMPT_NS)
        score = score > SCORE_LATE ? score - SCORE_LATE : 0;
    else if (score < SCORE_MOST)
        score++;
    if (score == before) return;
    atomic_store_explicit(&helper->score, score, memory_order_relaxed);
    if (score == 0 || score == SCORE_MOST) atomic_store(&helper->prompt, score > 0);
}

void tutti_helper_waited(struct tutti_owner *owner, uint64_t until_ns)
{
    atomic_store_explicit(&owner->helper.waited_ns, until_ns, memory_order_relaxed);
}
