/* SPDX-License-Identifier: BSD-3-Clause */

/* Streams: which command list one is, and how something is enqueued on it. Ours are known by a table; any other handle
 * is a SYCL queue. What goes to a command queue is a list of its own, which is used again when it is over. */

#include "device/level_zero/driver.h"

#define BUCKETS 256
#define LOCKS 64
#define SYNC_NS TUTTI_NS_PER_S /* then it is looked whether the device is still there */
#define SYNC_ALL_NS (30 * TUTTI_NS_PER_S)

struct batch { /* a list for a command queue */
    struct batch *next;
    void *list;
    struct xpu_mark *over;
};
struct xpu_stream {
    struct xpu_stream *next; /* in its bucket, or of those that are to be destroyed */
    struct xpu *xpu;
    enum tutti_native kind;
    void *native;
    bool own;
    struct xpu_mark *last; /* for one that is to be destroyed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for what follows */
static struct xpu_stream *table[BUCKETS], *leaving;
static pthread_mutex_t batch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct batch *batches[XPU_DEVICES_MAX]; /* by device; that may run. Under that lock */
static pthread_mutex_t locks[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER}; /* for lists, by their handles */

static uint64_t place_of(const void *handle)
{
    return tutti_hash64(&handle, sizeof handle, 0);
}

/* ---- which stream ---- */

/* Under the lock. */
static struct xpu_stream **entry_of(const void *handle)
{
    struct xpu_stream **at = &table[place_of(handle) % BUCKETS];
    while (*at && *at != handle) at = &(*at)->next;
    return at;
}

static enum tutti_status resolve(struct xpu *xpu, void *handle, struct xpu_stream *out)
{
    const struct xpu_stream *known = xpu->stream;
    if (handle) {
        pthread_mutex_lock(&lock);
        known = *entry_of(handle);
        pthread_mutex_unlock(&lock);
    }
    if (known) {
        *out = *known;
        return TUTTI_OK;
    }
    out->xpu = xpu;
    return xpu_sycl_native(handle, xpu->driver->context, &out->kind, &out->native);
}

enum tutti_status tutti_xpu_stream_is_sycl(struct tutti_device *device, void *stream)
{
    enum tutti_native kind;
    void *native;
    pthread_mutex_lock(&lock);
    const bool known = !stream || *entry_of(stream);
    pthread_mutex_unlock(&lock);
    if (!known) return xpu_sycl_native(stream, xpu_calls(device)->context, &kind, &native);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s is none",
                      stream ? "one of tutti_accelerator_stream_create or _adopt" : "the default stream");
}

/* ---- lists for command queues ---- */

/* One that is over, or a new one. */
static enum tutti_status batch_take(struct xpu *xpu, struct batch **out)
{
    const struct xpu_driver *driver = xpu->driver;
    const struct xpu_list_desc desc = {.structure = XPU_STRUCTURE_LIST, .group = xpu->group};
    struct batch *batch, **at = &batches[xpu->seen.ordinal];
    pthread_mutex_lock(&batch_lock);
    while (*at && driver->event_status((*at)->over->event) != XPU_RESULT_OK) at = &(*at)->next;
    batch = *at;
    if (batch) *at = batch->next;
    pthread_mutex_unlock(&batch_lock);
    int result = XPU_RESULT_OK;
    if (batch) {
        xpu_mark_drop(batch->over);
        result = driver->list_reset(batch->list);
    } else if ((batch = tutti_alloc(sizeof *batch))) {
        result = driver->list_create(driver->context, xpu->device, &desc, &batch->list);
    } else {
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a command list");
    }
    enum tutti_status status = xpu_result(&xpu->seen, result, "zeCommandListCreate");
    if (status == TUTTI_OK) status = xpu_mark_take(driver, false, &batch->over);
    if (status == TUTTI_OK)
        *out = batch;
    else
        tutti_free(batch); /* its list is left to the driver */
    return status;
}

static int batch_execute(struct xpu *xpu, struct batch *batch, void *queue)
{
    const struct xpu_driver *driver = xpu->driver;
    int result = driver->append_barrier(batch->list, batch->over->event, 0, NULL);
    if (result == XPU_RESULT_OK) result = driver->list_close(batch->list);
    if (result == XPU_RESULT_OK) result = driver->queue_execute(queue, 1, &batch->list, NULL);
    if (result != XPU_RESULT_OK) { /* what it holds names events */
        driver->list_destroy(batch->list);
        xpu_mark_return(batch->over);
        tutti_free(batch);
        return result;
    }
    pthread_mutex_lock(&batch_lock);
    batch->next = batches[xpu->seen.ordinal], batches[xpu->seen.ordinal] = batch;
    pthread_mutex_unlock(&batch_lock);
    return result;
}

/* ---- enqueueing ---- */

