/* SPDX-License-Identifier: BSD-3-Clause */

/* The helper: a thread that owns while there is work that nobody waits for, and gives way to whoever wants to own.
 * While callers are prompt (prompt.c) it naps, and owns after a nap in which a call was left alone. Calls of which
 * somebody wants to be told (tutti_work_notify) are not left alone at all. When nobody starts calls the helper stops
 * napping, and the next call wakes it. */

#include "engine/owner/owner.h"

#include <string.h>

#define HELPER_STACK (512 * 1024)
/* Naps disturb the callers, and are the longer the longer those are prompt. */
#define NAP_NS (50 * UINT64_C(1000))
#define NAP_LONGEST_NS (400 * UINT64_C(1000))
#define NAPS 4 /* in vain, before it sleeps */

static bool idle(const void *arg)
{
    const struct tutti_owner *owner = arg;
    return !tutti_owner_needed(owner) || atomic_load(&owner->n_waiters) > 0 || atomic_load(&owner->helper.stop);
}

/* Until the word changes, or the time is over; whether it was that. */
static bool doze(struct tutti_owner *owner, uint32_t word, uint64_t ns)
{
    struct tutti_helper *helper = &owner->helper;

    atomic_store(&helper->sleeps, 1);
    tutti_poller_wait_word(owner->poller, &helper->word, word, tutti_owner_deadline(owner, ns));
    atomic_store(&helper->sleeps, 0);
    return atomic_load(&helper->word) == word;
}

/* Naps while callers rely on it, else sleeps until it is called. Returns for how many naps nobody relied on it. */
static uint32_t rest(struct tutti_owner *owner, uint32_t word, uint32_t quiet)
{
    struct tutti_helper *helper = &owner->helper;
    uint32_t relied = atomic_load(&helper->n_relied);

    if (quiet < NAPS && atomic_load(&helper->prompt)) {
        atomic_store(&helper->naps, true);
        bool through = doze(owner, word, helper->nap_ns);
        if (through && atomic_load(&helper->n_relied) == relied) return quiet + 1;
        if (helper->nap_ns < NAP_LONGEST_NS) helper->nap_ns *= 2;
        return 0;
    }
    helper->nap_ns = NAP_NS;
    atomic_store(&helper->naps, false);
    /* From now on who leaves work behind wakes it; some may have relied on it just before. The timeout is a second line
     * only. */
    if (idle(owner) || atomic_load(&owner->owned) || atomic_load(&owner->want) > 0) doze(owner, word, TUTTI_NS_PER_S);
    return 0;
}

static void *helper_main(void *arg)
{
    struct tutti_owner *owner = arg;
    struct tutti_helper *helper = &owner->helper;
    uint32_t quiet = 0;

    for (;;) {
        uint32_t word = atomic_load(&helper->word);
        if (atomic_load(&helper->stop)) return NULL;
        if (idle(owner) || !(quiet > 0 || tutti_helper_wanted(owner)) || !tutti_owner_try(owner)) {
            quiet = rest(owner, word, quiet);
            continue;
        }
        if (quiet > 0 && atomic_load(&owner->n_inflight) > 0) { /* a call was left alone for a whole nap */
            atomic_store_explicit(&helper->score, 0, memory_order_relaxed);
            atomic_store(&helper->prompt, false);
        }
        atomic_store(&helper->owns, true);
        tutti_owner_own(owner, idle, owner, TUTTI_NEVER);
        atomic_store(&helper->owns, false);
        tutti_owner_leave(owner);
        quiet = 0;
    }
}

enum tutti_status tutti_helper_start(struct tutti_owner *owner)
{
    struct tutti_helper *helper = &owner->helper;
    int failed = 0;

    if (atomic_load(&helper->runs)) return TUTTI_OK;
    pthread_mutex_lock(&owner->lock);
    if (!atomic_load(&helper->runs)) {
        helper->nap_ns = NAP_NS;
        failed = tutti_thread_start(&helper->thread, HELPER_STACK, helper_main, owner);
        if (!failed) atomic_store(&helper->runs, true);
    }
    pthread_mutex_unlock(&owner->lock);
    if (failed) return tutti_fail(TUTTI_ERR_SYSTEM, "the helper thread can not be started: %s", strerror(failed));
    return TUTTI_OK;
}

void tutti_helper_stop(struct tutti_owner *owner)
{
    struct tutti_helper *helper = &owner->helper;

    atomic_store(&helper->stop, true);
    if (!atomic_load(&helper->runs)) return;
    tutti_helper_wake(owner);
    tutti_owner_kick(owner);
    pthread_join(helper->thread, NULL);
    atomic_store(&helper->runs, false);
}
