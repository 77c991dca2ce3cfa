/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of a communicator whose calls are staged. One takes them in the order in which they were enqueued, waits
 * until their inputs are there, carries them out as any caller would, and lets their stream go on. When the
 * communicator has failed it lets all streams go on at once. The other one asks the device whether it is in order: a
 * device that is lost never comes to a call, and tells so only when it is asked. The driver may keep who asks waiting
 * while a caller waits in it for room in a stream, and only the first thread can make room. */
#include "comm/call/staging.h"

#define SLICE_NS (100 * TUTTI_NS_PER_MS) /* how often it looks whether the communicator has failed */

void *tutti_staging_ask(void *arg)
{
    struct tutti_staging *staging = arg;
    uint32_t question;

    tutti_log_set_rank(staging->comm->rank);
    while ((question = atomic_load(&staging->question)) != TUTTI_ASK_NO_MORE) {
        if (question == TUTTI_ASK_NOTHING) {
            tutti_futex_wait(&staging->question, TUTTI_ASK_NOTHING, TUTTI_NEVER);
            continue;
        }
        if (staging->device->ops->event_query(staging->device, staging->pulse) < 0) tutti_staging_fail(staging);
        atomic_compare_exchange_strong(&staging->question, &question, TUTTI_ASK_NOTHING);
    }
    return NULL;
}

/* ---- the calls ---- */

static void release_from(struct tutti_staged *staged, size_t first)
{
    for (size_t i = first; i < staged->n; i++) tutti_call_release(&staged->calls[i]);
}

static enum tutti_status start_all(struct tutti_staged *staged)
{
    for (size_t i = 0; i < staged->n; i++) {
        enum tutti_status status = tutti_call_start(&staged->calls[i], TUTTI_START, &staged->works[i]);
        if (status >= 0) continue;
        tutti_call_give_up(&staged->calls[i], staged->works, i);
        release_from(staged, i + 1);
        return status;
    }
    return TUTTI_OK;
}

/* Calls that are carried out on a communicator of their own end with that whose they are. */
static enum tutti_status finish(struct tutti_staging *staging, struct tutti_work *work)
{
    enum tutti_status status;
    while ((status = tutti_work_wait(work, SLICE_NS)) == TUTTI_PENDING)
        if (atomic_load(&staging->own) && tutti_staging_failed(staging)) tutti_staging_stop(staging, false);
    tutti_work_free(work);
    return status;
}

static enum tutti_status finish_all(struct tutti_staged *staged)
{
    struct tutti_error first = {.status = TUTTI_OK};
    for (size_t i = 0; i < staged->n; i++)
        if (finish(staged->staging, staged->works[i]) < 0 && first.status == TUTTI_OK) first = *tutti_last_error();
    return first.status < 0 ? tutti_fail_record(&first) : TUTTI_OK;
}

static void note_start(const struct tutti_staged *staged)
{
    atomic_store(&staged->staging->started, staged->number);
    tutti_staging_ring(staged->staging);
}

/* The communicator of its own may be shut with the context; the other one is there as long as this thread. */
static enum tutti_status run(struct tutti_staged *staged)
{
    struct tutti_comm *own = atomic_load(&staged->staging->own);
    enum tutti_status status = own ? tutti_comm_enter(own, staged->calls[0].name) : TUTTI_OK;

    if (status < 0) {
        release_from(staged, 0);
        return status;
    }
    status = start_all(staged);
    note_start(staged);
    if (status >= 0) status = finish_all(staged);
    if (own) tutti_comm_leave(own);
    return status;
}

/* ---- one after the other ---- */

static struct tutti_staged *take(struct tutti_staging *staging)
{
    pthread_mutex_lock(&staging->lock);
    struct tutti_staged *staged = staging->first;
    if (staged) staging->first = staged->next;
    if (!staging->first) staging->end = &staging->first;
    pthread_mutex_unlock(&staging->lock);
    return staged;
}

static bool has_arrived(struct tutti_staging *staging, const void *staged)
{
    return tutti_staging_failed(staging) || atomic_load(&((const struct tutti_staged *)staged)->arrived);
}

static void serve_one(struct tutti_staging *staging, struct tutti_staged *staged)
{
    const uint32_t go = staged->go + staged->n_pieces;

    tutti_staging_wait(staging, has_arrived, staged, TUTTI_NEVER);
    if (tutti_staging_failed(staging))
        release_from(staged, 0);
    else if (run(staged) < 0)
        tutti_staging_fail(staging);
    note_start(staged); /* or they never start */
    for (size_t i = 0; i < staged->n; i++) tutti_call_disown(&staged->calls[i]);
    /* From here on they may be over, and gone. The results come before the word. */
    atomic_store_explicit(staging->go, go, memory_order_release);
}

void *tutti_staging_serve(void *arg)
{
    struct tutti_staging *staging = arg;

    tutti_log_set_rank(staging->comm->rank);
    for (;;) {
        uint32_t bell = atomic_load(&staging->bell);
        struct tutti_staged *staged = take(staging);
        if (staged)
            serve_one(staging, staged);
        else if (atomic_load(&staging->closing))
            return NULL;
        else
            tutti_futex_wait(&staging->bell, bell, tutti_deadline_ns(TUTTI_NS_PER_S)); /* a second line only */
    }
}
