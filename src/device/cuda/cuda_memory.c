/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of devices, and pinned memory of the host. */

#include "device/cuda/driver.h"

#include <stdio.h>
#include <string.h>

/* ---- allocation ---- */

/* With the bytes in the sentence. */
static enum tutti_status alloc_done(const struct tutti_device *gpu, struct cuda_aside *aside, int result,
                                    const char *call, size_t bytes)
{
    char text[64];
    snprintf(text, sizeof text, "%s of %zu bytes", call, bytes);
    return cuda_aside_done(gpu, aside, result, text);
}

enum tutti_status tutti_cuda_alloc(struct tutti_device *gpu, size_t bytes, void **out)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    return alloc_done(gpu, &aside, cuda_calls(gpu)->memory_alloc(cuda_address(out), bytes ? bytes : 1), "cuMemAlloc",
                      bytes);
}

/* Whether the driver makes legacy handles: it says so only of memory that is there. */
static bool makes_handles(struct tutti_device *gpu, void *pointer)
{
    struct cuda_aside aside;
    struct cuda_ipc_handle handle;
    if (cuda_aside_enter(gpu, &aside) < 0) return true;
    const int result = cuda_calls(gpu)->ipc_get(&handle, (uint64_t)(uintptr_t)pointer);
    cuda_aside_done(gpu, &aside, CUDA_RESULT_OK, "");
    return result != CUDA_RESULT_NOT_SUPPORTED;
}

static enum tutti_status alloc_either(struct tutti_device *gpu, size_t bytes, void **out)
{
    _Atomic bool *none = &cuda_gpu_of(gpu)->no_handles;
    if (!atomic_load(none)) {
        void *pointer;
        TUTTI_TRY(tutti_cuda_alloc(gpu, bytes, &pointer));
        if (makes_handles(gpu, pointer)) {
            *out = pointer;
            return TUTTI_OK;
        }
        atomic_store(none, true);
        tutti_cuda_free(gpu, pointer);
    }
    const enum tutti_status status = cuda_virtual_alloc(gpu, bytes, out);
    return status == TUTTI_ERR_UNSUPPORTED ? tutti_cuda_alloc(gpu, bytes, out) : status;
}

enum tutti_status tutti_cuda_alloc_shared(struct tutti_device *gpu, enum tutti_device_share share, size_t bytes,
                                          void **out)
{
    static enum tutti_status (*const ways[])(struct tutti_device *, size_t, void **) = {
        [TUTTI_DEVICE_SHARE_AUTO] = alloc_either,
        [TUTTI_DEVICE_SHARE_IPC] = tutti_cuda_alloc,
        [TUTTI_DEVICE_SHARE_FD] = cuda_virtual_alloc,
    };
    return ways[share](gpu, bytes, out);
}

void tutti_cuda_free(struct tutti_device *gpu, void *pointer)
{
    struct cuda_aside aside;
    if (!pointer || cuda_virtual_free(gpu, pointer) || cuda_aside_enter(gpu, &aside) < 0) return;
    cuda_aside_done(gpu, &aside, cuda_calls(gpu)->memory_free((uint64_t)(uintptr_t)pointer), "cuMemFree");
}

enum tutti_status tutti_cuda_alloc_ordered(struct tutti_device *gpu, size_t bytes, void *stream, void **out)
{
    if (!cuda_calls(gpu)->memory_alloc_ordered) return cuda_result(gpu, CUDA_RESULT_NOT_SUPPORTED, "cuMemAllocAsync");
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_EVENT, "cuMemAllocAsync", memory_alloc_ordered, cuda_address(out), bytes,
                       stream);
}

enum tutti_status tutti_cuda_free_ordered(struct tutti_device *gpu, void *pointer, void *stream)
{
    if (!cuda_calls(gpu)->memory_free_ordered) return cuda_result(gpu, CUDA_RESULT_NOT_SUPPORTED, "cuMemFreeAsync");
    CUDA_RETURN_QUEUED(gpu, stream, CUDA_USE_EVENT, "cuMemFreeAsync", memory_free_ordered, (uint64_t)(uintptr_t)pointer,
                       stream);
}

enum tutti_status tutti_cuda_alloc_host(struct tutti_device *gpu, size_t bytes, void **out)
{
    struct cuda_aside aside;
    void *pointer = NULL;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result =
        cuda_calls(gpu)->host_alloc(&pointer, bytes ? bytes : 1, CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP);
    TUTTI_TRY(alloc_done(gpu, &aside, result, "cuMemHostAlloc", bytes));
    memset(pointer, 0, bytes);
    *out = pointer;
    return TUTTI_OK;
}

void tutti_cuda_free_host(struct tutti_device *gpu, void *pointer)
{
    if (pointer) cuda_destroy(gpu, cuda_calls(gpu)->host_free, pointer, "cuMemFreeHost");
}

