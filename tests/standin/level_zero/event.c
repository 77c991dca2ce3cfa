/* SPDX-License-Identifier: BSD-3-Clause */
/* Events and their pools. Clearing an event that a command still names ends the process. */
#include "standin.h"

#include <errno.h>
#include <time.h>

struct standin_pool {
    uint32_t n, flags;
    bool taken[];
};

static uint64_t ticks(uint64_t ns)
{
    return (uint64_t)((__uint128_t)ns * STANDIN_TIMER_HZ / TUTTI_NS_PER_S) & ((UINT64_C(1) << STANDIN_TIMER_BITS) - 1);
}

void standin_event_set(struct standin_event *event, uint64_t start_ns)
{
    event->start = ticks(start_ns), event->end = ticks(tutti_now_ns());
    event->set = true;
    pthread_cond_broadcast(&standin_changed);
}

void standin_events_use(struct standin_event *signal, uint32_t n_waits, void *const *waits)
{
    if (signal) signal->n_users++;
    for (uint32_t i = 0; i < n_waits; i++) ((struct standin_event *)waits[i])->n_users++;
}

void standin_event_leave(struct standin_event *event)
{
    if (event) event->n_users--;
}

API int zeEventPoolCreate(void *context, const struct xpu_pool_desc *desc, uint32_t n_devices, void **devices,
                          void **pool)
{
    STANDIN_MAY_FAIL();
    if (!context || desc->structure != XPU_STRUCTURE_EVENT_POOL || desc->next || desc->n == 0 ||
        (!devices && n_devices))
        return XPU_RESULT_INVALID_ARGUMENT;
    struct standin_pool *made = tutti_alloc(sizeof *made + desc->n * sizeof(bool));
    if (!made) return XPU_RESULT_OUT_OF_HOST_MEMORY;
    made->n = desc->n, made->flags = desc->flags;
    *pool = made;
    return XPU_RESULT_OK;
}

API int zeEventCreate(void *pool, const struct xpu_event_desc *desc, void **event)
{
    STANDIN_MAY_FAIL();
    struct standin_pool *of = pool;
    if (!of || desc->structure != XPU_STRUCTURE_EVENT || desc->index >= of->n || of->taken[desc->index])
        return XPU_RESULT_INVALID_ARGUMENT;
    struct standin_event *made = tutti_alloc(sizeof *made);
    if (!made) return XPU_RESULT_OUT_OF_HOST_MEMORY;
    *made = (struct standin_event){.pool = of, .index = desc->index};
    of->taken[desc->index] = true;
    *event = made;
    return XPU_RESULT_OK;
}

API int zeEventHostSignal(void *handle)
{
    pthread_mutex_lock(&standin_lock);
    standin_event_set(handle, tutti_now_ns());
    pthread_mutex_unlock(&standin_lock);
    return XPU_RESULT_OK;
}

API int zeEventQueryStatus(void *handle)
{
    STANDIN_MAY_FAIL();
    pthread_mutex_lock(&standin_lock);
    const bool set = ((struct standin_event *)handle)->set;
    pthread_mutex_unlock(&standin_lock);
    return set ? XPU_RESULT_OK : XPU_RESULT_NOT_READY;
}

API int zeEventHostSynchronize(void *handle, uint64_t timeout_ns)
{
    STANDIN_MAY_FAIL();
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    if (timeout_ns > 3600 * TUTTI_NS_PER_S) timeout_ns = 3600 * TUTTI_NS_PER_S;
    const uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(ns / TUTTI_NS_PER_S), until.tv_nsec = (long)(ns % TUTTI_NS_PER_S);
    const struct standin_event *event = handle;
    pthread_mutex_lock(&standin_lock);
    int late = 0;
    while (!event->set && !late) late = pthread_cond_timedwait(&standin_changed, &standin_lock, &until) == ETIMEDOUT;
    const bool set = event->set;
    pthread_mutex_unlock(&standin_lock);
    return set ? XPU_RESULT_OK : XPU_RESULT_NOT_READY;
}

API int zeEventHostReset(void *handle)
{
    struct standin_event *event = handle;
    pthread_mutex_lock(&standin_lock);
    if (event->n_users) standin_fatal("an event is cleared that %u commands name", event->n_users);
    event->set = false;
    pthread_mutex_unlock(&standin_lock);
    return XPU_RESULT_OK;
}

API int zeEventQueryKernelTimestamp(void *handle, struct xpu_timestamps *out)
{
    const struct standin_event *event = handle;
    if (!(event->pool->flags & XPU_EVENT_TIMED)) return XPU_RESULT_INVALID_ARGUMENT;
    pthread_mutex_lock(&standin_lock);
    *out = (struct xpu_timestamps){event->start, event->end, 0, event->end - event->start};
    const bool set = event->set;
    pthread_mutex_unlock(&standin_lock);
    return set ? XPU_RESULT_OK : XPU_RESULT_NOT_READY;
}

API int zeEventDestroy(void *handle)
{
    struct standin_event *event = handle;
    if (event->n_users) standin_fatal("an event is destroyed that %u commands name", event->n_users);
    event->pool->taken[event->index] = false;
    tutti_free(event);
    return XPU_RESULT_OK;
}

API int zeEventPoolDestroy(void *pool)
{
    tutti_free(pool);
    return XPU_RESULT_OK;
}
