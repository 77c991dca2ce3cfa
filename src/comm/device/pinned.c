/* SPDX-License-Identifier: BSD-3-Clause */
/* Pinned memory for copies: see pinned.h. */
#include "comm/device/pinned.h"

#define LEAST_BYTES ((size_t)64 << 10)

/* Powers of two: what was too small at each growth is no more than the largest one. */
static size_t size_for(size_t bytes)
{
    size_t size = LEAST_BYTES;
    while (size < bytes && size <= SIZE_MAX / 4) size *= 2;
    return size < bytes ? bytes : size;
}

/* Takes the smallest idle one that is large enough; NULL if there is none. */
static struct tutti_pinned *take_idle(struct tutti_pinned_pool *pool, size_t bytes)
{
    struct tutti_pinned **best = NULL;

    for (struct tutti_pinned **at = &pool->idle; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes)) best = at;
    if (!best) return NULL;
    struct tutti_pinned *pinned = *best;
    *best = pinned->next;
    return pinned;
}

static enum tutti_status make(struct tutti_pinned_pool *pool, size_t bytes, struct tutti_pinned **out)
{
    struct tutti_pinned *pinned = tutti_alloc(sizeof(*pinned));
    void *at = NULL;

    if (!pinned) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for calls that go through the host");
    pinned->bytes = size_for(bytes);
    enum tutti_status status = pool->device->ops->alloc_host(pool->device, pinned->bytes, &at);
    if (status < 0) {
        tutti_free(pinned);
        return status;
    }
    pinned->at = at;
    *out = pinned;
    return TUTTI_OK;
}

enum tutti_status tutti_pinned_take(struct tutti_pinned_pool *pool, size_t bytes, struct tutti_pinned **out)
{
    pthread_mutex_lock(&pool->lock);
    struct tutti_pinned *pinned = take_idle(pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    if (!pinned) TUTTI_TRY(make(pool, bytes, &pinned));
    pthread_mutex_lock(&pool->lock);
    pool->used_bytes += pinned->bytes;
    pthread_mutex_unlock(&pool->lock);
    *out = pinned;
    return TUTTI_OK;
}

void tutti_pinned_give(struct tutti_pinned_pool *pool, struct tutti_pinned *pinned)
{
    if (!pinned) return;
    pthread_mutex_lock(&pool->lock);
    pool->used_bytes -= pinned->bytes;
    pinned->next = pool->idle;
    pool->idle = pinned;
    pthread_mutex_unlock(&pool->lock);
}

enum tutti_status tutti_pinned_reserve(struct tutti_pinned_pool *pool, uint32_t n, size_t bytes)
{
    struct tutti_pinned *all = NULL;
    enum tutti_status status = TUTTI_OK;

    while (n > 0 && status >= 0) { /* taken, so that the next one is another */
        struct tutti_pinned *one;
        status = tutti_pinned_take(pool, bytes, &one);
        if (status < 0) break;
        one->next = all, all = one, n--;
    }
    while (all) {
        struct tutti_pinned *next = all->next;
        tutti_pinned_give(pool, all);
        all = next;
    }
    return status;
}

size_t tutti_pinned_used(struct tutti_pinned_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const size_t bytes = pool->used_bytes;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

/* ---- life ---- */

enum tutti_status tutti_pinned_create(const struct tutti_device *device, struct tutti_pinned_pool **out)
{
    struct tutti_pinned_pool *pool = tutti_alloc(sizeof(*pool));
    if (!pool) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for calls that go through the host");
    if (device->ops->open(device->ordinal, &pool->device) < 0) {
        tutti_free(pool);
        return tutti_last_error()->status;
    }
    atomic_init(&pool->refs, 1);
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return TUTTI_OK;
}

struct tutti_pinned_pool *tutti_pinned_hold(struct tutti_pinned_pool *pool)
{
    atomic_fetch_add(&pool->refs, 1);
    return pool;
}

void tutti_pinned_drop(struct tutti_pinned_pool *pool)
{
    if (!pool || atomic_fetch_sub(&pool->refs, 1) != 1) return;
    while (pool->idle) {
        struct tutti_pinned *pinned = pool->idle;
        pool->idle = pinned->next;
        pool->device->ops->free_host(pool->device, pinned->at);
        tutti_free(pinned);
    }
    pool->device->ops->close(pool->device);
    pthread_mutex_destroy(&pool->lock);
    tutti_free(pool);
}
