/* SPDX-License-Identifier: BSD-3-Clause */

/* Notices that are due. A notice hangs on every part of its work (a joined work has several) and is queued for the
 * completion thread with the last one, by whoever completes that; it holds the work until its function returned. */

#include "engine/work/work.h"

static _Thread_local bool in_function;

bool tutti_notice_runs(void)
{
    return in_function;
}

void tutti_notice_run(struct tutti_notice *notice)
{
    struct tutti_work *work = notice->work;
    bool outer = in_function;

    in_function = true;
    notice->function(notice->arg);
    in_function = outer;
    tutti_free(notice);
    tutti_work_drop(work);
}

static void append(struct tutti_notifier *notifier, struct tutti_notice *notice, const void *home)
{
    notice->next = NULL;
    notice->home = home;
    notice->number = ++notifier->n_queued;
    *notifier->end = notice;
    notifier->end = &notice->next;
}

static struct tutti_notice *detach(struct tutti_notifier *notifier)
{
    struct tutti_notice *first = notifier->first;

    notifier->first = NULL;
    notifier->end = &notifier->first;
    return first;
}

void tutti_notifier_wake(struct tutti_notifier *notifier)
{
    atomic_fetch_add(&notifier->word, 1);
    if (atomic_exchange(&notifier->sleeping, 0)) tutti_futex_wake(&notifier->word, 1);
}

/* The hooks of a part in the order of the requests. */
static struct tutti_hook *hooks_take(struct tutti_work *part)
{
    struct tutti_hook *hook = atomic_exchange(&part->hooks, NULL), *first = NULL;

    while (hook) {
        struct tutti_hook *next = hook->next;
        hook->next = first;
        first = hook;
        hook = next;
    }
    return first;
}

void tutti_work_due(struct tutti_work *part)
{
    struct tutti_notifier *notifier = &part->works->notifier;
    struct tutti_notice *here = NULL;
    bool any = false;

    /* Taken and queued under one lock, so that who finds no hooks queues its own after these. */
    pthread_mutex_lock(&notifier->lock);
    for (struct tutti_hook *hook = hooks_take(part), *next; hook; hook = next) {
        next = hook->next; /* the notice may be gone once it is counted down */
        tutti_helper_watch(&part->works->owner, -1);
        if (atomic_fetch_sub(&hook->notice->left, 1) != 1) continue;
        append(notifier, hook->notice, part->home);
        any = true;
    }
    if (notifier->ended) here = detach(notifier);
    pthread_mutex_unlock(&notifier->lock);
    if (here) {
        while (here) {
            struct tutti_notice *next = here->next;
            tutti_notice_run(here);
            here = next;
        }
    } else if (any) {
        tutti_notifier_wake(notifier);
    }
}
