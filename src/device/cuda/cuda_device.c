/* SPDX-License-Identifier: BSD-3-Clause */

/* CUDA as a device: devices that this process has open, once each, with their kernels; and the table of functions. */

#include "device/cuda/driver.h"
#include "device/exchange.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FOLD_THREADS 512
#define FOLD_BLOCKS 64 /* reads at most of the memory's speed */
#define RECODE_THREADS 256
#define ROW_THREADS 64
#define SPARSE_BLOCKS_AN_SM 8
#define RECODE_BLOCKS_AN_SM 8

/* ---- opening ---- */

static struct cuda_gpu *opened[CUDA_GPUS_MAX]; /* by ordinal; under the lock (cuda_contexts.c) */

/* The own stream gets its queues before threads use it (cuda_stream.c): it is set and copied by, each way. The cell
 * stays, since giving memory back waits for the device. */
static int stream_prepare(struct cuda_gpu *gpu)
{
    const struct cuda_driver *driver = gpu->driver;
    uint32_t word = 0;
    const uint64_t host = (uint64_t)(uintptr_t)&word;
    int result = driver->stream_create(&gpu->stream, CUDA_STREAM_NON_BLOCKING);
    if (result == CUDA_RESULT_OK) result = driver->memory_alloc(&gpu->cell, sizeof word);
    if (result == CUDA_RESULT_OK) result = driver->memory_set(gpu->cell, 0, sizeof word, gpu->stream);
    if (result == CUDA_RESULT_OK) result = driver->memory_copy(gpu->cell, host, sizeof word, gpu->stream);
    if (result == CUDA_RESULT_OK) result = driver->memory_copy(host, gpu->cell, sizeof word, gpu->stream);
    return result == CUDA_RESULT_OK ? driver->stream_sync(gpu->stream) : result;
}

/* With the context that gpu_open retained. */
static enum tutti_status gpu_prepare(struct cuda_gpu *gpu)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(&gpu->seen, &aside));
    const int result = stream_prepare(gpu);
    const enum tutti_status status = result == CUDA_RESULT_OK
                                         ? cuda_kernels_load(gpu)
                                         : cuda_result(&gpu->seen, result, "the first uses of a stream");
    cuda_aside_done(&gpu->seen, &aside, CUDA_RESULT_OK, "");
    return status;
}

/* Undoes what was half made. */
static void gpu_destroy(struct cuda_gpu *gpu)
{
    struct cuda_aside aside;
    if (gpu->seen.context && !cuda_forked()) {
        if (cuda_aside_enter(&gpu->seen, &aside) == TUTTI_OK) {
            cuda_kernels_unload(gpu);
            if (gpu->stream) gpu->driver->stream_destroy(gpu->stream);
            if (gpu->cell) gpu->driver->memory_free(gpu->cell);
            cuda_aside_done(&gpu->seen, &aside, CUDA_RESULT_OK, "");
        }
        gpu->driver->primary_release(gpu->seen.ordinal);
    }
    pthread_mutex_destroy(&gpu->queues);
    tutti_free(gpu);
}

static enum tutti_status gpu_create(const struct cuda_driver *driver, int32_t ordinal, struct cuda_gpu **out)
{
    struct cuda_gpu *gpu = tutti_alloc(sizeof *gpu);
    if (!gpu) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for CUDA device %d", ordinal);
    gpu->driver = driver;
    gpu->seen.ops = &tutti_device_cuda;
    gpu->seen.ordinal = ordinal;
    pthread_mutex_init(&gpu->queues, NULL);
    struct tutti_device_facts facts;
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, cuda_facts_read(driver, ordinal, &facts), err_gpu);
    memcpy(gpu->seen.name, facts.name, sizeof facts.name);
    memcpy(gpu->seen.uuid, facts.uuid, sizeof facts.uuid);
    gpu->seen.n_sms = facts.n_sms, gpu->seen.capability = facts.capability;
    const int result = driver->primary_retain(&gpu->seen.context, ordinal);
    if (result != CUDA_RESULT_OK) gpu->seen.context = NULL;
    TUTTI_TRY_GOTO(status, cuda_result(&gpu->seen, result, "cuDevicePrimaryCtxRetain"), err_gpu);
    TUTTI_TRY_GOTO(status, gpu_prepare(gpu), err_gpu);
    *out = gpu;
    return TUTTI_OK;
err_gpu:
    gpu_destroy(gpu);
    return status;
}

enum tutti_status tutti_cuda_open(int32_t ordinal, struct tutti_device **out)
{
    const struct cuda_driver *driver = NULL;
    TUTTI_TRY(cuda_driver_for(ordinal, &driver));
    cuda_lock();
    enum tutti_status status = TUTTI_OK;
    if (!opened[ordinal]) status = gpu_create(driver, ordinal, &opened[ordinal]);
    if (status == TUTTI_OK) *out = &opened[ordinal]->seen;
    cuda_unlock();
    return status;
}

void tutti_cuda_close(struct tutti_device *gpu)
{
    (void)gpu; /* it stays for the next: see gpu.h */
}

/* ---- folding ---- */

