/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers' heaps in this process. A region is a binary tree of aligned blocks, each half of the one above; a request is
 * served by the smallest block that contains it, mapped at its first use and kept until close. So there are at most
 * two thousand mappings a peer however the offers vary, an address never goes stale, and a look-up is one load. */

#include "transport/host/heap.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { LEAVES = 1024 };                     /* in a large region */
#define LEAF_MIN_BYTES (UINT64_C(64) << 20) /* address space is cheap, mappings are not */

/* Node i has the children 2i and 2i + 1; the root is 1. */
struct view_tree {
    _Atomic uintptr_t blocks[2 * LEAVES];
};

static uint32_t depth_of(const struct tutti_heap *heap)
{
    uint32_t depth = 0;
    while (UINT32_C(2) << depth <= LEAVES && heap->region_bytes >> (depth + 1) >= LEAF_MIN_BYTES) depth++;
    return depth;
}

/* The smallest block that contains [offset, offset + bytes): its node, and where it starts. */
static uint32_t node_of(const struct tutti_heap *heap, uint64_t offset, uint64_t bytes, uint64_t *start,
                        uint64_t *length)
{
    uint32_t depth = depth_of(heap);
    uint64_t size = heap->region_bytes >> depth;
    while (depth > 0 && offset / size != (offset + bytes - 1) / size) depth--, size *= 2;
    *start = offset / size * size;
    *length = size;
    return (UINT32_C(1) << depth) + (uint32_t)(offset / size);
}

static struct view_tree *trees_get(struct tutti_heap *heap)
{
    uintptr_t trees = atomic_load_explicit(&heap->views, memory_order_acquire);
    if (trees != 0) return (struct view_tree *)trees;
    void *fresh = tutti_map_lazy(heap->n * sizeof(struct view_tree));
    if (!fresh) return NULL;
    if (atomic_compare_exchange_strong_explicit(&heap->views, &trees, (uintptr_t)fresh, memory_order_acq_rel,
                                                memory_order_acquire))
        return fresh;
    tutti_unmap(fresh, heap->n * sizeof(struct view_tree)); /* another thread was faster */
    return (struct view_tree *)trees;
}

void *tutti_heap_map(struct tutti_memory *m, uint32_t peer, uint64_t offset, size_t bytes)
{
    struct tutti_heap *heap = tutti_heap_of(m);
    if (peer >= heap->n || bytes == 0 || bytes > heap->region_bytes || offset > heap->region_bytes - bytes) return NULL;
    struct view_tree *trees = trees_get(heap);
    if (!trees) return NULL;
    uint64_t start, length;
    _Atomic uintptr_t *block = &trees[peer].blocks[node_of(heap, offset, bytes, &start, &length)];
    uintptr_t at = atomic_load_explicit(block, memory_order_acquire);
    if (at == 0) {
        void *fresh = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, heap->fd,
                           (off_t)(peer * heap->region_bytes + start));
        if (fresh == MAP_FAILED) return NULL;
        if (atomic_compare_exchange_strong_explicit(block, &at, (uintptr_t)fresh, memory_order_acq_rel,
                                                    memory_order_acquire))
            at = (uintptr_t)fresh;
        else
            munmap(fresh, length);
    }
    return (char *)at + (offset - start);
}

void tutti_heap_unmap_views(struct tutti_heap *heap)
{
    struct view_tree *trees = (struct view_tree *)heap->views;
    if (!trees) return;
    const uint32_t n_nodes = UINT32_C(2) << depth_of(heap);
    for (uint32_t peer = 0; peer < heap->n; peer++) {
        for (uint32_t node = 1; node < n_nodes; node++) {
            uintptr_t at = trees[peer].blocks[node];
            uint32_t depth = 31 - (uint32_t)__builtin_clz(node);
            if (at != 0) munmap((void *)at, heap->region_bytes >> depth);
        }
    }
    tutti_unmap(trees, heap->n * sizeof(struct view_tree));
}
