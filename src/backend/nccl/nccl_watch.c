/* SPDX-License-Identifier: BSD-3-Clause */

/* What the watch is told: what NCCL says of its communicator, how long the oldest call has had its turn, and how long a
 * caller has been within NCCL. The asking thread may be kept waiting in the driver until the looking one ends what is
 * in the way: all but a call whose turn came while it was kept waiting. */

#include "backend/nccl/nccl.h"

/* ---- what is known of calls ---- */

/* Whom a launch waits for: who has not made its part; else who has yet to make anything that this rank has made. */
static uint32_t absent(const struct watched *w, uint64_t launch)
{
    uint32_t behind = w->me == 0 && w->n > 1 ? 1 : 0;
    for (uint32_t q = 0; q < w->n; q++) {
        const struct watch_pair pair = watch_pair_of(w, q);
        if (q == w->me) continue;
        if (!watch_log_made(&pair, launch)) return q;
        if (watch_log_behind(&pair)) behind = q;
    }
    return behind;
}

/* The communicator takes all members to make: who left before that is missed, whatever was called. */
static enum tutti_life life(const struct watched *w, uint32_t peer, struct tutti_board *call)
{
    const struct watch_pair pair = watch_pair_of(w, peer);
    const enum tutti_life known = w->control->ops->life(w->control, w->members[peer]);
    const bool left = atomic_load(&pair.theirs->closed) && !atomic_load(&nccl_board(nccl_watching(w), peer)->made);
    if (known == TUTTI_LIFE_DEAD || !left) return watch_log_life(&pair, known, call);
    if (!watch_log_awaits(&pair, false, call)) (void)watch_log_last(pair.mine, call);
    return TUTTI_LIFE_LEFT;
}

/* ---- what is found ---- */

static bool find_error(struct nccl_backend *b, uint64_t now)
{
    int state = NCCL_OK, result = NCCL_OK;
    if (pthread_mutex_trylock(&b->lock) != 0) return false; /* a call is within, and will say */
    void *comm = __atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
    if (comm) result = b->library->comm_state(comm, &state);
    pthread_mutex_unlock(&b->lock);
    if (result == NCCL_OK && state == NCCL_OK) return false;
    if (!atomic_load(&b->error_ns)) atomic_store(&b->error_ns, now);
    if (now - atomic_load(&b->error_ns) < NCCL_ECHO_NS) return false;
    nccl_refused(b, result == NCCL_OK ? state : result, "NCCL");
    nccl_fail(b, "a call by nccl", 0);
    return true;
}

static void tell_late(struct nccl_backend *b, const struct nccl_mark *mark)
{
    const uint64_t launch = atomic_load(&mark->launch);
    watch_tell_late(&b->watched, launch, absent(&b->watched, launch), atomic_load(&mark->timeout_ns));
}

/* A call that does not come out of NCCL, where it waits for peers. */
static bool find_stuck(struct nccl_backend *b, uint64_t now)
{
    const struct nccl_mark *mark = &b->marks[atomic_load(&b->watched.n_enqueued) % NCCL_MARKS];
    const uint64_t since = atomic_load(&b->within_ns);
    if (!since || now < since || now - since < atomic_load(&mark->timeout_ns)) return false;
    tell_late(b, mark);
    return true;
}

/* A call that has had its turn for too long; whose turn it is, is read twice. */
static bool find_late(struct nccl_backend *b, uint64_t now)
{
    const uint64_t i = atomic_load(&b->watched.n_over), turn_ns = atomic_load(&b->turn_ns);
    const struct nccl_mark *mark = &b->marks[i % NCCL_MARKS];
    if (!turn_ns || now < turn_ns || now - turn_ns < atomic_load(&mark->timeout_ns)) return false;
    if (atomic_load(&b->watched.n_over) != i) return false;
    tell_late(b, mark);
    return true;
}

static bool look(struct watched *w, uint64_t now)
{
    struct nccl_backend *b = nccl_watching(w);
    return find_error(b, now) || find_stuck(b, now) || find_late(b, now);
}

/* A communicator that comes to be while it is stopped is stopped the next time. */
static bool stop(struct watched *w)
{
    nccl_stop_begin(nccl_watching(w));
    return !nccl_is_left(nccl_watching(w));
}

static bool waits(const struct watched *w)
{
    const struct nccl_backend *b = nccl_watching(w);
    return atomic_load(&b->within_ns) || atomic_load(&b->error_ns);
}

/* ---- what the driver says ---- */

static void mark_over(struct nccl_backend *b, const struct nccl_mark *mark)
{
    struct watch_log *log = &nccl_own(b)->log;
    const uint64_t seq = watch_launch_seq(atomic_load(&mark->launch));
    if (seq) atomic_store(&log->over, seq);
    if (!atomic_load(&b->watched.captured)) atomic_store(&log->items_over, atomic_load(&mark->items));
    atomic_store(&b->turn_ns, 0);
    atomic_fetch_add(&b->watched.n_over, 1);
}

/* Counts what is over; times what is not, from when its turn came. */
static void ask(struct watched *w)
{
    struct nccl_backend *b = nccl_watching(w);
    while (watch_is_in_flight(w)) {
        const struct nccl_mark *mark = &b->marks[atomic_load(&w->n_over) % NCCL_MARKS];
        const enum tutti_status status = b->gpu->ops->event_query(b->gpu, mark->over);
        if (atomic_load(&b->stopped) || tutti_team_failed(w->team)) return; /* and nothing is over that was not */
        if (status < 0) {
            nccl_fail(b, "a call by nccl", watch_launch_seq(atomic_load(&mark->launch)));
            return;
        }
        if (status == TUTTI_OK) {
            mark_over(b, mark);
            continue;
        }
        if (!atomic_load(&b->turn_ns) && b->gpu->ops->event_query(b->gpu, mark->begun) == TUTTI_OK)
            atomic_store(&b->turn_ns, tutti_now_ns());
        return;
    }
}

const struct watch_ops nccl_watch_ops = {.stop = stop, .look = look, .ask = ask, .waits = waits, .life = life};
