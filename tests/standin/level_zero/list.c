/* SPDX-License-Identifier: BSD-3-Clause */
/* Command lists and queues. An immediate list and a queue are a thread each. What lies between two barriers is not
 * ordered: the thread takes the last of it first, so that who forgets a barrier is found out. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

#define WAITS_MOST 4

enum kind { BARRIER, COPY, FILL, KERNEL, CALL };
struct command {
    struct command *next;
    enum kind kind;
    struct standin_event *signal;
    uint32_t n_waits;
    void *waits[WAITS_MOST];
    void *dst;
    const void *src;
    size_t bytes, pattern_bytes;
    unsigned char pattern[16];
    struct standin_launch launch;
    void (*function)(void *arg);
    void *arg;
};
struct list {
    struct list *next; /* in the list of all that have a thread */
    struct command *first, **end;
    uint64_t n_enqueued, n_over;
    bool immediate, closed, executed, ends;
    void *device;
    pthread_t thread;
};
static struct list *running; /* under the lock */

/* ---- threads ---- */

/* TUTTI_STANDIN_XPU_BARRIERS=0: those of events alone. */
static bool has_barriers(void)
{
    return standin_setting("TUTTI_STANDIN_XPU_BARRIERS", 1) != 0;
}

static bool is_barrier(const struct command *c)
{
    return c->kind == BARRIER && (c->n_waits || c->signal || has_barriers());
}

/* Under the lock: the barrier, if it is next, else the last before it. */
static struct command *next_of(struct list *list)
{
    struct command **at = &list->first;
    if (!*at) return NULL;
    while (!is_barrier(*at) && (*at)->next && !is_barrier((*at)->next)) at = &(*at)->next;
    struct command *found = *at;
    *at = found->next;
    if (!*at) list->end = at;
    return found;
}

/* As some boards do: TUTTI_STANDIN_XPU_WRONG in driver.c. */
static void copy(const struct command *c)
{
    memmove(c->dst, c->src, c->bytes);
    if (c->bytes > 4096 && standin_setting("TUTTI_STANDIN_XPU_WRONG", 0) == 3 && standin_is_between(c->dst, c->src))
        *(unsigned char *)c->dst ^= 1;
}

static void launch(const struct command *c, const struct list *list)
{
    const bool blind = standin_setting("TUTTI_STANDIN_XPU_WRONG", 0) == 2;
    if (standin_setting("TUTTI_STANDIN_XPU_WRONG", 0) == 4) return;
    if (blind) standin_hide(list->device);
    standin_kernel_run(c->launch.index, c->launch.groups, c->launch.group_size, c->launch.argument,
                       (uint32_t)standin_setting("TUTTI_STANDIN_XPU_ROOM", UINT32_MAX));
    if (blind) standin_show(list->device);
}

static void carry_out(const struct command *c, const struct list *list)
{
    switch (c->kind) {
    case BARRIER:
        break;
    case COPY:
        copy(c);
        break;
    case FILL:
        for (size_t i = 0; i < c->bytes; i++) ((unsigned char *)c->dst)[i] = c->pattern[i % c->pattern_bytes];
        break;
    case KERNEL:
        launch(c, list);
        break;
    case CALL:
        c->function(c->arg);
        break;
    }
}

/* Under the lock, which it gives back meanwhile. */
static void command_run(struct command *c, const struct list *list)
{
    for (uint32_t i = 0; i < c->n_waits; i++) {
        struct standin_event *event = c->waits[i];
        while (!event->set) pthread_cond_wait(&standin_changed, &standin_lock);
    }
    const uint64_t start = tutti_now_ns();
    pthread_mutex_unlock(&standin_lock);
    carry_out(c, list);
    pthread_mutex_lock(&standin_lock);
    for (uint32_t i = 0; i < c->n_waits; i++) standin_event_leave(c->waits[i]);
    standin_event_leave(c->signal);
    if (c->signal) standin_event_set(c->signal, start);
    tutti_free(c);
}

/* Under the lock, which it gives back meanwhile. */
static void more_come(void)
{
    pthread_mutex_unlock(&standin_lock);
    tutti_sleep_ns(5 * TUTTI_NS_PER_MS);
    pthread_mutex_lock(&standin_lock);
}