static int append(const struct xpu_driver *driver, void *list, const struct xpu_work *work)
{
    void *after = work->after;
    const uint32_t n_waits = after ? 1 : 0;
    if (!work->append) return driver->append_barrier(list, work->signal, n_waits, after ? &after : NULL);
    int result = driver->append_barrier(list, NULL, n_waits, after ? &after : NULL);
    if (result == XPU_RESULT_OK) result = work->append(driver, list, work->job);
    return result == XPU_RESULT_OK ? driver->append_barrier(list, work->signal, 0, NULL) : result;
}

static enum tutti_status enqueue_on(struct xpu *xpu, const struct xpu_stream *stream, const struct xpu_work *work)
{
    struct batch *batch = NULL;
    if (stream->kind == TUTTI_NATIVE_QUEUE) TUTTI_TRY(batch_take(xpu, &batch));
    pthread_mutex_t *of_list = &locks[place_of(stream->native) % LOCKS];
    pthread_mutex_lock(of_list);
    int result = append(xpu->driver, batch ? batch->list : stream->native, work);
    if (batch) {
        const int executed = batch_execute(xpu, batch, stream->native);
        if (result == XPU_RESULT_OK) result = executed;
    }
    pthread_mutex_unlock(of_list);
    return xpu_result(&xpu->seen, result, work->call);
}

enum tutti_status xpu_enqueue(struct tutti_device *device, void *stream, const struct xpu_work *work)
{
    struct xpu *xpu = xpu_of(device);
    struct xpu_stream found = {.xpu = xpu};
    if (xpu_forked()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
    TUTTI_TRY(resolve(xpu, stream, &found));
    return enqueue_on(xpu, &found, work);
}

static enum tutti_status mark_wait(struct tutti_device *device, const struct xpu_mark *mark, const char *call,
                                   uint64_t deadline_ns)
{
    const struct xpu_driver *driver = xpu_calls(device);
    int result = XPU_RESULT_NOT_READY;
    while (result == XPU_RESULT_NOT_READY) {
        result = driver->event_sync(mark->event, SYNC_NS);
        if (result != XPU_RESULT_NOT_READY) break;
        if (tutti_now_ns() >= deadline_ns)
            return tutti_fail(TUTTI_ERR_TIMEOUT, "%s on XPU device %d (%s): it is not over yet", call, device->ordinal,
                              device->name);
        const int status = driver->device_status(xpu_of(device)->device);
        if (status != XPU_RESULT_OK) result = status;
    }
    return xpu_result(device, result, call);
}

enum tutti_status xpu_carry_out(struct tutti_device *device, void *stream, const struct xpu_work *work)
{
    struct xpu_mark *over;
    struct xpu_work signalled = *work;
    TUTTI_TRY(xpu_mark_take(xpu_calls(device), false, &over));
    signalled.signal = over->event;
    enum tutti_status status = xpu_enqueue(device, stream, &signalled);
    if (status < 0) {
        xpu_mark_return(over);
        return status;
    }
    status = mark_wait(device, over, work->call, TUTTI_NEVER);
    xpu_mark_drop(over);
    return status;
}

enum tutti_status tutti_xpu_stream_sync(struct tutti_device *device, void *stream)
{
    return xpu_carry_out(device, stream, &(struct xpu_work){.call = "zeEventHostSynchronize"});
}

/* Under the lock: behind what is enqueued on the stream by now. */
static enum tutti_status mark_put(struct xpu_stream *stream, struct xpu_mark **out)
{
    struct xpu_mark *mark;
    TUTTI_TRY(xpu_mark_take(stream->xpu->driver, false, &mark));
    const struct xpu_work work = {.signal = mark->event, .call = "synchronizing all streams"};
    const enum tutti_status status = enqueue_on(stream->xpu, stream, &work);
    if (status < 0)
        xpu_mark_return(mark);
    else
        *out = mark;
    return status;
}

/* Under the lock: of all streams of the device, and those that are leaving; *n of them. An error is that of the last
 * stream which failed. */
static enum tutti_status marks_put(const struct xpu *xpu, struct xpu_mark ***out, size_t *n)
{
    size_t most = 0;
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 0; i <= BUCKETS; i++)
        for (const struct xpu_stream *each = i < BUCKETS ? table[i] : leaving; each; each = each->next) most++;
    struct xpu_mark **marks = *out = tutti_alloc_array(most + 1, sizeof(struct xpu_mark *));
    if (!marks) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to wait for %zu streams", most);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct xpu_stream *each = table[i]; each; each = each->next) {
            if (each->xpu != xpu) continue;
            if (mark_put(each, &marks[*n]) == TUTTI_OK)
                ++*n;
            else
                status = tutti_last_error()->status;
        }
    for (const struct xpu_stream *each = leaving; each; each = each->next)
        if (each->xpu == xpu) xpu_mark_hold(marks[(*n)++] = each->last);
    return status;
}

