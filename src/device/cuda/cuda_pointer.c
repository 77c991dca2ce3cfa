/* SPDX-License-Identifier: BSD-3-Clause */

/* What a pointer points to. */

#include "device/cuda/driver.h"

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
