/* SPDX-License-Identifier: BSD-3-Clause */

/* The helper: a thread that owns while there is work that nobody waits for, and gives way to whoever wants to own.
 *
 * Most callers wait at once for what they started. Waking a thread for each such call would cost more than the call,
 * and then the two would struggle for the ownership. So while callers are prompt, they do not wake the helper: it naps,
 * and looks after each nap whether a call was left alone all the while. If one was, or if a caller came late to wait,
 * callers are not prompt any more, and whoever leaves work behind wakes the helper, until callers are prompt again.
 * Calls of which somebody wants to be told (tutti_work_notify) are not left alone at all. When nobody starts calls the
 * helper stops napping, and the next call wakes it. */

#include "engine/core.h"

#include <string.h>

#define HELPER_STACK (512 * 1024)
/* Naps disturb the callers, and are the longer the longer those are prompt. */
#define NAP_NS (50 * UINT64_C(1000))
#define NAP_LONGEST_NS (400 * UINT64_C(1000))
#define NAPS 4 /* in vain, before it sleeps */
/* Who waits no later than this after the start waits at once: less than waking and giving way are worth. */
#define PROMPT_NS (25 * UINT64_C(1000))
/* Two late ones in a row, and callers are not prompt: one may be the scheduler's doing. Eight, and they are again. */
#define SCORE_MOST 8
#define SCORE_LATE 4

static void helper_wake(struct tutti_helper *helper)
{
    atomic_fetch_add(&helper->word, 1);
    if (atomic_exchange(&helper->sleeps, 0)) tutti_futex_wake(&helper->word, 1);
}

/* Whether work that is left behind is the helper's at once. */
static bool wanted(const struct tutti_helper *helper)
{
    return !atomic_load(&helper->prompt) || atomic_load(&helper->n_watched) > 0;
}

void tutti_helper_call(struct tutti_engine *engine)
{
    struct tutti_helper *helper = &engine->helper;

    if (!atomic_load(&helper->runs)) return;
    if (wanted(helper) || !atomic_load(&helper->naps))
        helper_wake(helper);
    else
        atomic_fetch_add(&helper->n_relied, 1);
    /* Where the helper was woken on this CPU it has run first: that is no delay of the caller's. */
    if (!atomic_load(&helper->prompt)) tutti_helper_waited(engine, tutti_now_ns());
}

void tutti_helper_watch(struct tutti_engine *engine, int32_t n)
{
    atomic_fetch_add(&engine->helper.n_watched, (uint32_t)n);
}

/* ---- what callers do ---- */

void tutti_helper_learn(struct tutti_engine *engine, uint64_t start_ns)
{
    struct tutti_helper *helper = &engine->helper;
    uint64_t since = atomic_load_explicit(&helper->waited_ns, memory_order_relaxed);

    if (!atomic_load(&helper->runs)) return;
    if (since < start_ns) since = start_ns;
    uint32_t score = atomic_load_explicit(&helper->score, memory_order_relaxed), before = score;
    if (tutti_now_ns() - since > PROMPT_NS)
        score = score > SCORE_LATE ? score - SCORE_LATE : 0;
    else if (score < SCORE_MOST)
        score++;
    if (score == before) return;
    atomic_store_explicit(&helper->score, score, memory_order_relaxed);
    if (score == 0 || score == SCORE_MOST) atomic_store(&helper->prompt, score > 0);
}

void tutti_helper_waited(struct tutti_engine *engine, uint64_t until_ns)
{
    atomic_store_explicit(&engine->helper.waited_ns, until_ns, memory_order_relaxed);
}

/* ---- the thread ---- */

static bool idle(const void *arg)
{
    const struct tutti_engine *engine = arg;
    return atomic_load(&engine->n_inflight) == 0 || atomic_load(&engine->n_waiters) > 0 ||
           atomic_load(&engine->helper.stop);
}

/* Until the word changes, or the time is over; whether it was that. */
static bool doze(struct tutti_helper *helper, uint32_t word, uint64_t ns)
{
    atomic_store(&helper->sleeps, 1);
    tutti_futex_wait(&helper->word, word, tutti_deadline_ns(ns));
    atomic_store(&helper->sleeps, 0);
    return atomic_load(&helper->word) == word;
}

/* Naps while callers rely on it, else sleeps until it is called. Returns for how many naps nobody relied on it. */
static uint32_t rest(struct tutti_engine *engine, uint32_t word, uint32_t quiet)
{
    struct tutti_helper *helper = &engine->helper;
    uint32_t relied = atomic_load(&helper->n_relied);

    if (quiet < NAPS && atomic_load(&helper->prompt)) {
        atomic_store(&helper->naps, true);
        bool through = doze(helper, word, helper->nap_ns);
        if (through && atomic_load(&helper->n_relied) == relied) return quiet + 1;
        if (helper->nap_ns < NAP_LONGEST_NS) helper->nap_ns *= 2;
        return 0;
    }
    helper->nap_ns = NAP_NS;
    atomic_store(&helper->naps, false);
    /* From now on who leaves work behind wakes it; some may have relied on it just before. The timeout is a second line
     * only. */
    if (idle(engine) || atomic_load(&engine->owned) || atomic_load(&engine->want) > 0)
        doze(helper, word, TUTTI_NS_PER_S);
    return 0;
}

static void *helper_main(void *arg)
{
    struct tutti_engine *engine = arg;
    struct tutti_helper *helper = &engine->helper;
    uint32_t quiet = 0;

    for (;;) {
        uint32_t word = atomic_load(&helper->word);
        if (atomic_load(&helper->stop)) return NULL;
        if (idle(engine) || !(quiet > 0 || wanted(helper)) || !tutti_owner_try(engine)) {
            quiet = rest(engine, word, quiet);
            continue;
        }
        if (quiet > 0) { /* a call was left alone for a whole nap */
            atomic_store_explicit(&helper->score, 0, memory_order_relaxed);
            atomic_store(&helper->prompt, false);
        }
        atomic_store(&helper->owns, true);
        tutti_engine_own(engine, idle, engine, TUTTI_NEVER);
        atomic_store(&helper->owns, false);
        tutti_owner_leave(engine);
        quiet = 0;
    }
}

enum tutti_status tutti_helper_start(struct tutti_engine *engine)
{
    struct tutti_helper *helper = &engine->helper;
    int failed = 0;

    if (atomic_load(&helper->runs)) return TUTTI_OK;
    pthread_mutex_lock(&engine->lock);
    if (!atomic_load(&helper->runs)) {
        helper->nap_ns = NAP_NS;
        failed = tutti_thread_start(&helper->thread, HELPER_STACK, helper_main, engine);
        if (!failed) atomic_store(&helper->runs, true);
    }
    pthread_mutex_unlock(&engine->lock);
    if (failed) return tutti_fail(TUTTI_ERR_SYSTEM, "the helper thread can not be started: %s", strerror(failed));
    return TUTTI_OK;
}

void tutti_helper_stop(struct tutti_engine *engine)
{
    struct tutti_helper *helper = &engine->helper;

    atomic_store(&helper->stop, true);
    if (!atomic_load(&helper->runs)) return;
    helper_wake(helper);
    tutti_owner_kick(engine);
    pthread_join(helper->thread, NULL);
    atomic_store(&helper->runs, false);
}
