/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on device memory that go through the host: the caller's side. It enqueues what a passage consists of and
 * returns; the thread (device_host_run.c) does the rest. What may be under way at once is bounded, since it takes
 * pinned memory: who enqueues more waits for the oldest. */
#include "comm/device/device_host.h"
#include "comm/device/twin.h"

#include <errno.h>
#include <string.h>

#define OWN_ID UINT64_C(0x7468726f756768) /* of the communicator that carries out the calls of devices alone */
#define PASSAGES_MOST 64
#define BYTES_MOST ((size_t)1 << 30) /* of twins in use, unless one call needs more */
#define LOOK_NS (100 * TUTTI_NS_PER_MS)
#define CLOSE_NS (10 * TUTTI_NS_PER_S) /* for streams that go on after a failure */
#define ALIGN 256

/* ---- what streams call: no lock is held for long, and the driver is not called ---- */

static void on_arrival(void *arg)
{
    struct tutti_passage *passage = arg;
    struct tutti_through *through = passage->through;
    atomic_store(&passage->arrived, true);
    tutti_through_ring(through);
}

static void on_end(void *arg)
{
    struct tutti_passage *passage = arg;
    struct tutti_through *through = passage->through;
    pthread_mutex_lock(&through->lock);
    if (passage->room) tutti_room_give(through, passage->room);
    tutti_free(passage);
    atomic_fetch_add(&through->n_over, 1);
    tutti_through_ring(through); /* with the lock held: who closes takes it last */
    pthread_mutex_unlock(&through->lock);
}

/* ---- opening and closing ---- */

enum tutti_status tutti_through_open(struct tutti_comm *comm, struct tutti_comm_device *device)
{
    struct tutti_through *through = tutti_alloc(sizeof(*through));
    if (!through) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for a communicator", (int)comm->rank);
    through->comm = comm;
    through->device = device->device;
    through->end = &through->first;
    pthread_mutex_init(&through->order, NULL);
    pthread_mutex_init(&through->lock, NULL);
    device->through = through;
    return TUTTI_OK;
}

static enum tutti_status thread_start(struct tutti_through *through, pthread_t *thread, void *(*run)(void *))
{
    errno = tutti_thread_start(thread, 0, run, through);
    if (errno) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no thread for calls that go through the host");
    return TUTTI_OK;
}

static void asker_end(struct tutti_through *through)
{
    tutti_through_ask_no_more(through);
    pthread_join(through->asker, NULL);
}

static void parts_free(struct tutti_through *through)
{
    if (through->pulse) through->device->ops->event_destroy(through->device, through->pulse);
    if (through->end_event) through->device->ops->event_destroy(through->device, through->end_event);
    if (through->go) through->device->ops->free_host(through->device, (void *)through->go);
    through->pulse = through->end_event = NULL, through->go = NULL;
}

/* At the first call, with `order` held. */
static enum tutti_status ensure_running(struct tutti_through *through)
{
    enum tutti_status status;
    void *go = NULL;

    if (through->runs) return TUTTI_OK;
    TUTTI_TRY(through->device->ops->alloc_host(through->device, sizeof(*through->go), &go));
    through->go = go;
    TUTTI_TRY_GOTO(status, through->device->ops->event_create(through->device, false, &through->pulse), err_parts);
    TUTTI_TRY_GOTO(status, through->device->ops->event_create(through->device, false, &through->end_event), err_parts);
    atomic_store(&through->question, 0);
    TUTTI_TRY_GOTO(status, thread_start(through, &through->asker, tutti_through_ask), err_parts);
    TUTTI_TRY_GOTO(status, thread_start(through, &through->thread, tutti_through_serve), err_asker);
    through->runs = true;
    return TUTTI_OK;
err_asker:
    asker_end(through);
err_parts:
    parts_free(through);
    return status;
}

/* The same members, with an order of their own: the communicator's numbers are taken when calls are enqueued, those of
 * this one when they are carried out. Nothing is agreed, so each member makes it when it needs it. */
static enum tutti_status ensure_own(struct tutti_through *through)
{
    struct tutti_comm *comm = through->comm, *own = NULL;
    uint32_t n = (uint32_t)comm->size;

    if (comm->device->n == 0 || atomic_load(&through->own)) return TUTTI_OK;
    uint32_t *slots = tutti_alloc_array(n, sizeof(*slots));
    if (!slots) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for a communicator", (int)comm->rank);
    for (uint32_t i = 0; i < n; i++) slots[i] = i;
    struct tutti_child child = {.slots = slots,
                                .n = n,
                                .me = (uint32_t)comm->rank,
                                .id = comm->id ^ (OWN_ID + comm->n_devices),
                                .epoch = comm->epoch};
    enum tutti_status status = tutti_comm_new_child(comm, &child, &own);
    tutti_free(slots);
    if (status < 0) return status;
    tutti_comm_ready(own);
    atomic_store(&through->own, own);
    return TUTTI_OK;
}

