/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a communicator's staging: opening, threads, closing. */
#include "comm/call/staging.h"

#include <errno.h>

#define OWN_ID UINT64_C(0x7468726f756768) /* for the communicator that carries out the calls of devices alone */
#define CLOSE_NS (10 * TUTTI_NS_PER_S)    /* for streams that go on after a failure */

/* ---- opening ---- */

enum tutti_status tutti_staging_open(struct tutti_comm *comm, struct tutti_comm_device *device)
{
    struct tutti_staging *staging = tutti_alloc(sizeof(*staging));
    if (!staging) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for a communicator", (int)comm->rank);
    staging->comm = comm;
    staging->device = device->device;
    staging->end = &staging->first;
    pthread_mutex_init(&staging->order, NULL);
    pthread_mutex_init(&staging->lock, NULL);
    staging->pool = tutti_pinned_hold(device->pinned);
    device->staging = staging;
    return TUTTI_OK;
}

static enum tutti_status thread_start(struct tutti_staging *staging, pthread_t *thread, void *(*run)(void *))
{
    errno = tutti_thread_start(thread, 0, run, staging);
    if (errno) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no thread for calls that go through the host");
    return TUTTI_OK;
}

static void asker_end(struct tutti_staging *staging)
{
    tutti_staging_question(staging, TUTTI_ASK_NO_MORE);
    pthread_join(staging->asker, NULL);
}

static void parts_free(struct tutti_staging *staging)
{
    const struct tutti_device_ops *ops = staging->device->ops;
    if (staging->pulse) ops->event_destroy(staging->device, staging->pulse);
    if (staging->end_event) ops->event_destroy(staging->device, staging->end_event);
    if (staging->go) ops->free_host(staging->device, (void *)staging->go);
    staging->pulse = staging->end_event = NULL, staging->go = NULL;
}

static enum tutti_status ensure_running(struct tutti_staging *staging)
{
    const struct tutti_device_ops *ops = staging->device->ops;
    enum tutti_status status;
    void *go = NULL;

    if (staging->runs) return TUTTI_OK;
    TUTTI_TRY(ops->alloc_host(staging->device, sizeof(*staging->go), &go));
    staging->go = go;
    TUTTI_TRY_GOTO(status, ops->event_create(staging->device, false, &staging->pulse), err_parts);
    TUTTI_TRY_GOTO(status, ops->event_create(staging->device, false, &staging->end_event), err_parts);
    atomic_store(&staging->question, TUTTI_ASK_NOTHING);
    TUTTI_TRY_GOTO(status, thread_start(staging, &staging->asker, tutti_staging_ask), err_parts);
    TUTTI_TRY_GOTO(status, thread_start(staging, &staging->thread, tutti_staging_serve), err_asker);
    staging->runs = true;
    return TUTTI_OK;
err_asker:
    asker_end(staging);
err_parts:
    parts_free(staging);
    return status;
}

/* The same members, with an order of their own: the communicator's numbers are taken when calls are enqueued, those of
 * this one when they are carried out. Nothing is agreed, so each member makes it when it needs it. */
static enum tutti_status ensure_own(struct tutti_staging *staging)
{
    struct tutti_comm *comm = staging->comm, *own = NULL;
    uint32_t n = (uint32_t)comm->size;

    if (comm->device->n == 0 || atomic_load(&staging->own)) return TUTTI_OK;
    uint32_t *slots = tutti_alloc_array(n, sizeof(*slots));
    if (!slots) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for a communicator", (int)comm->rank);
    for (uint32_t i = 0; i < n; i++) slots[i] = i;
    struct tutti_child child = {.slots = slots,
                                .n = n,
                                .me = (uint32_t)comm->rank,
                                .id = comm->id ^ (OWN_ID + comm->n_devices),
                                .epoch = comm->epoch};
    enum tutti_status status = tutti_comm_new_child(comm, &child, &own);
    tutti_free(slots);
    if (status < 0) return status;
    tutti_comm_ready(own);
    atomic_store(&staging->own, own);
    return TUTTI_OK;
}

enum tutti_status tutti_staging_ensure(struct tutti_staging *staging)
{
    TUTTI_TRY(ensure_running(staging));
    return ensure_own(staging);
}

/* ---- closing ---- */

static bool is_idle(struct tutti_staging *staging, const void *unused)
{
    (void)unused;
    return tutti_staging_idle(staging);
}

