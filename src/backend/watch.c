/* SPDX-License-Identifier: BSD-3-Clause */
/* The two threads of a rank. One looks at what calls on the device say of themselves; the other asks the driver, which
 * may keep it waiting. What they find is told to the team: a deadline, a lost peer, ranks that called something
 * else. */
#include "backend/watch.h"
#include "base/poller.h"

#define LOOK_NS (5 * TUTTI_NS_PER_MS)

/* ---- what it finds. Whoever tells a failure waits for the engine's owner, and the owner may be waiting in the driver;
 * so each of these stops the device first, then tells ---- */

enum tutti_life watch_life(const struct watched *w, uint32_t peer, struct tutti_board *call)
{
    const struct watch_pair pair = watch_pair_of(w, peer);
    if (w->ops->life) return w->ops->life(w, peer, call);
    return watch_log_life(&pair, w->control->ops->life(w->control, w->members[peer]), call);
}

void watch_tell_late(struct watched *w, uint64_t launch, uint32_t peer, uint64_t timeout_ns)
{
    const struct watch_pair pair = watch_pair_of(w, peer);
    struct tutti_board mine, theirs;
    watch_log_launched(&pair, launch, &mine);
    watch_log_board(pair.theirs, &theirs);
    w->ops->stop(w);
    tutti_team_report_timeout(w->team, &mine, timeout_ns, peer, &theirs);
}

static bool find_mismatch(struct watched *w)
{
    for (uint32_t q = 0; q < w->n; q++) {
        const struct watch_pair pair = watch_pair_of(w, q);
        struct watch_mismatch found;
        if (q == w->me || !watch_log_mismatch(w->team, &pair, &found)) continue;
        w->ops->stop(w);
        watch_log_tell(w->team, &pair, &found);
        return true;
    }
    return false;
}

static bool find_lost(struct watched *w, uint64_t now)
{
    for (uint32_t q = 0; q < w->n; q++) {
        struct tutti_board call;
        const enum tutti_life life = q == w->me ? TUTTI_LIFE_ALIVE : watch_life(w, q, &call);
        if (!watch_log_gone(&w->gone_ns[q], life, now)) continue;
        w->ops->stop(w);
        tutti_team_report_lost(w->team, &call, q, life);
        return true;
    }
    return false;
}

/* ---- one instance ---- */

static bool is_busy(const struct watched *w)
{
    if (atomic_load(&w->told)) return false;
    return watch_is_in_flight(w) || atomic_load(&w->captured) || (w->ops->waits && w->ops->waits(w));
}

static bool look(struct watched *w, uint64_t now)
{
    if (atomic_load(&w->told)) return false;
    const bool over = tutti_team_state(w->team, NULL) < 0 || w->ops->look(w, now) ||
                      (is_busy(w) && (find_mismatch(w) || find_lost(w, now)));
    if (over && w->ops->stop(w)) atomic_store(&w->told, true);
    return over ? !atomic_load(&w->told) : is_busy(w);
}

static bool ask(struct watched *w, uint64_t now)
{
    (void)now; /* the driver may take its time */
    if (atomic_load(&w->told) || !(watch_is_in_flight(w) || atomic_load(&w->tends))) return false;
    w->ops->ask(w);
    return !atomic_load(&w->told) && (watch_is_in_flight(w) || atomic_load(&w->tends));
}

bool watch_is_quiet(const struct watch *watch)
{
    bool quiet = true;
    for (const struct watched *w = watch->first; w; w = w->next) quiet = quiet && !watch_is_in_flight(w);
    return quiet;
}

void watch_now(struct watched *w)
{
    pthread_mutex_lock(&w->watch->lock);
    look(w, tutti_now_ns());
    pthread_mutex_unlock(&w->watch->lock);
}

/* ---- the threads ---- */

