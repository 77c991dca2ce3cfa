/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, events, graphs, and what is enqueued besides kernels. What only enqueues is allowed in a capture and becomes
 * part of it; what asks or makes something steps aside of captures. */

#include "device/cuda/driver.h"

#include <string.h>

/* ---- streams ---- */

enum tutti_status tutti_cuda_stream_create(struct tutti_device *gpu, void **out)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->stream_create(out, CUDA_STREAM_NON_BLOCKING);
    cuda_queue_made();
    return cuda_aside_done(gpu, &aside, result, "cuStreamCreate");
}

void tutti_cuda_stream_destroy(struct tutti_device *gpu, void *stream)
{
    if (stream) cuda_destroy(gpu, cuda_calls(gpu)->stream_destroy, stream, "cuStreamDestroy");
}

enum tutti_status tutti_cuda_stream_query(struct tutti_device *gpu, void *stream)
{
    CUDA_RETURN_ASIDE(gpu, "cuStreamQuery", stream_query, stream);
}

enum tutti_status tutti_cuda_stream_sync(struct tutti_device *gpu, void *stream)
{
    CUDA_RETURN_ASIDE(gpu, "cuStreamSynchronize", stream_sync, stream);
}

enum tutti_status tutti_cuda_sync(struct tutti_device *gpu)
{
    CUDA_RETURN_ASIDE(gpu, "cuCtxSynchronize", context_sync);
}

enum tutti_status tutti_cuda_stream_wait(struct tutti_device *gpu, void *stream, void *event)
{
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_EVENT, "cuStreamWaitEvent", stream_wait_event, stream, event, 0);
}

enum tutti_status tutti_cuda_stream_wait_word(struct tutti_device *gpu, void *stream, const uint32_t *word,
                                              uint32_t value)
{
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_EVENT, "cuStreamWaitValue32", stream_wait_value, stream,
                       (uint64_t)(uintptr_t)word, value, CUDA_WAIT_VALUE_GEQ);
}

/* ---- events ---- */

enum tutti_status tutti_cuda_event_create(struct tutti_device *gpu, bool timed, void **out)
{
    CUDA_RETURN_ASIDE(gpu, "cuEventCreate", event_create, out, timed ? 0 : CUDA_EVENT_DISABLE_TIMING);
}

void tutti_cuda_event_destroy(struct tutti_device *gpu, void *event)
{
    if (event) cuda_destroy(gpu, cuda_calls(gpu)->event_destroy, event, "cuEventDestroy");
}

enum tutti_status tutti_cuda_event_record(struct tutti_device *gpu, void *event, void *stream)
{
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_EVENT, "cuEventRecord", event_record, event, stream);
}

enum tutti_status tutti_cuda_event_query(struct tutti_device *gpu, void *event)
{
    CUDA_RETURN_ASIDE(gpu, "cuEventQuery", event_query, event);
}

enum tutti_status tutti_cuda_elapsed(struct tutti_device *gpu, void *from, void *to, double *us)
{
    struct cuda_aside aside;
    float ms = 0;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->event_elapsed(&ms, from, to);
    TUTTI_TRY(cuda_aside_done(gpu, &aside, result, "cuEventElapsedTime"));
    *us = (double)ms * 1000;
    return TUTTI_OK;
}

/* ---- work ---- */

enum tutti_status tutti_cuda_copy(struct tutti_device *gpu, void *dst, const void *src, size_t bytes, void *stream)
{
    if (bytes == 0) return TUTTI_OK;
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_COPY, "cuMemcpyAsync", memory_copy, (uint64_t)(uintptr_t)dst,
                       (uint64_t)(uintptr_t)src, bytes, stream);
}

enum tutti_status tutti_cuda_host_call(struct tutti_device *gpu, void *stream, void (*function)(void *arg), void *arg)
{
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_HOST, "cuLaunchHostFunc", launch_host, stream, function, arg);
}

/* ---- graphs, for tools and tests ---- */

enum tutti_status tutti_cuda_graph_begin(struct tutti_device *gpu, void *stream)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    const int result = cuda_calls(gpu)->capture_begin(stream, CUDA_CAPTURE_MODE_THREAD_LOCAL);
    return cuda_done(gpu, &scope, result, "cuStreamBeginCapture");
}

enum tutti_status tutti_cuda_graph_end(struct tutti_device *gpu, void *stream, void **graph)
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    struct cuda_aside aside;
    void *captured = NULL;
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    TUTTI_TRY(cuda_done(gpu, &scope, driver->capture_end(stream, &captured), "cuStreamEndCapture"));
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = driver->graph_instantiate(graph, captured, 0);
    driver->graph_destroy(captured);
    return cuda_aside_done(gpu, &aside, result, "cuGraphInstantiate");
}

enum tutti_status tutti_cuda_graph_launch(struct tutti_device *gpu, void *graph, void *stream)
{
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_GRAPH, "cuGraphLaunch", graph_launch, graph, stream);
}

void tutti_cuda_graph_destroy(struct tutti_device *gpu, void *graph)
{
    if (graph) cuda_destroy(gpu, cuda_calls(gpu)->graph_exec_destroy, graph, "cuGraphExecDestroy");
}

/* Hardware queues of streams. The driver gives a stream one for kernels, and one for copies each way, when something
 * of the kind is first enqueued on it, and two threads that come to that at the same time can get the same one, however
 * many are free (driver 580: two threads one time in ten, eight nearly always). What is on a queue waits for what is
 * ahead of it, so two ranks that are threads of a process and share a device then wait for one another until their
 * deadline. Hence threads enqueue one at a time what may be the first of its kind on a stream. */

#define KNOWN 8 /* streams that a thread remembers, of each use */
#define PATIENCE_NS (10 * TUTTI_NS_PER_MS)