void tutti_staging_close(struct tutti_staging *staging)
{
    if (!staging) return;
    if (!tutti_staging_idle(staging) && !tutti_staging_failed(staging)) {
        tutti_fail(TUTTI_ERR_ABORTED, "rank %d gave up calls on device memory, to which their stream has not come",
                   (int)staging->comm->rank);
        tutti_staging_fail(staging);
    }
    bool over = tutti_staging_wait(staging, is_idle, NULL, tutti_deadline_ns(CLOSE_NS));
    pthread_mutex_lock(&staging->lock); /* pieces that arrive from now on open no gate */
    atomic_store(&staging->closing, true);
    pthread_mutex_unlock(&staging->lock);
    tutti_staging_ring(staging);
    if (staging->runs) {
        pthread_join(staging->thread, NULL);
        asker_end(staging);
    }
    struct tutti_comm *own = atomic_exchange(&staging->own, NULL);
    if (own && tutti_comm_empty(own)) tutti_comm_free(own);
    if (!over) { /* streams may still come to it, and copy */
        tutti_log(TUTTI_LOG_WARN,
                  "a stream has not come past calls of a communicator that is gone: memory is left to it");
        return;
    }
    pthread_mutex_lock(&staging->lock); /* on_end has left */
    pthread_mutex_unlock(&staging->lock);
    tutti_pinned_drop(staging->pool);
    parts_free(staging);
    pthread_mutex_destroy(&staging->lock);
    pthread_mutex_destroy(&staging->order);
    tutti_free(staging);
}

/* How those who take part in staging wait for one another, and how all of them go on after a failure. */

#define LOOK_NS (100 * TUTTI_NS_PER_MS) /* how often who waits has the device asked */

void tutti_staging_question(struct tutti_staging *staging, enum tutti_ask question)
{
    atomic_store(&staging->question, question);
    tutti_futex_wake(&staging->question, 1);
}

void tutti_staging_ring(struct tutti_staging *staging)
{
    atomic_fetch_add(&staging->bell, 1);
    tutti_futex_wake(&staging->bell, UINT32_MAX);
}

bool tutti_staging_wait(struct tutti_staging *staging, bool (*holds)(struct tutti_staging *staging, const void *arg),
                        const void *arg, uint64_t until_ns)
{
    for (;;) {
        uint32_t bell = atomic_load(&staging->bell);
        uint64_t look = tutti_deadline_ns(LOOK_NS);
        if (holds(staging, arg)) return true;
        if (tutti_now_ns() >= until_ns) return false;
        tutti_futex_wait(&staging->bell, bell, look < until_ns ? look : until_ns);
        if (tutti_now_ns() >= look) tutti_staging_question(staging, TUTTI_ASK);
    }
}

void *tutti_staging_last_event(const struct tutti_staging *staging)
{
    return staging && atomic_load(&staging->enqueued) > 0 ? staging->end_event : NULL;
}

uint32_t tutti_staging_enqueued(const struct tutti_staging *staging)
{
    return staging ? atomic_load(&staging->enqueued) : 0;
}

bool tutti_staging_is_over(const struct tutti_staging *staging, uint32_t n)
{
    return !staging || (int32_t)(n - atomic_load(&staging->n_over)) <= 0;
}

bool tutti_staging_idle(const struct tutti_staging *staging)
{
    return !staging || atomic_load(&staging->n_over) == atomic_load(&staging->enqueued);
}

/* Up to the number. */
static bool have_started(struct tutti_staging *staging, const void *number)
{
    int32_t missing = (int32_t)(*(const uint32_t *)number - atomic_load(&staging->started));
    return missing <= 0 || tutti_staging_failed(staging);
}

