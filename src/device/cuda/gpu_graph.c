/* SPDX-License-Identifier: BSD-3-Clause */

/* Graphs, for tools and tests. */

#include "device/cuda/driver.h"

enum tutti_status tutti_gpu_graph_begin(struct tutti_device *gpu, void *stream)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const int result = cuda_calls(gpu)->capture_begin(stream, CUDA_CAPTURE_MODE_THREAD_LOCAL);
    return cuda_done(gpu, &scope, result, "cuStreamBeginCapture");
}

enum tutti_status tutti_gpu_graph_end(struct tutti_device *gpu, void *stream, void **graph)
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    struct cuda_aside aside;
    void *captured = NULL, *ready = NULL;
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    TUTTI_TRY(cuda_done(gpu, &scope, driver->capture_end(stream, &captured), "cuStreamEndCapture"));
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = driver->graph_instantiate(&ready, captured, 0);
    driver->graph_destroy(captured);
    TUTTI_TRY(cuda_aside_done(gpu, &aside, result, "cuGraphInstantiate"));
    *graph = ready;
    return TUTTI_OK;
}

enum tutti_status tutti_gpu_graph_launch(struct tutti_device *gpu, void *graph, void *stream)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const bool locked = cuda_queue_begin(gpu, stream, CUDA_USE_GRAPH);
    const int result = cuda_calls(gpu)->graph_launch(graph, stream);
    cuda_queue_end(gpu, locked);
    return cuda_done(gpu, &scope, result, "cuGraphLaunch");
}

void tutti_gpu_graph_destroy(struct tutti_device *gpu, void *graph)
{
    struct cuda_aside aside;
    if (!graph || cuda_aside_enter(gpu, &aside) < 0) return;
    cuda_aside_done(gpu, &aside, cuda_calls(gpu)->graph_exec_destroy(graph), "cuGraphExecDestroy");
}
