/* SPDX-License-Identifier: BSD-3-Clause */

/* The watch of an instance: a thread that looks every few milliseconds at what NCCL says of its communicator, how long
 * the oldest call has had its turn, whether ranks called different things and whether all peers live; it fails the team
 * with the sentence that engines have for it, and aborts what waits on the device. */

#include "backend/nccl.h"

#include <signal.h>

#define LOOK_NS (5 * TUTTI_NS_PER_MS)
#define IDLE_LOOK_NS (100 * TUTTI_NS_PER_MS) /* while nothing is enqueued */

/* ---- what is known of calls ---- */

static struct cuda_log_pair pair_of(const struct nccl_backend *b, uint32_t peer)
{
    return (struct cuda_log_pair){&b->boards[b->me]->log, &b->boards[peer]->log, b->me, peer};
}

/* Whether a peer has yet to make calls or messages that this rank has made. */
static bool is_behind(const struct nccl_backend *b, uint32_t peer)
{
    const struct cuda_log_pair pair = pair_of(b, peer);
    return cuda_log_behind(&pair);
}

enum tutti_life nccl_life(const struct nccl_backend *b, uint32_t peer, struct tutti_board *call)
{
    const struct cuda_log_pair pair = pair_of(b, peer);
    return cuda_log_life(&pair, b->transport->ops->life(b->transport, b->members[peer]), call);
}

/* ---- what it finds; true: the team has failed ---- */

static bool find_error(struct nccl_backend *b)
{
    int state = NCCL_OK, result = NCCL_OK;
    if (pthread_mutex_trylock(&b->lock) != 0) return false; /* a call is within, and will say */
    void *comm = __atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
    if (comm) result = b->library->comm_state(comm, &state);
    pthread_mutex_unlock(&b->lock);
    if (result == NCCL_OK && state == NCCL_OK) return false;
    nccl_refused(b, result == NCCL_OK ? state : result, "NCCL");
    nccl_give_up(b, "a call by nccl", 0);
    return true;
}

static void tell_late(struct nccl_backend *b, const struct nccl_mark *mark)
{
    struct tutti_board mine, theirs;
    uint32_t peer = b->me == 0 && b->n > 1 ? 1 : 0;
    for (uint32_t q = 0; q < b->n; q++)
        if (q != b->me && is_behind(b, q)) peer = q;
    const struct cuda_log_pair pair = pair_of(b, peer);
    cuda_log_launched(&pair, atomic_load(&mark->launch), &mine);
    cuda_log_board(pair.theirs, &theirs);
    tutti_team_tell_timeout(b->team, &mine, atomic_load(&mark->timeout_ns), peer, &theirs);
}

/* A call that does not come out of NCCL, where it waits for peers. */
static bool find_stuck(struct nccl_backend *b, uint64_t now)
{
    const struct nccl_mark *mark = &b->marks[atomic_load(&b->n_enqueued) % NCCL_MARKS];
    const uint64_t since = atomic_load(&b->within_ns);
    if (!since || now < since || now - since < atomic_load(&mark->timeout_ns)) return false;
    tell_late(b, mark);
    return true;
}

/* Counts what is over; times what is not, from when its turn came. */
static bool find_late(struct nccl_backend *b, uint64_t now)
{
    const uint64_t n = atomic_load(&b->n_enqueued);
    struct cuda_log *log = &b->boards[b->me]->log;
    for (uint64_t i = atomic_load(&b->n_over); i < n; atomic_store(&b->n_over, ++i), b->turn_ns = 0) {
        const struct nccl_mark *mark = &b->marks[i % NCCL_MARKS];
        const enum tutti_status status = tutti_gpu_event_query(b->gpu, mark->over);
        const uint64_t launch = atomic_load(&mark->launch), timeout_ns = atomic_load(&mark->timeout_ns);
        const uint64_t seq = cuda_launch_seq(launch);
        if (status == TUTTI_OK) {
            if (seq) atomic_store(&log->over, seq);
            if (!atomic_load(&b->captured)) atomic_store(&log->items_over, atomic_load(&mark->items));
            continue;
        }
        if (status < 0) return nccl_give_up(b, "a call by nccl", seq), true;
        if (!b->turn_ns && tutti_gpu_event_query(b->gpu, mark->begun) == TUTTI_OK) b->turn_ns = now;
        if (!b->turn_ns || now - b->turn_ns < timeout_ns) return false;
        tell_late(b, mark);
        return true;
    }
    return false;
}

static bool find_mismatch(struct nccl_backend *b)
{
    for (uint32_t q = 0; q < b->n; q++) {
        const struct cuda_log_pair pair = pair_of(b, q);
        if (q != b->me && cuda_log_mismatch(b->team, &pair)) return true;
    }
    return false;
}

static bool find_lost(struct nccl_backend *b, uint64_t now)
{
    for (uint32_t q = 0; q < b->n; q++) {
        struct tutti_board call;
        const enum tutti_life life = q == b->me ? TUTTI_LIFE_ALIVE : nccl_life(b, q, &call);
        if (!cuda_log_gone(&b->gone_ns[q], life, now)) continue;
        tutti_team_tell_lost(b->team, &call, q, life);
        return true;
    }
    return false;
}

/* ---- the thread ---- */

static bool is_busy(struct nccl_backend *b)
{
    return atomic_load(&b->n_over) < atomic_load(&b->n_enqueued) || atomic_load(&b->captured) ||
           atomic_load(&b->within_ns);
}

/* True: there is nothing left to look after. */
static bool look(struct nccl_backend *b, uint64_t now)
{
    if (tutti_team_state(b->team, NULL) < 0 || find_error(b) || find_stuck(b, now) || find_late(b, now)) return true;
    return is_busy(b) && (find_mismatch(b) || find_lost(b, now));
}

static void *run(void *arg)
{
    struct nccl_backend *b = arg;
    while (!atomic_load(&b->ends)) {
        if (look(b, tutti_now_ns())) {
            nccl_stop(&b->base);
            break;
        }
        tutti_futex_wait(&b->ends, 0, tutti_deadline_ns(is_busy(b) ? LOOK_NS : IDLE_LOOK_NS));
    }
    return NULL;
}

/* Signals are for the program's threads. */
enum tutti_status nccl_watch_start(struct nccl_backend *b)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&b->thread, NULL, run, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return tutti_fail(TUTTI_ERR_SYSTEM, "the thread that looks after NCCL can not be started");
    b->watched = true;
    return TUTTI_OK;
}

void nccl_watch_end(struct nccl_backend *b)
{
    if (!b->watched) return;
    atomic_store(&b->ends, 1);
    tutti_futex_wake(&b->ends, 1);
    pthread_join(b->thread, NULL);
    b->watched = false;
}
