/* SPDX-License-Identifier: BSD-3-Clause */

/* Streams, events, and what is enqueued besides kernels. What only enqueues is allowed in a capture and becomes part of
 * it; what asks or makes something steps aside of captures. */

#include "device/cuda/driver.h"

/* ---- streams ---- */

enum tutti_status tutti_gpu_stream_create(struct tutti_device *gpu, void **out)
{
    struct cuda_aside aside;
    void *stream = NULL;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->stream_create(&stream, CUDA_STREAM_NON_BLOCKING);
    TUTTI_TRY(cuda_aside_done(gpu, &aside, result, "cuStreamCreate"));
    cuda_queue_made();
    *out = stream;
    return TUTTI_OK;
}

void tutti_gpu_stream_destroy(struct tutti_device *gpu, void *stream)
{
    struct cuda_aside aside;
    if (!stream || cuda_aside_enter(gpu, &aside) < 0) return;
    cuda_aside_done(gpu, &aside, cuda_calls(gpu)->stream_destroy(stream), "cuStreamDestroy");
}

enum tutti_status tutti_gpu_stream_query(struct tutti_device *gpu, void *stream)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    return cuda_aside_done(gpu, &aside, cuda_calls(gpu)->stream_query(stream), "cuStreamQuery");
}

enum tutti_status tutti_gpu_stream_sync(struct tutti_device *gpu, void *stream)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    return cuda_aside_done(gpu, &aside, cuda_calls(gpu)->stream_sync(stream), "cuStreamSynchronize");
}

enum tutti_status tutti_gpu_sync(struct tutti_device *gpu)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    return cuda_aside_done(gpu, &aside, cuda_calls(gpu)->context_sync(), "cuCtxSynchronize");
}

enum tutti_status tutti_gpu_stream_wait(struct tutti_device *gpu, void *stream, void *event)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const bool locked = cuda_queue_begin(gpu, stream, CUDA_USE_EVENT);
    const int result = cuda_calls(gpu)->stream_wait_event(stream, event, 0);
    cuda_queue_end(gpu, locked);
    return cuda_done(gpu, &scope, result, "cuStreamWaitEvent");
}

enum tutti_status tutti_gpu_stream_wait_word(struct tutti_device *gpu, void *stream, const uint32_t *word,
                                             uint32_t value)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const bool locked = cuda_queue_begin(gpu, stream, CUDA_USE_EVENT);
    const int result =
        cuda_calls(gpu)->stream_wait_value(stream, (uint64_t)(uintptr_t)word, value, CUDA_WAIT_VALUE_GEQ);
    cuda_queue_end(gpu, locked);
    return cuda_done(gpu, &scope, result, "cuStreamWaitValue32");
}

/* ---- events ---- */

enum tutti_status tutti_gpu_event_create(struct tutti_device *gpu, bool timed, void **out)
{
    struct cuda_aside aside;
    void *event = NULL;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->event_create(&event, timed ? 0 : CUDA_EVENT_DISABLE_TIMING);
    TUTTI_TRY(cuda_aside_done(gpu, &aside, result, "cuEventCreate"));
    *out = event;
    return TUTTI_OK;
}

void tutti_gpu_event_destroy(struct tutti_device *gpu, void *event)
{
    struct cuda_aside aside;
    if (!event || cuda_aside_enter(gpu, &aside) < 0) return;
    cuda_aside_done(gpu, &aside, cuda_calls(gpu)->event_destroy(event), "cuEventDestroy");
}

enum tutti_status tutti_gpu_event_record(struct tutti_device *gpu, void *event, void *stream)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const bool locked = cuda_queue_begin(gpu, stream, CUDA_USE_EVENT);
    const int result = cuda_calls(gpu)->event_record(event, stream);
    cuda_queue_end(gpu, locked);
    return cuda_done(gpu, &scope, result, "cuEventRecord");
}

enum tutti_status tutti_gpu_event_query(struct tutti_device *gpu, void *event)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    return cuda_aside_done(gpu, &aside, cuda_calls(gpu)->event_query(event), "cuEventQuery");
}

enum tutti_status tutti_gpu_elapsed(struct tutti_device *gpu, void *from, void *to, double *us)
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

enum tutti_status tutti_gpu_copy(struct tutti_device *gpu, void *dst, const void *src, size_t bytes, void *stream)
{
    struct tutti_device_scope scope;
    if (bytes == 0) return TUTTI_OK;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const bool locked = cuda_queue_begin(gpu, stream, CUDA_USE_COPY);
    const int result = cuda_calls(gpu)->memory_copy((uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, bytes, stream);
    cuda_queue_end(gpu, locked);
    return cuda_done(gpu, &scope, result, "cuMemcpyAsync");
}

enum tutti_status tutti_gpu_host(struct tutti_device *gpu, void *stream, void (*function)(void *arg), void *arg)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const bool locked = cuda_queue_begin(gpu, stream, CUDA_USE_HOST);
    const int result = cuda_calls(gpu)->launch_host(stream, function, arg);
    cuda_queue_end(gpu, locked);
    return cuda_done(gpu, &scope, result, "cuLaunchHostFunc");
}
