/* SPDX-License-Identifier: BSD-3-Clause */
/* "shm": processes of one host, over a segment that was passed as file descriptors. Packets as in host.c; memory from
 * the heap can be read by all members in place. */

#include "transport/host/heap.h"
#include "transport/host/host.h"
#include "transport/open.h"

struct shm {
    struct tutti_host host;
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

static const struct tutti_transport_ops shm_ops = {
    TUTTI_HOST_OPS,
    .close = shm_close,
};
static const struct tutti_memory_ops shm_memory_ops = {
    .size = sizeof(struct tutti_memory_ops),
    .alloc = tutti_heap_alloc,
    .free = tutti_heap_free,
    .locate = tutti_heap_locate,
    .map = tutti_heap_map,
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
    shm->heap.memory.ops = &shm_memory_ops;
    shm->host.base.memory = &shm->heap.memory;
    *out = &shm->host.base;
    return TUTTI_OK;

err_fini_heap:
    tutti_heap_fini(&shm->heap);
err_free:
    tutti_free(shm);
    return status;
}
