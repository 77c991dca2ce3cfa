/* SPDX-License-Identifier: BSD-3-Clause */

/* Notices: functions that a user wants called when a work is complete. They run on the completion thread, one after the
 * other, so that they may block and call anything while the owner goes on; the owner only appends to a queue. A notice
 * hangs on every part of its work (a joined work has several) and is due with the last one; it is allocated when it is
 * asked for, and holds the work until its function returned. The completion thread starts with the first request and
 * ends with the engine. */

#include "engine/core.h"

#include <string.h>

struct tutti_hook {
    struct tutti_hook *next; /* of the same part */
    struct tutti_notice *notice;
};

struct tutti_notice {
    struct tutti_notice *next; /* of the queue */
    struct tutti_work *work;   /* held */
    tutti_work_function function;
    void *arg;
    const void *home;      /* the team of the part that was last, as a name: it may be gone */
    uint32_t number;       /* in the queue */
    _Atomic uint32_t left; /* parts that are not complete */
    struct tutti_hook hooks[];
};

/* This thread runs such a function: it waits for no others, which may wait for it. */
static _Thread_local bool in_function;

/* ---- running ---- */

static void notice_run(struct tutti_notice *notice)
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

static void wake(struct tutti_notifier *notifier)
{
    atomic_fetch_add(&notifier->word, 1);
    if (atomic_exchange(&notifier->sleeping, 0)) tutti_futex_wake(&notifier->word, 1);
}

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
    struct tutti_engine *engine = arg;
    struct tutti_notifier *notifier = &engine->notifier;
    bool ended = false;

    while (!ended) {
        uint32_t word = atomic_load(&notifier->word);
        struct tutti_notice *notice = next_notice(notifier, &ended);
        if (notice) {
            notice_run(notice);
            atomic_fetch_add(&notifier->n_run, 1);
            if (atomic_load(&notifier->n_drains) > 0) tutti_futex_wake(&notifier->n_run, UINT32_MAX);
        } else if (!ended) {
            atomic_store(&notifier->sleeping, 1);
            tutti_futex_wait(&notifier->word, word, tutti_deadline_ns(TUTTI_NS_PER_S)); /* a second line only */
            atomic_store(&notifier->sleeping, 0);
        }
    }
    tutti_engine_unref(engine);
    return NULL;
}

/* ---- the completion thread ---- */

static enum tutti_status notifier_start(struct tutti_engine *engine)
{
    struct tutti_notifier *notifier = &engine->notifier;
    int failed = 0;

    if (atomic_load(&notifier->runs)) return TUTTI_OK;
    pthread_mutex_lock(&notifier->lock);
    if (!atomic_load(&notifier->runs) && !notifier->ended) {
        atomic_fetch_add(&engine->refs, 1);
        /* Functions of users run here: a stack of the usual size. */
        failed = tutti_thread_start(&notifier->thread, 0, notifier_main, engine);
        atomic_store(&notifier->runs, !failed);
    }
    pthread_mutex_unlock(&notifier->lock);
    if (!failed) return TUTTI_OK;
    tutti_engine_unref(engine);
    return tutti_fail(TUTTI_ERR_SYSTEM, "work_notify: the completion thread can not be started: %s", strerror(failed));
}

void tutti_notifier_init(struct tutti_notifier *notifier)
{
    pthread_mutex_init(&notifier->lock, NULL);
    notifier->end = &notifier->first;
}

void tutti_notifier_stop(struct tutti_engine *engine)
{
    struct tutti_notifier *notifier = &engine->notifier;

    pthread_mutex_lock(&notifier->lock);
    notifier->stop = true;
    bool runs = atomic_load(&notifier->runs);
    if (!runs) notifier->ended = true;
    pthread_mutex_unlock(&notifier->lock);
    if (!runs) return;
    wake(notifier);
    /* It may be this thread, or wait for this one: then it runs what is queued later, and ends by itself. */
    if (in_function)
        pthread_detach(notifier->thread);
    else
        pthread_join(notifier->thread, NULL);
}

void tutti_notifier_fini(struct tutti_notifier *notifier)
{
    pthread_mutex_destroy(&notifier->lock);
}

/* The number of the last notice of this home that is queued or running; else one that has run. */
static uint32_t last_of(struct tutti_notifier *notifier, const void *home)
{
    uint32_t number = notifier->running_home == home ? notifier->running_number : atomic_load(&notifier->n_run);

    for (const struct tutti_notice *notice = notifier->first; notice; notice = notice->next)
        if (notice->home == home) number = notice->number;
    return number;
}

void tutti_notifier_drain(struct tutti_engine *engine, const void *home)
{
    struct tutti_notifier *notifier = &engine->notifier;

    if (in_function) return;
    pthread_mutex_lock(&notifier->lock);
    uint32_t number = last_of(notifier, home), run;
    pthread_mutex_unlock(&notifier->lock);
    atomic_fetch_add(&notifier->n_drains, 1);
    while ((int32_t)(number - (run = atomic_load(&notifier->n_run))) > 0)
        tutti_futex_wait(&notifier->n_run, run, tutti_deadline_ns(TUTTI_NS_PER_S));
    atomic_fetch_sub(&notifier->n_drains, 1);
}

/* ---- what is due ---- */

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
    struct tutti_notifier *notifier = &part->engine->notifier;
    struct tutti_notice *here = NULL;
    bool any = false;

    /* Taken and queued under one lock, so that who finds no hooks queues its own after these. */
    pthread_mutex_lock(&notifier->lock);
    for (struct tutti_hook *hook = hooks_take(part), *next; hook; hook = next) {
        next = hook->next; /* the notice may be gone once it is counted down */
        tutti_helper_watch(part->engine, -1);
        if (atomic_fetch_sub(&hook->notice->left, 1) != 1) continue;
        append(notifier, hook->notice, part->home);
        any = true;
    }
    if (notifier->ended) here = detach(notifier);
    pthread_mutex_unlock(&notifier->lock);
    if (here) {
        while (here) {
            struct tutti_notice *next = here->next;
            notice_run(here);
            here = next;
        }
    } else if (any) {
        wake(notifier);
    }
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
    if (!atomic_load(&part->done)) TUTTI_TRY(tutti_helper_start(part->engine));
    return notifier_start(part->engine);
}

static enum tutti_status hook_part(struct tutti_work *part, void *arg)
{
    struct tutti_hook **next = arg, *hook = (*next)++;

    tutti_helper_watch(part->engine, 1);
    hook->next = atomic_load(&part->hooks);
    while (!atomic_compare_exchange_weak(&part->hooks, &hook->next, hook)) {
    }
    /* Who completes looks for hooks after it says so, this thread says so after it hooked: one of them sees both. */
    if (atomic_load(&part->done))
        tutti_work_due(part);
    else
        tutti_owner_hand_over(part->engine);
    return TUTTI_OK;
}

enum tutti_status tutti_work_notify(struct tutti_work *work, tutti_work_function function, void *arg)
{
    uint32_t n = 0;

    if (!work) return tutti_fail(TUTTI_ERR_ARGUMENT, "work_notify: work is NULL");
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
