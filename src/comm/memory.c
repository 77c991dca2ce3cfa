/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of memory that a family has given out: of a device, or from the transport's heap where other processes map it,
 * or plain pages where all ranks share an address space or there is but one. */
#include "comm/comm.h"

struct tutti_block {
    struct tutti_block *next;
    void *pointer;
    size_t bytes;
    bool heap;
    struct tutti_device *device; /* held; NULL: host memory */
};

/* Whole units of the device, so that an allocation begins on a page and is shared with nothing else. */
#define DEVICE_UNIT ((size_t)2 << 20)

static void give_device(const struct tutti_block *block)
{
    if (block->pointer) block->device->ops->free(block->device, block->pointer);
    block->device->ops->close(block->device);
}

static enum tutti_status take_device(const struct tutti_device *dev, enum tutti_device_share share,
                                     struct tutti_block *block)
{
    size_t bytes = (block->bytes + DEVICE_UNIT - 1) & ~(DEVICE_UNIT - 1); /* less than 2^63 before */
    TUTTI_TRY(dev->ops->open(dev->ordinal, &block->device));
    enum tutti_status status = block->device->ops->alloc_shared(block->device, share, bytes, &block->pointer);
    if (status >= 0) status = block->device->ops->set(block->device, block->pointer, 0, bytes);
    if (status >= 0) return TUTTI_OK;
    struct tutti_error why = *tutti_last_error();
    give_device(block);
    return tutti_fail_record(&why);
}

static enum tutti_status take_host(struct tutti_transport *transport, struct tutti_block *block)
{
    if (transport->memory) {
        block->heap = true;
        return transport->memory->ops->alloc(transport->memory, block->bytes, &block->pointer);
    }
    block->pointer = tutti_map_lazy(block->bytes);
    if (!block->pointer) return tutti_fail(TUTTI_ERR_MEMORY, "mem_alloc: out of memory for %zu bytes", block->bytes);
    return TUTTI_OK;
}

static enum tutti_status give(struct tutti_transport *transport, struct tutti_block *block)
{
    enum tutti_status status = TUTTI_OK;
    if (block->device)
        give_device(block);
    else if (block->heap)
        status = transport->memory->ops->free(transport->memory, block->pointer);
    else
        tutti_unmap(block->pointer, block->bytes);
    tutti_free(block);
    return status;
}

enum tutti_status tutti_block_take(struct tutti_family *family, const struct tutti_device *dev,
                                   enum tutti_device_share share, size_t bytes, void **out)
{
    struct tutti_block *block = tutti_alloc(sizeof(*block));
    if (!block) return tutti_fail(TUTTI_ERR_MEMORY, "mem_alloc: out of memory");
    block->bytes = bytes;
    enum tutti_status status = dev ? take_device(dev, share, block) : take_host(family->world.transport, block);
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

enum tutti_status tutti_block_give(struct tutti_family *family, const void *pointer)
{
    pthread_mutex_lock(&family->lock);
    struct tutti_block **at = &family->blocks;
    while (*at && (*at)->pointer != pointer) at = &(*at)->next;
    struct tutti_block *block = *at;
    if (block) *at = block->next;
    pthread_mutex_unlock(&family->lock);
    return block ? give(family->world.transport, block) : TUTTI_AGAIN;
}

bool tutti_block_holds(struct tutti_family *family, const void *pointer, size_t bytes)
{
    bool held = false;
    pthread_mutex_lock(&family->lock);
    for (const struct tutti_block *block = family->blocks; block && !held; block = block->next) {
        uintptr_t start = (uintptr_t)block->pointer, at = (uintptr_t)pointer;
        held = at >= start && at - start <= block->bytes && bytes <= block->bytes - (at - start);
    }
    pthread_mutex_unlock(&family->lock);
    return held;
}

void tutti_block_give_all(struct tutti_family *family)
{
    while (family->blocks) {
        struct tutti_block *block = family->blocks;
        family->blocks = block->next;
        give(family->world.transport, block);
    }
}
