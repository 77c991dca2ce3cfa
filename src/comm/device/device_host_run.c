/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of a communicator whose calls go through the host: one takes passages in the order of the calls, waits
 * until their inputs are there, carries them out as any caller would, and lets their streams go on. When the
 * communicator has failed it lets all of them go on at once. */
#include "comm/device/device_host.h"

#define LOOK_NS (100 * TUTTI_NS_PER_MS) /* how often it looks whether the device and the communicator are in order */

static struct tutti_passage *take(struct tutti_through *through)
{
    pthread_mutex_lock(&through->lock);
    struct tutti_passage *passage = through->first;
    if (passage) through->first = passage->next;
    if (!through->first) through->end = &through->first;
    pthread_mutex_unlock(&through->lock);
    return passage;
}

static bool has_failed(const struct tutti_through *through)
{
    return tutti_team_failed(through->comm->team);
}

/* ---- the device: one that is lost never comes to a passage, nor tells so but when it is asked. The driver may keep
 * who asks waiting while a caller waits in it for room in a stream, which only the thread that serves can make: another
 * one asks ---- */

enum question { NO_QUESTION, QUESTION, NO_MORE };

static void put_question(struct tutti_through *through, enum question question)
{
    atomic_store(&through->question, question);
    tutti_futex_wake(&through->question, 1);
}

void tutti_through_ask_no_more(struct tutti_through *through)
{
    put_question(through, NO_MORE);
}

void *tutti_through_ask(void *arg)
{
    struct tutti_through *through = arg;
    uint32_t question;

    tutti_log_set_rank(through->comm->rank);
    while ((question = atomic_load(&through->question)) != NO_MORE) {
        if (question == NO_QUESTION) {
            tutti_futex_wait(&through->question, NO_QUESTION, TUTTI_NEVER);
            continue;
        }
        if (through->device->ops->event_query(through->device, through->pulse) < 0) tutti_through_fail(through);
        atomic_compare_exchange_strong(&through->question, &question, NO_QUESTION);
    }
    return NULL;
}

/* ---- a passage ---- */

/* False: the communicator has failed. */
static bool await_arrival(struct tutti_through *through, struct tutti_passage *passage)
{
    while (!has_failed(through)) {
        uint32_t bell = atomic_load(&through->bell);
        uint64_t look = tutti_deadline_ns(LOOK_NS);
        if (atomic_load(&passage->arrived)) return true;
        tutti_futex_wait(&through->bell, bell, look);
        if (tutti_now_ns() >= look) put_question(through, QUESTION);
    }
    return false;
}

static void release_from(struct tutti_passage *passage, size_t first)
{
    for (size_t i = first; i < passage->n; i++) tutti_request_release(&passage->requests[i]);
}

void tutti_passage_release(struct tutti_passage *passage)
{
    release_from(passage, 0);
}

static enum tutti_status start_all(struct tutti_passage *passage)
{
    for (size_t i = 0; i < passage->n; i++) {
        enum tutti_status status = tutti_request_start(&passage->requests[i], false, &passage->works[i]);
        if (status >= 0) continue;
        tutti_request_give_up(&passage->requests[i], passage->works, i);
        release_from(passage, i + 1);
        return status;
    }
    return TUTTI_OK;
}

/* Calls that are carried out on a communicator of their own end with that whose they are. */
static enum tutti_status finish(struct tutti_through *through, struct tutti_work *work)
{
    enum tutti_status status;
    while ((status = tutti_work_wait(work, LOOK_NS)) == TUTTI_PENDING)
        if (atomic_load(&through->own) && has_failed(through)) tutti_through_stop(through, false);
    tutti_work_free(work);
    return status;
}

static enum tutti_status finish_all(struct tutti_through *through, struct tutti_passage *passage)
{
    struct tutti_error first = {.status = TUTTI_OK};
    for (size_t i = 0; i < passage->n; i++)
        if (finish(through, passage->works[i]) < 0 && first.status == TUTTI_OK) first = *tutti_last_error();
    return first.status < 0 ? tutti_fail_record(&first) : TUTTI_OK;
}

static void note_start(struct tutti_through *through, const struct tutti_passage *passage)
{
    atomic_store(&through->started, passage->number);
    tutti_through_ring(through);
}

static enum tutti_status run(struct tutti_through *through, struct tutti_passage *passage)
{
    enum tutti_status status = start_all(passage);
    note_start(through, passage);
    return status < 0 ? status : finish_all(through, passage);
}

/* The communicator of its own may be shut with the context; the other one is there as long as this thread. */
static enum tutti_status enter_and_run(struct tutti_through *through, struct tutti_passage *passage)
{
    struct tutti_comm *own = atomic_load(&through->own);
    enum tutti_status status = own ? tutti_comm_enter(own, passage->requests[0].name) : TUTTI_OK;

    if (status < 0) {
        tutti_passage_release(passage);
        return status;
    }
    status = run(through, passage);
    if (own) tutti_comm_leave(own);
    return status;
}

static void pass(struct tutti_through *through, struct tutti_passage *passage)
{
    uint32_t number = passage->number;

    if (!await_arrival(through, passage))
        tutti_passage_release(passage);
    else if (enter_and_run(through, passage) < 0)
        tutti_through_fail(through);
    note_start(through, passage); /* or it never starts */
    for (size_t i = 0; i < passage->n; i++) tutti_request_disown(&passage->requests[i]);
    /* From here on the passage may be over, and gone. The results come before the word. */
    atomic_store_explicit(through->go, number, memory_order_release);
}

void *tutti_through_serve(void *arg)
{
    struct tutti_through *through = arg;

    tutti_log_set_rank(through->comm->rank);
    for (;;) {
        uint32_t bell = atomic_load(&through->bell);
        struct tutti_passage *passage = take(through);
        if (passage)
            pass(through, passage);
        else if (atomic_load(&through->closing))
            return NULL;
        else
            tutti_futex_wait(&through->bell, bell, tutti_deadline_ns(TUTTI_NS_PER_S)); /* a second line only */
    }
}
