/* SPDX-License-Identifier: BSD-3-Clause */
/* Events, what streams wait for, and the marks of which both are made. */

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

/* Events of Level Zero are flags that are set once, and may be cleared only when no command looks at them any more.
 * What tutti calls an event is recorded again and again, and who waits for it waits for the record that was the last
 * one by then. So each record takes a flag of its own, a mark; it comes back when nobody needs it and it is set, which
 * is looked at when marks run out. A command that waits for a mark sets another one, which holds the first until then.
 */

#define POOL_EVENTS 64

static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;
/* The process's: untimed ones and timed ones. */
static struct kept {
    struct xpu_mark *ready, *used, **used_end;
} kept[2];

/* Under the lock. */
static struct kept *kept_of(bool timed)
{
    if (!kept[timed].used_end) kept[timed].used_end = &kept[timed].used;
    return &kept[timed];
}

/* Under the lock: nobody names it any more. */
static void use_up(struct xpu_mark *mark)
{
    struct kept *of = kept_of(mark->timed);
    mark->next = NULL;
    *of->used_end = mark, of->used_end = &mark->next;
}

static void drop_locked(struct xpu_mark *mark)
{
    if (--mark->n_users == 0) use_up(mark);
}

/* Under the lock: those that are set by now are ready again. */
static void reclaim(const struct xpu_driver *driver, struct kept *of)
{
    struct xpu_mark **at = &of->used;
    while (*at) {
        struct xpu_mark *mark = *at;
        if (driver->event_status(mark->event) != XPU_RESULT_OK || driver->event_reset(mark->event) != XPU_RESULT_OK) {
            at = &mark->next;
            continue;
        }
        *at = mark->next;
        mark->next = of->ready, of->ready = mark;
    }
    of->used_end = at;
    for (struct xpu_mark *mark = of->ready; mark; mark = mark->next) {
        if (mark->holds) drop_locked(mark->holds);
        mark->holds = NULL;
    }
}

/* Under the lock. Pools stay for the process. */
static enum tutti_status pool_add(const struct xpu_driver *driver, bool timed, struct kept *of)
{
    const struct xpu_pool_desc desc = {.structure = XPU_STRUCTURE_EVENT_POOL,
                                       .flags = XPU_EVENT_HOST_VISIBLE | (timed ? XPU_EVENT_TIMED : 0),
                                       .n = POOL_EVENTS};
    void *pool = NULL;
    struct xpu_mark *marks = tutti_alloc_array(POOL_EVENTS, sizeof *marks);
    if (!marks) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %d events", POOL_EVENTS);
    const int result = driver->pool_create(driver->context, &desc, 0, NULL, &pool); /* for all devices */
    enum tutti_status status = xpu_result(NULL, result, "zeEventPoolCreate");
    for (uint32_t i = 0; i < POOL_EVENTS && status == TUTTI_OK; i++) {
        const struct xpu_event_desc event = {
            .structure = XPU_STRUCTURE_EVENT, .index = i, .signal_scope = XPU_SCOPE_HOST, .wait_scope = XPU_SCOPE_HOST};
        marks[i].timed = timed;
        status = xpu_result(NULL, driver->event_create(pool, &event, &marks[i].event), "zeEventCreate");
        if (status == TUTTI_OK) marks[i].next = of->ready, of->ready = &marks[i];
    }
    if (!of->ready) tutti_free(marks);
    return of->ready ? TUTTI_OK : status;
}

enum tutti_status xpu_mark_take(const struct xpu_driver *driver, bool timed, struct xpu_mark **out)
{
    enum tutti_status status = TUTTI_OK;
    pthread_mutex_lock(&marks_lock);
    struct kept *of = kept_of(timed);
    if (!of->ready) reclaim(driver, of);
    if (!of->ready) status = pool_add(driver, timed, of);
    if (status == TUTTI_OK) {
        struct xpu_mark *mark = of->ready;
        of->ready = mark->next;
        mark->n_users = 1, mark->next = NULL;
        *out = mark;
    }
    pthread_mutex_unlock(&marks_lock);
    return status;
}

void xpu_mark_hold(struct xpu_mark *mark)
{
    pthread_mutex_lock(&marks_lock);
    mark->n_users++;
    pthread_mutex_unlock(&marks_lock);
}

void xpu_mark_drop(struct xpu_mark *mark)
{
    if (!mark) return;
    pthread_mutex_lock(&marks_lock);
    drop_locked(mark);
    pthread_mutex_unlock(&marks_lock);
}

void xpu_mark_return(struct xpu_mark *mark)
{
    pthread_mutex_lock(&marks_lock);
    struct kept *of = kept_of(mark->timed);
    if (mark->holds) drop_locked(mark->holds);
    mark->holds = NULL;
    mark->next = of->ready, of->ready = mark;
    pthread_mutex_unlock(&marks_lock);
}