void *tutti_through_last_event(const struct tutti_through *through)
{
    return through && atomic_load(&through->enqueued) > 0 ? through->end_event : NULL;
}

bool tutti_through_idle(struct tutti_through *through)
{
    return !through || atomic_load(&through->n_over) == atomic_load(&through->enqueued);
}

/* Until cond or until_ns; whether cond. */
static bool wait_until(struct tutti_through *through, bool (*cond)(struct tutti_through *, uint32_t), uint32_t arg,
                       uint64_t until_ns)
{
    for (;;) {
        uint32_t bell = atomic_load(&through->bell);
        uint64_t now = tutti_now_ns();
        if (cond(through, arg)) return true;
        if (now >= until_ns) return false;
        tutti_futex_wait(&through->bell, bell, until_ns - now > LOOK_NS ? now + LOOK_NS : until_ns);
    }
}

static bool is_idle(struct tutti_through *through, uint32_t unused)
{
    (void)unused;
    return tutti_through_idle(through);
}

void tutti_through_close(struct tutti_through *through)
{
    if (!through) return;
    if (!tutti_through_idle(through) && !tutti_team_failed(through->comm->team)) {
        tutti_fail(TUTTI_ERR_ABORTED, "rank %d gave up calls on device memory, to which their stream has not come",
                   (int)through->comm->rank);
        tutti_through_fail(through);
    }
    bool over = wait_until(through, is_idle, 0, tutti_deadline_ns(CLOSE_NS));
    atomic_store(&through->closing, true);
    tutti_through_ring(through);
    if (through->runs) {
        pthread_join(through->thread, NULL);
        asker_end(through);
    }
    struct tutti_comm *own = atomic_exchange(&through->own, NULL);
    if (own && tutti_comm_empty(own)) tutti_comm_free(own);
    if (!over) { /* streams may still come to it, and copy */
        tutti_log(TUTTI_LOG_WARN,
                  "a stream has not come past calls of a communicator that is gone: memory is left to it");
        return;
    }
    pthread_mutex_lock(&through->lock); /* on_end has left */
    pthread_mutex_unlock(&through->lock);
    tutti_rooms_free(through);
    parts_free(through);
    pthread_mutex_destroy(&through->lock);
    pthread_mutex_destroy(&through->order);
    tutti_free(through);
}

/* ---- making a passage ---- */

/* The sides of each request begin at multiples of ALIGN. */
static size_t passage_bytes(const struct tutti_request *requests, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t more = tutti_twin_bytes(&requests[i]);
        if (more > PTRDIFF_MAX - ALIGN - bytes) return SIZE_MAX;
        bytes += (more + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    }
    return bytes;
}

static enum tutti_status fill(struct tutti_through *through, struct tutti_passage *passage,
                              const struct tutti_request *requests)
{
    struct tutti_comm *own = atomic_load(&through->own);
    size_t at = 0;
    for (size_t i = 0; i < passage->n; i++) {
        struct tutti_request *request = &passage->requests[i];
        *request = requests[i];
        request->comm = own ? own : through->comm;
        request->work = NULL;
        request->tables = NULL;
        request->staged = true;
        if (!request->options.timeout_ns) request->options.timeout_ns = through->comm->timeout_ns;
        tutti_twin_put(request, passage->room ? passage->room->at + at : NULL);
        at += (tutti_twin_bytes(&requests[i]) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
        enum tutti_status status = tutti_request_own(request);
        request->route = (struct tutti_route){.via = TUTTI_VIA_ENGINE};
        if (status >= 0) status = tutti_route_host(request, &request->route);
        if (status >= 0) status = tutti_request_prepare(request);
        if (status < 0) return status;
    }
    return TUTTI_OK;
}

/* One that was not enqueued. */
static void passage_discard(struct tutti_through *through, struct tutti_passage *passage)
{
    tutti_passage_release(passage);
    for (size_t i = 0; i < passage->n; i++) tutti_request_disown(&passage->requests[i]);
    pthread_mutex_lock(&through->lock);
    if (passage->room) tutti_room_give(through, passage->room);
    pthread_mutex_unlock(&through->lock);
    tutti_free(passage);
}

static enum tutti_status passage_make(struct tutti_through *through, const struct tutti_request *requests, size_t n,
                                      size_t bytes, struct tutti_passage **out)
{
    struct tutti_passage *passage =
        tutti_alloc(sizeof(*passage) + n * (sizeof(*requests) + sizeof(struct tutti_work *)));
    if (!passage) {
        tutti_request_fail(requests, TUTTI_ERR_MEMORY, "out of memory for %zu calls", n);
        return TUTTI_ERR_MEMORY;
    }
    passage->through = through;
    passage->n = n;
    passage->works = (struct tutti_work **)(void *)(passage->requests + n);
    for (size_t i = 0; i < n; i++) passage->requests[i].comm = through->comm; /* for what discards it */
    enum tutti_status status = bytes ? tutti_room_take(through, bytes, &passage->room) : TUTTI_OK;
    if (status >= 0) status = fill(through, passage, requests);
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        passage_discard(through, passage);
        tutti_fail_record(&why);
        return status;
    }
    *out = passage;
    return TUTTI_OK;
}

