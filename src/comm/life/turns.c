/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of a communicator that survives, one after another: on the caller's thread, or on one of the communicator;
 * which are taken at all, and whose contributions the last ones hold. */

#include "comm/life/survive.h"

#include <stdio.h>
#include <string.h>

#define NAP_NS (50 * UINT64_C(1000))
#define LOOKS 20 /* of the thread, before it sleeps until it is woken */

/* A call that waits for its turn. */
struct waiting {
    struct tutti_call call;
    struct tutti_work *work; /* promised; NULL: nobody asked for one */
    struct tutti_held *held; /* on a device, through pinned memory */
    struct tutti_gated gated;
    struct waiting *next;
};

/* Kinds that are carried out, as bits: what the survivors have is still what was asked for. */
#define KINDS                                                                                                          \
    (1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE | 1u << TUTTI_BROADCAST | 1u << TUTTI_ALL_GATHER |                    \
     1u << TUTTI_GATHER | 1u << TUTTI_REDUCE_SCATTER | 1u << TUTTI_BARRIER)
#define KINDS_V (1u << TUTTI_ALL_GATHER | 1u << TUTTI_REDUCE_SCATTER)

/* The lock is held. */
static void note(struct tutti_survive *s)
{
    memcpy(set_at(s, s->synchrony.called), s->set, s->set_bytes);
    s->n_over = s->synchrony.called;
}

/* The lock is held, and nothing runs. w: the call's, if it waited. */
static enum tutti_status run_unlocked(struct tutti_survive *s, struct tutti_call *call, struct waiting *w)
{
    enum tutti_status status = TUTTI_OK;
    s->is_running = true;
    pthread_mutex_unlock(&s->lock);
    if (w && w->held) status = tutti_held_await(s, w->held);
    if (w && w->gated.number && status >= 0) status = tutti_gated_follow(s, &w->gated, call);
    if (status < 0 && !s->has_ended) tutti_survive_stop(s); /* the device failed, or there is no memory */
    s->gated = w && w->gated.number ? &w->gated : NULL;
    status = tutti_survive_run(s, call);
    s->gated = NULL;
    pthread_mutex_lock(&s->lock);
    note(s); /* before its stream goes on */
    pthread_mutex_unlock(&s->lock);
    if (w && w->held)
        tutti_held_release(s, w->held, status < 0);
    else if (w && w->gated.number)
        status = tutti_gated_open(s, &w->gated, status);
    else if (w && s->word)
        atomic_store_explicit(s->word, (uint32_t)s->synchrony.called, memory_order_release);
    const struct tutti_error why = *tutti_last_error();
    tutti_gated_renew(s);
    if (w && w->held) tutti_held_end(s, w->held);
    pthread_mutex_lock(&s->lock);
    s->is_running = false;
    pthread_cond_broadcast(&s->changed);
    return status < 0 ? tutti_fail_record(&why) : status;
}

/* The lock is held, and nothing runs. */
static void run_waiting(struct tutti_survive *s, struct waiting *w)
{
    const enum tutti_status status = run_unlocked(s, &w->call, w);
    if (!w->work && status < 0) tutti_log(TUTTI_LOG_WARN, "%s", tutti_last_error()->text);
    if (w->work) tutti_work_fulfil(w->work, status < 0 ? tutti_last_error() : NULL);
}

/* The lock is held. Who makes one small call after the other on a device shall not have to wake this thread for each.
 */
static struct waiting *next_waiting(struct tutti_survive *s)
{
    for (uint32_t look = 0; !s->stops && look < LOOKS && (!s->first || s->is_running); look++) {
        if (s->gates.state != TUTTI_GATES_OPEN) break;
        pthread_mutex_unlock(&s->lock);
        tutti_sleep_ns(NAP_NS);
        pthread_mutex_lock(&s->lock);
    }
    while ((!s->first && !s->stops) || s->is_running) pthread_cond_wait(&s->changed, &s->lock);
    return s->first;
}

