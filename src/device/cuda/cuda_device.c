/* SPDX-License-Identifier: BSD-3-Clause */

/* CUDA as a device: devices that this process has open, once each, with their kernels; and the table of functions. */

#include "device/cuda/driver.h"
#include "device/exchange.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

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
                                                  .fold_threads = 512,
                                                  .fold_blocks = 64, /* read at most of the memory's speed */
                                                  TUTTI_CUDA_GPU_TABLE(TUTTI_CUDA_ROW)};
const struct tutti_device_ops tutti_device_cuda = {
    .name = "cuda", .about = &about, .gpu = &cuda_gpu_ops, TUTTI_GPU_JOBS, TUTTI_CUDA_TABLE(TUTTI_CUDA_ROW)
#undef TUTTI_CUDA_ROW
};
