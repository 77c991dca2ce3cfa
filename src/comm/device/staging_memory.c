/* SPDX-License-Identifier: BSD-3-Clause */
/* Pinned memory, which is slow to get, and to give back waits for the device. So pieces are kept until the communicator
 * goes, in sizes that serve many calls. */
#include "comm/device/staging.h"

#define LEAST_BYTES ((size_t)64 << 10)

/* Powers of two: what was too small at each growth is no more than the largest one. */
static size_t size_for(size_t bytes)
{
    size_t size = LEAST_BYTES;
    while (size < bytes && size <= SIZE_MAX / 4) size *= 2;
    return size < bytes ? bytes : size;
}

/* Takes the smallest idle one that is large enough; NULL if there is none. */
static struct tutti_pinned *take_idle(struct tutti_staging *staging, size_t bytes)
{
    struct tutti_pinned **best = NULL;

    for (struct tutti_pinned **at = &staging->idle; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes)) best = at;
    if (!best) return NULL;
    struct tutti_pinned *pinned = *best;
    *best = pinned->next;
    return pinned;
}

static enum tutti_status make(struct tutti_staging *staging, size_t bytes, struct tutti_pinned **out)
{
    struct tutti_pinned *pinned = tutti_alloc(sizeof(*pinned));
    void *at = NULL;

    if (!pinned) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for calls that go through the host");
    pinned->bytes = size_for(bytes);
    enum tutti_status status = staging->device->ops->alloc_host(staging->device, pinned->bytes, &at);
    if (status < 0) {
        tutti_free(pinned);
        return status;
    }
    pinned->at = at;
    *out = pinned;
    return TUTTI_OK;
}

enum tutti_status tutti_pinned_take(struct tutti_staging *staging, size_t bytes, struct tutti_pinned **out)
{
    pthread_mutex_lock(&staging->lock);
    struct tutti_pinned *pinned = take_idle(staging, bytes);
    pthread_mutex_unlock(&staging->lock);
    if (!pinned) TUTTI_TRY(make(staging, bytes, &pinned));
    pthread_mutex_lock(&staging->lock);
    staging->used_bytes += pinned->bytes;
    pthread_mutex_unlock(&staging->lock);
    *out = pinned;
    return TUTTI_OK;
}

void tutti_pinned_give(struct tutti_staging *staging, struct tutti_pinned *pinned)
{
    staging->used_bytes -= pinned->bytes;
    pinned->next = staging->idle;
    staging->idle = pinned;
}

void tutti_pinned_free_all(struct tutti_staging *staging)
{
    while (staging->idle) {
        struct tutti_pinned *pinned = staging->idle;
        staging->idle = pinned->next;
        staging->device->ops->free_host(staging->device, pinned->at);
        tutti_free(pinned);
    }
}
