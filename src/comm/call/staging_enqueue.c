/* SPDX-License-Identifier: BSD-3-Clause */
/* Staged calls: the caller's side. It puts copies and calls of the host on the stream and returns; the thread
 * (staging_run.c) does the rest. What may be under way at once is bounded, since it takes pinned memory: who enqueues
 * more waits for the oldest. */
#include "comm/call/staging.h"

#define STAGED_MOST 64
#define BYTES_MOST ((size_t)1 << 30) /* of pinned memory in use, unless one call needs more */

/* ---- what streams call (tutti_staging_arrived, too): no lock is held for long, and the driver is not called ---- */

static void on_end(void *arg)
{
    struct tutti_staged *staged = arg;
    struct tutti_staging *staging = staged->staging;
    pthread_mutex_lock(&staging->lock);
    tutti_pinned_give(staging->pool, staged->pinned);
    tutti_free(staged);
    atomic_fetch_add(&staging->n_over, 1);
    tutti_staging_ring(staging); /* with the lock held: who closes takes it last */
    pthread_mutex_unlock(&staging->lock);
}

/* ---- the calls on pinned copies ---- */

static enum tutti_status fill(struct tutti_staged *staged, const struct tutti_call *calls)
{
    struct tutti_comm *comm = staged->staging->comm, *own = atomic_load(&staged->staging->own);
    size_t at = 0;
    for (size_t i = 0; i < staged->n; i++) {
        struct tutti_call *call = &staged->calls[i];
        *call = calls[i];
        call->comm = own ? own : comm;
        call->work = NULL;
        call->tables = NULL;
        call->staged = true;
        if (!call->options.timeout_ns) call->options.timeout_ns = comm->timeout_ns;
        tutti_pinned_put(call, staged->pinned ? staged->pinned->at + at : NULL);
        at += tutti_pinned_bytes(&calls[i]);
        TUTTI_TRY(tutti_call_own(call));
        TUTTI_TRY(tutti_call_choose_host(call));
        TUTTI_TRY(tutti_call_prepare(call));
    }
    tutti_staging_cut(staged);
    return TUTTI_OK;
}

/* Gives back what the calls hold. */
static void forget(struct tutti_staged *staged)
{
    for (size_t i = 0; i < staged->n; i++) {
        tutti_call_release(&staged->calls[i]);
        tutti_call_disown(&staged->calls[i]);
    }
}

/* Frees calls that were not enqueued. */
static void discard(struct tutti_staged *staged)
{
    struct tutti_staging *staging = staged->staging;
    forget(staged);
    tutti_pinned_give(staging->pool, staged->pinned);
    tutti_free(staged);
}

static enum tutti_status make(struct tutti_staging *staging, const struct tutti_call *calls, size_t n, size_t bytes,
                              struct tutti_staged **out)
{
    struct tutti_staged *staged = tutti_alloc(sizeof(*staged) + n * (sizeof(*calls) + sizeof(struct tutti_work *)));
    if (!staged) return tutti_call_fail(calls, TUTTI_ERR_MEMORY, "out of memory for %zu calls", n);
    staged->staging = staging;
    staged->n = n;
    staged->works = (struct tutti_work **)(void *)(staged->calls + n);
    for (size_t i = 0; i < n; i++) staged->calls[i].comm = staging->comm; /* for what discards it */
    enum tutti_status status = bytes ? tutti_pinned_take(staging->pool, bytes, &staged->pinned) : TUTTI_OK;
    if (status >= 0) status = fill(staged, calls);
    if (status < 0)
        discard(staged);
    else
        *out = staged;
    return status;
}

/* ---- on the stream ---- */

struct copies {
    struct tutti_device *device;
    void *stream;
    enum tutti_pinned_way way;
    char *pinned;
};

static enum tutti_status copy(void *arg, char *device, size_t at, size_t bytes)
{
    const struct copies *c = arg;
    bool in = c->way == TUTTI_PINNED_IN;
    return c->device->ops->copy(c->device, in ? c->pinned + at : device, in ? device : c->pinned + at, bytes,
                                c->stream);
}

