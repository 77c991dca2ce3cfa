/* SPDX-License-Identifier: BSD-3-Clause */
/* What the watch is told: kernels that have run out of time say so in a word of the host, an event says that all eager
 * calls are over. */
#include "backend/gpu/gpu_backend.h"

static struct gpu_backend *backend_of(const struct watched *w)
{
    return (struct gpu_backend *)(uintptr_t)((const char *)w - offsetof(struct gpu_backend, watched));
}

static bool stop(struct watched *w)
{
    gpu_stop(backend_of(w));
    return true;
}

/* The awaited peer may itself be waiting, as a relay does. Follows the chain and names the first rank that has not
 * started. */
static uint32_t absent(const struct watched *w, uint32_t peer, uint64_t seq)
{
    for (uint32_t k = 0; k < w->n && seq > 0; k++) {
        const uint32_t q = (peer + w->n - k) % w->n;
        struct tutti_board last;
        if (q != w->me && (!watch_log_last(w->logs[q], &last) || last.seq < seq)) return q;
    }
    return peer;
}

/* A wait for a signal, or a barrier of a user's kernel. */
static void tell_signal(struct gpu_backend *b, uint32_t peer)
{
    const struct tutti_device_late *late = &b->control->late;
    struct tutti_reported_signal told = {.index = late->index,
                                         .compare = late->compare,
                                         .value = late->value,
                                         .seen = late->seen,
                                         .timeout_ns = late->timeout_ns,
                                         .from = peer < b->site.n ? (int32_t)peer : -1};
    gpu_stop(b);
    tutti_team_report_signal(b->watched.team, &told);
}

static bool find_report(struct gpu_backend *b)
{
    const uint64_t report = __atomic_load_n(&b->control->report, __ATOMIC_ACQUIRE), launch = GPU_REPORT_SEQ(report);
    if (report == 0) return false;
    if (launch & GPU_ONE_SIDED) {
        tell_signal(b, GPU_REPORT_PEER(report));
        return true;
    }
    uint32_t peer = GPU_REPORT_PEER(report) < b->site.n ? GPU_REPORT_PEER(report) : b->site.me;
    peer = absent(&b->watched, peer, watch_launch_seq(launch));
    watch_tell_late(&b->watched, launch, peer, watch_log_timeout(gpu_log(b), launch, atomic_load(&b->timeout_ns)));
    return true;
}

static bool look(struct watched *w, uint64_t now)
{
    struct gpu_backend *b = backend_of(w);
    const uint64_t stop_ns = atomic_load(&b->stop_ns);
    __atomic_store_n(&b->control->now_ns, now, __ATOMIC_RELAXED);
    return (stop_ns && now >= stop_ns) || find_report(b);
}

/* What is over, beside which ordinary memory is mapped; or the device itself has failed, whoever's fault that is. */
static void ask(struct watched *w)
{
    struct gpu_backend *b = backend_of(w);
    gpu_maps_tend(b);
    if (!watch_is_in_flight(w)) return;
    const uint64_t n = atomic_load(&w->n_enqueued), seq = atomic_load(&b->last_seq),
                   items = atomic_load(&b->last_items);
    enum tutti_status status = b->gpu->ops->event_query(b->gpu, b->event), tracks = status;
    if (status >= 0) tracks = gpu_tracks_ask(b);
    if (tracks < 0) gpu_give_up(b, "the device", seq);
    if (tracks < 0 || __atomic_load_n(&b->control->stop, __ATOMIC_RELAXED)) return; /* or it was stopped */
    if (status == TUTTI_OK && tracks == TUTTI_OK) atomic_store(&w->n_over, n);
    if (status != TUTTI_OK) return;
    atomic_store(&gpu_log(b)->over, seq);
    if (!atomic_load(&w->captured)) atomic_store(&gpu_log(b)->items_over, items);
}

/* One-sided calls are not in the log. */
static enum tutti_life life(const struct watched *w, uint32_t peer, struct tutti_board *call)
{
    struct gpu_backend *b = backend_of(w);
    const struct watch_pair pair = watch_pair_of(w, peer);
    const enum tutti_life known = w->control->ops->life(w->control, w->members[peer]),
                          told = watch_log_life(&pair, known, call);
    const bool died = told == TUTTI_LIFE_DEAD, here = !tutti_life_gone(known) && !atomic_load(&pair.theirs->closed);
    if (here || told == TUTTI_LIFE_LEFT || (died && watch_log_awaits(&pair, died, call))) return told;
    if (gpu_tracks_await(b, peer, died, call)) return died ? told : TUTTI_LIFE_LEFT;
    if (died && atomic_load(&b->one.by_kernels))
        *call = (struct tutti_board){.kind = TUTTI_REPORT_ONE_SIDED, .peer = -1, .root = -1};
    else if (died)
        (void)watch_log_last(pair.mine, call);
    return told;
}

const struct watch_ops gpu_watch_ops = {.stop = stop, .look = look, .ask = ask, .life = life};
