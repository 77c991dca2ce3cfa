/* SPDX-License-Identifier: BSD-3-Clause */

/* Captures: whether a stream is part of one, and edges between what its streams capture. */

#include "device/cuda/driver.h"

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
