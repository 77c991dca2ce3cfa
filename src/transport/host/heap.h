/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_HOST_HEAP_H
#define TUTTI_TRANSPORT_HOST_HEAP_H

/* Memory that the members of one host can map: each has a region of one sparse memfd, out of which it alone allocates
 * whole pages. The bookkeeping is private to the process, so no peer can confuse it. Any thread may call. */

#include "transport/memory.h"

#include <pthread.h>

struct tutti_heap_block {
    uint64_t offset, bytes; /* in the own region; whole pages */
};

struct tutti_heap {
    struct tutti_memory memory; /* first; its ops are those below */
    int fd;                     /* borrowed */
    uint32_t n, me;
    uint64_t region_bytes; /* each member's; a power of two */

    pthread_mutex_t lock;
    _Atomic uintptr_t window;      /* where the own region is reserved here, 0 until the first allocation */
    uint64_t window_bytes;         /* less than region_bytes when the address space is limited */
    struct tutti_heap_block *live; /* sorted by offset, and so by address */
    size_t n_live, capacity;

    _Atomic uintptr_t views; /* views of peers' regions: see heap.c; 0 until the first map */
};

static inline struct tutti_heap *tutti_heap_of(struct tutti_memory *m)
{
    return (struct tutti_heap *)(void *)m;
}
enum tutti_status tutti_heap_init(struct tutti_heap *heap, int fd, uint32_t n, uint32_t me, uint64_t region_bytes);
/* Frees what is still allocated and unmaps everything. */
void tutti_heap_fini(struct tutti_heap *heap);
enum tutti_status tutti_heap_alloc(struct tutti_memory *heap, size_t bytes, void **out);
enum tutti_status tutti_heap_free(struct tutti_memory *heap, void *pointer);
bool tutti_heap_locate(struct tutti_memory *heap, const void *pointer, size_t bytes, uint64_t *offset);
/* views of peers */
void *tutti_heap_map(struct tutti_memory *heap, uint32_t peer, uint64_t offset, size_t bytes);
void tutti_heap_unmap_views(struct tutti_heap *heap);

#endif