static void *serve(void *arg)
{
    struct list *list = arg;
    pthread_mutex_lock(&standin_lock);
    for (;;) {
        while (!list->first && !list->ends) pthread_cond_wait(&standin_changed, &standin_lock);
        if (!has_barriers()) more_come();
        struct command *next = next_of(list);
        if (!next) break;
        command_run(next, list);
        list->n_over++;
        pthread_cond_broadcast(&standin_changed);
    }
    pthread_mutex_unlock(&standin_lock);
    return NULL;
}

void standin_drain(void)
{
    for (struct list *list = running; list; list = list->next) {
        const uint64_t until = list->n_enqueued;
        while (list->n_over < until) pthread_cond_wait(&standin_changed, &standin_lock);
    }
}

/* ---- life ---- */

static int make(bool threaded, void *device, void **out)
{
    struct list *list = tutti_alloc(sizeof *list);
    if (!list) return XPU_RESULT_OUT_OF_HOST_MEMORY;
    list->end = &list->first;
    list->immediate = threaded, list->device = device;
    if (threaded && pthread_create(&list->thread, NULL, serve, list) != 0) {
        tutti_free(list);
        return XPU_RESULT_OUT_OF_HOST_MEMORY;
    }
    pthread_mutex_lock(&standin_lock);
    if (threaded) list->next = running, running = list;
    pthread_mutex_unlock(&standin_lock);
    *out = list;
    return XPU_RESULT_OK;
}

static int destroy(struct list *list)
{
    pthread_mutex_lock(&standin_lock);
    if (list->n_over < list->n_enqueued) standin_fatal("a list is destroyed that has commands to carry out");
    struct list **at = &running;
    while (*at && *at != list) at = &(*at)->next;
    if (*at) *at = list->next;
    list->ends = true;
    while (list->first) { /* a list that was not executed */
        struct command *c = list->first;
        list->first = c->next;
        standin_event_leave(c->signal);
        for (uint32_t i = 0; i < c->n_waits; i++) standin_event_leave(c->waits[i]);
        tutti_free(c);
    }
    pthread_cond_broadcast(&standin_changed);
    pthread_mutex_unlock(&standin_lock);
    if (list->immediate) pthread_join(list->thread, NULL);
    tutti_free(list);
    return XPU_RESULT_OK;
}

static bool is_queue_desc(const struct xpu_queue_desc *desc)
{
    return desc->structure == XPU_STRUCTURE_QUEUE && !desc->next && desc->group == 0 && desc->index == 0 &&
           desc->mode == XPU_QUEUE_ASYNCHRONOUS;
}

API int zeCommandListCreateImmediate(void *context, void *device, const struct xpu_queue_desc *desc, void **list)
{
    STANDIN_MAY_FAIL();
    if (!context || !standin_is_device(device) || !is_queue_desc(desc)) return XPU_RESULT_INVALID_ARGUMENT;
    return make(true, device, list);
}

API int zeCommandListCreate(void *context, void *device, const struct xpu_list_desc *desc, void **list)
{
    STANDIN_MAY_FAIL();
    if (!context || !standin_is_device(device) || desc->structure != XPU_STRUCTURE_LIST || desc->group != 0)
        return XPU_RESULT_INVALID_ARGUMENT;
    return make(false, device, list);
}

API int zeCommandListDestroy(void *list)
{
    return destroy(list);
}

API int zeCommandListClose(void *handle)
{
    struct list *list = handle;
    if (list->immediate || list->closed) return XPU_RESULT_INVALID_ARGUMENT;
    list->closed = true;
    return XPU_RESULT_OK;
}

API int zeCommandListReset(void *handle)
{
    struct list *list = handle;
    if (list->immediate || list->first) return XPU_RESULT_INVALID_ARGUMENT;
    list->closed = list->executed = false;
    return XPU_RESULT_OK;
}

API int zeCommandQueueCreate(void *context, void *device, const struct xpu_queue_desc *desc, void **queue)
{
    if (!context || !standin_is_device(device) || !is_queue_desc(desc)) return XPU_RESULT_INVALID_ARGUMENT;
    return make(true, device, queue);
}

API int zeCommandQueueDestroy(void *queue)
{
    return destroy(queue);
}

