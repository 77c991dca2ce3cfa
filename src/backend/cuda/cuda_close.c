/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing. Peers' kernels may write to this rank's scratch after its own calls are over (tiles given back, counts), and
 * have it mapped: so it is given back when all of them have closed their side, or are gone. Until then it is retired,
 * together with the page on which they say so. What still runs on this device when its time is up is left alone, with
 * all that it may touch. */
#include "backend/nccl/nccl.h"
#include "backend/shared.h"

#define STOP_NS (2 * TUTTI_NS_PER_S) /* that kernels which are stopped may take to leave */
#define SWEEP_NS TUTTI_NS_PER_S      /* that peers may take, when the world closes */
#define NAP_NS (UINT64_C(100) * 1000)

/* ---- what outlives its instance ---- */

struct retired {
    struct retired *next;
    struct tutti_gpu *gpu;
    void *scratch; /* NULL: no peer has seen it, it is gone */
    struct cuda_log *log;
    bool addresses;
    struct tutti_transport *transport; /* NULL: closed, and control, too */
    struct tutti_control *lives;
    uint32_t members[CUDA_MAX_RANKS];
    uint32_t n, me;
};

static struct {
    pthread_mutex_t lock;
    struct retired *first;
    struct cuda_backend *abandoned; /* which may still run: reachable, for who looks for leaks */
} graveyard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void release(struct retired *r)
{
    if (r->scratch) tutti_gpu_free(r->gpu, r->scratch);
    tutti_shared_free(r->transport, r->addresses, r->log, sizeof(*r->log));
    tutti_gpu_close(r->gpu);
}

static bool is_over(const struct retired *r)
{
    for (uint32_t q = 0; q < r->n; q++) {
        if (q == r->me || atomic_load_explicit(&r->log->dropped[q], memory_order_acquire)) continue;
        if (!r->transport || !tutti_life_gone(r->lives->ops->life(r->lives, r->members[q]))) return false;
    }
    return true;
}

/* Whether something of this transport is left. */
static bool sweep_once(struct tutti_transport *transport)
{
    bool left = false;
    for (struct retired **at = &graveyard.first; *at;) {
        struct retired *r = *at;
        if (is_over(r)) {
            *at = r->next;
            release(r);
            tutti_free(r);
        } else {
            left |= r->transport == transport;
            at = &r->next;
        }
    }
    return left;
}

/* What lies in the transport's memory goes with it. Device memory that peers still map stays taken, with the context.
 */
static void forget(struct tutti_transport *transport)
{
    for (struct retired **at = &graveyard.first; *at;) {
        struct retired *r = *at;
        if (r->transport != transport || (r->addresses && r->scratch)) {
            r->transport = r->transport == transport ? NULL : r->transport;
            at = &r->next;
            continue;
        }
        if (r->scratch)
            tutti_log(TUTTI_LOG_INFO, "device memory of a closed communicator stays taken: peers have not closed it");
        else
            release(r);
        *at = r->next;
        tutti_free(r);
    }
}

void cuda_sweep(struct tutti_transport *transport, bool all)
{
    uint64_t until = tutti_deadline_ns(SWEEP_NS);
    pthread_mutex_lock(&graveyard.lock);
    bool left = sweep_once(transport);
    while (all && left && tutti_now_ns() < until) {
        pthread_mutex_unlock(&graveyard.lock);
        tutti_sleep_ns(NAP_NS);
        pthread_mutex_lock(&graveyard.lock);
        left = sweep_once(transport);
    }
    if (all) forget(transport);
    pthread_mutex_unlock(&graveyard.lock);
}

void tutti_device_sweep(struct tutti_transport *transport)
{
    cuda_sweep(transport, true);
    nccl_boards_sweep(transport, true);
}

/* Without memory for the note, all of it stays taken. */
static void retire(struct cuda_backend *b)
{
    struct retired *r = tutti_alloc(sizeof(*r));
    if (!r) return;
    *r = (struct retired){.gpu = b->gpu,
                          .scratch = b->scratch,
                          .log = b->logs[b->me],
                          .addresses = b->addresses,
                          .transport = b->transport,
                          .lives = b->lives,
                          .n = b->n,
                          .me = b->me};
    for (uint32_t q = 0; q < b->n; q++) r->members[q] = b->members[q];
    pthread_mutex_lock(&graveyard.lock);
    r->next = graveyard.first;
    graveyard.first = r;
    pthread_mutex_unlock(&graveyard.lock);
}

