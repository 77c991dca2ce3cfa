/* SPDX-License-Identifier: BSD-3-Clause */

/* How a communicator of NCCL ends: closed, aborted, or kept for calls that a graph may still hold. */

#include "backend/library/nccl.h"
#include "base/poller.h"

#define NAP_NS UINT64_C(50000)
#define STUCK_NS (TUTTI_NS_PER_S / 2) /* within NCCL, which is long where nothing connects */
#define ENDING_NS TUTTI_NS_PER_S      /* of a communicator, as a rule */

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

enum tutti_status nccl_ending_start(struct nccl_backend *b)
{
    struct nccl_ending *ending = tutti_alloc(sizeof *ending);
    if (!ending) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for NCCL's communicator");
    ending->library = b->library, ending->gpu = b->gpu;
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
    atomic_store(&b->marks.stopped, true);
    if (has_begun(atomic_load(&b->ending))) return;
    const bool locked = tutti_mutex_lock_within(&b->lock, STUCK_NS);
    void *comm = __atomic_exchange_n(&b->comm, NULL, __ATOMIC_ACQ_REL);
    if (locked) pthread_mutex_unlock(&b->lock);
    if (comm) ending_begin(atomic_load(&b->ending), comm, alone && locked);
}

void nccl_stop_begin(struct nccl_backend *b)
{
    nccl_end_begin(b, false);
}

void nccl_end_wait(struct nccl_backend *b, uint64_t most_ns)
{
    const struct nccl_ending *ending = atomic_load(&b->ending);
    if (has_begun(ending)) ending_wait(ending, most_ns);
}

void nccl_stop(struct nccl_backend *b)
{
    nccl_stop_begin(b);
    nccl_end_wait(b, ENDING_NS);
}

bool nccl_is_left(const struct nccl_backend *b)
{
    return atomic_load(&b->marks.within_ns) && !has_begun(atomic_load(&b->ending));
}
