/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of many mappings: see segment.h. */

#include "cuda/support/segment.h"

#include "device/cuda/driver.h"

enum { MORE = 2 };

static int map_piece(const struct cuda_driver *driver, const struct cuda_allocation *what, uint64_t at, size_t bytes)
{
    uint64_t handle;
    int result = driver->virtual_create(&handle, bytes, what, 0);
    if (result != CUDA_RESULT_OK) return result;
    result = driver->virtual_map(at, bytes, 0, handle, 0);
    driver->virtual_release(handle);
    return result;
}

static struct cuda_allocation allocation_of(const struct segment *s, bool shareable)
{
    return (struct cuda_allocation){.type = CUDA_ALLOCATION_PINNED,
                                    .handle_types = shareable ? CUDA_HANDLE_DESCRIPTOR : 0,
                                    .location = {CUDA_LOCATION_DEVICE, s->gpu->ordinal}};
}

static int map_all(struct segment *s, bool shareable)
{
    const struct cuda_driver *driver = cuda_calls(s->gpu);
    const struct cuda_allocation what = allocation_of(s, shareable);
    const struct cuda_access access = {what.location, CUDA_ACCESS_READWRITE};
    uint64_t base = 0;
    const size_t n = s->n;
    int result = driver->virtual_granularity(&s->piece, &what, CUDA_GRANULARITY_RECOMMENDED);
    if (result == CUDA_RESULT_OK) result = driver->address_reserve(&base, (n + MORE) * s->piece, 0, 0, 0);
    if (result != CUDA_RESULT_OK) return result;
    s->base = (char *)(uintptr_t)base;
    for (s->n = 0; s->n < n && result == CUDA_RESULT_OK; s->n += result == CUDA_RESULT_OK)
        result = map_piece(driver, &what, base + s->n * s->piece, s->piece);
    return result == CUDA_RESULT_OK ? driver->virtual_access(base, n * s->piece, &access, 1) : result;
}

bool segment_open(struct segment *segment, struct tutti_device *gpu, size_t n, bool shareable)
{
    struct tutti_device_scope scope;
    *segment = (struct segment){.gpu = gpu, .n = n};
    if (tutti_cuda_enter(gpu, &scope) < 0) return false;
    return cuda_done(gpu, &scope, map_all(segment, shareable), "a segment") == TUTTI_OK;
}

static int renew(const struct segment *s, size_t i)
{
    const struct cuda_driver *driver = cuda_calls(s->gpu);
    const struct cuda_allocation what = allocation_of(s, true);
    const struct cuda_access access = {what.location, CUDA_ACCESS_READWRITE};
    const uint64_t at = (uint64_t)(uintptr_t)s->base + i * s->piece;
    int result = driver->virtual_unmap(at, s->piece);
    if (result == CUDA_RESULT_OK) result = map_piece(driver, &what, at, s->piece);
    return result == CUDA_RESULT_OK ? driver->virtual_access(at, s->piece, &access, 1) : result;
}

bool segment_renew(const struct segment *s, size_t i)
{
    struct tutti_device_scope scope;
    if (tutti_cuda_enter(s->gpu, &scope) < 0) return false;
    return cuda_done(s->gpu, &scope, renew(s, i), "a piece of a segment") == TUTTI_OK;
}

void segment_close(struct segment *s)
{
    const struct cuda_driver *driver = cuda_calls(s->gpu);
    const uint64_t base = (uint64_t)(uintptr_t)s->base;
    const size_t n = s->n;
    struct tutti_device_scope scope;
    if (!s->base || tutti_cuda_enter(s->gpu, &scope) < 0) return;
    for (size_t i = 0; i < n; i++) driver->virtual_unmap(base + i * s->piece, s->piece);
    driver->address_free(base, (n + MORE) * s->piece);
    tutti_cuda_leave(&scope);
    s->base = NULL;
}
