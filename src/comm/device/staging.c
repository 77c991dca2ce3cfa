/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a communicator's staging: opening, threads, closing. */
#include "comm/device/staging.h"

#include <errno.h>

#define OWN_ID UINT64_C(0x7468726f756768) /* of the communicator that carries out the calls of devices alone */
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
