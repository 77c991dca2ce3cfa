/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of the driver's virtual memory API: physical allocations, mapped to addresses that were reserved for them. It
 * is what can be shared by descriptors, between processes whose driver makes no legacy handles, and what expandable
 * segments of frameworks consist of: many allocations, one after another. */

#include "device/cuda/driver.h"

#include <stdio.h>
#include <string.h>

/* What was given out, so that freeing knows it. */
struct cuda_virtual {
    struct cuda_virtual *next;
    uint64_t pointer;
    struct cuda_pieces pieces;
};

/* ---- pieces ---- */

enum tutti_status cuda_pieces_add(struct cuda_pieces *pieces, uint64_t handle, size_t bytes)
{
    if (pieces->n == pieces->capacity) {
        const size_t capacity = pieces->capacity ? 2 * pieces->capacity : 8;
        struct cuda_piece *larger = tutti_alloc_array(capacity, sizeof *larger);
        if (!larger) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu allocations of a device", capacity);
        if (pieces->n) memcpy(larger, pieces->at, pieces->n * sizeof *larger);
        tutti_free(pieces->at);
        pieces->at = larger;
        pieces->capacity = capacity;
    }
    pieces->at[pieces->n++] = (struct cuda_piece){handle, bytes};
    return TUTTI_OK;
}

void cuda_pieces_release(struct tutti_device *gpu, struct cuda_pieces *pieces)
{
    struct cuda_aside aside;
    if (pieces->n == 0 || cuda_aside_enter(gpu, &aside) < 0) return;
    for (size_t i = 0; i < pieces->n; i++) {
        if (pieces->at[i].handle) cuda_calls(gpu)->virtual_release(pieces->at[i].handle);
        pieces->at[i].handle = 0;
    }
    cuda_aside_done(gpu, &aside, CUDA_RESULT_OK, "");
}

void cuda_pieces_free(struct tutti_device *gpu, struct cuda_pieces *pieces)
{
    cuda_pieces_release(gpu, pieces);
    tutti_free(pieces->at);
    *pieces = (struct cuda_pieces){0};
}

size_t cuda_pieces_bytes(const struct cuda_pieces *pieces)
{
    size_t bytes = 0;
    for (size_t i = 0; i < pieces->n; i++) bytes += pieces->at[i].bytes;
    return bytes;
}

/* The mapping that holds the address, retained. False: none does. */
static bool mapping_at(const struct cuda_driver *driver, uint64_t at, uint64_t *start, struct cuda_piece *out)
{
    *start = 0;
    *out = (struct cuda_piece){0};
    if (driver->virtual_retain(&out->handle, (void *)(uintptr_t)at) != CUDA_RESULT_OK) return false;
    if (driver->pointer_attribute(start, CUDA_POINTER_MAPPING_START, at) == CUDA_RESULT_OK &&
        driver->pointer_attribute(&out->bytes, CUDA_POINTER_MAPPING_SIZE, at) == CUDA_RESULT_OK && *start <= at &&
        at - *start < out->bytes)
        return true;
    driver->virtual_release(out->handle);
    return false;
}

static enum tutti_status pieces_collect(const struct cuda_driver *driver, uint64_t pointer, size_t bytes,
                                        struct cuda_pieces *out, uint64_t *start)
{
    const uint64_t end = pointer + (bytes ? bytes : 1);
    uint64_t begin;
    struct cuda_piece piece;
    for (uint64_t at = pointer; at < end; at = begin + piece.bytes) {
        if (!mapping_at(driver, at, &begin, &piece)) {
            if (out->n == 0) return TUTTI_OK;
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%p and its %zu bytes are not inside one allocation",
                              (void *)(uintptr_t)pointer, bytes);
        }
        const enum tutti_status status = cuda_pieces_add(out, piece.handle, piece.bytes);
        if (status < 0) {
            driver->virtual_release(piece.handle);
            return status;
        }
        if (at == pointer) *start = begin;
    }
    return TUTTI_OK;
}

enum tutti_status cuda_pieces_find(struct tutti_device *gpu, const void *pointer, size_t bytes, struct cuda_pieces *out,
                                   uint64_t *start)
{
    struct cuda_aside aside;
    *out = (struct cuda_pieces){0};
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const enum tutti_status status = pieces_collect(cuda_calls(gpu), (uint64_t)(uintptr_t)pointer, bytes, out, start);
    if (status < 0) cuda_pieces_free(gpu, out);
    cuda_aside_done(gpu, &aside, CUDA_RESULT_OK, "");
    return status;
}

/* ---- addresses ---- */

static int access_for(const struct cuda_driver *driver, int32_t ordinal, uint64_t pointer, size_t bytes)
{
    const struct cuda_access access = {{CUDA_LOCATION_DEVICE, ordinal}, CUDA_ACCESS_READWRITE};
    return driver->virtual_access(pointer, bytes, &access, 1);
}

