/* SPDX-License-Identifier: BSD-3-Clause */
/* "shm": processes of one host, over a segment that was passed as file descriptors. Packets as in host.c; memory from
 * the heap can be read by all members in place. */

#include "transport/host/heap.h"
#include "transport/host/host.h"
#include "transport/open.h"

struct shm {
    struct tutti_host host;
    struct tutti_memory memory;
    struct tutti_heap heap;
};

static struct shm *shm_of(struct tutti_transport *t)
{
    return (struct shm *)(void *)t;
}

static void shm_close(struct tutti_transport *t)
{
    struct shm *shm = shm_of(t);
    tutti_heap_fini(&shm->heap); /* before the segment, whose descriptor it borrows */
    tutti_host_fini(&shm->host);
    tutti_free(shm);
}

static struct tutti_heap *heap_of(struct tutti_memory *m)
{
    return &((struct shm *)(void *)((char *)m - offsetof(struct shm, memory)))->heap;
}

static enum tutti_status shm_alloc(struct tutti_memory *m, size_t bytes, void **out)
{
    return tutti_heap_alloc(heap_of(m), bytes, out);
}

static enum tutti_status shm_free(struct tutti_memory *m, void *pointer)
{
    return tutti_heap_free(heap_of(m), pointer);
}

static bool shm_locate(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *where)
{
    return tutti_heap_locate(heap_of(m), pointer, bytes, where);
}

static void *shm_map(struct tutti_memory *m, uint32_t peer, uint64_t where, size_t bytes)
{
    return tutti_heap_map(heap_of(m), peer, where, bytes);
}

static const struct tutti_transport_ops shm_ops = {
    TUTTI_HOST_OPS,
    .close = shm_close,
};
static const struct tutti_memory_ops shm_memory_ops = {
    .size = sizeof(struct tutti_memory_ops),
    .alloc = shm_alloc,
    .free = shm_free,
    .locate = shm_locate,
    .map = shm_map,
    .reaches = tutti_host_reaches,
};

enum tutti_status tutti_shm_open(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out)
{
    if (segment->heap_fd < 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "transport shm needs a segment that can be shared between processes");
    struct shm *shm = tutti_alloc(sizeof(*shm));
    if (!shm) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, tutti_heap_init(&shm->heap, segment->heap_fd, segment->n, me, segment->heap_bytes),
                   err_free);
    TUTTI_TRY_GOTO(status, tutti_host_init(&shm->host, "shm", &shm_ops, segment, me), err_fini_heap);
    shm->memory = (struct tutti_memory){.ops = &shm_memory_ops};
    shm->host.base.memory = &shm->memory;
    *out = &shm->host.base;
    return TUTTI_OK;

err_fini_heap:
    tutti_heap_fini(&shm->heap);
err_free:
    tutti_free(shm);
    return status;
}
