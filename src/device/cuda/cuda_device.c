/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA as a device: the table of its functions. */
#include "device/cuda/gpu.h"
#include "device/cuda/kernels/exchange.h"

#include <stdio.h>

#define FOLD_THREADS 512
#define FOLD_BLOCKS 64 /* reads at most of the memory's speed */

/* By the kernel that folds contributions of ranks: of two, the left one first. */
static enum tutti_status fold(struct tutti_device *gpu, const struct tutti_fold *f, void *stream)
{
    char name[64];
    struct cuda_fold x = {.call = {.n = 2, .op = (uint32_t)f->op},
                          .from = {f->left, f->right},
                          .out = f->dst,
                          .bytes = f->n * tutti_dtype_bytes(f->dtype)};
    snprintf(name, sizeof name, "fold_%s_16", tutti_dtype_name(f->dtype));
    struct tutti_gpu_launch launch = {
        .kernel = tutti_gpu_kernel(gpu, name), .stream = stream, .blocks = FOLD_BLOCKS, .threads = FOLD_THREADS};
    if (!launch.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel %s", name);
    struct tutti_device_scope scope;
    if (f->n == 0) return TUTTI_OK;
    TUTTI_TRY(tutti_gpu_enter(gpu, &scope));
    const enum tutti_status status = tutti_gpu_launch(gpu, &launch, &x);
    tutti_gpu_leave(&scope);
    return status;
}

const struct tutti_device_ops tutti_device_cuda = {
    .name = "cuda",
    .absence = tutti_gpu_absence,
    .count = tutti_gpu_count,
    .driver_version = tutti_gpu_driver_version,
    .built_for = tutti_gpu_built_for,
    .facts = tutti_gpu_facts,
    .reaches = tutti_gpu_reaches,
    .open = tutti_gpu_open,
    .close = tutti_gpu_close,
    .current = tutti_gpu_current,
    .in_use = tutti_gpu_in_use,
    .of = tutti_gpu_of,
    .enter = tutti_gpu_enter,
    .leave = tutti_gpu_leave,
    .alloc = tutti_gpu_alloc,
    .alloc_shared = tutti_gpu_alloc_shared,
    .free = tutti_gpu_free,
    .alloc_ordered = tutti_gpu_alloc_ordered,
    .free_ordered = tutti_gpu_free_ordered,
    .alloc_host = tutti_gpu_alloc_host,
    .free_host = tutti_gpu_free_host,
    .set = tutti_gpu_set,
    .copy_now = tutti_gpu_copy_now,
    .holds = tutti_gpu_holds,
    .export_memory = tutti_gpu_export,
    .unexport_memory = tutti_gpu_unexport,
    .import_memory = tutti_gpu_import,
    .unimport_memory = tutti_gpu_unimport,
    .reach = tutti_gpu_reach,
    .stream_create = tutti_gpu_stream_create,
    .stream_destroy = tutti_gpu_stream_destroy,
    .stream_sync = tutti_gpu_stream_sync,
    .stream_wait = tutti_gpu_stream_wait,
    .stream_wait_word = tutti_gpu_stream_wait_word,
    .copy = tutti_gpu_copy,
    .host_call = tutti_gpu_host,
    .fold = fold,
    .event_create = tutti_gpu_event_create,
    .event_destroy = tutti_gpu_event_destroy,
    .event_record = tutti_gpu_event_record,
    .event_query = tutti_gpu_event_query,
    .elapsed = tutti_gpu_elapsed,
    .capturing = tutti_gpu_capturing,
    .capture_mark = tutti_gpu_capture_mark,
    .capture_after = tutti_gpu_capture_after,
    .graph_begin = tutti_gpu_graph_begin,
    .graph_end = tutti_gpu_graph_end,
    .graph_launch = tutti_gpu_graph_launch,
    .graph_destroy = tutti_gpu_graph_destroy,
};