/* ---- enqueueing ---- */

struct copies {
    struct tutti_device *device;
    void *stream;
    char *twin;
};

static enum tutti_status copy_in(void *arg, char *device, size_t at, size_t bytes)
{
    const struct copies *copies = arg;
    return copies->device->ops->copy(copies->device, copies->twin + at, device, bytes, copies->stream);
}

static enum tutti_status copy_out(void *arg, char *device, size_t at, size_t bytes)
{
    const struct copies *copies = arg;
    return copies->device->ops->copy(copies->device, device, copies->twin + at, bytes, copies->stream);
}

static enum tutti_status copy_all(struct tutti_through *through, const struct tutti_passage *passage,
                                  const struct tutti_request *requests, enum tutti_twin_way way)
{
    struct copies copies = {.device = through->device, .stream = requests[0].options.stream};
    if (!passage->room) return TUTTI_OK;
    copies.twin = passage->room->at;
    for (size_t i = 0; i < passage->n; i++) {
        TUTTI_TRY(tutti_twin_each(&requests[i], way, way == TUTTI_TWIN_IN ? copy_in : copy_out, &copies));
        copies.twin += (tutti_twin_bytes(&requests[i]) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    }
    return TUTTI_OK;
}

static void append(struct tutti_through *through, struct tutti_passage *passage)
{
    pthread_mutex_lock(&through->lock);
    *through->end = passage;
    through->end = &passage->next;
    pthread_mutex_unlock(&through->lock);
    tutti_through_ring(through);
}

/* What makes the stream tell the thread. After a failure a copy may be under way: the room is left to it. */
static enum tutti_status announce(struct tutti_through *through, struct tutti_passage *passage,
                                  const struct tutti_request *requests)
{
    enum tutti_status status = copy_all(through, passage, requests, TUTTI_TWIN_IN);
    if (status >= 0)
        status = through->device->ops->host_call(through->device, requests[0].options.stream, on_arrival, passage);
    if (status >= 0) return status;
    tutti_passage_release(passage);
    for (size_t i = 0; i < passage->n; i++) tutti_request_disown(&passage->requests[i]);
    return status;
}

/* Calls run one after another, whatever their streams, and whoever carries them out: the default stream of a thread (2)
 * is another one in each. */
static enum tutti_status follow(struct tutti_through *through, void *stream)
{
    const struct tutti_comm_device *device = through->comm->device;
    if (atomic_load(&through->enqueued) > 0 && (stream != through->last || (uintptr_t)stream == 2))
        TUTTI_TRY(through->device->ops->stream_wait(through->device, stream, through->end_event));
    for (uint32_t b = 0; b < device->n; b++) {
        void *event = device->backends[b]->ops->last_event(device->backends[b]);
        if (event) TUTTI_TRY(through->device->ops->stream_wait(through->device, stream, event));
    }
    return TUTTI_OK;
}

/* The passage is the thread's once it is announced, and goes with its end. */
static enum tutti_status passage_enqueue(struct tutti_through *through, struct tutti_passage *passage,
                                         const struct tutti_request *requests)
{
    struct tutti_device *dev = through->device;
    void *stream = requests[0].options.stream;
    uint32_t number = passage->number = atomic_load(&through->enqueued) + 1;

    TUTTI_TRY(announce(through, passage, requests));
    atomic_store(&through->enqueued, number);
    append(through, passage);
    TUTTI_TRY(dev->ops->stream_wait_word(dev, stream, (const uint32_t *)(void *)through->go, number));
    TUTTI_TRY(copy_all(through, passage, requests, TUTTI_TWIN_OUT));
    TUTTI_TRY(dev->ops->event_record(dev, through->end_event, stream));
    through->last = stream;
    return dev->ops->host_call(dev, stream, on_end, passage);
}

static bool has_room(struct tutti_through *through, size_t bytes)
{
    uint32_t under_way = atomic_load(&through->enqueued) - atomic_load(&through->n_over);
    if (under_way == 0) return true;
    pthread_mutex_lock(&through->lock);
    size_t used = through->used_bytes;
    pthread_mutex_unlock(&through->lock);
    return under_way < PASSAGES_MOST && used <= BYTES_MOST && bytes <= BYTES_MOST - used;
}

/* Until the passage finds room, or the team fails. */
static enum tutti_status await_room(struct tutti_through *through, const struct tutti_request *request, size_t bytes)
{
    uint64_t timeout = through->comm->timeout_ns, until = tutti_deadline_ns(timeout);
    while (!has_room(through, bytes)) {
        uint32_t bell = atomic_load(&through->bell);
        struct tutti_error error;
        if (tutti_team_state(through->comm->team, &error) < 0) return tutti_fail_record(&error);
        if (tutti_now_ns() >= until) {
            tutti_request_fail(request, TUTTI_ERR_TIMEOUT,
                               "no stream came past the calls before it, which go through the host, within %g s",
                               (double)timeout / 1e9);
            tutti_through_fail(through);
            return TUTTI_ERR_TIMEOUT;
        }
        if (!has_room(through, bytes)) tutti_futex_wait(&through->bell, bell, tutti_deadline_ns(LOOK_NS));
    }
    return TUTTI_OK;
}

static enum tutti_status refuse_capture(struct tutti_through *through, const struct tutti_request *request)
{
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(through->device, request->options.stream, &capture));
    if (!capture) return TUTTI_OK;
    return tutti_request_fail(request, TUTTI_ERR_ARGUMENT,
                              "the call goes through the host, which can not be captured in a graph");
}

