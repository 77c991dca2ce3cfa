/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory between processes: what is exported says how it is to be had. By the driver's legacy IPC handles; else by
 * descriptors (cuda_descriptors.c). What is imported is mapped once: the driver counts, too, but says so only of some
 * versions. */

#include "device/cuda/cuda_descriptors.h"
#include "device/share.h"

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
    out->kind = CUDA_OFFER_IPC, out->block = (uint32_t)block.id;
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

static enum tutti_status export(struct tutti_device *gpu, const void *pointer, size_t bytes, struct cuda_offer *out,
                                uint64_t *start) {
    if (tutti_cuda_of(pointer) < 0) return refuse_range(pointer, bytes);
    const bool legacy = cuda_memory_is_legacy(cuda_calls(gpu), (uint64_t)(uintptr_t)pointer);
    return (legacy ? export_legacy : export_virtual)(gpu, pointer, bytes, out, start);
}

enum tutti_status tutti_cuda_export_memory(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                           unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], uint64_t *offset)
{
    struct cuda_offer offer = {.kind = 0};
    struct tutti_device_scope scope;
    uint64_t start = 0;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope)); /* any thread may ask, also one that has no context */
    const enum tutti_status status = export(gpu, pointer, bytes, &offer, &start);
    tutti_cuda_leave(&scope);
    if (status < 0) return status;
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

/* ---- importing ---- */

/* Some drivers map an address of a process once. */
static enum tutti_status map_legacy(struct tutti_device *gpu, const struct cuda_offer *offer, uint64_t *out)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->ipc_open(out, offer->by.ipc, CUDA_IPC_LAZY_PEER_ACCESS);
    const enum tutti_status status = cuda_aside_done(gpu, &aside, result, "cuIpcOpenMemHandle");
    if (result != CUDA_RESULT_ALREADY_MAPPED) return status;
    return tutti_fail(TUTTI_ERR_TIMEOUT, "what another process has freed at this address is still mapped");
}

static enum tutti_status map_virtual(struct tutti_device *gpu, const struct cuda_offer *offer,
                                     struct cuda_pieces *pieces, uint64_t *out)
{
    TUTTI_TRY(cuda_descriptors_take(gpu, &offer->by.descriptors, pieces));
    const enum tutti_status status = cuda_pieces_map(gpu, pieces, out);
    if (status < 0)
        cuda_pieces_free(gpu, pieces);
    else
        cuda_pieces_release(gpu, pieces); /* the mapping keeps them */
    return status;
}

/* The pieces of what came by descriptors are kept. */
static enum tutti_status map(struct tutti_device *gpu, const unsigned char *handle, void **out, void **kept)
{
    struct cuda_offer offer;
    uint64_t pointer = 0;
    memcpy(&offer, handle, sizeof offer);
    enum tutti_status status;
    if (offer.kind == CUDA_OFFER_IPC) {
        status = map_legacy(gpu, &offer, &pointer);
    } else {
        struct cuda_pieces *pieces = tutti_alloc(sizeof *pieces);
        if (!pieces) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an imported allocation");
        status = map_virtual(gpu, &offer, pieces, &pointer);
        if (status < 0)
            tutti_free(pieces);
        else
            *kept = pieces;
    }
    *out = (void *)(uintptr_t)pointer;
    return status;
}

static void unmap(struct tutti_device *gpu, void *pointer, void *kept)
{
    struct cuda_aside aside;
    if (kept) {
        cuda_pieces_unmap(gpu, (uint64_t)(uintptr_t)pointer, kept);
        cuda_pieces_free(gpu, kept);
        tutti_free(kept);
    } else if (cuda_aside_enter(gpu, &aside) == TUTTI_OK) {
        cuda_aside_done(gpu, &aside, cuda_calls(gpu)->ipc_close((uint64_t)(uintptr_t)pointer), "cuIpcCloseMemHandle");
    }
}
static const struct tutti_import_ops import_ops = {map, unmap};

