/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory between processes: what is exported says how it is to be had. By the driver's legacy IPC handles; else by
 * descriptors (cuda_descriptors.c). What is imported is mapped once a process and device, however often it is: the
 * driver counts, too, but says so only of some versions. */

#include "device/cuda/share.h"

#include <string.h>

/* ---- exporting ---- */

static enum tutti_status refuse_range(const void *pointer, size_t bytes)
{
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%p and its %zu bytes are not inside one allocation", pointer, bytes);
}

/* The one allocation that holds the range, as the driver sees it. */
static enum tutti_status block_of(const void *pointer, size_t bytes, struct tutti_cuda_block *out)
{
    TUTTI_TRY(tutti_cuda_block(pointer, out));
    const size_t offset = (size_t)((uintptr_t)pointer - (uintptr_t)out->base);
    if (offset > out->bytes || bytes > out->bytes - offset) return refuse_range(pointer, bytes);
    return TUTTI_OK;
}

enum tutti_status tutti_cuda_holds(struct tutti_device *gpu, const void *pointer, size_t bytes)
{
    struct tutti_cuda_block block;
    struct cuda_pieces pieces;
    uint64_t start;
    if (tutti_cuda_of(pointer) < 0) return refuse_range(pointer, bytes);
    TUTTI_TRY(cuda_pieces_find(gpu, pointer, bytes, &pieces, &start));
    const bool found = pieces.n > 0;
    cuda_pieces_free(gpu, &pieces);
    return found ? TUTTI_OK : block_of(pointer, bytes, &block);
}

static enum tutti_status export_legacy(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                       struct cuda_offer *out, uint64_t *start)
{
    struct tutti_cuda_block block;
    TUTTI_TRY(block_of(pointer, bytes, &block));
    *start = (uint64_t)(uintptr_t)block.base;
    out->kind = CUDA_OFFER_IPC;
    CUDA_RETURN_ASIDE(gpu, "cuIpcGetMemHandle", ipc_get, &out->by.ipc, *start);
}

static enum tutti_status export_virtual(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                        struct cuda_offer *out, uint64_t *start)
{
    struct cuda_pieces pieces;
    TUTTI_TRY(cuda_pieces_find(gpu, pointer, bytes, &pieces, start));
    out->kind = CUDA_OFFER_DESCRIPTORS;
    enum tutti_status status =
        pieces.n > 0 ? cuda_descriptors_may(gpu, &pieces)
                     : tutti_fail(TUTTI_ERR_UNSUPPORTED,
                                  "its allocation is this process's alone: it has no IPC handle and no descriptor");
    if (status >= 0) status = cuda_descriptors_offer(gpu, &pieces, &out->by.descriptors);
    cuda_pieces_free(gpu, &pieces);
    return status;
}

enum tutti_status tutti_cuda_export_memory(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                           unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], uint64_t *offset)
{
    struct cuda_offer offer = {.kind = 0};
    uint64_t start = 0;
    if (tutti_cuda_of(pointer) < 0) return refuse_range(pointer, bytes);
    const bool legacy = cuda_memory_is_legacy(cuda_calls(gpu), (uint64_t)(uintptr_t)pointer);
    TUTTI_TRY((legacy ? export_legacy : export_virtual)(gpu, pointer, bytes, &offer, &start));
    memset(handle, 0, TUTTI_DEVICE_HANDLE_BYTES);
    memcpy(handle, &offer, sizeof offer);
    *offset = (uint64_t)(uintptr_t)pointer - start;
    return TUTTI_OK;
}

void tutti_cuda_unexport_memory(const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES])
{
    struct cuda_offer offer;
    memcpy(&offer, handle, sizeof offer);
    if (offer.kind == CUDA_OFFER_DESCRIPTORS) cuda_descriptors_withdraw(&offer.by.descriptors);
}

/* ---- the table of what is imported; under the lock ---- */

static struct cuda_import *import_by_handle(struct cuda_gpu *gpu, const unsigned char *handle)
{
    for (size_t i = 0; i < gpu->n_imports; i++)
        if (memcmp(gpu->imports[i].handle, handle, TUTTI_DEVICE_HANDLE_BYTES) == 0) return &gpu->imports[i];
    return NULL;
}