static _Atomic uint32_t n_made; /* streams, by tutti: a new one may have the handle of one that was destroyed */

static _Thread_local struct {
    uint32_t n_made; /* as many were when it was last looked at */
    struct {
        void *streams[KNOWN];
        unsigned next;
    } of[CUDA_N_USES];
} known;

static bool is_known(enum cuda_use use, void *stream)
{
    const uint32_t n = atomic_load_explicit(&n_made, memory_order_relaxed);
    if (known.n_made != n) memset(&known, 0, sizeof known), known.n_made = n;
    for (unsigned i = 0; i < KNOWN; i++)
        if (known.of[use].streams[i] == stream) return true;
    return false;
}

/* The driver keeps who enqueues waiting where a queue is full, until peers have come, maybe those that wait here: so
 * not for long, of each who has the lock. */
static bool lock_soon(struct cuda_gpu *gpu)
{
    uint32_t turns;
    do {
        turns = atomic_load(&gpu->queue_turns);
        if (tutti_mutex_lock_within(&gpu->queues, PATIENCE_NS)) return true;
    } while (atomic_load(&gpu->queue_turns) != turns);
    return false;
}

bool cuda_queue_begin(struct tutti_device *gpu, void *stream, enum cuda_use use)
{
    /* Copies go either way, and the stream does not say which it has known. */
    if (use != CUDA_USE_COPY) {
        uint64_t capture = 0;
        if (is_known(use, stream)) return false;
        if (tutti_cuda_capturing(gpu, stream, &capture) == TUTTI_OK && capture) return false; /* nothing is enqueued */
        known.of[use].streams[known.of[use].next++ % KNOWN] = stream;
    }
    return lock_soon(cuda_gpu_of(gpu));
}

void cuda_queue_end(struct tutti_device *gpu, bool locked)
{
    if (!locked) return;
    atomic_fetch_add(&cuda_gpu_of(gpu)->queue_turns, 1);
    pthread_mutex_unlock(&cuda_gpu_of(gpu)->queues);
}

void cuda_queue_made(void)
{
    atomic_fetch_add(&n_made, 1);
}

/* Captures: whether a stream is part of one, and edges between what its streams capture. */

struct capture {
    int status;
    uint64_t id;
    void *graph;
    void *const *nodes; /* what comes next on the stream comes after these */
    size_t n;
};

/* Drivers of 12.3 and later refuse the older question for graphs with programmatic edges; earlier ones lack the newer.
 */
static int capture_read(const struct cuda_driver *driver, void *stream, struct capture *out)
{
    const void *edges;
    *out = (struct capture){0};
    return driver->capture_info_edges
               ? driver->capture_info_edges(stream, &out->status, &out->id, &out->graph, &out->nodes, &edges, &out->n)
               : driver->capture_info(stream, &out->status, &out->id, &out->graph, &out->nodes, &out->n);
}

static int capture_write(const struct cuda_driver *driver, void *stream, void *node, unsigned how)
{
    return driver->capture_update_edges ? driver->capture_update_edges(stream, &node, NULL, 1, how)
                                        : driver->capture_update(stream, &node, 1, how);
}

enum tutti_status tutti_cuda_capturing(struct tutti_device *gpu, void *stream, uint64_t *id)
{
    struct tutti_device_scope scope;
    struct capture capture;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    TUTTI_TRY(cuda_done(gpu, &scope, capture_read(cuda_calls(gpu), stream, &capture), "cuStreamGetCaptureInfo"));
    if (capture.status != CUDA_CAPTURE_NONE && capture.status != CUDA_CAPTURE_ACTIVE)
        return tutti_fail(TUTTI_ERR_SYSTEM,
                          "the capture of the stream on CUDA device %d was invalidated by an earlier "
                          "error",
                          gpu->ordinal);
    *id = capture.status == CUDA_CAPTURE_ACTIVE ? capture.id : 0;
    return TUTTI_OK;
}

/* One node that stands for all that the stream has captured so far. */
static int mark_read(const struct cuda_driver *driver, void *stream, void **out)
{
    struct capture capture;
    int result = capture_read(driver, stream, &capture);
    if (result != CUDA_RESULT_OK || capture.status != CUDA_CAPTURE_ACTIVE || capture.n <= 1) {
        *out = capture.n == 1 ? capture.nodes[0] : NULL;
        return result;
    }
    result = driver->graph_add_empty(out, capture.graph, capture.nodes, capture.n);
    return result == CUDA_RESULT_OK ? capture_write(driver, stream, *out, CUDA_CAPTURE_SET_DEPENDENCIES) : result;
}

enum tutti_status tutti_cuda_capture_mark(struct tutti_device *gpu, void *stream, void **node)
{
    struct tutti_device_scope scope;
    void *found = NULL;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    const int result = mark_read(cuda_calls(gpu), stream, &found);
    TUTTI_TRY(cuda_done(gpu, &scope, result, "cuStreamGetCaptureInfo"));
    *node = found;
    return TUTTI_OK;
}

static int after_write(const struct cuda_driver *driver, void *stream, void *node)
{
    struct capture capture;
    const int result = capture_read(driver, stream, &capture);
    if (result != CUDA_RESULT_OK) return result;
    for (size_t i = 0; i < capture.n; i++)
        if (capture.nodes[i] == node) return CUDA_RESULT_OK;
    return capture_write(driver, stream, node, CUDA_CAPTURE_ADD_DEPENDENCIES);
}

enum tutti_status tutti_cuda_capture_after(struct tutti_device *gpu, void *stream, void *node)
{
    struct tutti_device_scope scope;
    if (!node) return TUTTI_OK;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    return cuda_done(gpu, &scope, after_write(cuda_calls(gpu), stream, node), "cuStreamUpdateCaptureDependencies");
}
