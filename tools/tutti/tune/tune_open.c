/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ranks of `tutti tune` measure with: communicators, memory that all map, memory of their own. */

#include "tune.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE ((size_t)2 << 20)
#define FAR_LEAST ((size_t)8 << 20)
#define FAR_MOST ((size_t)64 << 20)

/* Two buffers of all ranks are to be some times the cache; but at most a quarter of the memory that is free. */
static size_t far_bytes(uint32_t n, float cache_kib)
{
    size_t free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (size_t)cache_kib * 1024 * 2 / n, most = free_bytes / 4 / 2 / n;
    if (bytes < FAR_LEAST) bytes = FAR_LEAST;
    if (n == 2 || bytes > FAR_MOST) bytes = FAR_MOST; /* one rank alone is to be past the cache, too */
    if (bytes > most) bytes = most;
    return bytes / HUGE * HUGE + HUGE;
}

static unsigned char *buffer_open(size_t bytes, int filling)
{
    unsigned char *buffer = aligned_alloc(HUGE, bytes);
    if (!buffer) return NULL;
    (void)madvise(buffer, bytes, MADV_HUGEPAGE); /* where there are none, small ones are measured */
    memset(buffer, filling, bytes);
    return buffer;
}

static unsigned char *small_open(int filling)
{
    unsigned char *buffer = aligned_alloc(HUGE, TUNE_SMALL_BYTES);
    if (!buffer) return NULL;
    (void)madvise(buffer, TUNE_SMALL_BYTES, MADV_NOHUGEPAGE);
    memset(buffer, filling, TUNE_SMALL_BYTES);
    return buffer;
}

static enum tutti_status memory_open(struct tune *tune, float cache_kib)
{
    void *own = NULL;
    tune->far_bytes = far_bytes(tune->n, cache_kib);
    tune->a = buffer_open(tune->far_bytes, 1);
    tune->b = buffer_open(tune->far_bytes, 2);
    tune->sum = buffer_open(HUGE, 3);
    for (int i = 0; i < 2; i++) tune->small[i] = small_open(4 + i);
    tune->peers = calloc(tune->n, sizeof *tune->peers);
    tune->facts = calloc(tune->n, sizeof *tune->facts);
    if (!tune->a || !tune->b || !tune->sum || !tune->small[0] || !tune->small[1] || !tune->peers || !tune->facts)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to measure %zu MiB with", tune->far_bytes >> 20);
    TUTTI_TRY(tutti_mem_alloc(tune->comm, TUNE_SHARED_BYTES, &own));
    tune->own = own;
    memset(own, 0, TUNE_SHARED_BYTES);
    TUTTI_TRY(tutti_window_create(tune->comm, own, TUNE_SHARED_BYTES, NULL, &tune->window));
    for (uint32_t r = 0; r < tune->n; r++) {
        tune->peers[r] = tutti_window_peer(tune->window, (int32_t)r, NULL);
        if (!tune->peers[r]) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the memory of rank %u can not be mapped", r);
    }
    return TUTTI_OK;
}

static enum tutti_status facts_gather(struct tune *tune)
{
    const struct tune_fact own = {(uintptr_t)tune->a, (uintptr_t)tune->small[0], getpid(), sched_getcpu()};
    return tutti_all_gather(&own, tune->facts, sizeof own, TUTTI_UINT8, tune->comm, NULL, NULL);
}

enum tutti_status tune_open(struct tutti_comm *comm, float cache_kib, struct tune *out)
{
    struct tune tune = {.comm = comm};
    tune.rank = (uint32_t)tutti_comm_rank(comm);
    tune.n = (uint32_t)tutti_comm_size(comm);
    enum tutti_status status = memory_open(&tune, cache_kib);
    if (status >= 0) status = facts_gather(&tune);
    if (status >= 0) status = tutti_comm_split(comm, tune.rank < 2 ? 0 : TUTTI_UNDEFINED, 0, &tune.pair);
    if (status >= 0) status = tutti_comm_split(comm, (int32_t)tune.rank, 0, &tune.alone);
    *out = tune;
    if (status < 0) tune_close(out);
    return status;
}

bool tune_is_crowded(const struct tune *tune)
{
    for (uint32_t a = 0; a < tune->n; a++)
        for (uint32_t b = 0; b < a; b++)
            if (tune->facts[a].cpu == tune->facts[b].cpu) return true;
    return false;
}

void tune_close(struct tune *tune)
{
    tutti_window_destroy(tune->window);
    if (tune->own) (void)tutti_mem_free(tune->comm, tune->own);
    tutti_comm_destroy(tune->alone);
    tutti_comm_destroy(tune->pair);
    free(tune->a);
    free(tune->b);
    free(tune->sum);
    for (int i = 0; i < 2; i++) free(tune->small[i]);
    free(tune->peers);
    free(tune->facts);
}
