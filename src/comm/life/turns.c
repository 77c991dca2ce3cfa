/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of a communicator that survives, one after another: on the caller's thread, or on one of the communicator;
 * which are taken at all, and whose contributions the last ones hold. */

#include "comm/life/survive.h"

#include <string.h>

#define NAP_NS (50 * UINT64_C(1000))

/* A call that waits for its turn. */
struct waiting {
    struct tutti_call call;
    struct tutti_work *work; /* promised; NULL: nobody asked for one */
    struct tutti_held *held; /* on a device */
    struct waiting *next;
};

/* Kinds that are carried out, as bits: what the survivors have is still what was asked for. */
#define KINDS                                                                                                          \
    (1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE | 1u << TUTTI_BROADCAST | 1u << TUTTI_ALL_GATHER |                    \
     1u << TUTTI_GATHER | 1u << TUTTI_REDUCE_SCATTER | 1u << TUTTI_BARRIER)
#define KINDS_V (1u << TUTTI_ALL_GATHER | 1u << TUTTI_REDUCE_SCATTER)

/* The lock is held, and nothing runs. */
static enum tutti_status run_unlocked(struct tutti_survive *s, const struct tutti_call *call)
{
    s->is_running = true;
    pthread_mutex_unlock(&s->lock);
    enum tutti_status status = tutti_survive_run(s, call);
    pthread_mutex_lock(&s->lock);
    memcpy(set_at(s, s->synchrony.called), s->set, s->set_bytes);
    s->n_over = s->synchrony.called;
    s->is_running = false;
    pthread_cond_broadcast(&s->changed);
    return status;
}

/* The lock is held, and nothing runs. */
static void run_waiting(struct tutti_survive *s, struct waiting *w)
{
    enum tutti_status status = TUTTI_OK;
    if (w->held) {
        pthread_mutex_unlock(&s->lock);
        status = tutti_held_await(s, w->held);
        pthread_mutex_lock(&s->lock);
        if (status < 0 && !s->has_ended) tutti_survive_stop(s); /* the device failed */
    }
    status = run_unlocked(s, &w->call);
    if (w->held) {
        tutti_held_release(s, w->held, status < 0);
        pthread_mutex_unlock(&s->lock);
        tutti_held_end(s, w->held);
        pthread_mutex_lock(&s->lock);
    }
    if (!w->work && status < 0) tutti_log(TUTTI_LOG_WARN, "%s", tutti_last_error()->text);
    if (w->work) tutti_work_fulfil(w->work, status < 0 ? tutti_last_error() : NULL);
}

