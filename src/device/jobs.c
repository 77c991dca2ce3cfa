/* SPDX-License-Identifier: BSD-3-Clause */
/* What kernels do alone on a GPU, of whatever maker: folds, rows of counts, sparse blocks, packed data. */
#include "device/exchange.h"
#include "device/gpu.h"

#include <stdio.h>
#include <string.h>

#define JOB_THREADS 256
#define ROW_THREADS 64
#define BLOCKS_A_UNIT 8 /* of kernels that wait for nobody */

static enum tutti_status job_run(struct tutti_device *gpu, const char *name, struct tutti_gpu_launch launch,
                                 const void *args)
{
    struct tutti_device_scope scope;
    launch.kernel = gpu->ops->gpu->kernel(gpu, name);
    if (!launch.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel %s", name);
    TUTTI_TRY(tutti_device_enter(gpu, &scope));
    const enum tutti_status status = gpu->ops->gpu->launch(gpu, &launch, args);
    tutti_device_leave(gpu, &scope);
    return status;
}

static uint32_t blocks_for(const struct tutti_device *gpu, uint64_t wanted)
{
    const uint64_t most = (uint64_t)gpu->n_sms * BLOCKS_A_UNIT;
    return (uint32_t)(wanted == 0 ? 1 : wanted < most ? wanted : most);
}

/* By the kernel that folds contributions of ranks: of two, the left one first. */
enum tutti_status tutti_gpu_fold(struct tutti_device *gpu, const struct tutti_fold *f, void *stream)
{
    char name[64];
    const struct tutti_gpu_ops *ops = gpu->ops->gpu;
    struct gpu_fold x = {
        .call = {.n = f->right ? 2 : 1, .op = (uint32_t)f->op, .divisor = f->divisor, .scales = f->factor != NULL},
        .from = {f->left, f->right},
        .out = f->dst,
        .bytes = f->n * tutti_dtype_bytes(f->dtype)};
    const struct tutti_gpu_launch launch = {
        .stream = stream,
        .blocks = ops->fold_blocks ? ops->fold_blocks : blocks_for(gpu, x.bytes / (16 * ops->fold_threads) + 1),
        .threads = ops->fold_threads,
        .args_bytes = sizeof x};
    if (f->factor) memcpy(x.call.factor, f->factor, tutti_dtype_bytes(f->dtype));
    snprintf(name, sizeof name, "fold_%s_16", tutti_dtype_name(f->dtype));
    if (f->n) return job_run(gpu, name, launch, &x);
    return ops->kernel(gpu, name) ? TUTTI_OK : tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel %s", name);
}

enum tutti_status tutti_gpu_counted_row(struct tutti_device *gpu, const struct tutti_counted_row *row, void *stream)
{
    const struct tutti_gpu_launch launch = {
        .stream = stream, .blocks = 1, .threads = ROW_THREADS, .args_bytes = sizeof *row};
    return job_run(gpu, "counted_row", launch, row);
}

enum tutti_status tutti_gpu_sparse(struct tutti_device *gpu, const struct tutti_sparse *sparse, void *stream)
{
    char name[64];
    const uint64_t columns = sparse->block ? (sparse->block + 31) / 32 * 32 : 32;
    const struct tutti_gpu_launch launch = {.stream = stream,
                                            .blocks = blocks_for(gpu, sparse->n_out),
                                            .threads = columns < JOB_THREADS ? (uint32_t)columns : JOB_THREADS,
                                            .args_bytes = sizeof *sparse};
    snprintf(name, sizeof name, "sparse_%s", tutti_dtype_name(sparse->dtype));
    return job_run(gpu, name, launch, sparse);
}

/* As many blocks as there are groups of 32 threads' work. */
enum tutti_status tutti_gpu_recode(struct tutti_device *gpu, const struct tutti_recode *job, void *stream)
{
    char name[64];
    const uint64_t end = job->end < job->part ? job->end : job->part, group = job->packing.group;
    const uint64_t groups = end > job->begin ? (end - job->begin + group - 1) / group * job->n_parts : 0;
    const struct tutti_gpu_launch launch = {.stream = stream,
                                            .blocks = blocks_for(gpu, groups / (JOB_THREADS / 32) + 1),
                                            .threads = JOB_THREADS,
                                            .args_bytes = sizeof *job};
    snprintf(name, sizeof name, "recode_%s", tutti_wire_name(job->packing.wire));
    return groups ? job_run(gpu, name, launch, job) : TUTTI_OK;
}