static struct cuda_import *import_by_pointer(struct cuda_gpu *gpu, uint64_t pointer)
{
    for (size_t i = 0; i < gpu->n_imports; i++)
        if (gpu->imports[i].pointer == pointer) return &gpu->imports[i];
    return NULL;
}

/* So that what is mapped can be entered. */
static enum tutti_status imports_reserve(struct cuda_gpu *gpu)
{
    if (gpu->n_imports < gpu->import_capacity) return TUTTI_OK;
    const size_t capacity = gpu->import_capacity ? 2 * gpu->import_capacity : 16;
    struct cuda_import *larger = tutti_alloc_array(capacity, sizeof *larger);
    if (!larger) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu imported allocations", capacity);
    if (gpu->n_imports) memcpy(larger, gpu->imports, gpu->n_imports * sizeof *larger);
    tutti_free(gpu->imports);
    gpu->imports = larger;
    gpu->import_capacity = capacity;
    return TUTTI_OK;
}

static enum tutti_status import_legacy(struct tutti_device *gpu, const struct cuda_offer *offer,
                                       struct cuda_import *out)
{
    CUDA_RETURN_ASIDE(gpu, "cuIpcOpenMemHandle", ipc_open, &out->pointer, offer->by.ipc, CUDA_IPC_LAZY_PEER_ACCESS);
}

static enum tutti_status import_virtual(struct tutti_device *gpu, const struct cuda_offer *offer,
                                        struct cuda_import *out)
{
    TUTTI_TRY(cuda_descriptors_take(gpu, &offer->by.descriptors, &out->pieces));
    const enum tutti_status status = cuda_pieces_map(gpu, &out->pieces, &out->pointer);
    if (status < 0)
        cuda_pieces_free(gpu, &out->pieces);
    else
        cuda_pieces_release(gpu, &out->pieces); /* the mapping keeps them */
    return status;
}

static enum tutti_status import_map(struct cuda_gpu *gpu, const unsigned char *handle, struct cuda_import **out)
{
    struct cuda_import made = {.pointer = 0};
    struct cuda_offer offer;
    memcpy(made.handle, handle, sizeof made.handle);
    memcpy(&offer, handle, sizeof offer);
    if (offer.kind != CUDA_OFFER_IPC && offer.kind != CUDA_OFFER_DESCRIPTORS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "this is no handle of device memory");
    TUTTI_TRY(imports_reserve(gpu));
    TUTTI_TRY((offer.kind == CUDA_OFFER_IPC ? import_legacy : import_virtual)(&gpu->seen, &offer, &made));
    *out = &gpu->imports[gpu->n_imports++];
    **out = made;
    return TUTTI_OK;
}

enum tutti_status tutti_cuda_import_memory(struct tutti_device *gpu,
                                           const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], void **out)
{
    struct cuda_gpu *own = cuda_gpu_of(gpu);
    cuda_lock();
    struct cuda_import *import = import_by_handle(own, handle);
    const enum tutti_status status = import ? TUTTI_OK : import_map(own, handle, &import);
    if (status == TUTTI_OK) {
        import->n_uses++;
        *out = (void *)(uintptr_t)import->pointer;
    }
    cuda_unlock();
    return status;
}

static void import_unmap(struct cuda_gpu *gpu, struct cuda_import *import)
{
    struct cuda_aside aside;
    if (import->pieces.n > 0) {
        cuda_pieces_unmap(&gpu->seen, import->pointer, &import->pieces);
        cuda_pieces_free(&gpu->seen, &import->pieces);
    } else if (cuda_aside_enter(&gpu->seen, &aside) == TUTTI_OK) {
        cuda_aside_done(&gpu->seen, &aside, gpu->driver->ipc_close(import->pointer), "cuIpcCloseMemHandle");
    }
}

void tutti_cuda_unimport_memory(struct tutti_device *gpu, void *pointer)
{
    struct cuda_gpu *own = cuda_gpu_of(gpu);
    if (!pointer || cuda_forked()) return;
    cuda_lock();
    struct cuda_import *import = import_by_pointer(own, (uint64_t)(uintptr_t)pointer);
    if (import && --import->n_uses == 0) {
        import_unmap(own, import);
        *import = own->imports[--own->n_imports];
    }
    cuda_unlock();
}