enum tutti_status tutti_staging_settle(const struct tutti_comm *comm)
{
    struct tutti_staging *staging = comm->device ? comm->device->staging : NULL;
    struct tutti_error error;
    if (!staging || comm->device->n > 0) return TUTTI_OK;
    uint32_t number = atomic_load(&staging->enqueued);
    uint64_t timeout = comm->timeout_ns;
    if (!tutti_staging_wait(staging, have_started, &number, tutti_deadline_ns(timeout))) {
        tutti_fail(TUTTI_ERR_TIMEOUT,
                   "rank %d: the stream has not come to a call on device memory, after which another one was made, "
                   "within %g s",
                   (int)comm->rank, (double)timeout / 1e9);
        tutti_staging_fail(staging);
        return TUTTI_ERR_TIMEOUT;
    }
    return tutti_team_state(comm->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
}

/* ---- failing: what waits on the host or on the device goes on, and the team fails ---- */

void tutti_staging_stop(struct tutti_staging *staging, bool owned)
{
    struct tutti_comm *own = staging ? atomic_load(&staging->own) : NULL;
    struct tutti_error error;

    if (!staging) return;
    if (own && tutti_team_state(staging->comm->team, &error) < 0 && tutti_comm_enter(own, "comm_abort") >= 0) {
        if (owned)
            tutti_team_apply(own->team, &error); /* the others do, too, as the failure has reached them */
        else
            tutti_team_fail(own->team, &error, true);
        tutti_comm_leave(own);
    }
    tutti_staging_ring(staging);
}

void tutti_staging_fail(struct tutti_staging *staging)
{
    struct tutti_error error = *tutti_last_error();
    tutti_team_fail(staging->comm->team, &error, true);
    tutti_staging_stop(staging, false);
    tutti_fail_record(&error);
}

/* Large staged calls in pieces: the engine begins a call when the first piece has come, its slices as they come, and
 * the stream copies out what is over. Slices of all ranks are the same, so a rank that cuts its copies meets ranks that
 * do not. On the stream all pieces are copied in first, then out one by one: a network is slower than either. */

#define COPIES_MOST 512 /* each way: a copy costs its caller some microseconds, and each chunk of a piece is one */

/* Whether the engine carries out one call of equal blocks on what was copied, slice by slice. */
static bool can_cut(const struct tutti_staged *staged)
{
    const struct tutti_call *call = staged->calls;
    return staged->n == 1 && call->type == TUTTI_CALL_COLLECTIVE && !call->job.bind.v && call->job.bind.schedule &&
           !atomic_load(&staged->staging->own);
}

/* Bytes of the larger side, into so many pieces as the option says. */
static size_t pieces_of(const struct tutti_staged *staged)
{
    const struct tutti_layout *l = &staged->layout;
    size_t bytes = l->count * l->element * l->n_blocks, copies = (size_t)l->n_blocks * l->per_block;
    size_t n = bytes / staged->staging->comm->context->config.number[TUTTI_OPT_gpu_piece];
    if (n > COPIES_MOST / copies) n = COPIES_MOST / copies;
    if (n > l->n_slices) n = l->n_slices;
    return n < TUTTI_PIECES ? n : TUTTI_PIECES;
}

/* By the engine's owner. The last piece is the thread's, which looks at what became of the call. */
static void on_passed(void *arg, uint32_t n)
{
    struct tutti_staged *staged = arg;
    uint32_t p = staged->n_passed;
    while (p + 1 < staged->n_pieces && staged->pieces[p].until <= n) p++;
    if (p == staged->n_passed) return;
    staged->n_passed = p;
    atomic_store_explicit(staged->staging->go, staged->go + p, memory_order_release);
}

void tutti_staging_cut(struct tutti_staged *staged)
{
    struct tutti_call *call = staged->calls;
    struct tutti_need need = {0};
    staged->n_pieces = 1;
    if (!can_cut(staged)) return;
    size_t slice_bytes = tutti_team_slice_bytes(call->comm->team);
    /* What can not be, the start says; a private copy of the input is taken at once. */
    if (tutti_layout_init(&staged->layout, &call->job.bind, slice_bytes, &need) < 0 || need.copy_bytes > 0) return;
    size_t n = pieces_of(staged);
    if (n < 2) return;
    staged->n_pieces = (uint32_t)n;
    for (size_t p = 0; p < n; p++)
        staged->pieces[p] = (struct tutti_piece){staged, (uint32_t)((uint64_t)staged->layout.n_slices * (p + 1) / n)};
    staged->gate.passed = on_passed, staged->gate.arg = staged;
    call->job.bind.gate = &staged->gate;
}

const struct tutti_pinned_part *tutti_staging_part(const struct tutti_staged *staged, uint32_t p,
                                                   struct tutti_pinned_part *out)
{
    if (staged->n_pieces == 1) return NULL;
    *out =
        (struct tutti_pinned_part){&staged->layout, p > 0 ? staged->pieces[p - 1].until : 0, staged->pieces[p].until};
    return out;
}

void tutti_staging_arrived(void *arg)
{
    const struct tutti_piece *piece = arg;
    struct tutti_staged *staged = piece->staged;
    struct tutti_staging *staging = staged->staging;
    bool first = piece == staged->pieces;
    if (staged->n_pieces > 1) {
        pthread_mutex_lock(&staging->lock); /* as long as it is not closed there is a team */
        if (!atomic_load(&staging->closing)) tutti_gate_open(staging->comm->team, &staged->gate, piece->until);
        pthread_mutex_unlock(&staging->lock);
    }
    if (!first) return;
    atomic_store(&staged->arrived, true);
    tutti_staging_ring(staging);
}
