/* SPDX-License-Identifier: BSD-3-Clause */

/* The completion thread: it runs functions that a user wants called when a work is complete, one after the other, so
 * that they may block and call anything while the owner goes on; the owner only appends to a queue (work.c). A notice
 * is allocated when it is asked for. The thread starts with the first request and ends with the engine. */

#include "engine/work.h"

#include <string.h>

/* The next notice; NULL: none is there. With none left, *ended after stop. */
static struct tutti_notice *next_notice(struct tutti_notifier *notifier, bool *ended)
{
    pthread_mutex_lock(&notifier->lock);
    struct tutti_notice *notice = notifier->first;
    if (notice) {
        notifier->first = notice->next;
        if (!notifier->first) notifier->end = &notifier->first;
        notifier->running_home = notice->home;
        notifier->running_number = notice->number;
    } else if (notifier->stop) {
        *ended = notifier->ended = true;
    }
    pthread_mutex_unlock(&notifier->lock);
    return notice;
}

static void *notifier_main(void *arg)
{
    struct tutti_works *works = arg;
    struct tutti_notifier *notifier = &works->notifier;
    struct tutti_owner *owner = &works->owner;
    bool ended = false;

    while (!ended) {
        uint32_t word = atomic_load(&notifier->word);
        struct tutti_notice *notice = next_notice(notifier, &ended);
        if (notice) {
            tutti_notice_run(notice);
            atomic_fetch_add(&notifier->n_run, 1);
            if (atomic_load(&notifier->n_drains) > 0) tutti_futex_wake(&notifier->n_run, UINT32_MAX);
        } else if (!ended) {
            atomic_store(&notifier->sleeping, 1);
            /* The timeout is a second line only. */
            tutti_poller_wait_word(owner->poller, &notifier->word, word, tutti_owner_deadline(owner, TUTTI_NS_PER_S));
            atomic_store(&notifier->sleeping, 0);
        }
    }
    tutti_works_unref(works);
    return NULL;
}

/* ---- the completion thread ---- */

static enum tutti_status notifier_start(struct tutti_works *works)
{
    struct tutti_notifier *notifier = &works->notifier;
    int failed = 0;

    if (atomic_load(&notifier->runs)) return TUTTI_OK;
    pthread_mutex_lock(&notifier->lock);
    if (!atomic_load(&notifier->runs) && !notifier->ended) {
        atomic_fetch_add(&works->refs, 1);
        /* Functions of users run here: a stack of the usual size. */
        failed = tutti_thread_start(&notifier->thread, 0, notifier_main, works);
        atomic_store(&notifier->runs, !failed);
    }
    pthread_mutex_unlock(&notifier->lock);
    if (!failed) return TUTTI_OK;
    tutti_works_unref(works);
    return tutti_fail(TUTTI_ERR_SYSTEM, "work_notify: the completion thread can not be started: %s", strerror(failed));
}

void tutti_notifier_stop(struct tutti_works *works)
{
    struct tutti_notifier *notifier = &works->notifier;

    pthread_mutex_lock(&notifier->lock);
    notifier->stop = true;
    bool runs = atomic_load(&notifier->runs);
    if (!runs) notifier->ended = true;
    pthread_mutex_unlock(&notifier->lock);
    if (!runs) return;
    tutti_notifier_wake(notifier);
    /* It may be this thread, or wait for this one: then it runs what is queued later, and ends by itself. */
    if (tutti_notice_runs())
        pthread_detach(notifier->thread);
    else
        pthread_join(notifier->thread, NULL);
}

/* The number of the last notice of this home that is queued or running; else one that has run. */
static uint32_t last_of(struct tutti_notifier *notifier, const void *home)
{
    uint32_t number = notifier->running_home == home ? notifier->running_number : atomic_load(&notifier->n_run);

    for (const struct tutti_notice *notice = notifier->first; notice; notice = notice->next)
        if (notice->home == home) number = notice->number;
    return number;
}

void tutti_notifier_drain(struct tutti_works *works, const void *home)
{
    struct tutti_notifier *notifier = &works->notifier;

    if (tutti_notice_runs()) return;
    pthread_mutex_lock(&notifier->lock);
    uint32_t number = last_of(notifier, home), run;
    pthread_mutex_unlock(&notifier->lock);
    atomic_fetch_add(&notifier->n_drains, 1);
    while ((int32_t)(number - (run = atomic_load(&notifier->n_run))) > 0)
        tutti_poller_wait_word(works->owner.poller, &notifier->n_run, run,
                               tutti_owner_deadline(&works->owner, TUTTI_NS_PER_S));
    atomic_fetch_sub(&notifier->n_drains, 1);
}

/* ---- asking ---- */

static enum tutti_status count_part(struct tutti_work *part, void *arg)
{
    ++*(uint32_t *)arg;
    (void)part;
    return TUTTI_OK;
}

/* The part's end is noticed though nobody waits. */
static enum tutti_status ready_part(struct tutti_work *part, void *arg)
{
    (void)arg;
    if (!atomic_load(&part->done)) TUTTI_TRY(tutti_helper_start(&part->works->owner));
    return notifier_start(part->works);
}

static enum tutti_status hook_part(struct tutti_work *part, void *arg)
{
    struct tutti_hook **next = arg, *hook = (*next)++;

    tutti_helper_watch(&part->works->owner, 1);
    hook->next = atomic_load(&part->hooks);
    while (!atomic_compare_exchange_weak(&part->hooks, &hook->next, hook)) {
    }
    /* The thread that completes looks for hooks after it says so, this thread says so after it hooked: one of them sees
     * both. */
    if (atomic_load(&part->done))
        tutti_work_due(part);
    else
        tutti_owner_hand_over(&part->works->owner);
    return TUTTI_OK;
}

enum tutti_status tutti_work_notify(struct tutti_work *work, tutti_work_function function, void *arg)
{
    uint32_t n = 0;

    TUTTI_TRY(tutti_work_check(work, "work_notify"));
    if (!function) return tutti_fail(TUTTI_ERR_ARGUMENT, "work_notify: function is NULL");
    TUTTI_TRY(tutti_work_parts(work, count_part, &n));
    TUTTI_TRY(tutti_work_parts(work, ready_part, NULL));
    struct tutti_notice *notice = tutti_alloc(sizeof(*notice) + n * sizeof(struct tutti_hook));
    if (!notice) return tutti_fail(TUTTI_ERR_MEMORY, "work_notify: out of memory");
    notice->work = work;
    notice->function = function;
    notice->arg = arg;
    for (uint32_t i = 0; i < n; i++) notice->hooks[i].notice = notice;
    atomic_store(&notice->left, n);
    atomic_fetch_add(&work->refs, 2); /* the notice's; and this call's, since the function may free the handle */
    struct tutti_hook *next = notice->hooks;
    tutti_work_parts(work, hook_part, &next); /* with the last part the notice may be gone */
    tutti_work_drop(work);
    return TUTTI_OK;
}
