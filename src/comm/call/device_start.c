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

static enum tutti_status enqueue_one(struct tutti_request *request)
{
    struct tutti_backend_call call;
    tutti_request_call(request, &call);
    return tutti_device_enqueue(request->comm, request->route.backend, &call, request->options.stream);
}

static enum tutti_status enqueue_batch(struct tutti_request *requests, size_t n)
{
    struct tutti_comm *comm = requests->comm;
    struct tutti_error failure;
    if (tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    struct tutti_backend_call *calls = tutti_alloc_array(n, sizeof(*calls));
    if (!calls) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for %zu calls", (int)comm->rank, n);
    for (size_t i = 0; i < n; i++) {
        tutti_request_call(&requests[i], &calls[i]);
        calls[i].seq = tutti_team_next(comm->team) + i;
    }
    void *stream = requests->options.stream;
    enum tutti_status status = tutti_device_come_after(comm, requests->route.backend, stream);
    if (status >= 0) status = requests->route.backend->ops->batch(requests->route.backend, calls, n, stream);
    for (size_t i = 0; i < n && status >= 0; i++) tutti_team_count(comm->team);
    if (status >= 0) atomic_store_explicit(&comm->sequence, calls[n - 1].seq, memory_order_relaxed);
    tutti_free(calls);
    return status;
}

static enum tutti_status enqueue_collectives(struct tutti_request *requests, size_t n)
{
    if (n > 1 && requests->route.backend->ops->batch) return enqueue_batch(requests, n);
    for (size_t i = 0; i < n; i++) TUTTI_TRY(enqueue_one(&requests[i]));
    return TUTTI_OK;
}

/* One or two for each request. */
static size_t messages_of(const struct tutti_request *request, struct tutti_backend_message *out)
{
    size_t n = 0, element = tutti_dtype_bytes(request->dtype);
    if (request->type != TUTTI_REQUEST_RECV)
        out[n++] = (struct tutti_backend_message){.peer = (uint32_t)request->dest,
                                                  .send = true,
                                                  .buffer = (void *)(uintptr_t)request->send,
                                                  .bytes = request->count * element};
    if (request->type != TUTTI_REQUEST_SEND)
        out[n++] = (struct tutti_backend_message){
            .peer = (uint32_t)request->source, .buffer = request->recv, .bytes = request->recv_count * element};
    return n;
}

/* What will have come: the sizes must be equal. */
static void tell_message(const struct tutti_request *request)
{
    if (request->type == TUTTI_REQUEST_SEND || !request->message) return;
    *request->message = (struct tutti_message){.source = request->source,
                                               .tag = request->recv_tag < 0 ? 0 : request->recv_tag,
                                               .bytes = request->recv_count * tutti_dtype_bytes(request->dtype)};
}

static enum tutti_status enqueue_messages(struct tutti_request *requests, size_t n)
{
    struct tutti_comm *comm = requests->comm;
    struct tutti_backend_message few[8], *messages = few;
    struct tutti_error failure;
    size_t n_messages = 0;
    uint64_t timeout_ns = tutti_request_timeout(requests);
    if (tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    if (2 * n > TUTTI_ARRAY_LEN(few)) messages = tutti_alloc_array(2 * n, sizeof(*messages));
    if (!messages) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for %zu messages", (int)comm->rank, n);
    for (size_t i = 0; i < n; i++) {
        n_messages += messages_of(&requests[i], &messages[n_messages]);
        if (tutti_request_timeout(&requests[i]) < timeout_ns) timeout_ns = tutti_request_timeout(&requests[i]);
    }
    struct tutti_backend *backend = requests->route.backend;
    void *stream = requests->options.stream;
    enum tutti_status status = tutti_device_come_after(comm, backend, stream);
    if (status >= 0) status = backend->ops->messages(backend, messages, n_messages, stream, timeout_ns);
    for (size_t i = 0; i < n && status >= 0; i++) tell_message(&requests[i]);
    if (messages != few) tutti_free(messages);
    return status;
}

/* ---- parts of a submission: what one launch, or one job of the host, may carry out. No message of a group may wait
 * for another one, so they are one part, whatever their streams, and so is all that goes through the host ---- */

static bool is_message(const struct tutti_request *request)
{
    return request->type != TUTTI_REQUEST_COLLECTIVE;
}

/* Whether it waits for calls of the same communicator alone that wait on devices, so that it may come before others. */
static bool is_devices(const struct tutti_request *request)
{
    return tutti_request_enqueues(request) && request->comm->device->n > 0;
}

/* What devices do first, in an order that all members can agree on, since streams wait in the order in which calls are
 * enqueued: communicators by their ids, collectives before messages. The rest as it was called. */
static int compare(const void *a, const void *b)
{
    const struct tutti_request *x = a, *y = b;
    if (is_devices(x) != is_devices(y)) return is_devices(x) ? -1 : 1;
    if (!is_devices(x)) return (x->place > y->place) - (x->place < y->place);
    if (x->comm->id != y->comm->id) return x->comm->id < y->comm->id ? -1 : 1;
    if (is_message(x) != is_message(y)) return is_message(y) ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

void tutti_device_order(struct tutti_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) requests[i].place = i;
    for (size_t i = 0; i < n; i++) {
        if (!tutti_request_enqueues(&requests[i])) continue;
        qsort(requests, n, sizeof(*requests), compare);
        return;
    }
}

/* Whether two neighbours are of one part. */
static bool is_together(const struct tutti_request *a, const struct tutti_request *b)
{
    if (a->comm != b->comm || a->route.via != b->route.via || a->options.wire || b->options.wire) return false;
    if (a->route.via == TUTTI_VIA_STAGING) return true;
    return a->route.backend == b->route.backend && is_message(a) == is_message(b) &&
           (is_message(a) || a->options.stream == b->options.stream);
}

static size_t part_end(const struct tutti_request *requests, size_t n)
{
    size_t i = 1;
    while (i < n && is_together(requests, &requests[i])) i++;
    return i;
}

enum tutti_status tutti_device_may_join(const struct tutti_request *before, const struct tutti_request *request)
{
    struct tutti_device *dev = request->comm->device->device;
    uint64_t captures[2] = {0, 0};
    if (before->options.stream == request->options.stream || !is_together(before, request)) return TUTTI_OK;
    TUTTI_TRY(tutti_device_capturing(dev, before->options.stream, &captures[0]));
    TUTTI_TRY(tutti_device_capturing(dev, request->options.stream, &captures[1]));
    if (captures[0] == captures[1]) return TUTTI_OK;
    return tutti_request_fail(request, TUTTI_ERR_ARGUMENT,
                              "it runs together with calls of the group on other streams, not all of which are "
                              "captured in one graph");
}

static bool is_new_stream(const struct tutti_request *requests, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (requests[j].options.stream == requests[i].options.stream) return false;
    return true;
}

/* The first stream goes on when the others have come here, or they when it has. */
static enum tutti_status part_tie(const struct tutti_request *requests, size_t n, bool begins)
{
    struct tutti_comm *comm = requests->comm;
    struct tutti_device *dev = comm->device->device;
    void *first = requests->options.stream;
    struct tutti_device_event *event = NULL;
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 1; i < n && status >= 0; i++) {
        void *other = requests[i].options.stream;
        if (!is_new_stream(requests, i)) continue;
        if (!event && !(event = tutti_device_event_take(comm))) return tutti_last_error()->status;
        status = dev->ops->event_record(dev, event->event, begins ? other : first);
        if (status >= 0) status = dev->ops->stream_wait(dev, begins ? first : other, event->event);
    }
    if (event) tutti_device_event_give(event);
    return status;
}

static enum tutti_status part_enqueue(struct tutti_request *requests, size_t n)
{
    struct tutti_comm *comm = requests->comm;
    tutti_comm_turn_take(comm);
    enum tutti_status status = requests->options.wire ? tutti_packed_enqueue(requests)
                               : requests->route.via == TUTTI_VIA_STAGING
                                   ? tutti_staging_enqueue(comm->device->staging, requests, n)
                               : is_message(requests) ? enqueue_messages(requests, n)
                                                      : enqueue_collectives(requests, n);
    tutti_comm_turn_give(comm);
    return status;
}

/* The work of the part, if there is to be one: the stream's end as it is now. */
static enum tutti_status part_follow(const struct tutti_request *request, struct tutti_work **work)
{
    struct tutti_comm *comm = request->comm;
    uint64_t seq = is_message(request) ? 0 : tutti_comm_sequence(comm);
    return follow(comm, request->options.stream, request->options.label, seq, work);
}

/* What runs already and can not be followed: nobody would know when its buffers are free. */
static enum tutti_status part_give_up(struct tutti_request *requests, size_t n, struct tutti_work **works)
{
    struct tutti_error why = *tutti_last_error();
    tutti_request_give_up(requests, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        if (works[i]) tutti_work_finish(works[i]);
        works[i] = NULL;
    }
    return tutti_fail_record(&why);
}

/* Works are made for requests that want one, and, if `wanted`, for the last of the others. They end with the part. */
static enum tutti_status part_start(struct tutti_request *requests, size_t n, bool wanted, struct tutti_work **works)
{
    size_t last = n;
    TUTTI_TRY(part_tie(requests, n, true));
    TUTTI_TRY(part_enqueue(requests, n));
    if (part_tie(requests, n, false) < 0) return part_give_up(requests, n, works);
    for (size_t i = 0; i < n && wanted; i++)
        if (!requests[i].work) last = i;
    for (size_t i = 0; i < n; i++) {
        if (!requests[i].work && i != last) continue;
        if (part_follow(&requests[i], &works[i]) < 0) return part_give_up(requests, n, works);
    }
    return TUTTI_OK;
}

enum tutti_status tutti_device_start(struct tutti_request *requests, size_t n, bool wanted, struct tutti_work **works,
                                     size_t *n_started)
{
    for (*n_started = 0; *n_started < n;) {
        size_t first = *n_started, part = part_end(&requests[first], n - first);
        TUTTI_TRY(part_start(&requests[first], part, wanted, &works[first]));
        *n_started += part;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_device_may_follow(const struct tutti_request *request)
{
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(request->comm->device->device, request->options.stream, &capture));
    if (capture == 0) return TUTTI_OK;
    return tutti_request_fail(request, TUTTI_ERR_ARGUMENT,
                              "work must be NULL while its stream is captured: a replay has no work");
}

/* ---- what calls on host memory wait for ---- */

/* A barrier is complete when what was enqueued before is, also on this device. */
static enum tutti_status await_device(const struct tutti_request *request)
{
    struct tutti_comm *comm = request->comm;
    uint64_t timeout = tutti_request_timeout(request);
    struct tutti_error error;
    if (tutti_comm_wait_device(comm, tutti_deadline_ns(timeout))) {
        tutti_comm_hear_device(comm);
        return tutti_team_state(comm->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
    }
    if (tutti_team_state(comm->team, &error) < 0) return tutti_fail_record(&error);
    tutti_request_fail(request, TUTTI_ERR_TIMEOUT, "what was enqueued before it is not over after %g s",
                       (double)timeout / 1e9);
    error = *tutti_last_error();
    tutti_team_fail(comm->team, &error, true);
    return tutti_fail_record(&error);
}

enum tutti_status tutti_device_before(const struct tutti_request *request)
{
    const struct tutti_comm_device *device = request->comm->device;
    if (!device || request->staged || tutti_request_enqueues(request)) return TUTTI_OK;
    TUTTI_TRY(tutti_staging_settle(request->comm));
    bool barrier = request->type == TUTTI_REQUEST_COLLECTIVE && request->kind == TUTTI_BARRIER;
    return barrier ? await_device(request) : TUTTI_OK;
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

struct tutti_backend *tutti_device_choose(struct tutti_comm *comm, struct tutti_backend_call *call)
{
    struct tutti_comm_device *device = comm->device;
    struct tutti_device_choice *choice = &device->choices[call->info.signature % TUTTI_DEVICE_CHOICES];
    struct tutti_backend *best = NULL;
    double least = HUGE_VAL;
    if (choice->signature == call->info.signature && choice->backend) return choice->backend;
    for (uint32_t b = 0; b < device->n; b++) {
        double ns = device->backends[b]->ops->score(device->backends[b], call);
        if (ns < least) best = device->backends[b], least = ns;
    }
    *choice = (struct tutti_device_choice){call->info.signature, best};
    return best;
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

enum tutti_status tutti_device_step(struct tutti_request *step)
{
    struct tutti_comm *comm = step->comm;
    struct tutti_comm_device *device = comm->device;
    struct tutti_backend_call call;
    struct tutti_backend *backend = NULL;
    step->route = (struct tutti_route){.via = TUTTI_VIA_DEVICE};
    if (device->n > 0) {
        tutti_request_call(step, &call);
        backend = tutti_device_choose(comm, &call);
    }
    if (backend) return tutti_device_enqueue(comm, backend, &call, step->options.stream);
    step->route.via = TUTTI_VIA_STAGING;
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
