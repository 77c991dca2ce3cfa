/* SPDX-License-Identifier: BSD-3-Clause */

/* What streams wait for that only the host can tell: functions of the host, and words that it writes. A thread of the
 * process looks at what it is given, and signals the event that the stream waits for. No kernel spins for that, which
 * might keep out the one that it waits for. */

#include "device/level_zero/driver.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_QUICK 200 /* in vain, before it sleeps longer */
#define NAP_NS UINT64_C(20000)
#define SLEEP_NS UINT64_C(200000)
#define WATCH_STACK_BYTES ((size_t)256 << 10) /* callers' functions run on it */

struct watched {
    struct watched *next;
    const struct xpu_driver *driver;
    struct xpu_mark *reached, *gate; /* reached: of a function, where its stream has come to it */
    void (*function)(void *arg);
    void *arg;
    const uint32_t *word;
    uint32_t value;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static struct watched *first; /* newest last, so that functions are called in the order of a stream */
static bool started, ended;   /* ended: the process does; nothing is asked of the driver any more */

static bool is_due(const struct watched *watched)
{
    if (watched->reached) return watched->driver->event_status(watched->reached->event) == XPU_RESULT_OK;
    return (int32_t)(atomic_load((const _Atomic uint32_t *)(const void *)watched->word) - watched->value) >= 0;
}

/* Without the lock. */
static void carry_out(struct watched *watched)
{
    if (watched->function) watched->function(watched->arg);
    pthread_mutex_lock(&lock);
    if (!ended) watched->driver->event_signal(watched->gate->event);
    pthread_mutex_unlock(&lock);
    xpu_mark_drop(watched->reached);
    xpu_mark_drop(watched->gate);
    tutti_free(watched);
}

/* Under the lock: takes one out that is due; NULL: none is. */
static struct watched *due_take(void)
{
    struct watched **at = &first;
    while (*at && !is_due(*at)) at = &(*at)->next;
    struct watched *found = *at;
    if (found) *at = found->next;
    return found;
}

static void *watch(void *unused)
{
    (void)unused;
    for (unsigned in_vain = 0;;) {
        pthread_mutex_lock(&lock);
        while (!first && !ended) pthread_cond_wait(&given, &lock);
        struct watched *due = ended ? NULL : due_take();
        const bool over = ended;
        pthread_mutex_unlock(&lock);
        if (over) return NULL;
        in_vain = due ? 0 : in_vain + 1;
        if (due)
            carry_out(due);
        else
            tutti_sleep_ns(in_vain < LOOKS_QUICK ? NAP_NS : SLEEP_NS);
    }
}

/* Registered after the driver was opened, so that it is called before the driver's own end. */
static void end(void)
{
    pthread_mutex_lock(&lock);
    ended = true;
    pthread_cond_signal(&given);
    pthread_mutex_unlock(&lock);
}

/* Under the lock. It stays for the process. */
static enum tutti_status start(void)
{
    pthread_t thread;
    if (started) return TUTTI_OK;
    const int error = tutti_thread_start(&thread, WATCH_STACK_BYTES, watch, NULL);
    if (error) return tutti_fail(TUTTI_ERR_SYSTEM, "no thread to watch words of the host: %s", strerror(error));
    pthread_detach(thread);
    atexit(end);
    started = true;
    return TUTTI_OK;
}

/* What was enqueued waits for it: there is no way back. */
static enum tutti_status give(const struct watched *what)
{
    struct watched *watched = tutti_alloc(sizeof *watched), **at = &first;
    if (!watched) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to watch what a stream waits for");
    *watched = *what;
    pthread_mutex_lock(&lock);
    const enum tutti_status status = start();
    while (*at) at = &(*at)->next;
    if (status == TUTTI_OK) *at = watched;
    pthread_cond_signal(&given);
    pthread_mutex_unlock(&lock);
    if (status < 0) tutti_free(watched);
    return status;
}

/* Where no one looks at it, the stream goes on at once. */
static enum tutti_status give_or_open(struct tutti_device *device, void *stream, struct watched *watched)
{
    TUTTI_TRY(xpu_gate(device, stream, &watched->gate));
    const enum tutti_status status = give(watched);
    if (status == TUTTI_OK) return TUTTI_OK;
    watched->driver->event_signal(watched->gate->event);
    xpu_mark_drop(watched->gate);
    return status;
}

enum tutti_status tutti_xpu_stream_wait_word(struct tutti_device *device, void *stream, const uint32_t *word,
                                             uint32_t value)
{
    struct watched watched = {.driver = xpu_calls(device), .word = word, .value = value};
    return give_or_open(device, stream, &watched);
}

/* ---- functions of the host ---- */

struct host_call {
    void (*function)(void *arg);
    void *arg;
};

static int append_host(const struct xpu_driver *driver, void *list, const void *job)
{
    const struct host_call *call = job;
    return driver->append_host(list, call->function, call->arg, NULL, NULL, 0, NULL);
}

enum tutti_status tutti_xpu_host_call(struct tutti_device *device, void *stream, void (*function)(void *arg), void *arg)
{
    const struct host_call call = {function, arg};
    struct watched watched = {.driver = xpu_calls(device), .function = function, .arg = arg};
    if (watched.driver->append_host)
        return xpu_enqueue(
            device, stream,
            &(struct xpu_work){.append = append_host, .job = &call, .call = "zeCommandListAppendHostFunction"});
    TUTTI_TRY(xpu_mark_take(watched.driver, false, &watched.reached));
    enum tutti_status status =
        xpu_enqueue(device, stream, &(struct xpu_work){.signal = watched.reached->event, .call = "calling the host"});
    if (status < 0) {
        xpu_mark_return(watched.reached);
        return status;
    }
    status = give_or_open(device, stream, &watched);
    if (status < 0) xpu_mark_drop(watched.reached);
    return status;
}
