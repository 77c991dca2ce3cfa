/* SPDX-License-Identifier: BSD-3-Clause */

/* Whether callers are prompt. Most callers wait at once for what they started. Waking a thread for each such call would
 * cost more than the call, and then the two would struggle for the ownership. So while callers are prompt, they do not
 * wake the helper: it naps, and looks after each nap whether a call was left alone all the while. If one was, or if a
 * caller came late to wait, callers are not prompt any more, and whoever leaves work behind wakes the helper, until
 * callers are prompt again. */

#include "engine/owner/owner.h"

/* Who waits no later than this after the start waits at once: less than waking and giving way are worth. */
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
