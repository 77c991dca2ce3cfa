/* SPDX-License-Identifier: BSD-3-Clause */

/* The heap of a host: memory of each member that all others may map. */

#include "transport/host/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW_MIN_BYTES (UINT64_C(1) << 20)
#define WINDOW_SHARE 4 /* of the address space, where that is limited */

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

enum tutti_status tutti_heap_init(struct tutti_heap *heap, int fd, uint32_t n, uint32_t me, uint64_t region_bytes)
{
    *heap = (struct tutti_heap){.fd = fd, .n = n, .me = me, .region_bytes = region_bytes};
    int rc = pthread_mutex_init(&heap->lock, NULL);
    if (rc == 0) return TUTTI_OK;
    errno = rc;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no lock for the heap");
}

/* Address space for the region; where that is limited (ulimit -v, sanitizers) for a part of what is to be had: the
 * views of peers' regions, and all else, need theirs. */
static bool window_reserve(struct tutti_heap *heap)
{
    if (heap->window != 0) return true;
    for (uint64_t bytes = heap->region_bytes; bytes >= WINDOW_MIN_BYTES || bytes == heap->region_bytes; bytes /= 2) {
        void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        const uint64_t kept = bytes / WINDOW_SHARE;
        if (bytes < heap->region_bytes && kept >= WINDOW_MIN_BYTES && munmap((char *)p + kept, bytes - kept) == 0)
            bytes = kept;
        heap->window_bytes = bytes;
        atomic_store_explicit(&heap->window, (uintptr_t)p, memory_order_release);
        return true;
    }
    return false;
}

static char *window_at(struct tutti_heap *heap, uint64_t offset)
{
    return (char *)atomic_load_explicit(&heap->window, memory_order_relaxed) + offset;
}

static bool live_reserve(struct tutti_heap *heap)
{
    if (heap->n_live < heap->capacity) return true;
    size_t capacity = heap->capacity ? heap->capacity * 2 : 64;
    struct tutti_heap_block *live = tutti_alloc_array(capacity, sizeof(*live));
    if (!live) return false;
    if (heap->n_live > 0) memcpy(live, heap->live, heap->n_live * sizeof(*live));
    tutti_free(heap->live);
    heap->live = live;
    heap->capacity = capacity;
    return true;
}

/* First gap of `bytes`: its offset, and the index that a block there would have. False when there is none. */
static bool first_fit(const struct tutti_heap *heap, uint64_t bytes, uint64_t *offset, size_t *index)
{
    uint64_t at = 0;
    for (size_t i = 0; i < heap->n_live; i++) {
        if (heap->live[i].offset - at >= bytes) {
            *offset = at, *index = i;
            return true;
        }
        at = heap->live[i].offset + heap->live[i].bytes;
    }
    *offset = at, *index = heap->n_live;
    return heap->window_bytes - at >= bytes;
}

