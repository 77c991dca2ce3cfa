/* SPDX-License-Identifier: BSD-3-Clause */

/* The communicator of NCCL's, which is made at the first call: slot 0 puts its id on its board. What waits within NCCL
 * is ended from outside, by the watch, which aborts the communicator: NCCL knows no deadlines. */

#include "backend/library/nccl.h"

struct patience {
    uint64_t timeout_ns, deadline_ns;
};

enum tutti_status nccl_refused(const struct nccl_backend *b, int result, const char *call)
{
    const char *last = b->library->last_error(NULL);
    return tutti_fail(TUTTI_ERR_SYSTEM, "%s on CUDA device %d: %s%s%.200s", call, b->gpu->ordinal,
                      b->library->error_text(result), last && *last ? ": " : "", last ? last : "");
}

void *nccl_enter(struct nccl_backend *b)
{
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->marks.within_ns, tutti_now_ns());
    watch_wake(&b->watched);
    return __atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
}

enum tutti_status nccl_leave(struct nccl_backend *b, int result, const char *call)
{
    struct tutti_error error;
    const bool gone = !__atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
    if (gone || result > 0) watch_echo_wait(&b->watched);
    atomic_store(&b->marks.within_ns, 0);
    pthread_mutex_unlock(&b->lock);
    if ((gone || result > 0) && tutti_team_state(b->watched.team, &error) < 0) return tutti_fail_record(&error);
    if (result < 0) return tutti_last_error()->status;
    if (result != NCCL_OK) return nccl_refused(b, result, call);
    return gone ? tutti_fail(TUTTI_ERR_ABORTED, "the communicator was stopped on the device") : TUTTI_OK;
}

enum tutti_status nccl_give_up(struct nccl_backend *b, const char *what, uint64_t seq)
{
    const enum tutti_status status = watch_fail(&b->watched, what, seq);
    struct tutti_error told = *tutti_last_error();
    nccl_stop(b);
    tutti_fail_record(&told);
    return status;
}

/* Slot 0 makes the id and shows it to the others on its board. */
static enum tutti_status id_agree(struct nccl_backend *b, struct patience patience, struct nccl_id *out)
{
    struct nccl_board *board = nccl_board(b, 0);
    if (b->watched.me == 0) {
        const int result = b->library->id_get(&board->id);
        if (result != NCCL_OK) return nccl_refused(b, result, "ncclGetUniqueId");
        atomic_store_explicit(&board->ready, 1, memory_order_release);
    }
    while (!atomic_load_explicit(&board->ready, memory_order_acquire))
        TUTTI_TRY(watch_go_on(&b->watched, patience.timeout_ns, patience.deadline_ns, "rank 0's first call of NCCL"));
    *out = board->id;
    return TUTTI_OK;
}

static enum tutti_status comm_make(struct nccl_backend *b, struct patience patience)
{
    const struct nccl_config config = {
        .size = sizeof config,
        .magic = NCCL_CONFIG_MAGIC,
        .version = NCCL_NEEDED,
        .cluster = NCCL_UNSET,
        .min_ctas = NCCL_UNSET,
        .max_ctas = b->blocks ? (int)b->blocks : NCCL_UNSET,
        .split_share = NCCL_UNSET,
        .blocking = 1, /* else every call is a thread of its own */
    };
    struct nccl_id id;
    TUTTI_TRY(id_agree(b, patience, &id));
    nccl_enter(b);
    /* Not where it was stopped meanwhile: who stops before this rank is within finds nothing to end. */
    const int result = atomic_load(&b->marks.stopped)
                           ? NCCL_OK
                           : b->library->comm_init(&b->comm, (int)b->watched.n, id, (int)b->watched.me, &config);
    return nccl_leave(b, result, "ncclCommInitRankConfig");
}

enum tutti_status nccl_make(struct nccl_backend *b, uint64_t timeout_ns)
{
    if (nccl_made(b)) return TUTTI_OK;
    enum tutti_status status = nccl_ending_start(b);
    if (status == TUTTI_OK) status = watch_add(&b->watched);
    if (status == TUTTI_OK) status = comm_make(b, (struct patience){timeout_ns, tutti_deadline_ns(timeout_ns)});
    if (status < 0) return nccl_give_up(b, "the making of NCCL's communicator", tutti_team_next(b->watched.team));
    atomic_store(&nccl_own(b)->log.made, 1);
    return TUTTI_OK;
}