static enum tutti_status enqueue(struct tutti_through *through, struct tutti_request *requests, size_t n)
{
    struct tutti_passage *passage = NULL;
    struct tutti_device_scope scope;
    struct tutti_error failure;
    size_t bytes = passage_bytes(requests, n);

    if (tutti_team_state(through->comm->team, &failure) < 0) return tutti_fail_record(&failure);
    if (bytes == SIZE_MAX)
        return tutti_request_fail(requests, TUTTI_ERR_MEMORY, "out of host memory for what is sent and received");
    TUTTI_TRY(refuse_capture(through, requests));
    TUTTI_TRY(ensure_running(through));
    TUTTI_TRY(ensure_own(through));
    TUTTI_TRY(await_room(through, requests, bytes));
    TUTTI_TRY(passage_make(through, requests, n, bytes, &passage));
    enum tutti_status status = tutti_device_enter(through->device, &scope);
    if (status >= 0) status = follow(through, requests[0].options.stream);
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        passage_discard(through, passage);
        tutti_device_leave(through->device, &scope);
        return tutti_fail_record(&why);
    }
    status = passage_enqueue(through, passage, requests);
    /* The stream holds a part of it: the passage is left alone, as what the stream may come to. */
    if (status < 0) tutti_through_fail(through);
    tutti_device_leave(through->device, &scope);
    return status;
}

/* Of calls that are carried out on a communicator of their own. */
static void count(struct tutti_through *through, const struct tutti_request *requests, size_t n)
{
    if (!atomic_load(&through->own)) return;
    for (size_t i = 0; i < n; i++) {
        if (requests[i].type != TUTTI_REQUEST_COLLECTIVE) continue;
        tutti_team_count(through->comm->team);
        atomic_fetch_add(&through->comm->sequence, 1);
    }
}

enum tutti_status tutti_through_enqueue(struct tutti_through *through, struct tutti_request *requests, size_t n)
{
    struct tutti_comm *comm = through->comm;
    /* The driver may wait for streams that wait for the thread, which takes the turn. */
    tutti_comm_turn_give(comm);
    pthread_mutex_lock(&through->order);
    enum tutti_status status = enqueue(through, requests, n);
    pthread_mutex_unlock(&through->order);
    tutti_comm_turn_take(comm);
    if (status >= 0) count(through, requests, n);
    return status;
}

/* ---- host memory's calls come after ---- */

static bool has_started(struct tutti_through *through, uint32_t number)
{
    return tutti_through_passed(number, atomic_load(&through->started)) || tutti_team_failed(through->comm->team);
}

enum tutti_status tutti_through_settle(struct tutti_through *through)
{
    struct tutti_error error;
    if (!through || through->comm->device->n > 0) return TUTTI_OK;
    uint32_t number = atomic_load(&through->enqueued);
    uint64_t timeout = through->comm->timeout_ns;
    if (!wait_until(through, has_started, number, tutti_deadline_ns(timeout))) {
        tutti_fail(TUTTI_ERR_TIMEOUT,
                   "rank %d: the stream has not come to a call on device memory, after which another one was made, "
                   "within %g s",
                   (int)through->comm->rank, (double)timeout / 1e9);
        tutti_through_fail(through);
        return TUTTI_ERR_TIMEOUT;
    }
    return tutti_team_state(through->comm->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
}