/* The pieces to which the device has no access: some drivers refuse to give it again (CUDA_ERROR_ALREADY_MAPPED). */
static int access_for_missing(const struct cuda_driver *driver, int32_t ordinal, uint64_t pointer,
                              const struct cuda_pieces *pieces)
{
    const struct cuda_location device = {CUDA_LOCATION_DEVICE, ordinal};
    int result = CUDA_RESULT_OK;
    for (size_t i = 0; i < pieces->n && result == CUDA_RESULT_OK; pointer += pieces->at[i++].bytes) {
        unsigned long long has = 0;
        result = driver->virtual_access_get(&has, &device, pointer);
        if (result == CUDA_RESULT_OK && has != CUDA_ACCESS_READWRITE)
            result = access_for(driver, ordinal, pointer, pieces->at[i].bytes);
    }
    return result;
}

/* Each by itself: a call unmaps what one call has mapped. */
static void unmap(const struct cuda_driver *driver, uint64_t pointer, const struct cuda_pieces *pieces, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        driver->virtual_unmap(pointer, pieces->at[i].bytes);
        pointer += pieces->at[i].bytes;
    }
}

static int map(const struct tutti_device *gpu, const struct cuda_pieces *pieces, uint64_t *out, const char **call)
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    const size_t bytes = cuda_pieces_bytes(pieces);
    uint64_t base = 0;
    size_t n = 0;
    *call = "cuMemAddressReserve";
    int result = driver->address_reserve(&base, bytes, 0, 0, 0);
    if (result != CUDA_RESULT_OK) return result;
    *call = "cuMemMap";
    for (uint64_t at = base; n < pieces->n; at += pieces->at[n++].bytes) {
        result = driver->virtual_map(at, pieces->at[n].bytes, 0, pieces->at[n].handle, 0);
        if (result != CUDA_RESULT_OK) break;
    }
    if (result == CUDA_RESULT_OK) {
        *call = "cuMemSetAccess";
        result = access_for(driver, gpu->ordinal, base, bytes);
    }
    if (result == CUDA_RESULT_OK) {
        *out = base;
        return result;
    }
    unmap(driver, base, pieces, n);
    driver->address_free(base, bytes);
    return result;
}

enum tutti_status cuda_pieces_map(struct tutti_device *gpu, const struct cuda_pieces *pieces, uint64_t *out)
{
    struct cuda_aside aside;
    const char *call;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = map(gpu, pieces, out, &call);
    return cuda_aside_done(gpu, &aside, result, call);
}

void cuda_pieces_unmap(struct tutti_device *gpu, uint64_t pointer, const struct cuda_pieces *pieces)
{
    struct cuda_aside aside;
    if (cuda_aside_enter(gpu, &aside) < 0) return;
    unmap(cuda_calls(gpu), pointer, pieces, pieces->n);
    const int result = cuda_calls(gpu)->address_free(pointer, cuda_pieces_bytes(pieces));
    cuda_aside_done(gpu, &aside, result, "cuMemAddressFree");
}

/* Managed memory everybody reaches; that of pools (cudaMallocAsync) is opened to others by its owner alone. */
static enum tutti_status reach_other(const struct tutti_device *gpu, const void *pointer)
{
    unsigned managed = 0; /* 4 bytes or 1: see cuda_memory.c */
    const int result =
        cuda_calls(gpu)->pointer_attribute(&managed, CUDA_POINTER_IS_MANAGED, (uint64_t)(uintptr_t)pointer);
    if (result == CUDA_RESULT_OK && managed) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "CUDA device %d (%s) may not reach %p: it is memory of a pool",
                      gpu->ordinal, gpu->name, pointer);
}

enum tutti_status tutti_cuda_reach_memory(struct tutti_device *gpu, const void *pointer, size_t bytes)
{
    struct cuda_pieces pieces;
    struct cuda_aside aside;
    uint64_t start = 0;
    if (tutti_cuda_of(pointer) == gpu->ordinal) return TUTTI_OK;
    if (cuda_memory_is_legacy(cuda_calls(gpu), (uint64_t)(uintptr_t)pointer))
        return TUTTI_OK; /* all that reach the device reach it */
    TUTTI_TRY(cuda_pieces_find(gpu, pointer, bytes, &pieces, &start));
    if (pieces.n == 0) return reach_other(gpu, pointer);
    enum tutti_status status = cuda_aside_enter(gpu, &aside);
    if (status < 0) return status; /* forked: there is no driver that could release anything */
    cuda_lock();                   /* other ranks of the process may ask for the same */
    const int result = access_for_missing(cuda_calls(gpu), gpu->ordinal, start, &pieces);
    cuda_unlock();
    cuda_pieces_free(gpu, &pieces);
    return cuda_aside_done(gpu, &aside, result, "cuMemSetAccess");
}

/* ---- own allocations ---- */

