/* SPDX-License-Identifier: BSD-3-Clause */

/* Events of Level Zero are flags that are set once, and may be cleared only when no command looks at them any more.
 * What tutti calls an event is recorded again and again, and who waits for it waits for the record that was the last
 * one by then. So each record takes a flag of its own, a mark; it comes back when nobody needs it and it is set, which
 * is looked at when marks run out. A command that waits for a mark sets another one, which holds the first until then.
 */

#include "device/level_zero/driver.h"

#define POOL_EVENTS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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
    pthread_mutex_lock(&lock);
    struct kept *of = kept_of(timed);
    if (!of->ready) reclaim(driver, of);
    if (!of->ready) status = pool_add(driver, timed, of);
    if (status == TUTTI_OK) {
        struct xpu_mark *mark = of->ready;
        of->ready = mark->next;
        mark->n_users = 1, mark->next = NULL;
        *out = mark;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void xpu_mark_hold(struct xpu_mark *mark)
{
    pthread_mutex_lock(&lock);
    mark->n_users++;
    pthread_mutex_unlock(&lock);
}

void xpu_mark_drop(struct xpu_mark *mark)
{
    if (!mark) return;
    pthread_mutex_lock(&lock);
    drop_locked(mark);
    pthread_mutex_unlock(&lock);
}

void xpu_mark_return(struct xpu_mark *mark)
{
    pthread_mutex_lock(&lock);
    struct kept *of = kept_of(mark->timed);
    if (mark->holds) drop_locked(mark->holds);
    mark->holds = NULL;
    mark->next = of->ready, of->ready = mark;
    pthread_mutex_unlock(&lock);
}
