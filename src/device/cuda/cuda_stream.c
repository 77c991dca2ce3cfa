/* SPDX-License-Identifier: BSD-3-Clause */

/* Streams, events, graphs, and what is enqueued besides kernels. What only enqueues is allowed in a capture and becomes
 * part of it; what asks or makes something steps aside of captures. */

#include "device/cuda/driver.h"

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