/* ---- stopping ---- */

void cuda_stop(struct tutti_device_backend *backend)
{
    uint32_t running = 0;
    struct cuda_control *control = ((struct cuda_backend *)backend)->control;
    (void)__atomic_compare_exchange_n(&control->stop, &running, CUDA_STOPPED, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST);
}

/* A device that failed as a whole runs nothing any more. */
static bool wait_over(struct cuda_backend *b, uint64_t until_ns)
{
    if (atomic_load(&b->n_enqueued) == 0) return true;
    for (;;) {
        if (tutti_gpu_event_query(b->gpu, b->event) != TUTTI_PENDING) return true;
        if (tutti_now_ns() >= until_ns) return false;
        tutti_sleep_ns(NAP_NS);
    }
}

/* Whether and where graphs are being replayed nobody knows but the device as a whole, which does not say while
 * something is captured (false). The watch stops them in time. */
static bool wait_replays(struct cuda_backend *b, uint64_t until_ns)
{
    if (!atomic_load(&b->captured)) return true;
    atomic_store(&b->stop_ns, until_ns ? until_ns : 1);
    return tutti_gpu_sync(b->gpu) >= 0;
}

/* ---- closing ---- */

void cuda_connected(struct tutti_device_backend *backend)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    tutti_gpu_unexport(b->offer);
    b->agreed = true;
}

static void free_streams(struct cuda_backend *b)
{
    tutti_gpu_stream_destroy(b->gpu, b->lanes[0]);
    tutti_gpu_stream_destroy(b->gpu, b->lanes[1]);
    tutti_gpu_event_destroy(b->gpu, b->joined);
    tutti_gpu_event_destroy(b->gpu, b->forked);
    tutti_gpu_event_destroy(b->gpu, b->event);
    if (b->control) tutti_gpu_free_host(b->gpu, b->control);
    if (b->programs.memory) tutti_gpu_free_host(b->gpu, b->programs.memory);
}

static void free_backend(struct cuda_backend *b)
{
    pthread_mutex_destroy(&b->lock);
    tutti_free(b);
}

void cuda_discard(struct cuda_backend *b)
{
    struct cuda_log *log = b->logs[b->me];
    tutti_gpu_unexport(b->offer);
    if (b->gpu) {
        free_streams(b);
        if (b->scratch) tutti_gpu_free(b->gpu, b->scratch);
        tutti_gpu_close(b->gpu);
    }
    if (log) tutti_shared_free(b->transport, b->addresses, log, sizeof(*log));
    free_backend(b);
}

static void leave_peers(struct cuda_backend *b)
{
    cuda_windows_close(b);
    for (uint32_t q = 0; q < b->n; q++) {
        if (b->imports[q]) tutti_gpu_unimport(b->gpu, b->imports[q]);
        if (q != b->me && b->logs[q]) atomic_store_explicit(&b->logs[q]->dropped[b->me], 1, memory_order_release);
    }
}

static void abandon(struct cuda_backend *b)
{
    pthread_mutex_lock(&graveyard.lock);
    b->next = graveyard.abandoned;
    graveyard.abandoned = b;
    pthread_mutex_unlock(&graveyard.lock);
}

void cuda_close(struct tutti_device_backend *backend, uint64_t deadline_ns)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    struct tutti_transport *transport = b->transport;
    if (b->agreed && !b->cards_seen) { /* as all members know, nobody connects */
        cuda_discard(b);
        return;
    }
    bool over = wait_over(b, deadline_ns);
    tutti_gpu_unexport(b->offer);
    if (!over) cuda_stop(backend);
    over = over || wait_over(b, tutti_deadline_ns(STOP_NS));
    over = over && wait_replays(b, deadline_ns);
    cuda_watch_remove(b);
    atomic_store(&b->logs[b->me]->closed, 1);
    if (!over) {
        tutti_log(TUTTI_LOG_WARN, "rank %u: calls on the device may not have ended; their memory stays taken", b->me);
        abandon(b);
        return;
    }
    leave_peers(b);
    free_streams(b);
    if (!b->cards_seen) { /* nor have peers mapped it; but one may know where the log is */
        tutti_gpu_free(b->gpu, b->scratch);
        b->scratch = NULL;
    }
    retire(b);
    free_backend(b);
    cuda_sweep(transport, false);
}