/* The p-th piece of all. */
static enum tutti_status copy_piece(const struct tutti_staged *staged, const struct tutti_call *calls,
                                    enum tutti_pinned_way way, uint32_t p)
{
    struct tutti_pinned_part part;
    struct copies copies = {.device = staged->staging->device, .stream = calls[0].options.stream, .way = way};
    if (!staged->pinned) return TUTTI_OK;
    copies.pinned = staged->pinned->at;
    for (size_t i = 0; i < staged->n; i++) {
        TUTTI_TRY(tutti_pinned_each(&calls[i], way, tutti_staging_part(staged, p, &part), copy, &copies));
        copies.pinned += tutti_pinned_bytes(&calls[i]);
    }
    return TUTTI_OK;
}

/* Copies in, and what makes the stream tell the thread. After a failure a copy may be under way: its memory is left to
 * it. */
static enum tutti_status announce(struct tutti_staged *staged, const struct tutti_call *calls)
{
    struct tutti_device *dev = staged->staging->device;
    enum tutti_status status = TUTTI_OK;
    for (uint32_t p = 0; p < staged->n_pieces && status >= 0; p++) {
        status = copy_piece(staged, calls, TUTTI_PINNED_IN, p);
        staged->pieces[p].staged = staged;
        if (status >= 0)
            status = dev->ops->host_call(dev, calls[0].options.stream, tutti_staging_arrived, &staged->pieces[p]);
    }
    if (status < 0) forget(staged);
    return status;
}

static void append(struct tutti_staging *staging, struct tutti_staged *staged)
{
    pthread_mutex_lock(&staging->lock);
    *staging->end = staged;
    staging->end = &staged->next;
    pthread_mutex_unlock(&staging->lock);
    tutti_staging_ring(staging);
}

/* Calls run one after another, whatever their streams, and whoever carries them out. */
static enum tutti_status follow(struct tutti_staging *staging, void *stream)
{
    const struct tutti_comm_device *device = staging->comm->device;
    struct tutti_device *dev = staging->device;
    if (atomic_load(&staging->enqueued) > 0 && !tutti_device_one_stream(dev, stream, staging->last))
        TUTTI_TRY(dev->ops->stream_wait(dev, stream, staging->end_event));
    for (uint32_t b = 0; b < device->n; b++) {
        void *event = device->backends[b]->ops->last_event(device->backends[b]);
        if (event) TUTTI_TRY(dev->ops->stream_wait(dev, stream, event));
    }
    void *event = tutti_device_space_event(device);
    if (event) TUTTI_TRY(dev->ops->stream_wait(dev, stream, event));
    return TUTTI_OK;
}

/* They are the thread's once they are announced, and go with their end. */
static enum tutti_status put(struct tutti_staged *staged, const struct tutti_call *calls)
{
    struct tutti_staging *staging = staged->staging;
    struct tutti_device *dev = staging->device;
    void *stream = calls[0].options.stream;
    uint32_t number = staged->number = atomic_load(&staging->enqueued) + 1;

    staged->go = staging->n_pieces, staging->n_pieces += staged->n_pieces;
    TUTTI_TRY(announce(staged, calls));
    atomic_store(&staging->enqueued, number);
    append(staging, staged);
    const uint32_t *go = (const uint32_t *)(void *)staging->go;
    for (uint32_t p = 0; p < staged->n_pieces; p++) {
        TUTTI_TRY(dev->ops->stream_wait_word(dev, stream, go, staged->go + p + 1));
        TUTTI_TRY(copy_piece(staged, calls, TUTTI_PINNED_OUT, p));
    }
    TUTTI_TRY(dev->ops->event_record(dev, staging->end_event, stream));
    staging->last = stream;
    return dev->ops->host_call(dev, stream, on_end, staged);
}

/* ---- enqueueing ---- */

