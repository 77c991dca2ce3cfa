/* SPDX-License-Identifier: BSD-3-Clause */

/* The helper: a thread that owns while there is work that nobody waits for, and gives way to whoever wants to own.
 * While callers are prompt (owner.c) it naps, and owns after a nap in which a call was left alone. Calls of which
 * somebody wants to be told (tutti_work_notify) are not left alone at all. When nobody starts calls the helper stops
 * napping, and the next call wakes it.
 *
 * Where no CPU is free it stands aside most of the time: it and the callers then wait for one another's turns, and what
 * either has in the caches the other throws out. What is left is done by the caller once it waits. */

#include "engine/owner.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HELPER_STACK (512 * 1024)
/* Naps disturb the callers, and are the longer the longer those are prompt. */
#define NAP_NS (50 * UINT64_C(1000))
#define NAP_LONGEST_NS (400 * UINT64_C(1000))
#define NAPS 4 /* in vain, before it sleeps */
/* No CPU is free if the last caller waits for one for this part of the time; one that sleeps does not. It looks after
 * so much time, and stands aside the longer the longer none is free: others rely on it, so it never does nothing at
 * all. */
#define QUEUED_PART 4
#define LOOK_NS TUTTI_NS_PER_MS
#define ASIDE_NS (4 * TUTTI_NS_PER_MS)
#define ASIDE_LONGEST_NS (16 * TUTTI_NS_PER_MS)

static bool idle(const void *arg)
{
    const struct tutti_owner *owner = arg;
    return !tutti_owner_needed(owner) || atomic_load(&owner->n_waiters) > 0 || atomic_load(&owner->helper.stop);
}

/* How long a thread of this process has waited for a CPU so far; 0 where the system does not tell. */
static uint64_t queued_ns(int32_t thread)
{
    char text[96]; /* a path; then nanoseconds on a CPU, nanoseconds waiting for one, turns */
    uint64_t queued;

    snprintf(text, sizeof text, "/proc/self/task/%d/schedstat", (int)thread);
    int file = open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    if (n <= 0) return 0;
    text[n] = 0;
    return sscanf(text, "%*u %" SCNu64, &queued) == 1 ? queued : 0;
}

/* How long the last caller has waited for a CPU since the last look; 0 where that was at another one. */
static uint64_t look(struct tutti_helper *helper, uint64_t now_ns)
{
    int32_t caller = atomic_load_explicit(&helper->caller, memory_order_relaxed);
    uint64_t queued = queued_ns(caller), before = caller == helper->looked_at ? helper->queued_ns : queued;
    helper->looked_at = caller, helper->looked_ns = now_ns, helper->queued_ns = queued;
    return queued > before ? queued - before : 0;
}

/* Whether it takes the caller's CPU. A time that is not the system's knows nothing of CPUs. */
static bool is_crowded(struct tutti_owner *owner)
{
    struct tutti_helper *helper = &owner->helper;
    uint64_t now = tutti_owner_now(owner), elapsed = now - helper->looked_ns;

    if (owner->clock || owner->poller || now < helper->looked_ns + LOOK_NS) return false;
    helper->crowded = look(helper, now) * QUEUED_PART > elapsed;
    if (!helper->crowded) helper->aside_ns = ASIDE_NS;
    return helper->crowded;
}

static bool gives_way(const void *arg)
{
    return idle(arg) || is_crowded((struct tutti_owner *)(uintptr_t)arg);
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

/* Nobody owns meanwhile, so a caller that waits begins at once. */
static void stand_aside(struct tutti_owner *owner)
{
    struct tutti_helper *helper = &owner->helper;
    uint64_t until = tutti_owner_deadline(owner, helper->aside_ns);

    for (uint64_t now; (now = tutti_owner_now(owner)) < until && !atomic_load(&helper->stop);)
        doze(owner, atomic_load(&helper->word), until - now);
    helper->crowded = false;
    (void)look(helper, tutti_owner_now(owner));
    if (helper->aside_ns < ASIDE_LONGEST_NS) helper->aside_ns *= 2;
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
        tutti_owner_own(owner, gives_way, owner, TUTTI_NEVER);
        atomic_store(&helper->owns, false);
        tutti_owner_leave(owner);
        if (helper->crowded) stand_aside(owner);
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
        helper->nap_ns = NAP_NS, helper->aside_ns = ASIDE_NS;
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
