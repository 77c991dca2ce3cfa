/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing. Peers' kernels may write to this rank's scratch after its own calls are over (tiles given back, counts), and
 * have it mapped: so it is given back when all of them have closed their side, or are gone (watch_member_close). What
 * still runs on this device when its time is up is left alone, with all that it may touch. */
#include "backend/gpu/gpu_backend.h"

#include <inttypes.h>

#define STOP_NS (2 * TUTTI_NS_PER_S) /* that kernels which are stopped may take to leave */
#define NAP_NS (UINT64_C(100) * 1000)

/* A device that failed as a whole runs nothing any more. */
static bool wait_over(struct gpu_backend *b, uint64_t until_ns)
{
    if (atomic_load(&b->watched.n_enqueued) == 0) return true;
    for (;;) {
        if (b->gpu->ops->event_query(b->gpu, b->event) != TUTTI_PENDING && gpu_tracks_ask(b) != TUTTI_PENDING)
            return true;
        if (tutti_now_ns() >= until_ns) return false;
        tutti_sleep_ns(NAP_NS);
    }
}

/* Whether and where graphs are being replayed nobody knows but the device as a whole, which does not say while
 * something is captured (false). The watch stops them in time. */
static bool wait_replays(struct gpu_backend *b, uint64_t until_ns)
{
    if (!atomic_load(&b->watched.captured)) return true;
    atomic_store(&b->stop_ns, until_ns ? until_ns : 1);
    return b->gpu->ops->gpu->sync(b->gpu) >= 0;
}

/* ---- closing ---- */

void gpu_connected(struct tutti_backend *backend)
{
    struct gpu_backend *b = gpu_of(backend);
    b->gpu->ops->unexport_memory(b->offer);
    b->watched.agreed = true;
}

/* The scratch, and words of windows. */
static void release_memory(struct tutti_device *gpu, void *words)
{
    for (struct gpu_words *w = words, *next; w; w = next) {
        next = w->next;
        if (w->at) gpu->ops->free(gpu, w->at);
        tutti_free(w);
    }
    gpu->ops->close(gpu);
}

static void free_streams(struct gpu_backend *b)
{
    b->gpu->ops->stream_destroy(b->gpu, b->own_streams[0]);
    b->gpu->ops->stream_destroy(b->gpu, b->own_streams[1]);
    b->gpu->ops->event_destroy(b->gpu, b->joined);
    b->gpu->ops->event_destroy(b->gpu, b->forked);
    b->gpu->ops->event_destroy(b->gpu, b->event);
    if (b->control) b->gpu->ops->free_host(b->gpu, b->control);
}

/* There may be some of the device's things, or none. */
static void leave(struct gpu_backend *b)
{
    const struct watch_remains nothing = {0}, remains = {release_memory, b->gpu, b->words};
    if (b->gpu) b->gpu->ops->unexport_memory(b->offer);
    gpu_windows_close(b);
    gpu_maps_close(b);
    for (uint32_t q = 0; q < b->site.n; q++)
        if (b->imports[q]) b->gpu->ops->unimport_memory(b->gpu, b->imports[q]);
    if (b->gpu) gpu_tracks_close(b);
    if (b->gpu) free_streams(b);
    watch_member_close(&b->watched, b->gpu ? remains : nothing);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->one.lock);
    pthread_mutex_destroy(&b->maps.lock);
    tutti_free(b);
}

void gpu_discard(struct gpu_backend *b)
{
    b->watched.agreed = true;
    leave(b);
}

void gpu_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    struct gpu_backend *b = gpu_of(backend);
    bool over = wait_over(b, deadline_ns);
    b->gpu->ops->unexport_memory(b->offer);
    if (!over) gpu_stop(b);
    over = over || wait_over(b, tutti_deadline_ns(STOP_NS));
    over = over && wait_replays(b, deadline_ns);
    watch_remove(&b->watched);
    if (b->control->straight + b->control->by_tiles > 0)
        tutti_log(TUTTI_LOG_INFO,
                  "rank %u: of large calls in ordinary memory %" PRIu64 " went straight, %" PRIu64 " by tiles",
                  b->site.me, b->control->straight, b->control->by_tiles);
    atomic_store(&gpu_log(b)->closed, 1);
    if (over) {
        if (!b->watched.seen && b->scratch) { /* no peer has mapped it; but one may know where the log is */
            b->gpu->ops->free(b->gpu, b->scratch);
            b->scratch = b->words->at = NULL; /* there was no window yet */
        }
        leave(b);
        return;
    }
    tutti_log(TUTTI_LOG_WARN, "rank %u: calls on the device may not have ended; their memory stays taken", b->site.me);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->one.lock);
    pthread_mutex_destroy(&b->maps.lock);
    tutti_free(b);
}