/* Bytes of all pinned copies, SIZE_MAX when they can not be. */
static size_t bytes_of(const struct tutti_call *calls, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t more = tutti_pinned_bytes(&calls[i]);
        if (more > PTRDIFF_MAX - bytes) return SIZE_MAX;
        bytes += more;
    }
    return bytes;
}

/* Whether so many bytes may be under way, too; or the team has failed. */
static bool may_go(struct tutti_staging *staging, const void *arg)
{
    const size_t bytes = *(const size_t *)arg;
    uint32_t under_way = atomic_load(&staging->enqueued) - atomic_load(&staging->n_over);
    if (under_way == 0 || tutti_staging_failed(staging)) return true;
    size_t used = tutti_pinned_used(staging->pool);
    return under_way < STAGED_MOST && used <= BYTES_MOST && bytes <= BYTES_MOST - used;
}

static enum tutti_status await_memory(struct tutti_staging *staging, const struct tutti_call *call, size_t bytes)
{
    uint64_t timeout = staging->comm->timeout_ns;
    struct tutti_error error;
    if (tutti_staging_wait(staging, may_go, &bytes, tutti_deadline_ns(timeout)))
        return tutti_team_state(staging->comm->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
    tutti_call_fail(call, TUTTI_ERR_TIMEOUT,
                    "no stream came past the calls before it, which go through the host, within %g s",
                    (double)timeout / 1e9);
    tutti_staging_fail(staging);
    return TUTTI_ERR_TIMEOUT;
}

static enum tutti_status refuse_capture(struct tutti_staging *staging, const struct tutti_call *call)
{
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(staging->device, call->options.stream, &capture));
    if (!capture) return TUTTI_OK;
    return tutti_call_fail(call, TUTTI_ERR_ARGUMENT,
                           "the call goes through the host, which can not be captured in a graph");
}

static enum tutti_status enqueue(struct tutti_staging *staging, struct tutti_call *calls, size_t n)
{
    struct tutti_staged *staged = NULL;
    struct tutti_device_scope scope;
    struct tutti_error failure;
    size_t bytes = bytes_of(calls, n);

    if (tutti_team_state(staging->comm->team, &failure) < 0) return tutti_fail_record(&failure);
    if (bytes == SIZE_MAX)
        return tutti_call_fail(calls, TUTTI_ERR_MEMORY, "out of host memory for what is sent and received");
    TUTTI_TRY(refuse_capture(staging, calls));
    TUTTI_TRY(tutti_staging_ensure(staging));
    TUTTI_TRY(await_memory(staging, calls, bytes));
    TUTTI_TRY(make(staging, calls, n, bytes, &staged));
    enum tutti_status status = tutti_device_enter(staging->device, &scope);
    if (status >= 0) status = follow(staging, calls[0].options.stream);
    if (status < 0)
        discard(staged);
    else if ((status = put(staged, calls)) < 0)
        tutti_staging_fail(staging); /* the stream holds a part of it, which is left to it */
    struct tutti_error why = *tutti_last_error();
    tutti_device_leave(staging->device, &scope);
    return status < 0 ? tutti_fail_record(&why) : TUTTI_OK;
}

/* Calls that are carried out on a communicator of their own. */
static void count(struct tutti_staging *staging, const struct tutti_call *calls, size_t n)
{
    if (!atomic_load(&staging->own)) return;
    for (size_t i = 0; i < n; i++) {
        if (calls[i].type != TUTTI_CALL_COLLECTIVE) continue;
        tutti_team_count(staging->comm->team);
        atomic_fetch_add(&staging->comm->sequence, 1);
    }
}

enum tutti_status tutti_staging_enqueue(struct tutti_staging *staging, struct tutti_call *calls, size_t n)
{
    struct tutti_comm *comm = staging->comm;
    /* The driver may wait for streams that wait for the thread, which takes the turn. */
    tutti_comm_turn_give(comm);
    pthread_mutex_lock(&staging->order);
    enum tutti_status status = enqueue(staging, calls, n);
    pthread_mutex_unlock(&staging->order);
    tutti_comm_turn_take(comm);
    if (status >= 0) count(staging, calls, n);
    return status;
}
