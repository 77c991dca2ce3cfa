/* SPDX-License-Identifier: BSD-3-Clause */

/* The watch of an instance looks every few milliseconds at what NCCL says of its communicator, how long the oldest call
 * has had its turn, whether ranks called different things and whether all peers live; it fails the team with the
 * sentence that engines have for it, and aborts what waits on the device. As cuda's it is two threads, of which one
 * asks the driver what is over, and may be kept waiting there until the other one, which looks at memory of the host
 * alone, ends what is in the way: all but a call whose turn came while it was kept waiting. */

#include "backend/nccl/nccl.h"

#define LOOK_NS (5 * TUTTI_NS_PER_MS)
#define IDLE_LOOK_NS (100 * TUTTI_NS_PER_MS) /* while nothing is enqueued */

/* ---- what is known of calls ---- */

struct cuda_log_pair nccl_pair(const struct nccl_backend *b, uint32_t peer)
{
    return (struct cuda_log_pair){&b->boards[b->me]->log, &b->boards[peer]->log, b->me, peer};
}

/* Whom a launch waits for: who has not made its part; else who has yet to make anything that this rank has made. */
static uint32_t absent(const struct nccl_backend *b, uint64_t launch)
{
    uint32_t behind = b->me == 0 && b->n > 1 ? 1 : 0;
    for (uint32_t q = 0; q < b->n; q++) {
        const struct cuda_log_pair pair = nccl_pair(b, q);
        if (q == b->me) continue;
        if (!cuda_log_made(&pair, launch)) return q;
        if (cuda_log_behind(&pair)) behind = q;
    }
    return behind;
}

/* The communicator takes all members to make: who left before that is missed, whatever was called. */
enum tutti_life nccl_life(const struct nccl_backend *b, uint32_t peer, struct tutti_board *call)
{
    const struct cuda_log_pair pair = nccl_pair(b, peer);
    const struct nccl_board *board = b->boards[peer];
    const enum tutti_life life = b->control->ops->life(b->control, b->members[peer]);
    const bool left = atomic_load(&board->log.closed) && !atomic_load(&board->made);
    if (life == TUTTI_LIFE_DEAD || !left) return cuda_log_life(&pair, life, call);
    if (!cuda_log_awaits(&pair, false, call)) (void)cuda_log_last(pair.mine, call);
    return TUTTI_LIFE_LEFT;
}

/* ---- what it finds; true: the team has failed. As in cuda's the device is stopped before that is told ---- */

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
    nccl_give_up(b, "a call by nccl", 0);
    return true;
}