/* No stream goes while marks are put; they are waited for without the lock. */
enum tutti_status xpu_streams_sync(struct xpu *xpu)
{
    struct xpu_mark **marks = NULL;
    const uint64_t deadline_ns = tutti_deadline_ns(SYNC_ALL_NS);
    size_t n = 0;
    pthread_mutex_lock(&lock);
    enum tutti_status status = marks_put(xpu, &marks, &n);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < n; i++) {
        if (mark_wait(&xpu->seen, marks[i], "synchronizing all streams", deadline_ns) < 0)
            status = tutti_last_error()->status;
        xpu_mark_drop(marks[i]);
    }
    tutti_free((void *)marks);
    return status;
}

/* ---- life ---- */

static void destroy(struct xpu_stream *stream)
{
    if (stream->own) stream->xpu->driver->list_destroy(stream->native);
    xpu_mark_drop(stream->last);
    tutti_free(stream);
}

/* Those that were destroyed and have come to their end. */
static void reap(const struct xpu_driver *driver)
{
    struct xpu_stream *over = NULL, *next;
    pthread_mutex_lock(&lock);
    for (struct xpu_stream **at = &leaving; *at;) {
        struct xpu_stream *stream = *at;
        if (driver->event_status(stream->last->event) != XPU_RESULT_OK) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        stream->next = over, over = stream;
    }
    pthread_mutex_unlock(&lock);
    for (; over; over = next) {
        next = over->next;
        destroy(over);
    }
}

static void enter(struct xpu_stream *made)
{
    pthread_mutex_lock(&lock);
    struct xpu_stream **at = &table[place_of(made) % BUCKETS];
    made->next = *at, *at = made;
    pthread_mutex_unlock(&lock);
}

static enum tutti_status make(struct xpu *xpu, enum tutti_native kind, void *native, struct xpu_stream **out)
{
    const struct xpu_queue_desc desc = {
        .structure = XPU_STRUCTURE_QUEUE, .group = xpu->group, .mode = XPU_QUEUE_ASYNCHRONOUS};
    struct xpu_stream *made = tutti_alloc(sizeof *made);
    if (!made) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a stream of XPU device %d", xpu->seen.ordinal);
    *made = (struct xpu_stream){.xpu = xpu, .kind = kind, .native = native, .own = !native};
    if (made->own) {
        const int result = xpu->driver->list_create_immediate(xpu->driver->context, xpu->device, &desc, &made->native);
        const enum tutti_status status = xpu_result(&xpu->seen, result, "zeCommandListCreateImmediate");
        if (status < 0) {
            tutti_free(made);
            return status;
        }
    }
    enter(made);
    *out = made;
    return TUTTI_OK;
}

enum tutti_status xpu_streams_open(struct xpu *xpu)
{
    TUTTI_TRY(make(xpu, TUTTI_NATIVE_LIST, NULL, &xpu->stream));
    return make(xpu, TUTTI_NATIVE_LIST, NULL, &xpu->now);
}

enum tutti_status tutti_xpu_stream_create(struct tutti_device *device, void **out)
{
    struct xpu_stream *made = NULL;
    if (xpu_forked()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
    reap(xpu_calls(device));
    TUTTI_TRY(make(xpu_of(device), TUTTI_NATIVE_LIST, NULL, &made));
    *out = made;
    return TUTTI_OK;
}

enum tutti_status tutti_xpu_stream_adopt(struct tutti_device *device, enum tutti_native kind, void *native,
                                         void **stream)
{
    struct xpu_stream *made = NULL;
    if (!native) return tutti_fail(TUTTI_ERR_ARGUMENT, "a stream is made of a command list or queue, but it is NULL");
    TUTTI_TRY(make(xpu_of(device), kind, native, &made));
    *stream = made;
    return TUTTI_OK;
}

/* What is enqueued comes to pass; the list goes when it has. */
void tutti_xpu_stream_destroy(struct tutti_device *device, void *handle)
{
    struct xpu_stream *stream = handle;
    if (!stream || xpu_forked()) return;
    const struct xpu_driver *driver = xpu_calls(device);
    if (stream->own && xpu_mark_take(driver, false, &stream->last) == TUTTI_OK &&
        xpu_enqueue(device, stream, &(struct xpu_work){.signal = stream->last->event, .call = "destroying a stream"}) <
            0) {
        xpu_mark_return(stream->last);
        stream->own = false; /* for a device that has failed */
        stream->last = NULL;
    }
    pthread_mutex_lock(&lock);
    struct xpu_stream **at = entry_of(stream);
    if (*at) *at = stream->next;
    if (stream->last) stream->next = leaving, leaving = stream;
    pthread_mutex_unlock(&lock);
    if (!stream->last) destroy(stream);
    reap(driver);
}
