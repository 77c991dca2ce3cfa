/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for zero-copy: of the communicator's device, if it has one; else from the transport's heap where other
 * processes map it, plain pages where all ranks share an address space or there is but one. The family keeps the list
 * of what was given out. */
#include "comm/device/device.h"

#include <stdio.h>

struct tutti_mem_block {
    struct tutti_mem_block *next;
    void *pointer;
    size_t bytes;
    bool heap;
    struct tutti_gpu *gpu; /* held; NULL: host memory */
};

struct tutti_mem {
    void *pointer;
    size_t bytes;
};

/* Whole units of the device, so that an allocation begins on a page and is shared with nothing else. */
#define DEVICE_UNIT ((size_t)2 << 20)

static void block_give_back_device(const struct tutti_mem_block *block)
{
    if (block->pointer) tutti_gpu_free(block->gpu, block->pointer);
    tutti_gpu_close(block->gpu);
}

static enum tutti_status block_take_device(const struct tutti_gpu *gpu, enum tutti_gpu_share share,
                                           struct tutti_mem_block *block)
{
    size_t bytes = (block->bytes + DEVICE_UNIT - 1) & ~(DEVICE_UNIT - 1); /* less than 2^63 before */
    TUTTI_TRY(tutti_gpu_open(gpu->ordinal, &block->gpu));
    enum tutti_status status = tutti_gpu_alloc_shared(block->gpu, share, bytes, &block->pointer);
    if (status >= 0) status = tutti_gpu_set(block->gpu, block->pointer, 0, bytes);
    if (status >= 0) return TUTTI_OK;
    struct tutti_error why = *tutti_last_error();
    block_give_back_device(block);
    return tutti_fail_record(&why);
}

static enum tutti_status block_take(struct tutti_transport *transport, struct tutti_mem_block *block)
{
    if (transport->ops->heap_alloc) {
        block->heap = true;
        return transport->ops->heap_alloc(transport, block->bytes, &block->pointer);
    }
    block->pointer = tutti_map_lazy(block->bytes);
    if (!block->pointer) return tutti_fail(TUTTI_ERR_MEMORY, "mem_alloc: out of memory for %zu bytes", block->bytes);
    return TUTTI_OK;
}

static enum tutti_status block_give_back(struct tutti_transport *transport, struct tutti_mem_block *block)
{
    enum tutti_status status = TUTTI_OK;
    if (block->gpu)
        block_give_back_device(block);
    else if (block->heap)
        status = transport->ops->heap_free(transport, block->pointer);
    else
        tutti_unmap(block->pointer, block->bytes);
    tutti_free(block);
    return status;
}

static enum tutti_status mem_alloc(struct tutti_comm *comm, size_t bytes, void **out)
{
    struct tutti_family *family = comm->family;
    struct tutti_mem_block *block = tutti_alloc(sizeof(*block));
    if (!block) return tutti_fail(TUTTI_ERR_MEMORY, "mem_alloc on rank %d: out of memory", (int)comm->rank);
    block->bytes = bytes;
    const struct tutti_gpu *gpu = comm->device ? comm->device->gpu : NULL;
    enum tutti_status status = gpu ? block_take_device(gpu, tutti_device_share(&comm->context->config), block)
                                   : block_take(family->world.transport, block);
    if (status < 0) {
        tutti_free(block);
        return status;
    }
    pthread_mutex_lock(&family->lock);
    block->next = family->blocks;
    family->blocks = block;
    pthread_mutex_unlock(&family->lock);
    *out = block->pointer;
    return TUTTI_OK;
}

enum tutti_status tutti_mem_alloc(struct tutti_comm *comm, size_t bytes, void **out)
{
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_alloc: out is NULL");
    if (bytes == 0 || bytes > (size_t)PTRDIFF_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_alloc: bytes is %zu", bytes);
    TUTTI_TRY(tutti_comm_enter(comm, "mem_alloc"));
    enum tutti_status status = mem_alloc(comm, bytes, out);
    tutti_comm_leave(comm);
    return status;
}

/* Unlinks the block that begins at pointer, NULL if there is none. */
static struct tutti_mem_block *block_unlink(struct tutti_family *family, const void *pointer)
{
    pthread_mutex_lock(&family->lock);
    struct tutti_mem_block **at = &family->blocks;
    while (*at && (*at)->pointer != pointer) at = &(*at)->next;
    struct tutti_mem_block *block = *at;
    if (block) *at = block->next;
    pthread_mutex_unlock(&family->lock);
    return block;
}

enum tutti_status tutti_mem_free(struct tutti_comm *comm, void *pointer)
{
    if (!pointer) return TUTTI_OK;
    TUTTI_TRY(tutti_comm_enter(comm, "mem_free"));
    struct tutti_mem_block *block = block_unlink(comm->family, pointer);
    enum tutti_status status;
    if (block)
        status = block_give_back(comm->family->world.transport, block);
    else
        status = tutti_fail(TUTTI_ERR_ARGUMENT,
                            "mem_free on rank %d: the pointer is not from tutti_mem_alloc, or was freed before",
                            (int)comm->rank);
    tutti_comm_leave(comm);
    return status;
}

bool tutti_mem_holds(struct tutti_family *family, const void *pointer, size_t bytes)
{
    bool held = false;
    pthread_mutex_lock(&family->lock);
    for (const struct tutti_mem_block *block = family->blocks; block && !held; block = block->next) {
        uintptr_t start = (uintptr_t)block->pointer, at = (uintptr_t)pointer;
        held = at >= start && at - start <= block->bytes && bytes <= block->bytes - (at - start);
    }
    pthread_mutex_unlock(&family->lock);
    return held;
}

/* With the family: what the user did not free. */
void tutti_mem_drop_all(struct tutti_family *family)
{
    while (family->blocks) {
        struct tutti_mem_block *block = family->blocks;
        family->blocks = block->next;
        block_give_back(family->world.transport, block);
    }
}

enum tutti_status tutti_mem_register(struct tutti_comm *comm, void *pointer, size_t bytes, struct tutti_mem **out)
{
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_register: out is NULL");
    if (!pointer || !bytes)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_register: pointer is %s and bytes is %zu",
                          pointer ? "given" : "NULL", bytes);
    if ((uintptr_t)pointer > UINTPTR_MAX - bytes)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_register: %zu bytes reach past the end of the address space", bytes);
    TUTTI_TRY(tutti_comm_enter(comm, "mem_register"));
    tutti_comm_leave(comm);
    struct tutti_mem *mem = tutti_alloc(sizeof(*mem));
    if (!mem) return tutti_fail(TUTTI_ERR_MEMORY, "mem_register: out of memory");
    mem->pointer = pointer;
    mem->bytes = bytes;
    *out = mem;
    return TUTTI_OK;
}

void tutti_mem_deregister(struct tutti_mem *mem)
{
    tutti_free(mem);
}
