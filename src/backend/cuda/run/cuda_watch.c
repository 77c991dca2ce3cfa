/* SPDX-License-Identifier: BSD-3-Clause */
/* What the watch is told: kernels that have run out of time say so in a word of the host, an event says that all eager
 * calls are over. */
#include "backend/cuda/run/cuda_backend.h"

static struct cuda_backend *backend_of(const struct watched *w)
{
    return (struct cuda_backend *)(uintptr_t)((const char *)w - offsetof(struct cuda_backend, watched));
}

static bool stop(struct watched *w)
{
    cuda_stop(backend_of(w));
    return true;
}

/* Whom a kernel waits for may have come and wait for another, as who relays; then it is who has not come. */
static uint32_t absent(const struct watched *w, uint32_t peer, uint64_t seq)
{
    for (uint32_t k = 0; k < w->n && seq > 0; k++) {
        const uint32_t q = (peer + w->n - k) % w->n;
        struct tutti_board last;
        if (q != w->me && (!watch_log_last(w->logs[q], &last) || last.seq < seq)) return q;
    }
    return peer;
}

static bool find_report(struct cuda_backend *b)
{
    const uint64_t report = __atomic_load_n(&b->control->report, __ATOMIC_RELAXED), launch = CUDA_REPORT_SEQ(report);
    if (report == 0) return false;
    uint32_t peer = CUDA_REPORT_PEER(report) < b->site.n ? CUDA_REPORT_PEER(report) : b->site.me;
    peer = absent(&b->watched, peer, watch_launch_seq(launch));
    watch_tell_late(&b->watched, launch, peer, watch_log_timeout(cuda_log(b), launch, atomic_load(&b->timeout_ns)));
    return true;
}

static bool look(struct watched *w, uint64_t now)
{
    struct cuda_backend *b = backend_of(w);
    const uint64_t stop_ns = atomic_load(&b->stop_ns);
    return (stop_ns && now >= stop_ns) || find_report(b);
}

/* What is over; or the device itself has failed, whoever's fault that is. */
static void ask(struct watched *w)
{
    struct cuda_backend *b = backend_of(w);
    const uint64_t n = atomic_load(&w->n_enqueued), seq = atomic_load(&b->last_seq),
                   items = atomic_load(&b->last_items);
    const enum tutti_status status = tutti_gpu_event_query(b->gpu, b->event);
    if (status < 0) cuda_give_up(b, "the device", seq);
    if (status != TUTTI_OK || __atomic_load_n(&b->control->stop, __ATOMIC_RELAXED)) return; /* or it was stopped */
    atomic_store(&w->n_over, n);
    atomic_store(&cuda_log(b)->over, seq);
    if (!atomic_load(&w->captured)) atomic_store(&cuda_log(b)->items_over, items);
}

const struct watch_ops cuda_watch_ops = {.stop = stop, .look = look, .ask = ask};