static void *serve(void *arg)
{
    struct tutti_survive *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct waiting *w = next_waiting(s);
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

enum way { ON_HOST, THROUGH_HOST, BY_GATE };

/* The lock is held. */
static enum tutti_status enqueue(struct tutti_survive *s, const struct tutti_call *call, enum way way, uint64_t number,
                                 struct tutti_work **work)
{
    enum tutti_status status = thread_start(s, call);
    if (status < 0) return status;
    struct waiting *w = tutti_alloc(sizeof(*w));
    if (!w) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory for a call that waits for its turn");
    w->call = *call;
    TUTTI_TRY_GOTO(status, tutti_call_own(&w->call), err_free);
    if (call->work || way == ON_HOST) {
        TUTTI_TRY_GOTO(status, tutti_work_promise(call->comm->team, number, call->options.label, &w->work), err_tables);
    }
    status = way == BY_GATE ? tutti_gated_enqueue(s, &w->call, number, &w->gated) : TUTTI_AGAIN;
    if (status == TUTTI_AGAIN && way != ON_HOST) status = tutti_held_begin(s, &w->call, number, &w->held);
    if (status < 0) goto err_work;
    if (way != BY_GATE || w->held) s->n_by_host = number;
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
    const enum way way = !on_device ? ON_HOST : tutti_gated_await_turn(s, call) ? BY_GATE : THROUGH_HOST;
    const bool now = !call->work && !on_device && !s->first && !s->is_running;
    const uint64_t number = tutti_comm_sequence(call->comm) + 1;
    enum tutti_status status = now ? TUTTI_OK : enqueue(s, call, way, number, &work);
    if (status >= 0) atomic_store(&call->comm->sequence, number);
    if (now) status = run_unlocked(s, call, NULL);
    pthread_mutex_unlock(&s->lock);
    if (status < 0 || now) return status;
    if (call->work) *call->work = work;
    return call->work || on_device ? TUTTI_OK : tutti_work_finish(work);
}

/* ---- names ---- */

/* What sentences of a view call its ranks, its calls and itself: as the handle does. Without memory: as the view does.
 */
void tutti_survive_name_view(const struct tutti_survive *s, struct tutti_comm *view)
{
    struct tutti_names *names = tutti_alloc(sizeof(*names) + (size_t)view->size * sizeof(names->ranks[0]));
    if (!names) return;
    names->comm = s->comm->id;
    memcpy(names->ranks, s->ranks, (size_t)view->size * sizeof(names->ranks[0]));
    view->names = names;
    tutti_team_set_names(view->team, names);
}

/* The next collectives of the view, as many as a call may take, are the call at hand. */
void tutti_survive_name_call(const struct tutti_survive *s)
{
    struct tutti_names *names = s->inner->names;
    const uint64_t number = tutti_comm_sequence(s->inner);
    for (uint64_t k = 1; names && k <= 4; k++)
        atomic_store_explicit(&names->calls[(number + k) % TUTTI_NAMED_CALLS], s->synchrony.called,
                              memory_order_relaxed);
}

void tutti_survive_begin(struct tutti_survive *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->first || s->is_running) pthread_cond_wait(&s->changed, &s->lock);
    s->is_running = true;
    pthread_mutex_unlock(&s->lock);
}

void tutti_survive_abort(struct tutti_comm *comm, const char *reason)
{
    struct tutti_comm *inner = NULL, *gates = NULL;
    pthread_mutex_lock(&comm->lock); /* a view may be installed */
    if (comm->survive) {
        inner = comm->survive->inner;
        gates = comm->survive->gates.comm;
        if (!atomic_load(&comm->survive->is_aborted))
            snprintf(comm->survive->reason, sizeof comm->survive->reason, "%s", reason ? reason : "");
        atomic_store(&comm->survive->is_aborted, true);
    }
    struct tutti_comm *both[] = {inner, gates};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(both); i++)
        if (both[i]) tutti_comm_hold(both[i]);
    pthread_mutex_unlock(&comm->lock);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(both); i++) {
        if (!both[i]) continue;
        tutti_comm_end_calls(both[i], reason);
        tutti_comm_leave(both[i]);
    }
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
    tutti_gated_renew(s);
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
    /* What the device has passed is over; the thread that follows it is about to say so. */
    while (s && !s->has_ended && s->first && s->n_over < tutti_gated_passed(s))
        pthread_cond_wait(&s->changed, &s->lock);
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
