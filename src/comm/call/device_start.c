/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on device memory are enqueued, and nothing waits: one by one, or, in a group, collectives of one communicator
 * and stream together, and its messages whatever their streams. What follows them, if somebody wants to know their end,
 * is an event. */
#include "comm/call/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- works ---- */

/* Calls through the host that come before it need the engine's owner, which asks here: the driver keeps who asks
 * waiting while somebody gives back memory, until the device is idle. */
static bool is_behind_host(struct tutti_comm_device *device, const struct tutti_device_event *event)
{
    pthread_mutex_lock(&device->lock);
    bool behind = !tutti_staging_is_over(device->staging, event->staged);
    pthread_mutex_unlock(&device->lock);
    return behind;
}

/* What is over after a failure is not done: the team is about to know. */
static enum tutti_status event_look(void *arg)
{
    const struct tutti_device_event *event = arg;
    struct tutti_comm_device *device = event->comm->device;
    if (is_behind_host(device, event)) return TUTTI_PENDING;
    enum tutti_status status = device->device->ops->event_query(device->device, event->event);
    if (status != TUTTI_OK) return status;
    pthread_mutex_lock(&device->lock);
    bool failed = tutti_device_has_failed(device);
    pthread_mutex_unlock(&device->lock);
    return failed ? TUTTI_PENDING : TUTTI_OK;
}

static void event_stop(void *arg)
{
    struct tutti_comm *comm = ((struct tutti_device_event *)arg)->comm;
    struct tutti_comm_device *device = comm->device;
    pthread_mutex_lock(&device->lock);
    tutti_comm_stop_device(comm, true);
    pthread_mutex_unlock(&device->lock);
}

static const struct tutti_followed_ops event_ops = {event_look, event_stop, tutti_device_event_give};

/* The end of all that is on the stream by now, as a work. */
static enum tutti_status follow(struct tutti_comm *comm, void *stream, const char *label, uint64_t seq,
                                struct tutti_work **work)
{
    struct tutti_device_event *event = tutti_device_event_take(comm);
    if (!event) return tutti_last_error()->status;
    event->staged = tutti_staging_enqueued(comm->device->staging);
    enum tutti_status status = comm->device->device->ops->event_record(comm->device->device, event->event, stream);
    if (status >= 0) status = tutti_engine_follow(comm->team, &event_ops, event, seq, label, work);
    if (status < 0) tutti_device_event_give(event);
    return status;
}

enum tutti_status tutti_device_follow(struct tutti_comm *comm, void *stream, const char *label,
                                      struct tutti_work **work)
{
    return follow(comm, stream, label, 0, work);
}

/* ---- enqueuing ---- */

static enum tutti_status enqueue_one(struct tutti_call *call)
{
    return tutti_device_enqueue(call->comm, call->backend, tutti_call_job(call), call->options.stream);
}

