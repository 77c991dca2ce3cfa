/* SPDX-License-Identifier: BSD-3-Clause */
/* "self": members are threads of one process. Packets as in host.c; any memory can be read by all members in place, so
 * an offer's offset is the address itself. */

#include "transport/host/host.h"
#include "transport/open.h"

#include <pthread.h>
#include <unistd.h>

/* Memory from alloc: page-aligned and zeroed as everywhere, so its size is kept in the list, not before it. */
struct self_block {
    struct self_block *next;
    void *pointer;
    size_t bytes;
};

struct self {
    struct tutti_host host;
    struct tutti_memory memory;
    pthread_mutex_t lock;
    struct self_block *blocks;
};

static struct self *self_of(struct tutti_transport *t)
{
    return (struct self *)(void *)t;
}

static void self_close(struct tutti_transport *t)
{
    struct self *self = self_of(t);
    while (self->blocks) {
        struct self_block *block = self->blocks;
        self->blocks = block->next;
        tutti_unmap(block->pointer, block->bytes);
        tutti_free(block);
    }
    pthread_mutex_destroy(&self->lock);
    tutti_host_fini(&self->host);
    tutti_free(self);
}

static struct self *owner_of(struct tutti_memory *m)
{
    return (struct self *)(void *)((char *)m - offsetof(struct self, memory));
}

static enum tutti_status self_alloc(struct tutti_memory *m, size_t bytes, void **out)
{
    struct self *self = owner_of(m);
    if (bytes == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "an allocation of 0 bytes");
    struct self_block *block = tutti_alloc(sizeof(*block));
    if (!block) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the heap's bookkeeping");
    block->pointer = tutti_map_lazy(bytes);
    block->bytes = bytes;
    if (!block->pointer) {
        tutti_free(block);
        return tutti_fail(TUTTI_ERR_MEMORY, "%zu bytes of memory are not to be had", bytes);
    }
    pthread_mutex_lock(&self->lock);
    block->next = self->blocks;
    self->blocks = block;
    pthread_mutex_unlock(&self->lock);
    *out = block->pointer;
    return TUTTI_OK;
}

static enum tutti_status self_free(struct tutti_memory *m, void *pointer)
{
    struct self *self = owner_of(m);
    if (!pointer) return TUTTI_OK;
    pthread_mutex_lock(&self->lock);
    struct self_block **at = &self->blocks;
    while (*at && (*at)->pointer != pointer) at = &(*at)->next;
    struct self_block *block = *at;
    if (block) *at = block->next;
    pthread_mutex_unlock(&self->lock);
    if (!block) return tutti_fail(TUTTI_ERR_ARGUMENT, "%p is not the start of memory of this heap", pointer);
    tutti_unmap(block->pointer, block->bytes);
    tutti_free(block);
    return TUTTI_OK;
}

static bool self_locate(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *where)
{
    (void)m, (void)bytes;
    *where = (uint64_t)(uintptr_t)pointer;
    return true;
}

static void *self_map(struct tutti_memory *m, uint32_t peer, uint64_t where, size_t bytes)
{
    if (peer >= owner_of(m)->host.base.n || where == 0 || where + bytes < where || where + bytes > UINTPTR_MAX)
        return NULL;
    return (void *)(uintptr_t)where;
}

static const struct tutti_transport_ops self_ops = {
    TUTTI_HOST_OPS,
    .close = self_close,
};
static const struct tutti_memory_ops self_memory_ops = {
    .size = sizeof(struct tutti_memory_ops),
    .alloc = self_alloc,
    .free = self_free,
    .locate = self_locate,
    .map = self_map,
    .reaches = tutti_host_reaches,
};

enum tutti_status tutti_self_open(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out)
{
    if (segment->heap_fd >= 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "transport self needs a segment of plain memory: its offers are addresses");
    struct self *self = tutti_alloc(sizeof(*self));
    if (!self) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status;
    if (pthread_mutex_init(&self->lock, NULL) != 0) {
        status = tutti_fail(TUTTI_ERR_SYSTEM, "no lock for the heap");
        goto err_free;
    }
    TUTTI_TRY_GOTO(status, tutti_host_init(&self->host, "self", &self_ops, segment, me), err_destroy_lock);
    self->memory = (struct tutti_memory){.ops = &self_memory_ops, .addresses = true};
    self->host.base.memory = &self->memory;
    *out = &self->host.base;
    return TUTTI_OK;

err_destroy_lock:
    pthread_mutex_destroy(&self->lock);
err_free:
    tutti_free(self);
    return status;
}