/* By the kernel that folds contributions of ranks: of two, the left one first. */
enum tutti_status tutti_cuda_fold(struct tutti_device *gpu, const struct tutti_fold *f, void *stream)
{
    char name[64];
    struct gpu_fold x = {.call = {.n = 2, .op = (uint32_t)f->op},
                         .from = {f->left, f->right},
                         .out = f->dst,
                         .bytes = f->n * tutti_dtype_bytes(f->dtype)};
    snprintf(name, sizeof name, "fold_%s_16", tutti_dtype_name(f->dtype));
    struct tutti_gpu_launch launch = {
        .kernel = tutti_cuda_kernel(gpu, name), .stream = stream, .blocks = FOLD_BLOCKS, .threads = FOLD_THREADS};
    if (!launch.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel %s", name);
    struct tutti_device_scope scope;
    if (f->n == 0) return TUTTI_OK;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    const enum tutti_status status = tutti_cuda_launch(gpu, &launch, &x);
    tutti_cuda_leave(&scope);
    return status;
}

enum tutti_status tutti_cuda_counted_row(struct tutti_device *gpu, const struct tutti_counted_row *row, void *stream)
{
    struct tutti_gpu_launch launch = {
        .kernel = tutti_cuda_kernel(gpu, "counted_row"), .stream = stream, .blocks = 1, .threads = ROW_THREADS};
    struct tutti_device_scope scope;
    if (!launch.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel counted_row");
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    const enum tutti_status status = tutti_cuda_launch(gpu, &launch, row);
    tutti_cuda_leave(&scope);
    return status;
}

enum tutti_status tutti_cuda_sparse(struct tutti_device *gpu, const struct tutti_sparse *sparse, void *stream)
{
    char name[64];
    const uint64_t threads = sparse->block < RECODE_THREADS ? (sparse->block + 31) / 32 * 32 : RECODE_THREADS;
    const uint64_t most = (uint64_t)gpu->n_sms * SPARSE_BLOCKS_AN_SM,
                   rows = sparse->n_out < most ? sparse->n_out : most;
    snprintf(name, sizeof name, "sparse_%s", tutti_dtype_name(sparse->dtype));
    struct tutti_gpu_launch launch = {.kernel = tutti_cuda_kernel(gpu, name),
                                      .stream = stream,
                                      .blocks = (uint32_t)(rows ? rows : 1),
                                      .threads = (uint32_t)threads};
    struct tutti_device_scope scope;
    if (!launch.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel %s", name);
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    const enum tutti_status status = tutti_cuda_launch(gpu, &launch, sparse);
    tutti_cuda_leave(&scope);
    return status;
}

/* ---- packed data ---- */

/* A warp takes a group at a time. */
enum tutti_status tutti_cuda_recode(struct tutti_device *gpu, const struct tutti_recode *job, void *stream)
{
    char name[64];
    const size_t end = job->end < job->part ? job->end : job->part;
    if (end <= job->begin) return TUTTI_OK;
    const size_t groups = (end - job->begin + job->packing.group - 1) / job->packing.group * job->n_parts;
    const size_t blocks = groups / (RECODE_THREADS / 32) + 1, most = (size_t)gpu->n_sms * RECODE_BLOCKS_AN_SM;
    snprintf(name, sizeof name, "recode_%s", tutti_wire_name(job->packing.wire));
    struct tutti_gpu_launch launch = {.kernel = tutti_cuda_kernel(gpu, name),
                                      .stream = stream,
                                      .blocks = (uint32_t)(blocks < most ? blocks : most),
                                      .threads = RECODE_THREADS};
    if (!launch.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel %s", name);
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    const enum tutti_status status = tutti_cuda_launch(gpu, &launch, job);
    tutti_cuda_leave(&scope);
    return status;
}

static void say_version(int version, char *out, size_t room)
{
    snprintf(out, room, "for CUDA %d.%d", version / 1000, version % 1000 / 10);
}

static void say_units(const struct tutti_device_facts *facts, char *out, size_t room)
{
    snprintf(out, room, "compute capability %u.%u, %u SMs", facts->capability / 10, facts->capability % 10,
             facts->n_sms);
}

static const struct tutti_device_about about = {
    .maker = "NVIDIA",
    .interface = "CUDA",
    .get_driver = "NVIDIA's driver for CUDA 12.0 or later",
    .get_open = "build with nvcc and -DTUTTI_CUDA_ARCHITECTURES that name the device's compute capability",
    .get_kernels = "nvcc (the CUDA toolkit, 12.0 or later)",
    .without_kernels = "memory of NVIDIA GPUs can not be used by this build",
    .uuid_prefix = "GPU-",
    .say_version = say_version,
    .say_units = say_units,
};

#define TUTTI_CUDA_ROW(function) .function = tutti_cuda_##function,
static const struct tutti_gpu_ops cuda_gpu_ops = {.tile_threads = GPU_TILE_THREADS,
                                                  TUTTI_CUDA_GPU_TABLE(TUTTI_CUDA_ROW)};
const struct tutti_device_ops tutti_device_cuda = {
    .name = "cuda", .about = &about, .gpu = &cuda_gpu_ops, TUTTI_CUDA_TABLE(TUTTI_CUDA_ROW)
#undef TUTTI_CUDA_ROW
};