/* Whether there is more to come. */
static bool on_all(struct watch *watch, pthread_mutex_t *lock, bool (*act)(struct watched *w, uint64_t now))
{
    bool more = false;
    pthread_mutex_lock(lock);
    const uint64_t now = tutti_now_ns();
    for (struct watched *w = watch->first; w; w = w->next) more |= act(w, now);
    pthread_mutex_unlock(lock);
    return more;
}

static void run(struct watch *watch, pthread_mutex_t *lock, bool (*act)(struct watched *w, uint64_t now))
{
    while (!atomic_load(&watch->ends)) {
        const uint32_t before = atomic_load(&watch->wake);
        if (on_all(watch, lock, act)) {
            tutti_poller_wait_word(NULL, &watch->wake, before, tutti_deadline_ns(LOOK_NS));
            continue;
        }
        /* enqueue() increments the count before it checks for sleepers. */
        atomic_fetch_add(&watch->n_asleep, 1);
        if (!on_all(watch, lock, act)) tutti_poller_wait_word(NULL, &watch->wake, before, TUTTI_NEVER);
        atomic_fetch_sub(&watch->n_asleep, 1);
    }
}

static void *run_asking(void *arg)
{
    struct watch *watch = arg;
    run(watch, &watch->asking, ask);
    return NULL;
}

static void *run_looking(void *arg)
{
    struct watch *watch = arg;
    run(watch, &watch->lock, look);
    return NULL;
}

static void wake(struct watch *watch)
{
    atomic_fetch_add(&watch->wake, 1);
    tutti_futex_wake(&watch->wake, TUTTI_ARRAY_LEN(watch->threads));
}

void watch_wake(struct watched *w)
{
    if (atomic_load(&w->watch->n_asleep) > 0) wake(w->watch);
}

void watch_hurry(struct watched *w)
{
    wake(w->watch);
}

static void end(struct watch *watch, uint32_t n_threads)
{
    atomic_store(&watch->ends, true);
    wake(watch);
    for (uint32_t i = 0; i < n_threads; i++) pthread_join(watch->threads[i], NULL);
    watch->runs = false;
}

static enum tutti_status start(struct watch *watch)
{
    static void *(*const duties[])(void *) = {run_asking, run_looking};
    int e = 0;
    uint32_t n = 0;
    if (watch->runs) return TUTTI_OK;
    atomic_store(&watch->ends, false);
    while (n < TUTTI_ARRAY_LEN(duties) && e == 0) {
        e = tutti_thread_start(&watch->threads[n], 0, duties[n], watch);
        n += e == 0;
    }
    watch->runs = e == 0;
    if (e == 0) return TUTTI_OK;
    end(watch, n);
    return tutti_fail(TUTTI_ERR_SYSTEM, "the watch of devices can not be started (error %d)", e);
}

/* ---- the list ---- */

static void list_lock(struct watch *watch)
{
    pthread_mutex_lock(&watch->asking);
    pthread_mutex_lock(&watch->lock);
}

static void list_unlock(struct watch *watch)
{
    pthread_mutex_unlock(&watch->lock);
    pthread_mutex_unlock(&watch->asking);
}

enum tutti_status watch_add(struct watched *w)
{
    struct watch *watch = w->watch;
    pthread_mutex_lock(&watch->life);
    const enum tutti_status status = start(watch);
    if (status >= 0) {
        list_lock(watch);
        w->next = watch->first;
        watch->first = w;
        w->listed = true;
        list_unlock(watch);
    }
    pthread_mutex_unlock(&watch->life);
    return status;
}

void watch_remove(struct watched *w)
{
    struct watch *watch = w->watch;
    if (!w->listed) return;
    pthread_mutex_lock(&watch->life);
    list_lock(watch);
    struct watched **at = &watch->first;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    const bool last = !watch->first;
    list_unlock(watch);
    w->listed = false;
    if (last) end(watch, TUTTI_ARRAY_LEN(watch->threads));
    pthread_mutex_unlock(&watch->life);
}