static void tell_late(struct nccl_backend *b, const struct nccl_mark *mark)
{
    struct tutti_board mine, theirs;
    const uint32_t peer = absent(b, atomic_load(&mark->launch));
    const struct cuda_log_pair pair = nccl_pair(b, peer);
    cuda_log_launched(&pair, atomic_load(&mark->launch), &mine);
    cuda_log_board(pair.theirs, &theirs);
    nccl_stop_begin(b);
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

/* A call that has had its turn for too long; whose turn it is, is read twice. */
static bool find_late(struct nccl_backend *b, uint64_t now)
{
    const uint64_t i = atomic_load(&b->n_over), turn_ns = atomic_load(&b->turn_ns);
    const struct nccl_mark *mark = &b->marks[i % NCCL_MARKS];
    if (!turn_ns || now < turn_ns || now - turn_ns < atomic_load(&mark->timeout_ns)) return false;
    if (atomic_load(&b->n_over) != i) return false;
    tell_late(b, mark);
    return true;
}

static bool find_mismatch(struct nccl_backend *b)
{
    for (uint32_t q = 0; q < b->n; q++) {
        const struct cuda_log_pair pair = nccl_pair(b, q);
        struct cuda_mismatch found;
        if (q == b->me || !cuda_log_mismatch(b->team, &pair, &found)) continue;
        nccl_stop_begin(b);
        cuda_log_tell(b->team, &pair, &found);
        return true;
    }
    return false;
}

static bool find_lost(struct nccl_backend *b, uint64_t now)
{
    for (uint32_t q = 0; q < b->n; q++) {
        struct tutti_board call;
        const enum tutti_life life = q == b->me ? TUTTI_LIFE_ALIVE : nccl_life(b, q, &call);
        if (!cuda_log_gone(&b->gone_ns[q], life, now)) continue;
        nccl_stop_begin(b);
        tutti_team_tell_lost(b->team, &call, q, life);
        return true;
    }
    return false;
}

/* ---- what the driver says ---- */

static void mark_over(struct nccl_backend *b, const struct nccl_mark *mark)
{
    struct cuda_log *log = &b->boards[b->me]->log;
    const uint64_t seq = cuda_launch_seq(atomic_load(&mark->launch));
    if (seq) atomic_store(&log->over, seq);
    if (!atomic_load(&b->captured)) atomic_store(&log->items_over, atomic_load(&mark->items));
    atomic_store(&b->turn_ns, 0);
    atomic_fetch_add(&b->n_over, 1);
}

/* Counts what is over; times what is not, from when its turn came. */
static bool ask(struct nccl_backend *b, uint64_t now)
{
    (void)now; /* the driver may have taken its time */
    while (atomic_load(&b->n_over) < atomic_load(&b->n_enqueued)) {
        const struct nccl_mark *mark = &b->marks[atomic_load(&b->n_over) % NCCL_MARKS];
        const enum tutti_status status = tutti_gpu_event_query(b->gpu, mark->over);
        if (atomic_load(&b->stopped) || tutti_team_failed(b->team)) return true; /* and nothing is over that was not */
        if (status < 0) return nccl_give_up(b, "a call by nccl", cuda_launch_seq(atomic_load(&mark->launch))), true;
        if (status == TUTTI_OK) {
            mark_over(b, mark);
            continue;
        }
        if (!atomic_load(&b->turn_ns) && tutti_gpu_event_query(b->gpu, mark->begun) == TUTTI_OK)
            atomic_store(&b->turn_ns, tutti_now_ns());
        break;
    }
    return false;
}

/* ---- the threads ---- */

static bool is_busy(struct nccl_backend *b)
{
    return atomic_load(&b->n_over) < atomic_load(&b->n_enqueued) || atomic_load(&b->captured) ||
           atomic_load(&b->within_ns) || atomic_load(&b->error_ns);
}

static bool look(struct nccl_backend *b, uint64_t now)
{
    if (tutti_team_state(b->team, NULL) < 0 || find_error(b, now) || find_stuck(b, now) || find_late(b, now))
        return true;
    return find_mismatch(b) || (is_busy(b) && find_lost(b, now));
}

/* Until act says that there is nothing left to look after. */
static void run(struct nccl_backend *b, bool (*act)(struct nccl_backend *b, uint64_t now))
{
    while (!atomic_load(&b->ends) && !act(b, tutti_now_ns()))
        tutti_futex_wait(&b->ends, 0, tutti_deadline_ns(is_busy(b) ? LOOK_NS : IDLE_LOOK_NS));
}

static void *run_look(void *arg)
{
    struct nccl_backend *b = arg;
    run(b, look);
    if (!tutti_team_failed(b->team)) return NULL;
    for (;; tutti_sleep_ns(LOOK_NS)) { /* whose communicator comes to be while it is within NCCL */
        nccl_stop(&b->base);
        if (!nccl_is_left(b)) return NULL;
    }
}

static void *run_ask(void *arg)
{
    run(arg, ask);
    return NULL;
}

enum tutti_status nccl_thread_start(pthread_t *thread, void *(*run_it)(void *arg), void *arg)
{
    const int failed = tutti_thread_start(thread, 0, run_it, arg);
    return failed ? tutti_fail(TUTTI_ERR_SYSTEM, "a thread that looks after NCCL can not be started") : TUTTI_OK;
}

static void end(struct nccl_backend *b, uint32_t n_threads)
{
    atomic_store(&b->ends, 1);
    tutti_futex_wake(&b->ends, TUTTI_ARRAY_LEN(b->threads));
    for (uint32_t i = 0; i < n_threads; i++) pthread_join(b->threads[i], NULL);
}

enum tutti_status nccl_watch_start(struct nccl_backend *b)
{
    TUTTI_TRY(nccl_thread_start(&b->threads[0], run_look, b));
    const enum tutti_status status = nccl_thread_start(&b->threads[1], run_ask, b);
    if (status < 0)
        end(b, 1);
    else
        b->watched = true;
    return status;
}

void nccl_watch_end(struct nccl_backend *b)
{
    if (b->watched) end(b, TUTTI_ARRAY_LEN(b->threads));
    b->watched = false;
}
