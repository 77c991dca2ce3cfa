/* SPDX-License-Identifier: BSD-3-Clause */

/* The communicator of NCCL's, which is made at the first call: slot 0 puts its id on its board. It ends closed,
 * aborted, or kept for calls that a graph may still hold. */

#include "backend/library/nccl.h"
#include "base/poller.h"

#define NAP_NS UINT64_C(50000)
#define STUCK_NS (TUTTI_NS_PER_S / 2) /* within NCCL, which is long where nothing connects */
#define ENDING_NS TUTTI_NS_PER_S      /* of a communicator, as a rule */

struct patience {
    uint64_t timeout_ns, deadline_ns;
};

/* ---- the end ---- */

/* ncclCommAbort ends what runs on the device at once, but returns only when there is no graph any more that holds a
 * call of the communicator: a thread of its own waits for that. It is there from the beginning, for the end has no time
 * for errors, and lasts as long as NCCL takes; where that is longer than can be waited for, it frees what it has. */
struct nccl_ending {
    pthread_t thread;
    const struct nccl_library *library;
    struct tutti_device *gpu; /* until it is within */
    void *comm;               /* NULL: there was none */
    bool alone;               /* nobody is left to wait for, and all is well: destroyed, which is quicker */
    _Atomic uint32_t state;
};
enum { ENDING_AWAITED, ENDING_BEGUN, ENDING_WITHIN, ENDING_OVER, ENDING_LEFT };

static void *ending_run(void *arg)
{
    struct nccl_ending *ending = arg;
    struct tutti_device_scope scope;
    while (atomic_load(&ending->state) == ENDING_AWAITED)
        tutti_poller_wait_word(NULL, &ending->state, ENDING_AWAITED, TUTTI_NEVER);
    const bool entered = ending->comm && tutti_device_enter(ending->gpu, &scope) == TUTTI_OK;
    atomic_store(&ending->state, ENDING_WITHIN);
    if (entered) {
        if (!ending->alone || ending->library->comm_destroy(ending->comm) != NCCL_OK)
            ending->library->comm_abort(ending->comm);
        tutti_device_leave(ending->gpu, &scope);
    }
    if (atomic_exchange(&ending->state, ENDING_OVER) == ENDING_LEFT) tutti_free(ending);
    return NULL;
}

static enum tutti_status ending_start(struct nccl_backend *b)
{
    struct nccl_ending *ending = tutti_alloc(sizeof *ending);
    if (!ending) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for NCCL's communicator");
    ending->library = b->library, ending->gpu = b->l.gpu;
    if (tutti_thread_start(&ending->thread, 0, ending_run, ending) != 0) {
        tutti_free(ending);
        return tutti_fail(TUTTI_ERR_SYSTEM, "a thread that looks after NCCL can not be started");
    }
    atomic_store(&b->ending, ending);
    return TUTTI_OK;
}

static void ending_begin(struct nccl_ending *ending, void *comm, bool alone)
{
    ending->comm = comm;
    ending->alone = alone;
    atomic_store(&ending->state, ENDING_BEGUN);
    tutti_futex_wake(&ending->state, 1);
}

/* Until it is over; or, once it needs nothing of ours any more, for so long. */
static void ending_wait(const struct nccl_ending *ending, uint64_t most_ns)
{
    const uint64_t until = tutti_deadline_ns(most_ns);
    for (;;) {
        const uint32_t state = atomic_load(&ending->state);
        if (state == ENDING_OVER || (state == ENDING_WITHIN && tutti_now_ns() >= until)) return;
        tutti_sleep_ns(NAP_NS);
    }
}

static bool has_begun(const struct nccl_ending *ending)
{
    return ending && atomic_load(&ending->state) != ENDING_AWAITED;
}

/* The communicator, or that there is none, has been ended. A thread that is over is joined: what NCCL and the driver
 * hold for threads goes before the process, which may exit next. */
void nccl_ending_leave(struct nccl_backend *b)
{
    struct nccl_ending *ending = atomic_load(&b->ending);
    if (!ending) return;
    const pthread_t thread = ending->thread;
    if (!has_begun(ending)) ending_begin(ending, NULL, false);
    while (atomic_load(&ending->state) < ENDING_WITHIN) tutti_sleep_ns(NAP_NS);
    if (ending->comm && atomic_exchange(&ending->state, ENDING_LEFT) != ENDING_OVER) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    tutti_free(ending);
}