/* A list is executed once, then to be reset. */
API int zeCommandQueueExecuteCommandLists(void *queue, uint32_t n, void **lists, void *fence)
{
    STANDIN_MAY_FAIL();
    struct list *to = queue;
    if (fence) return XPU_RESULT_UNSUPPORTED_FEATURE;
    pthread_mutex_lock(&standin_lock);
    for (uint32_t i = 0; i < n; i++) {
        struct list *from = lists[i];
        if (!from->closed || from->executed) standin_fatal("a list is executed that is open, or was executed before");
        for (const struct command *c = from->first; c; c = c->next) to->n_enqueued++;
        if (from->first) *to->end = from->first, to->end = from->end;
        from->first = NULL, from->end = &from->first;
        from->executed = true;
    }
    pthread_cond_broadcast(&standin_changed);
    pthread_mutex_unlock(&standin_lock);
    return XPU_RESULT_OK;
}

/* ---- what is appended ---- */

static int append(void *handle, struct command what, void *signal, uint32_t n_waits, void **waits)
{
    struct list *list = handle;
    if (!list || n_waits > WAITS_MOST || (n_waits && !waits) || (!n_waits && waits) || list->closed)
        return XPU_RESULT_INVALID_ARGUMENT;
    struct command *c = tutti_alloc(sizeof *c);
    if (!c) return XPU_RESULT_OUT_OF_HOST_MEMORY;
    *c = what;
    c->signal = signal, c->n_waits = n_waits;
    for (uint32_t i = 0; i < n_waits; i++) c->waits[i] = waits[i];
    pthread_mutex_lock(&standin_lock);
    standin_events_use(signal, n_waits, waits);
    *list->end = c, list->end = &c->next;
    if (list->immediate) list->n_enqueued++;
    pthread_cond_broadcast(&standin_changed);
    pthread_mutex_unlock(&standin_lock);
    return XPU_RESULT_OK;
}

API int zeCommandListAppendBarrier(void *list, void *signal, uint32_t n_waits, void **waits)
{
    STANDIN_MAY_FAIL();
    return append(list, (struct command){.kind = BARRIER}, signal, n_waits, waits);
}

API int zeCommandListAppendMemoryCopy(void *list, void *dst, const void *src, size_t bytes, void *signal,
                                      uint32_t n_waits, void **waits)
{
    STANDIN_MAY_FAIL();
    if (!dst || !src) return XPU_RESULT_INVALID_ARGUMENT;
    return append(list, (struct command){.kind = COPY, .dst = dst, .src = src, .bytes = bytes}, signal, n_waits, waits);
}

API int zeCommandListAppendMemoryFill(void *list, void *pointer, const void *pattern, size_t pattern_bytes,
                                      size_t bytes, void *signal, uint32_t n_waits, void **waits)
{
    STANDIN_MAY_FAIL();
    struct command fill = {.kind = FILL, .dst = pointer, .bytes = bytes, .pattern_bytes = pattern_bytes};
    if (!pointer || pattern_bytes == 0 || pattern_bytes > sizeof fill.pattern) return XPU_RESULT_INVALID_ARGUMENT;
    memcpy(fill.pattern, pattern, pattern_bytes);
    return append(list, fill, signal, n_waits, waits);
}

API int zeCommandListAppendLaunchKernel(void *list, void *kernel, const struct xpu_grid *grid, void *signal,
                                        uint32_t n_waits, void **waits)
{
    STANDIN_MAY_FAIL();
    struct command launch = {.kind = KERNEL, .launch = {.groups = grid->groups[0]}};
    if (grid->groups[1] != 1 || grid->groups[2] != 1 || !standin_kernel_capture(kernel, &launch.launch))
        return XPU_RESULT_INVALID_ARGUMENT;
    return append(list, launch, signal, n_waits, waits);
}

/* For stand-ins of libraries that have kernels of their own: no call of Level Zero's. On a list, or a queue. */
API int standin_list_call(void *list, void (*function)(void *arg), void *arg);
API int standin_list_call(void *list, void (*function)(void *arg), void *arg)
{
    const int result = append(list, (struct command){.kind = BARRIER}, NULL, 0, NULL);
    if (result != XPU_RESULT_OK) return result;
    return append(list, (struct command){.kind = CALL, .function = function, .arg = arg}, NULL, 0, NULL);
}

/* The same: whether all that was appended is over. */
API int standin_list_is_idle(void *list);
API int standin_list_is_idle(void *list)
{
    const struct list *of = list;
    pthread_mutex_lock(&standin_lock);
    const bool idle = of->n_over == of->n_enqueued;
    pthread_mutex_unlock(&standin_lock);
    return idle;
}