static enum tutti_status refuse_without(const struct tutti_device *gpu)
{
    static const int needed[] = {CUDA_DEVICE_HAS_VIRTUAL_MEMORY, CUDA_DEVICE_HAS_DESCRIPTORS};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(needed); i++) {
        int has = 0;
        const int result = cuda_calls(gpu)->device_attribute(&has, needed[i], gpu->ordinal);
        if (result == CUDA_RESULT_OK && has) continue;
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "CUDA device %d (%s) has no memory that descriptors share",
                          gpu->ordinal, gpu->name);
    }
    return TUTTI_OK;
}

/* The peers, too: they reach such memory only where it says so. Those that can not, go without. */
static void access_for_peers(const struct tutti_device *gpu, uint64_t pointer, size_t bytes)
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    for (int32_t i = 0; i < (int32_t)driver->n_devices; i++)
        if (i != gpu->ordinal && tutti_cuda_reaches(i, gpu->ordinal)) access_for(driver, i, pointer, bytes);
}

static int virtual_make(const struct tutti_device *gpu, size_t bytes, struct cuda_pieces *pieces, uint64_t *pointer,
                        const char **call)
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    const struct cuda_allocation what = {.type = CUDA_ALLOCATION_PINNED,
                                         .handle_types = CUDA_HANDLE_DESCRIPTOR,
                                         .location = {CUDA_LOCATION_DEVICE, gpu->ordinal}};
    struct cuda_piece *piece = &pieces->at[0];
    size_t unit = 0;
    *call = "cuMemGetAllocationGranularity";
    int result = driver->virtual_granularity(&unit, &what, CUDA_GRANULARITY_RECOMMENDED);
    if (result != CUDA_RESULT_OK) return result;
    *call = "cuMemCreate";
    if (unit == 0 || bytes > SIZE_MAX - unit) return CUDA_RESULT_OUT_OF_MEMORY;
    piece->bytes = ((bytes ? bytes : 1) + unit - 1) / unit * unit;
    if ((result = driver->virtual_create(&piece->handle, piece->bytes, &what, 0)) != CUDA_RESULT_OK) return result;
    if ((result = map(gpu, pieces, pointer, call)) == CUDA_RESULT_OK) access_for_peers(gpu, *pointer, piece->bytes);
    driver->virtual_release(piece->handle); /* the mapping keeps it */
    piece->handle = 0;
    return result;
}

static void virtual_enter(struct cuda_gpu *gpu, struct cuda_virtual *made)
{
    cuda_lock();
    made->next = gpu->virtuals;
    gpu->virtuals = made;
    cuda_unlock();
}

enum tutti_status cuda_virtual_alloc(struct tutti_device *gpu, size_t bytes, void **out)
{
    struct cuda_aside aside;
    const char *call = "";
    char text[64];
    TUTTI_TRY(refuse_without(gpu));
    struct cuda_virtual *made = tutti_alloc(sizeof *made);
    enum tutti_status status = made ? cuda_pieces_add(&made->pieces, 0, 0)
                                    : tutti_fail(TUTTI_ERR_MEMORY, "no memory to note an allocation of a device");
    if (status >= 0) status = cuda_aside_enter(gpu, &aside);
    if (status >= 0) {
        const int result = virtual_make(gpu, bytes, &made->pieces, &made->pointer, &call);
        snprintf(text, sizeof text, "%s of %zu bytes", call, bytes);
        status = cuda_aside_done(gpu, &aside, result, text);
    }
    if (status < 0) {
        if (made) tutti_free(made->pieces.at);
        tutti_free(made);
        return status;
    }
    virtual_enter(cuda_gpu_of(gpu), made);
    *out = (void *)(uintptr_t)made->pointer;
    return TUTTI_OK;
}

static struct cuda_virtual *virtual_take(struct cuda_gpu *gpu, uint64_t pointer)
{
    cuda_lock();
    struct cuda_virtual **at = &gpu->virtuals;
    while (*at && (*at)->pointer != pointer) at = &(*at)->next;
    struct cuda_virtual *found = *at;
    if (found) *at = found->next;
    cuda_unlock();
    return found;
}

bool cuda_virtual_free(struct tutti_device *gpu, void *pointer)
{
    if (cuda_forked()) return false;
    struct cuda_virtual *found = virtual_take(cuda_gpu_of(gpu), (uint64_t)(uintptr_t)pointer);
    if (!found) return false;
    /* Unmapping does not always wait for the device, as cuMemFree does. */
    if (tutti_cuda_sync(gpu) == TUTTI_OK)
        cuda_pieces_unmap(gpu, found->pointer, &found->pieces);
    else
        tutti_log(TUTTI_LOG_WARN, "memory of a device stays taken, since the device can not be waited for: %s",
                  tutti_last_error()->text);
    cuda_pieces_free(gpu, &found->pieces);
    tutti_free(found);
    return true;
}
