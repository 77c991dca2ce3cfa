/* SPDX-License-Identifier: BSD-3-Clause */

/* What the watch is told: what NCCL says of its communicator, how long the oldest call has had its turn, and how long a
 * caller has been within NCCL. The asking thread may be kept waiting in the driver until the looking one ends what is
 * in the way: all but a call whose turn came while it was kept waiting. */

#include "backend/library/nccl.h"

static bool find_error(struct nccl_backend *b, uint64_t now)
{
    int state = NCCL_OK, result = NCCL_OK;
    if (pthread_mutex_trylock(&b->lock) != 0) return false; /* a call is within, and will say */
    void *comm = __atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
    if (comm) result = b->library->comm_state(comm, &state);
    pthread_mutex_unlock(&b->lock);
    if (result == NCCL_OK && state == NCCL_OK) return false;
    if (!atomic_load(&b->error_ns)) atomic_store(&b->error_ns, now);
    if (now - atomic_load(&b->error_ns) < WATCH_ECHO_NS) return false;
    nccl_refused(b, result == NCCL_OK ? state : result, "NCCL");
    watch_fail(&b->watched, "a call by nccl", 0);
    return true;
}

static bool look(struct watched *w, uint64_t now)
{
    struct nccl_backend *b = nccl_watching(w);
    return find_error(b, now) || watch_marks_late(&b->marks, now);
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
    return atomic_load(&b->marks.within_ns) || atomic_load(&b->error_ns);
}

static void ask(struct watched *w)
{
    watch_marks_ask(&nccl_watching(w)->marks);
}

const struct watch_ops nccl_watch_ops = {
    .stop = stop, .look = look, .ask = ask, .waits = waits, .life = watch_library_life};
