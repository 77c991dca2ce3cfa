/* SPDX-License-Identifier: BSD-3-Clause */

/* Events (xpu_marks.c says of what), and what streams wait for. */

#include "device/level_zero/driver.h"

struct event {
    struct xpu_mark *mark; /* its last record's; NULL: never recorded. Under the lock */
    bool timed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The last record's, held; NULL: there is none. */
static struct xpu_mark *last_of(const struct event *event)
{
    pthread_mutex_lock(&lock);
    struct xpu_mark *mark = event->mark;
    if (mark) xpu_mark_hold(mark);
    pthread_mutex_unlock(&lock);
    return mark;
}

static void replace(struct event *event, struct xpu_mark *mark)
{
    pthread_mutex_lock(&lock);
    struct xpu_mark *before = event->mark;
    event->mark = mark;
    pthread_mutex_unlock(&lock);
    xpu_mark_drop(before);
}

enum tutti_status tutti_xpu_event_create(struct tutti_device *device, bool timed, void **out)
{
    struct event *event = tutti_alloc(sizeof *event);
    if (!event) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an event of XPU device %d", device->ordinal);
    *event = (struct event){.timed = timed};
    *out = event;
    return TUTTI_OK;
}

void tutti_xpu_event_destroy(struct tutti_device *device, void *event)
{
    (void)device;
    if (!event) return;
    replace(event, NULL);
    tutti_free(event);
}

enum tutti_status tutti_xpu_event_record(struct tutti_device *device, void *handle, void *stream)
{
    struct event *event = handle;
    struct xpu_mark *mark;
    TUTTI_TRY(xpu_mark_take(xpu_calls(device), event->timed, &mark));
    const enum tutti_status status =
        xpu_enqueue(device, stream, &(struct xpu_work){.signal = mark->event, .call = "recording an event"});
    if (status == TUTTI_OK)
        replace(event, mark);
    else
        xpu_mark_return(mark);
    return status;
}

enum tutti_status tutti_xpu_event_query(struct tutti_device *device, void *event)
{
    struct xpu_mark *mark = last_of(event);
    if (!mark) return TUTTI_OK;
    const enum tutti_status status =
        xpu_result(device, xpu_calls(device)->event_status(mark->event), "zeEventQueryStatus");
    xpu_mark_drop(mark);
    return status;
}

/* Enqueues a wait for the mark, which is held until that is over. */
static enum tutti_status wait_for(struct tutti_device *device, void *stream, struct xpu_mark *mark)
{
    struct xpu_mark *passed;
    TUTTI_TRY(xpu_mark_take(xpu_calls(device), false, &passed));
    xpu_mark_hold(mark);
    passed->holds = mark;
    const struct xpu_work work = {.after = mark->event, .signal = passed->event, .call = "waiting for an event"};
    const enum tutti_status status = xpu_enqueue(device, stream, &work);
    if (status == TUTTI_OK)
        xpu_mark_drop(passed);
    else
        xpu_mark_return(passed);
    return status;
}

enum tutti_status tutti_xpu_stream_wait(struct tutti_device *device, void *stream, void *event)
{
    struct xpu_mark *mark = last_of(event);
    if (!mark) return TUTTI_OK;
    const enum tutti_status status = wait_for(device, stream, mark);
    xpu_mark_drop(mark);
    return status;
}

enum tutti_status xpu_gate(struct tutti_device *device, void *stream, struct xpu_mark **gate)
{
    struct xpu_mark *made;
    TUTTI_TRY(xpu_mark_take(xpu_calls(device), false, &made));
    const enum tutti_status status = wait_for(device, stream, made);
    if (status == TUTTI_OK)
        *gate = made;
    else
        xpu_mark_return(made);
    return status;
}

/* ---- times ---- */

static enum tutti_status end_of(struct tutti_device *device, const void *event, uint64_t *ticks)
{
    struct xpu_mark *mark = last_of(event);
    struct xpu_timestamps times;
    if (!mark || !mark->timed) {
        xpu_mark_drop(mark);
        return tutti_fail(TUTTI_ERR_ARGUMENT, "elapsed: an event was never recorded, or is not timed");
    }
    const enum tutti_status status =
        xpu_result(device, xpu_calls(device)->event_times(mark->event, &times), "zeEventQueryKernelTimestamp");
    if (status == TUTTI_OK) *ticks = times.end;
    xpu_mark_drop(mark);
    return status;
}

/* The device's clock has few bits, and begins anew every some minutes. */
enum tutti_status tutti_xpu_elapsed(struct tutti_device *device, void *from, void *to, double *us)
{
    const struct xpu *xpu = xpu_of(device);
    uint64_t begin = 0, end = 0;
    TUTTI_TRY(end_of(device, from, &begin));
    TUTTI_TRY(end_of(device, to, &end));
    const uint64_t mask = xpu->timer_bits < 64 ? ((uint64_t)1 << xpu->timer_bits) - 1 : UINT64_MAX;
    *us = (double)((end - begin) & mask) * 1e6 / (double)xpu->timer_hz;
    return TUTTI_OK;
}
