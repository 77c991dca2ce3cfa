/* SPDX-License-Identifier: BSD-3-Clause */

/* What kernels do alone on an Intel GPU: folds, rows of counts, sparse blocks, packed data. */

#include "device/exchange.h"
#include "device/level_zero/driver.h"

#include <stdio.h>

#define JOB_THREADS 256
#define ROW_THREADS 32
#define BLOCKS_A_UNIT 8 /* of kernels that wait for nobody */

static enum tutti_status job_launch(struct tutti_device *device, const char *name, struct tutti_gpu_launch launch,
                                    const void *args)
{
    launch.kernel = tutti_xpu_kernel(device, name);
    if (!launch.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel %s", name);
    return launch.blocks ? tutti_xpu_launch(device, &launch, args) : TUTTI_OK;
}

static uint32_t blocks_for(const struct tutti_device *device, uint64_t wanted)
{
    const uint64_t most = (uint64_t)device->n_sms * BLOCKS_A_UNIT;
    return (uint32_t)(wanted == 0 ? 1 : wanted < most ? wanted : most);
}

/* By the kernel that folds contributions of ranks: of two, the left one first. */
enum tutti_status tutti_xpu_fold(struct tutti_device *device, const struct tutti_fold *f, void *stream)
{
    char name[64];
    const struct gpu_fold x = {.call = {.n = 2, .op = (uint32_t)f->op},
                               .from = {f->left, f->right},
                               .out = f->dst,
                               .bytes = f->n * tutti_dtype_bytes(f->dtype)};
    const uint64_t wanted = (x.bytes + 16 * JOB_THREADS - 1) / (16 * JOB_THREADS);
    const struct tutti_gpu_launch launch = {.stream = stream,
                                            .blocks = f->n ? blocks_for(device, wanted) : 0,
                                            .threads = JOB_THREADS,
                                            .args_bytes = sizeof x};
    snprintf(name, sizeof name, "fold_%s_16", tutti_dtype_name(f->dtype));
    return job_launch(device, name, launch, &x);
}

enum tutti_status tutti_xpu_counted_row(struct tutti_device *device, const struct tutti_counted_row *row, void *stream)
{
    const struct tutti_gpu_launch launch = {
        .stream = stream, .blocks = 1, .threads = ROW_THREADS, .args_bytes = sizeof *row};
    return job_launch(device, "counted_row", launch, row);
}

enum tutti_status tutti_xpu_sparse(struct tutti_device *device, const struct tutti_sparse *sparse, void *stream)
{
    char name[64];
    const uint64_t columns = sparse->block ? (sparse->block + 31) / 32 * 32 : 32;
    const struct tutti_gpu_launch launch = {.stream = stream,
                                            .blocks = blocks_for(device, sparse->n_out),
                                            .threads = columns < JOB_THREADS ? (uint32_t)columns : JOB_THREADS,
                                            .args_bytes = sizeof *sparse};
    snprintf(name, sizeof name, "sparse_%s", tutti_dtype_name(sparse->dtype));
    return job_launch(device, name, launch, sparse);
}

enum tutti_status tutti_xpu_recode(struct tutti_device *device, const struct tutti_recode *job, void *stream)
{
    char name[64];
    const uint64_t most = job->end < job->part ? job->end : job->part, group = job->packing.group;
    const uint64_t groups = most > job->begin ? (most - job->begin + group - 1) / group * job->n_parts : 0;
    const struct tutti_gpu_launch launch = {.stream = stream,
                                            .blocks = blocks_for(device, (groups * 32 + JOB_THREADS - 1) / JOB_THREADS),
                                            .threads = JOB_THREADS,
                                            .args_bytes = sizeof *job};
    snprintf(name, sizeof name, "recode_%s", tutti_wire_name(job->packing.wire));
    return groups ? job_launch(device, name, launch, job) : TUTTI_OK;
}