enum tutti_status tutti_cuda_memory_left(struct tutti_device *gpu, size_t *left, size_t *bytes)
{
    CUDA_RETURN_ASIDE(gpu, "cuMemGetInfo", memory_info, left, bytes);
}

/* ---- at once: on a stream of our own, so that nothing else is waited for ---- */

static enum tutti_status sync_done(struct tutti_device *gpu, struct cuda_aside *aside, int result, const char *call)
{
    if (result == CUDA_RESULT_OK) result = cuda_calls(gpu)->stream_sync(cuda_gpu_of(gpu)->stream);
    return cuda_aside_done(gpu, aside, result, call);
}

enum tutti_status tutti_cuda_set(struct tutti_device *gpu, void *pointer, unsigned char value, size_t bytes)
{
    struct cuda_aside aside;
    if (bytes == 0) return TUTTI_OK;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result =
        cuda_calls(gpu)->memory_set((uint64_t)(uintptr_t)pointer, value, bytes, cuda_gpu_of(gpu)->stream);
    return sync_done(gpu, &aside, result, "cuMemsetD8Async");
}

enum tutti_status tutti_cuda_copy_now(struct tutti_device *gpu, void *dst, const void *src, size_t bytes)
{
    struct cuda_aside aside;
    if (bytes == 0) return TUTTI_OK;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->memory_copy((uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, bytes,
                                                    cuda_gpu_of(gpu)->stream);
    return sync_done(gpu, &aside, result, "cuMemcpyAsync");
}

/* What a pointer points to. */

int32_t tutti_cuda_of(const void *pointer)
{
    static const int attributes[] = {CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_IS_MANAGED, CUDA_POINTER_DEVICE_ORDINAL};
    const struct cuda_driver *driver = cuda_driver_in_use();
    unsigned type = 0, managed = 0; /* the driver writes 4 bytes for the first, 4 or 1 for the second */
    int ordinal = -1;
    void *values[] = {&type, &managed, &ordinal};
    if (!driver || !pointer) return -1;
    /* For a pointer that it does not know this call says so in the values; the one for single attributes fails. */
    if (driver->pointer_attributes(TUTTI_ARRAY_LEN(attributes), attributes, values, (uint64_t)(uintptr_t)pointer) !=
        CUDA_RESULT_OK)
        return -1;
    if (type == CUDA_MEMORY_OF_HOST && !managed) return TUTTI_DEVICE_PINNED;
    return (type == CUDA_MEMORY_OF_DEVICE || managed) && ordinal >= 0 ? ordinal : -1;
}

bool cuda_memory_is_legacy(const struct cuda_driver *driver, uint64_t pointer)
{
    unsigned legacy = 0, managed = 0; /* as above */
    /* Kinds of memory that the driver has no answer for have no handle. */
    return driver->pointer_attribute(&legacy, CUDA_POINTER_IS_LEGACY_IPC_CAPABLE, pointer) == CUDA_RESULT_OK &&
           driver->pointer_attribute(&managed, CUDA_POINTER_IS_MANAGED, pointer) == CUDA_RESULT_OK && legacy &&
           !managed;
}

static int block_read(const struct cuda_driver *driver, uint64_t pointer, struct tutti_cuda_block *out)
{
    uint64_t base = 0;
    unsigned long long id = 0;
    size_t bytes = 0;
    int result;
    if ((result = driver->pointer_attribute(&base, CUDA_POINTER_RANGE_START, pointer)) != CUDA_RESULT_OK ||
        (result = driver->pointer_attribute(&bytes, CUDA_POINTER_RANGE_SIZE, pointer)) != CUDA_RESULT_OK ||
        (result = driver->pointer_attribute(&id, CUDA_POINTER_BUFFER_ID, pointer)) != CUDA_RESULT_OK)
        return result;
    *out = (struct tutti_cuda_block){.base = (void *)(uintptr_t)base, .bytes = bytes, .id = id};
    return CUDA_RESULT_OK;
}

enum tutti_status tutti_cuda_block(const void *pointer, struct tutti_cuda_block *out)
{
    const struct cuda_driver *driver = cuda_driver_in_use();
    if (tutti_cuda_of(pointer) < 0 || !driver)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%p is no memory of a CUDA device", pointer);
    return cuda_result(NULL, block_read(driver, (uint64_t)(uintptr_t)pointer, out), "cuPointerGetAttribute");
}

enum tutti_status tutti_cuda_block_id(const struct tutti_device *gpu, const void *pointer, uint64_t *out)
{
    unsigned long long id = 0;
    const int result = cuda_calls(gpu)->pointer_attribute(&id, CUDA_POINTER_BUFFER_ID, (uint64_t)(uintptr_t)pointer);
    const bool known = result != CUDA_RESULT_INVALID_VALUE;
    *out = known ? id : 0;
    return known ? cuda_result(gpu, result, "cuPointerGetAttribute") : TUTTI_OK;
}