void nccl_end_begin(struct nccl_backend *b, bool alone)
{
    atomic_store(&b->l.marks.stopped, true);
    if (has_begun(atomic_load(&b->ending))) return;
    const bool locked = tutti_mutex_lock_within(&b->lock, STUCK_NS);
    void *comm = __atomic_exchange_n(&b->comm, NULL, __ATOMIC_ACQ_REL);
    if (locked) pthread_mutex_unlock(&b->lock);
    if (comm) ending_begin(atomic_load(&b->ending), comm, alone && locked);
}

void nccl_end_wait(struct nccl_backend *b, uint64_t most_ns)
{
    const struct nccl_ending *ending = atomic_load(&b->ending);
    if (has_begun(ending)) ending_wait(ending, most_ns);
}

bool nccl_stop(struct library *l)
{
    struct nccl_backend *b = nccl_of(l);
    nccl_end_begin(b, false);
    return !atomic_load(&l->marks.within_ns) || has_begun(atomic_load(&b->ending));
}

void nccl_stopped(struct library *l)
{
    nccl_end_wait(nccl_of(l), ENDING_NS);
}

/* ---- within NCCL ---- */

enum tutti_status nccl_refused(const struct nccl_backend *b, int result, const char *call)
{
    const char *last = b->library->last_error(NULL);
    return tutti_fail(TUTTI_ERR_SYSTEM, "%s on CUDA device %d: %s%s%.200s", call, b->l.gpu->ordinal,
                      b->library->error_text(result), last && *last ? ": " : "", last ? last : "");
}

void *nccl_enter(struct nccl_backend *b)
{
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->l.marks.within_ns, tutti_now_ns());
    watch_wake(&b->l.watched);
    return __atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
}

enum tutti_status nccl_leave(struct nccl_backend *b, int result, const char *call)
{
    struct tutti_error error;
    const bool gone = !__atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
    if (gone || result > 0) watch_echo_wait(&b->l.watched);
    atomic_store(&b->l.marks.within_ns, 0);
    pthread_mutex_unlock(&b->lock);
    if ((gone || result > 0) && tutti_team_state(b->l.watched.team, &error) < 0) return tutti_fail_record(&error);
    if (result < 0) return tutti_last_error()->status;
    if (result != NCCL_OK) return nccl_refused(b, result, call);
    return gone ? tutti_fail(TUTTI_ERR_ABORTED, "the communicator was stopped on the device") : TUTTI_OK;
}

/* Slot 0 makes the id and shows it to the others on its board. */
static enum tutti_status id_agree(struct nccl_backend *b, struct patience patience, struct nccl_id *out)
{
    struct nccl_board *board = nccl_board(b, 0);
    if (b->l.watched.me == 0) {
        const int result = b->library->id_get(&board->id);
        if (result != NCCL_OK) return nccl_refused(b, result, "ncclGetUniqueId");
        atomic_store_explicit(&board->ready, 1, memory_order_release);
    }
    while (!atomic_load_explicit(&board->ready, memory_order_acquire))
        TUTTI_TRY(watch_go_on(&b->l.watched, patience.timeout_ns, patience.deadline_ns, "rank 0's first call of NCCL"));
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
    const int result = atomic_load(&b->l.marks.stopped)
                           ? NCCL_OK
                           : b->library->comm_init(&b->comm, (int)b->l.watched.n, id, (int)b->l.watched.me, &config);
    return nccl_leave(b, result, "ncclCommInitRankConfig");
}

enum tutti_status nccl_make(struct library *l, uint64_t timeout_ns)
{
    struct nccl_backend *b = nccl_of(l);
    if (library_made(l)) return TUTTI_OK;
    enum tutti_status status = ending_start(b);
    if (status == TUTTI_OK) status = watch_add(&b->l.watched);
    if (status == TUTTI_OK) status = comm_make(b, (struct patience){timeout_ns, tutti_deadline_ns(timeout_ns)});
    if (status < 0) return library_fail(l, "the making of NCCL's communicator", tutti_team_next(b->l.watched.team));
    atomic_store(&watch_own_log(&l->watched)->made, 1);
    return TUTTI_OK;
}