static enum tutti_status enqueue_batch(struct tutti_call *calls, size_t n)
{
    struct tutti_comm *comm = calls->comm;
    struct tutti_error failure;
    if (tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    struct tutti_backend_call *jobs = tutti_alloc_array(n, sizeof(*jobs));
    if (!jobs) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for %zu calls", (int)comm->rank, n);
    for (size_t i = 0; i < n; i++) {
        jobs[i] = *tutti_call_job(&calls[i]);
        jobs[i].seq = tutti_team_next(comm->team) + i;
    }
    void *stream = calls->options.stream;
    enum tutti_status status = tutti_device_come_after(comm, calls->backend, stream);
    if (status >= 0) status = calls->backend->ops->batch(calls->backend, jobs, n, stream);
    for (size_t i = 0; i < n && status >= 0; i++) tutti_team_count(comm->team);
    if (status >= 0) atomic_store_explicit(&comm->sequence, jobs[n - 1].seq, memory_order_relaxed);
    tutti_free(jobs);
    return status;
}

static enum tutti_status enqueue_collectives(struct tutti_call *calls, size_t n)
{
    if (n > 1 && calls->backend->ops->batch) return enqueue_batch(calls, n);
    for (size_t i = 0; i < n; i++) TUTTI_TRY(enqueue_one(&calls[i]));
    return TUTTI_OK;
}

/* One or two for each call. */
static size_t messages_of(const struct tutti_call *call, struct tutti_backend_message *out)
{
    size_t n = 0, element = tutti_dtype_bytes(call->job.info.dtype);
    if (call->type != TUTTI_CALL_RECV)
        out[n++] = (struct tutti_backend_message){.peer = (uint32_t)call->dest,
                                                  .send = true,
                                                  .buffer = (void *)(uintptr_t)call->job.bind.input,
                                                  .bytes = call->job.bind.count * element};
    if (call->type != TUTTI_CALL_SEND)
        out[n++] = (struct tutti_backend_message){
            .peer = (uint32_t)call->source, .buffer = call->job.bind.output, .bytes = call->recv_count * element};
    return n;
}

/* What will have come: the sizes must be equal. */
static void tell_message(const struct tutti_call *call)
{
    if (call->type == TUTTI_CALL_SEND || !call->message) return;
    *call->message = (struct tutti_message){.source = call->source,
                                            .tag = call->recv_tag < 0 ? 0 : call->recv_tag,
                                            .bytes = call->recv_count * tutti_dtype_bytes(call->job.info.dtype)};
}

static enum tutti_status enqueue_messages(struct tutti_call *calls, size_t n)
{
    struct tutti_comm *comm = calls->comm;
    struct tutti_backend_message few[8], *messages = few;
    struct tutti_error failure;
    size_t n_messages = 0;
    uint64_t timeout_ns = calls->job.info.timeout_ns;
    if (tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    if (2 * n > TUTTI_ARRAY_LEN(few)) messages = tutti_alloc_array(2 * n, sizeof(*messages));
    if (!messages) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for %zu messages", (int)comm->rank, n);
    for (size_t i = 0; i < n; i++) {
        n_messages += messages_of(&calls[i], &messages[n_messages]);
        if (calls[i].job.info.timeout_ns < timeout_ns) timeout_ns = calls[i].job.info.timeout_ns;
    }
    struct tutti_backend *backend = calls->backend;
    void *stream = calls->options.stream;
    enum tutti_status status = tutti_device_come_after(comm, backend, stream);
    if (status >= 0) status = backend->ops->messages(backend, messages, n_messages, stream, timeout_ns);
    for (size_t i = 0; i < n && status >= 0; i++) tell_message(&calls[i]);
    if (messages != few) tutti_free(messages);
    return status;
}

/* ---- parts of a submission: what one launch, or one job of the host, may carry out. No message of a group may wait
 * for another one, so they are one part, whatever their streams, and so is all that goes through the host ---- */

static bool is_message(const struct tutti_call *call)
{
    return call->type != TUTTI_CALL_COLLECTIVE;
}

/* Whether it waits for calls of the same communicator alone that wait on devices, so that it may come before others. */
static bool is_devices(const struct tutti_call *call)
{
    return tutti_call_enqueues(call) && call->comm->device->n > 0;
}

/* What devices do first, in an order that all members can agree on, since streams wait in the order in which calls are
 * enqueued: communicators by their ids, collectives before messages. The rest as it was called. */
static int compare(const void *a, const void *b)
{
    const struct tutti_call *x = a, *y = b;
    if (is_devices(x) != is_devices(y)) return is_devices(x) ? -1 : 1;
    if (!is_devices(x)) return (x->place > y->place) - (x->place < y->place);
    if (x->comm->id != y->comm->id) return x->comm->id < y->comm->id ? -1 : 1;
    if (is_message(x) != is_message(y)) return is_message(y) ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

void tutti_device_order(struct tutti_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) calls[i].place = i;
    for (size_t i = 0; i < n; i++) {
        if (!tutti_call_enqueues(&calls[i])) continue;
        qsort(calls, n, sizeof(*calls), compare);
        return;
    }
}

/* Whether two neighbours are of one part. */
static bool is_together(const struct tutti_call *a, const struct tutti_call *b)
{
    if (a->comm != b->comm || a->via != b->via || a->options.wire || b->options.wire) return false;
    if (tutti_call_is_scaled(a) || tutti_call_is_scaled(b)) return false;
    if (a->algorithm || b->algorithm) return false;
    if (a->via == TUTTI_VIA_STAGING) return true;
    return a->backend == b->backend && is_message(a) == is_message(b) &&
           (is_message(a) || a->options.stream == b->options.stream);
}

static size_t part_end(const struct tutti_call *calls, size_t n)
{
    size_t i = 1;
    while (i < n && is_together(calls, &calls[i])) i++;
    return i;
}

enum tutti_status tutti_device_may_join(const struct tutti_call *before, const struct tutti_call *call)
{
    struct tutti_device *dev = call->comm->device->device;
    uint64_t captures[2] = {0, 0};
    if (before->options.stream == call->options.stream || !is_together(before, call)) return TUTTI_OK;
    TUTTI_TRY(tutti_device_capturing(dev, before->options.stream, &captures[0]));
    TUTTI_TRY(tutti_device_capturing(dev, call->options.stream, &captures[1]));
    if (captures[0] == captures[1]) return TUTTI_OK;
    return tutti_call_fail(call, TUTTI_ERR_ARGUMENT,
                           "it runs together with calls of the group on other streams, not all of which are "
                           "captured in one graph");
}

static bool is_new_stream(const struct tutti_call *calls, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (calls[j].options.stream == calls[i].options.stream) return false;
    return true;
}

/* The first stream goes on when the others have come here, or they when it has. */
static enum tutti_status part_tie(const struct tutti_call *calls, size_t n, bool begins)
{
    struct tutti_comm *comm = calls->comm;
    struct tutti_device *dev = comm->device->device;
    void *first = calls->options.stream;
    struct tutti_device_event *event = NULL;
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 1; i < n && status >= 0; i++) {
        void *other = calls[i].options.stream;
        if (!is_new_stream(calls, i)) continue;
        if (!event && !(event = tutti_device_event_take(comm))) return tutti_last_error()->status;
        status = dev->ops->event_record(dev, event->event, begins ? other : first);
        if (status >= 0) status = dev->ops->stream_wait(dev, begins ? first : other, event->event);
    }
    if (event) tutti_device_event_give(event);
    return status;
}

static enum tutti_status part_enqueue(struct tutti_call *calls, size_t n)
{
    struct tutti_comm *comm = calls->comm;
    tutti_comm_turn_take(comm);
    enum tutti_status status = tutti_call_is_scaled(calls) ? tutti_scaled_enqueue(calls)
                               : calls->options.wire       ? tutti_packed_enqueue(calls)
                               : calls->algorithm          ? tutti_scheduled_enqueue(calls)
                               : calls->via == TUTTI_VIA_STAGING
                                   ? tutti_staging_enqueue(comm->device->staging, calls, n)
                               : is_message(calls) ? enqueue_messages(calls, n)
                                                   : enqueue_collectives(calls, n);
    tutti_comm_turn_give(comm);
    return status;
}

/* The work of the part, if there is to be one: the stream's end as it is now. */
static enum tutti_status part_follow(const struct tutti_call *call, struct tutti_work **work)
{
    struct tutti_comm *comm = call->comm;
    uint64_t seq = is_message(call) ? 0 : tutti_comm_sequence(comm);
    return follow(comm, call->options.stream, call->options.label, seq, work);
}

/* What runs already and can not be followed: nobody would know when its buffers are free. */
static enum tutti_status part_give_up(struct tutti_call *calls, size_t n, struct tutti_work **works)
{
    struct tutti_error why = *tutti_last_error();
    tutti_call_give_up(calls, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        if (works[i]) tutti_work_finish(works[i]);
        works[i] = NULL;
    }
    return tutti_fail_record(&why);
}

/* Works are made for calls that want one, and, if `wanted`, for the last of the others. They end with the part. */
static enum tutti_status part_start(struct tutti_call *calls, size_t n, bool wanted, struct tutti_work **works)
{
    size_t last = n;
    TUTTI_TRY(part_tie(calls, n, true));
    TUTTI_TRY(part_enqueue(calls, n));
    if (part_tie(calls, n, false) < 0) return part_give_up(calls, n, works);
    for (size_t i = 0; i < n && wanted; i++)
        if (!calls[i].work) last = i;
    for (size_t i = 0; i < n; i++) {
        if (!calls[i].work && i != last) continue;
        if (part_follow(&calls[i], &works[i]) < 0) return part_give_up(calls, n, works);
    }
    return TUTTI_OK;
}

enum tutti_status tutti_device_start(struct tutti_call *calls, size_t n, bool wanted, struct tutti_work **works,
                                     size_t *n_started)
{
    for (*n_started = 0; *n_started < n;) {
        size_t first = *n_started, part = part_end(&calls[first], n - first);
        TUTTI_TRY(part_start(&calls[first], part, wanted, &works[first]));
        *n_started += part;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_device_may_follow(const struct tutti_call *call)
{
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(call->comm->device->device, call->options.stream, &capture));
    if (capture == 0) return TUTTI_OK;
    return tutti_call_fail(call, TUTTI_ERR_ARGUMENT,
                           "work must be NULL while its stream is captured: a replay has no work");
}

/* ---- what calls on host memory wait for ---- */

/* A barrier is complete when what was enqueued before is, also on this device. */
static enum tutti_status await_device(const struct tutti_call *call)
{
    struct tutti_comm *comm = call->comm;
    uint64_t timeout = call->job.info.timeout_ns;
    struct tutti_error error;
    if (tutti_comm_wait_device(comm, tutti_deadline_ns(timeout))) {
        tutti_comm_hear_device(comm);
        return tutti_team_state(comm->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
    }
    if (tutti_team_state(comm->team, &error) < 0) return tutti_fail_record(&error);
    tutti_call_fail(call, TUTTI_ERR_TIMEOUT, "what was enqueued before it is not over after %g s",
                    (double)timeout / 1e9);
    error = *tutti_last_error();
    tutti_team_fail(comm->team, &error, true);
    return tutti_fail_record(&error);
}

enum tutti_status tutti_device_before(const struct tutti_call *call)
{
    const struct tutti_comm_device *device = call->comm->device;
    if (!device || call->staged || tutti_call_enqueues(call)) return TUTTI_OK;
    TUTTI_TRY(tutti_staging_settle(call->comm));
    bool barrier = call->type == TUTTI_CALL_COLLECTIVE && call->job.info.kind == TUTTI_BARRIER;
    return barrier ? await_device(call) : TUTTI_OK;
}

/* One call on device memory: who carries it out, what it comes after, and its number. */

/* Back ends put their own calls in order; those of another one come before, too. Not in a capture, which sees only what
 * is captured in it. */
enum tutti_status tutti_device_come_after(const struct tutti_comm *comm, const struct tutti_backend *backend,
                                          void *stream)
{
    const struct tutti_comm_device *device = comm->device;
    for (uint32_t b = 0; b <= device->n + 1; b++) {
        struct tutti_backend *other = b < device->n ? device->backends[b] : NULL;
        void *event = b > device->n      ? tutti_device_space_event(device)
                      : !other           ? tutti_staging_last_event(device->staging)
                      : other == backend ? NULL
                                         : other->ops->last_event(other);
        uint64_t capture;
        if (!event) continue;
        TUTTI_TRY(tutti_device_capturing(device->device, stream, &capture));
        if (!capture) TUTTI_TRY(device->device->ops->stream_wait(device->device, stream, event));
    }
    return TUTTI_OK;
}

enum tutti_status tutti_device_enqueue(struct tutti_comm *comm, struct tutti_backend *backend,
                                       struct tutti_backend_call *call, void *stream)
{
    struct tutti_error failure;
    if (tutti_team_failed(comm->team) && tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    call->seq = tutti_team_next(comm->team);
    TUTTI_TRY(tutti_device_come_after(comm, backend, stream));
    TUTTI_TRY(backend->ops->enqueue(backend, call, stream));
    tutti_team_count(comm->team);
    atomic_store_explicit(&comm->sequence, call->seq, memory_order_relaxed);
    return TUTTI_OK;
}

enum tutti_status tutti_device_step(struct tutti_call *step)
{
    struct tutti_comm *comm = step->comm;
    struct tutti_comm_device *device = comm->device;
    tutti_call_ready(step);
    step->via = TUTTI_VIA_DEVICE;
    step->backend = device->n > 0 ? tutti_backend_choose(comm, &step->job, true) : NULL;
    if (step->backend) return tutti_device_enqueue(comm, step->backend, tutti_call_job(step), step->options.stream);
    step->via = TUTTI_VIA_STAGING;
    return tutti_staging_enqueue(device->staging, step, 1);
}

/* Events of a communicator's device, which are used again. */

struct tutti_device_event *tutti_device_event_take(struct tutti_comm *comm)
{
    struct tutti_comm_device *device = comm->device;
    pthread_mutex_lock(&device->lock);
    struct tutti_device_event *event = device->events;
    if (event) device->events = event->next;
    pthread_mutex_unlock(&device->lock);
    if (event) return event;
    event = tutti_alloc(sizeof(*event));
    if (!event) {
        tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for an event", (int)comm->rank);
    } else if (device->device->ops->event_create(device->device, false, &event->event) < 0) {
        tutti_free(event);
        event = NULL;
    } else {
        event->comm = comm;
    }
    return event;
}

void tutti_device_event_give(void *arg)
{
    struct tutti_device_event *event = arg;
    struct tutti_comm_device *device = event->comm->device;
    pthread_mutex_lock(&device->lock);
    event->next = device->events;
    device->events = event;
    pthread_mutex_unlock(&device->lock);
}

void tutti_device_free_events(struct tutti_comm_device *device)
{
    while (device->events) {
        struct tutti_device_event *event = device->events;
        device->events = event->next;
        device->device->ops->event_destroy(device->device, event->event);
        tutti_free(event);
    }
}