enum tutti_status tutti_cuda_import_memory(struct tutti_device *gpu,
                                           const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], void **out)
{
    uint32_t kind;
    memcpy(&kind, handle, sizeof kind);
    if (kind != CUDA_OFFER_IPC && kind != CUDA_OFFER_DESCRIPTORS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "this is no handle of device memory");
    return tutti_import_add(gpu, &import_ops, handle, out);
}

void tutti_cuda_unimport_memory(struct tutti_device *gpu, void *pointer)
{
    if (pointer && !cuda_forked()) tutti_import_drop(gpu, &import_ops, pointer);
}

/* ---- ranges: what lies at an address, told from what may lie there later ---- */

/* The pieces that hold the bytes, which stay retained. */
static enum tutti_status open_virtual(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                      struct tutti_gpu_range *out)
{
    struct cuda_pieces pieces;
    uint64_t start = 0;
    TUTTI_TRY(cuda_pieces_find(gpu, pointer, bytes, &pieces, &start));
    enum tutti_status status =
        pieces.n > 0 ? cuda_descriptors_may(gpu, &pieces)
                     : tutti_fail(TUTTI_ERR_UNSUPPORTED, "%p is no memory that other processes can map", pointer);
    struct cuda_pieces *kept = status < 0 ? NULL : tutti_alloc(sizeof *kept);
    if (status >= 0 && !kept) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a range of a device");
    if (status < 0) {
        cuda_pieces_free(gpu, &pieces);
        return status;
    }
    *kept = pieces;
    *out = (struct tutti_gpu_range){.base = (char *)(uintptr_t)start, .bytes = cuda_pieces_bytes(kept), .kept = kept};
    return TUTTI_OK;
}

static enum tutti_status range_find(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                    struct tutti_gpu_range *out)
{
    struct tutti_cuda_block block;
    if (tutti_cuda_of(pointer) != gpu->ordinal)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%p is no memory of CUDA device %d", pointer, gpu->ordinal);
    if (!cuda_memory_is_legacy(cuda_calls(gpu), (uint64_t)(uintptr_t)pointer))
        return open_virtual(gpu, pointer, bytes, out);
    TUTTI_TRY(block_of(pointer, bytes, &block));
    if (block.id == 0) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the driver knows no identity of %p", pointer);
    *out = (struct tutti_gpu_range){.base = block.base, .bytes = block.bytes, .id = block.id};
    return TUTTI_OK;
}

enum tutti_status tutti_cuda_range_open(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                        struct tutti_gpu_range *out)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_cuda_enter(gpu, &scope));
    const enum tutti_status status = range_find(gpu, pointer, bytes, out);
    tutti_cuda_leave(&scope);
    return status;
}

static bool has_id(struct tutti_device *gpu, const struct tutti_gpu_range *range)
{
    struct tutti_device_scope scope;
    uint64_t id = 0;
    if (tutti_cuda_enter(gpu, &scope) < 0) return false;
    const bool known = tutti_cuda_block_id(gpu, range->base, &id) == TUTTI_OK;
    tutti_cuda_leave(&scope);
    return known && id == range->id;
}

bool tutti_cuda_range_is(struct tutti_device *gpu, const struct tutti_gpu_range *range)
{
    struct cuda_pieces now;
    uint64_t start = 0;
    const struct cuda_pieces *kept = range->kept;
    if (!kept) return has_id(gpu, range);
    if (cuda_pieces_find(gpu, range->base, range->bytes, &now, &start) < 0) return false;
    bool same = now.n == kept->n && start == (uint64_t)(uintptr_t)range->base;
    for (size_t i = 0; i < now.n && same; i++)
        same = now.at[i].handle == kept->at[i].handle && now.at[i].bytes == kept->at[i].bytes;
    cuda_pieces_free(gpu, &now);
    return same;
}

void tutti_cuda_range_close(struct tutti_device *gpu, struct tutti_gpu_range *range)
{
    if (range->kept) cuda_pieces_free(gpu, range->kept);
    tutti_free(range->kept);
    range->kept = NULL;
}