/* Index of the last block that starts at or before offset, n_live if none does. */
static size_t block_before(const struct tutti_heap *heap, uint64_t offset)
{
    size_t low = 0, high = heap->n_live;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (heap->live[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? low - 1 : heap->n_live;
}

/* Gives the block's memory back and closes its place. */
static void block_release(struct tutti_heap *heap, const struct tutti_heap_block *block)
{
    const uint64_t at = heap->me * heap->region_bytes + block->offset;
    char *address = window_at(heap, block->offset);
    if (fallocate(heap->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)block->bytes) != 0) {
        tutti_log(TUTTI_LOG_WARN, "%llu bytes of heap stay allocated: %s", (unsigned long long)block->bytes,
                  strerror(errno));
        memset(address, 0, block->bytes); /* the next owner expects zeros */
    }
    /* Replaced, not unmapped: the place stays reserved, and a late access faults here instead of hitting others. */
    if (mmap(address, block->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        tutti_log(TUTTI_LOG_WARN, "a freed block of the heap stays mapped: %s", strerror(errno));
}

static enum tutti_status alloc_locked(struct tutti_heap *heap, uint64_t bytes, void **out)
{
    uint64_t offset;
    size_t index;
    if (!window_reserve(heap)) return tutti_fail(TUTTI_ERR_MEMORY, "no address space for the heap (ulimit -v?)");
    if (!first_fit(heap, bytes, &offset, &index))
        return tutti_fail(TUTTI_ERR_MEMORY,
                          "the heap of %llu bytes has no room for %llu more in one piece (TUTTI_HEAP)",
                          (unsigned long long)heap->window_bytes, (unsigned long long)bytes);
    if (!live_reserve(heap)) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the heap's bookkeeping");
    void *p = mmap(window_at(heap, offset), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                   heap->fd, (off_t)(heap->me * heap->region_bytes + offset));
    if (p == MAP_FAILED)
        return tutti_fail_errno(TUTTI_ERR_MEMORY, "%llu bytes of heap can not be mapped", (unsigned long long)bytes);
    memmove(&heap->live[index + 1], &heap->live[index], (heap->n_live - index) * sizeof(*heap->live));
    heap->live[index] = (struct tutti_heap_block){offset, bytes};
    heap->n_live++;
    *out = p;
    return TUTTI_OK;
}

enum tutti_status tutti_heap_alloc(struct tutti_memory *m, size_t bytes, void **out)
{
    struct tutti_heap *heap = tutti_heap_of(m);
    const uint64_t page = page_bytes();
    if (bytes == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "an allocation of 0 bytes");
    if (bytes > heap->region_bytes)
        return tutti_fail(TUTTI_ERR_MEMORY, "%zu bytes are more than the whole heap of %llu (TUTTI_HEAP)", bytes,
                          (unsigned long long)heap->region_bytes);
    pthread_mutex_lock(&heap->lock);
    enum tutti_status status = alloc_locked(heap, (bytes + page - 1) / page * page, out);
    pthread_mutex_unlock(&heap->lock);
    return status;
}

enum tutti_status tutti_heap_free(struct tutti_memory *m, void *pointer)
{
    struct tutti_heap *heap = tutti_heap_of(m);
    if (!pointer) return TUTTI_OK;
    pthread_mutex_lock(&heap->lock);
    const uint64_t offset = (uint64_t)((uintptr_t)pointer - heap->window);
    size_t i = heap->window != 0 ? block_before(heap, offset) : heap->n_live;
    bool found = i < heap->n_live && heap->live[i].offset == offset;
    if (found) {
        block_release(heap, &heap->live[i]);
        heap->n_live--;
        memmove(&heap->live[i], &heap->live[i + 1], (heap->n_live - i) * sizeof(*heap->live));
    }
    pthread_mutex_unlock(&heap->lock);
    if (!found) return tutti_fail(TUTTI_ERR_ARGUMENT, "%p is not the start of memory of this heap", pointer);
    return TUTTI_OK;
}

bool tutti_heap_locate(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *offset)
{
    struct tutti_heap *heap = tutti_heap_of(m);
    /* The common answer, no, takes one load. */
    const uintptr_t window = atomic_load_explicit(&heap->window, memory_order_acquire);
    if (window == 0 || (uintptr_t)pointer - window >= heap->window_bytes) return false;
    const uint64_t at = (uint64_t)((uintptr_t)pointer - window);
    pthread_mutex_lock(&heap->lock);
    size_t i = block_before(heap, at);
    bool inside = i < heap->n_live && at - heap->live[i].offset < heap->live[i].bytes &&
                  bytes <= heap->live[i].bytes - (at - heap->live[i].offset);
    pthread_mutex_unlock(&heap->lock);
    if (inside) *offset = at;
    return inside;
}

void tutti_heap_fini(struct tutti_heap *heap)
{
    tutti_heap_unmap_views(heap);
    /* What is still allocated stays in the file: peers may be reading it, and the last of them to close frees it. */
    if (heap->window != 0) munmap((void *)heap->window, heap->window_bytes);
    tutti_free(heap->live);
    pthread_mutex_destroy(&heap->lock);
}

/* ---- views of peers' memory ---- */

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
