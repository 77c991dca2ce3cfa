/* SPDX-License-Identifier: BSD-3-Clause */
/* The watch, which looks after the instances of all ranks of the process while something is enqueued. Calls are long
 * gone when their kernels run, so it is the watch that finds out what goes wrong (a kernel has run out of time, ranks
 * called different things, a peer is gone), fails the team with the sentence that engines have for it, and stops what
 * waits on the device. It touches no data.
 *
 * Two threads: one asks the driver which events are over, and for nothing else; the other one looks at memory of the
 * host alone. The driver may keep who asks waiting for what another thread has begun, such as giving back memory when
 * the device is idle: while a kernel waits for a peer that is dead, that ends when the looking thread stops it. */
#include "backend/cuda/cuda.h"

#define LOOK_NS (5 * TUTTI_NS_PER_MS)

static struct {
    pthread_mutex_t life;         /* of who starts and ends the threads */
    pthread_mutex_t asking, lock; /* of the list: changed with both; held while asking, while looking */
    struct cuda_backend *first;
    pthread_t threads[2];
    bool runs;
    _Atomic uint32_t wake; /* moves when there is something to look at, or to end for */
    _Atomic uint32_t n_asleep;
    _Atomic bool ends;
} watch = {.life = PTHREAD_MUTEX_INITIALIZER, .asking = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what it finds: the device is stopped before that is told, for who tells waits for the engine's owner, and that
 * one may be waiting in the driver ---- */

static void stop(struct cuda_backend *b)
{
    cuda_stop(&b->base);
    atomic_store(&b->told, true);
}

/* Whom a kernel waits for may have come and wait for another, as who relays; then it is who has not come. */
static uint32_t absent(const struct cuda_backend *b, uint32_t peer, uint64_t seq)
{
    for (uint32_t k = 0; k < b->n && seq > 0; k++) {
        uint32_t q = (peer + b->n - k) % b->n;
        struct tutti_board last;
        if (q != b->me && (!cuda_log_last(b->logs[q], &last) || last.seq < seq)) return q;
    }
    return peer;
}

static struct cuda_log_pair pair_of(const struct cuda_backend *b, uint32_t peer)
{
    return (struct cuda_log_pair){b->logs[b->me], b->logs[peer], b->me, peer};
}

static bool find_report(struct cuda_backend *b)
{
    const uint64_t report = __atomic_load_n(&b->control->report, __ATOMIC_RELAXED), launch = CUDA_REPORT_SEQ(report);
    struct tutti_board mine, theirs;
    if (report == 0) return false;
    uint32_t peer = CUDA_REPORT_PEER(report) < b->n ? CUDA_REPORT_PEER(report) : b->me;
    peer = absent(b, peer, cuda_launch_seq(launch));
    const struct cuda_log_pair pair = pair_of(b, peer);
    cuda_log_launched(&pair, launch, &mine);
    cuda_log_board(pair.theirs, &theirs);
    cuda_stop(&b->base);
    tutti_team_tell_timeout(b->team, &mine, cuda_log_timeout(pair.mine, launch, atomic_load(&b->timeout_ns)), peer,
                            &theirs);
    return true;
}

static bool find_mismatch(struct cuda_backend *b)
{
    for (uint32_t q = 0; q < b->n; q++) {
        const struct cuda_log_pair pair = pair_of(b, q);
        struct cuda_mismatch found;
        if (q == b->me || !cuda_log_mismatch(b->team, &pair, &found)) continue;
        cuda_stop(&b->base);
        cuda_log_tell(b->team, &pair, &found);
        return true;
    }
    return false;
}

static enum tutti_life life_of(const struct cuda_backend *b, uint32_t q, struct tutti_board *call)
{
    const struct cuda_log_pair pair = pair_of(b, q);
    return cuda_log_life(&pair, b->lives->ops->life(b->lives, b->members[q]), call);
}

static bool find_lost(struct cuda_backend *b, uint64_t now)
{
    for (uint32_t q = 0; q < b->n; q++) {
        struct tutti_board call;
        enum tutti_life life = q == b->me ? TUTTI_LIFE_ALIVE : life_of(b, q, &call);
        if (!cuda_log_gone(&b->gone_ns[q], life, now)) continue;
        cuda_stop(&b->base);
        tutti_team_tell_lost(b->team, &call, q, life);
        return true;
    }
    return false;
}

/* ---- looking ---- */

static bool is_in_flight(const struct cuda_backend *b)
{
    return atomic_load(&b->n_over) != atomic_load(&b->n_enqueued);
}

/* What is over; or the device itself has failed, whoever's fault that is. */
static void ask(struct cuda_backend *b)
{
    uint64_t n = atomic_load(&b->n_enqueued), seq = atomic_load(&b->last_seq), items = atomic_load(&b->last_items);
    if (atomic_load(&b->n_over) == n || atomic_load(&b->told)) return;
    enum tutti_status status = tutti_gpu_event_query(b->gpu, b->event);
    if (status < 0) cuda_give_up(b, "the device", seq);
    if (status != TUTTI_OK || __atomic_load_n(&b->control->stop, __ATOMIC_RELAXED)) return; /* or it was stopped */
    atomic_store(&b->n_over, n);
    atomic_store(&b->logs[b->me]->over, seq);
    if (!atomic_load(&b->captured)) atomic_store(&b->logs[b->me]->items_over, items);
}

static void look(struct cuda_backend *b, uint64_t now)
{
    struct tutti_error error;
    uint64_t stop_ns = atomic_load(&b->stop_ns);
    if (atomic_load(&b->told)) return;
    if (stop_ns && now >= stop_ns) {
        stop(b);
        return;
    }
    if (tutti_team_state(b->team, &error) < 0) {
        stop(b);
        return;
    }
    if (find_report(b)) {
        stop(b);
        return;
    }
    bool busy = is_in_flight(b) || atomic_load(&b->captured);
    if (busy && (find_mismatch(b) || find_lost(b, now))) stop(b);
}

void cuda_watch_now(struct cuda_backend *b)
{
    pthread_mutex_lock(&watch.lock);
    look(b, tutti_now_ns());
    pthread_mutex_unlock(&watch.lock);
}

/* ---- the threads ---- */

static bool is_busy(const struct cuda_backend *b)
{
    return !atomic_load(&b->told) && (is_in_flight(b) || atomic_load(&b->captured));
}

static bool look_at_all(void)
{
    bool busy = false;
    pthread_mutex_lock(&watch.lock);
    uint64_t now = tutti_now_ns();
    for (struct cuda_backend *b = watch.first; b; b = b->next) {
        look(b, now);
        busy |= is_busy(b);
    }
    pthread_mutex_unlock(&watch.lock);
    return busy;
}

static bool ask_of_all(void)
{
    bool busy = false;
    pthread_mutex_lock(&watch.asking);
    for (struct cuda_backend *b = watch.first; b; b = b->next) {
        ask(b);
        busy |= !atomic_load(&b->told) && is_in_flight(b);
    }
    pthread_mutex_unlock(&watch.asking);
    return busy;
}

static const struct duty {
    bool (*on_all)(void); /* whether there is more to come */
} duties[2] = {{ask_of_all}, {look_at_all}};

static void *run(void *arg)
{
    const struct duty *duty = arg;
    while (!atomic_load(&watch.ends)) {
        uint32_t before = atomic_load(&watch.wake);
        if (duty->on_all()) {
            tutti_sleep_ns(LOOK_NS);
            continue;
        }
        /* Who enqueues counts first, then looks whether somebody sleeps. */
        atomic_fetch_add(&watch.n_asleep, 1);
        if (!duty->on_all()) tutti_futex_wait(&watch.wake, before, TUTTI_NEVER);
        atomic_fetch_sub(&watch.n_asleep, 1);
    }
    return NULL;
}

static void wake(void)
{
    atomic_fetch_add(&watch.wake, 1);
    tutti_futex_wake(&watch.wake, TUTTI_ARRAY_LEN(duties));
}

void cuda_watch_wake(void)
{
    if (atomic_load(&watch.n_asleep) > 0) wake();
}

static void end(uint32_t n_threads)
{
    atomic_store(&watch.ends, true);
    wake();
    for (uint32_t i = 0; i < n_threads; i++) pthread_join(watch.threads[i], NULL);
    watch.runs = false;
}

static enum tutti_status start(void)
{
    if (watch.runs) return TUTTI_OK;
    atomic_store(&watch.ends, false);
    int e = 0;
    uint32_t n = 0;
    while (n < TUTTI_ARRAY_LEN(duties) && e == 0) {
        e = tutti_thread_start(&watch.threads[n], 0, run, (void *)(uintptr_t)&duties[n]);
        n += e == 0;
    }
    watch.runs = e == 0;
    if (e == 0) return TUTTI_OK;
    end(n);
    return tutti_fail(TUTTI_ERR_SYSTEM, "the watch of devices can not be started (error %d)", e);
}

enum tutti_status cuda_watch_add(struct cuda_backend *b)
{
    pthread_mutex_lock(&watch.life);
    enum tutti_status status = start();
    if (status >= 0) {
        pthread_mutex_lock(&watch.asking);
        pthread_mutex_lock(&watch.lock);
        b->next = watch.first;
        watch.first = b;
        b->watched = true;
        pthread_mutex_unlock(&watch.lock);
        pthread_mutex_unlock(&watch.asking);
    }
    pthread_mutex_unlock(&watch.life);
    return status;
}

void cuda_watch_remove(struct cuda_backend *b)
{
    if (!b->watched) return;
    pthread_mutex_lock(&watch.life);
    pthread_mutex_lock(&watch.asking);
    pthread_mutex_lock(&watch.lock);
    struct cuda_backend **at = &watch.first;
    while (*at != b) at = &(*at)->next;
    *at = b->next;
    bool last = !watch.first;
    pthread_mutex_unlock(&watch.lock);
    pthread_mutex_unlock(&watch.asking);
    b->watched = false;
    if (last) end(TUTTI_ARRAY_LEN(duties));
    pthread_mutex_unlock(&watch.life);
}