static void *serve(void *arg)
{
    struct tutti_survive *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while ((!s->first && !s->stops) || s->is_running) pthread_cond_wait(&s->changed, &s->lock);
        struct waiting *w = s->first;
        if (!w) break;
        run_waiting(s, w);
        s->first = w->next;
        if (!s->first) s->tail = &s->first;
        pthread_cond_broadcast(&s->changed);
        tutti_call_disown(&w->call);
        tutti_free(w);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static enum tutti_status thread_start(struct tutti_survive *s, const struct tutti_call *call)
{
    if (s->has_thread) return TUTTI_OK;
    const int error = tutti_thread_start(&s->thread, 0, serve, s);
    s->has_thread = error == 0;
    if (s->has_thread) return TUTTI_OK;
    return tutti_call_fail(call, TUTTI_ERR_SYSTEM, "no thread for calls that do not block: %s", strerror(error));
}

/* The lock is held. */
static enum tutti_status enqueue(struct tutti_survive *s, const struct tutti_call *call, bool on_device,
                                 uint64_t number, struct tutti_work **work)
{
    enum tutti_status status = thread_start(s, call);
    if (status < 0) return status;
    struct waiting *w = tutti_alloc(sizeof(*w));
    if (!w) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory for a call that waits for its turn");
    w->call = *call;
    TUTTI_TRY_GOTO(status, tutti_call_own(&w->call), err_free);
    if (call->work || !on_device) {
        TUTTI_TRY_GOTO(status, tutti_work_promise(call->comm->team, number, call->options.label, &w->work), err_tables);
    }
    if (on_device) TUTTI_TRY_GOTO(status, tutti_held_begin(s, &w->call, &w->held), err_work);
    *s->tail = w;
    s->tail = &w->next;
    *work = w->work;
    pthread_cond_broadcast(&s->changed);
    return TUTTI_OK;
err_work:
    if (w->work) {
        tutti_work_fulfil(w->work, tutti_last_error());
        tutti_work_free(w->work);
    }
err_tables:
    tutti_call_disown(&w->call);
err_free:
    tutti_free(w);
    return status;
}

static bool is_on_device(const struct tutti_call *call)
{
    return tutti_device_in_use() &&
           (tutti_device_of(call->job.bind.input) >= 0 || tutti_device_of(call->job.bind.output) >= 0);
}

enum tutti_status tutti_survive_call(struct tutti_call *call)
{
    struct tutti_survive *s = call->comm->survive;
    struct tutti_work *work = NULL;
    const unsigned kinds = call->job.bind.v ? KINDS_V : KINDS;
    if (!(kinds >> call->job.info.kind & 1) || call->type != TUTTI_CALL_COLLECTIVE)
        return tutti_call_fail(
            call, TUTTI_ERR_UNSUPPORTED,
            "a communicator that survives carries out all_reduce, reduce, reduce_scatter, all_gather, "
            "gather, broadcast, barrier, all_gather_v and reduce_scatter_v");
    if (tutti_collects() == TUTTI_COLLECTS_RECORD)
        return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED, "a communicator that survives takes no part in recordings");
    if (tutti_collects() == TUTTI_COLLECTS_GROUP) return tutti_group_add(call);
    const bool on_device = is_on_device(call);
    if (on_device) tutti_call_ready(call); /* buffers that are not significant here are NULL */
    pthread_mutex_lock(&s->lock);
    const bool now = !call->work && !on_device && !s->first && !s->is_running;
    const uint64_t number = tutti_comm_sequence(call->comm) + 1;
    enum tutti_status status = now ? TUTTI_OK : enqueue(s, call, on_device, number, &work);
    if (status >= 0) atomic_store(&call->comm->sequence, number);
    if (now) status = run_unlocked(s, call);
    pthread_mutex_unlock(&s->lock);
    if (status < 0 || now) return status;
    if (call->work) *call->work = work;
    return call->work || on_device ? TUTTI_OK : tutti_work_finish(work);
}

void tutti_survive_begin(struct tutti_survive *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->first || s->is_running) pthread_cond_wait(&s->changed, &s->lock);
    s->is_running = true;
    pthread_mutex_unlock(&s->lock);
}

bool tutti_survive_idle(struct tutti_comm *comm, uint64_t until_ns)
{
    struct tutti_survive *s = comm->survive;
    bool idle = true;
    if (!s) return true;
    pthread_mutex_lock(&s->lock);
    while (!(idle = !s->first && !s->is_running) && tutti_now_ns() < until_ns) {
        pthread_mutex_unlock(&s->lock);
        tutti_sleep_ns(NAP_NS);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return idle;
}

void tutti_survive_finish(struct tutti_survive *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_running = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

enum tutti_status tutti_work_contributors(const struct tutti_work *work, struct tutti_comm *comm, int32_t *ranks,
                                          size_t capacity, size_t *n)
{
    if (!n) return tutti_fail(TUTTI_ERR_ARGUMENT, "work_contributors: n is NULL");
    TUTTI_TRY(tutti_comm_enter(comm, "work_contributors"));
    struct tutti_survive *s = comm->survive;
    enum tutti_status status = TUTTI_OK;
    size_t found = 0;
    if (s) pthread_mutex_lock(&s->lock);
    const uint64_t last = s ? s->n_over : 0, call = work ? tutti_work_sequence(work) : last;
    if (s && (call <= s->n_before || call > last || call + N_KEPT <= last))
        status = tutti_fail(TUTTI_ERR_ARGUMENT,
                            "work_contributors on rank %d: call #%llu is not one of the last %d that ended",
                            (int)comm->rank, (unsigned long long)call, (int)N_KEPT);
    for (int32_t rank = 0; status >= 0 && rank < comm->size; rank++) {
        if (s && !set_has(set_at(s, call), (uint32_t)rank)) continue;
        if (ranks && found < capacity) ranks[found] = rank;
        found++;
    }
    if (s) pthread_mutex_unlock(&s->lock);
    tutti_comm_leave(comm);
    if (status >= 0) *n = found;
    return status;
}
