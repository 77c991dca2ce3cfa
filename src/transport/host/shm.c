/* SPDX-License-Identifier: BSD-3-Clause */
/* "shm": processes of one host, over a segment that was passed as file descriptors. Packets as in host.c; memory from
 * the heap can be read by all members in place. */

#include "transport/host/heap.h"
#include "transport/host/host.h"

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

static enum tutti_status shm_heap_alloc(struct tutti_transport *t, size_t bytes, void **out)
{
    return tutti_heap_alloc(&shm_of(t)->heap, bytes, out);
}

static enum tutti_status shm_heap_free(struct tutti_transport *t, void *pointer)
{
    return tutti_heap_free(&shm_of(t)->heap, pointer);
}

static bool shm_locate(struct tutti_transport *t, const void *pointer, size_t bytes, uint64_t *offset)
{
    return tutti_heap_locate(&shm_of(t)->heap, pointer, bytes, offset);
}

static void *shm_map(struct tutti_transport *t, uint32_t peer, uint64_t offset, size_t bytes)
{
    return tutti_heap_map(&shm_of(t)->heap, peer, offset, bytes);
}

static const struct tutti_transport_ops shm_ops = {
    TUTTI_HOST_OPS,       .close = shm_close, .heap_alloc = shm_heap_alloc, .heap_free = shm_heap_free,
    .locate = shm_locate, .map = shm_map,
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
    TUTTI_TRY_GOTO(status, tutti_host_init(&shm->host, "shm", &shm_ops, TUTTI_CAP_HEAP, segment, me), err_fini_heap);
    *out = &shm->host.base;
    return TUTTI_OK;

err_fini_heap:
    tutti_heap_fini(&shm->heap);
err_free:
    tutti_free(shm);
    return status;
}
