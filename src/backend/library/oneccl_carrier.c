/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that is within oneCCL. Its caller hands it one job after the other, and can leave it at any time: then it
 * stays where it is, with all that it works on. */

#include "backend/library/library.h"
#include "backend/library/oneccl.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 4000 /* while it rests, where there are CPUs to spare */
#define ENDING_NS (2 * TUTTI_NS_PER_S)

/* A thread of this process is within oneCCL for ever, and moves what other calls begin: nobody else may go in. */
static _Atomic bool lost;

bool oneccl_is_lost(void)
{
    return atomic_load(&lost);
}

void oneccl_lose(void)
{
    atomic_store(&lost, true);
}

/* ---- within oneCCL ---- */

static int failed(struct oneccl_carrier *c, int result, const char *call)
{
    const char *words = result == ONECCL_OK ? NULL : c->library->last_error(NULL);
    c->failed = call;
    snprintf(c->text, sizeof c->text, "%.199s", words ? words : "");
    return result;
}

static int comm_make(struct oneccl_carrier *c)
{
    int result = c->on_device ? c->library->device_set(c->device) : ONECCL_OK;
    if (result != ONECCL_OK) return failed(c, result, "onecclSetDevice");
    const bool held = oneccl_lock();
    result = c->library->comm_init(&c->comm, c->n, c->id, (int)c->me);
    oneccl_unlock(held);
    return failed(c, result, "onecclCommInitRank");
}

/* Between hosts: what all members say of the call, by a call that is the same whatever they called. */
static int compare(struct oneccl_carrier *c)
{
    uint64_t *mine = c->heard + (size_t)c->n * ONECCL_SAID;
    memcpy(mine, c->job.said, sizeof c->job.said);
    const int result = c->library->all_gather(mine, c->heard, sizeof c->job.said, LIBRARY_INT8, c->comm, NULL);
    for (uint32_t r = 0; r < c->n && result == ONECCL_OK && c->differs == c->n; r++)
        if (c->heard[(size_t)r * ONECCL_SAID] != mine[0]) c->differs = r;
    return failed(c, result, "onecclAllGather");
}

static void job_run(struct oneccl_carrier *c)
{
    c->differs = c->n;
    c->result = c->comm ? ONECCL_OK : comm_make(c);
    if (c->result == ONECCL_OK && c->compares) c->result = compare(c);
    if (c->result == ONECCL_OK && c->differs == c->n)
        c->result = failed(c, c->job.run(c->library, &c->job, c->comm), c->job.name);
}

/* ---- the thread ---- */

static void carrier_free(struct oneccl_carrier *c)
{
    if (c->memory) tutti_unmap(c->memory, c->bytes);
    tutti_free(c->heard);
    tutti_free(c);
}

static uint32_t rest(struct oneccl_carrier *c)
{
    uint32_t state = atomic_load(&c->state);
    for (uint32_t i = 0; c->spins && state == ONECCL_RESTS && i < SPINS; i++) {
        tutti_cpu_relax();
        state = atomic_load(&c->state);
    }
    while (state == ONECCL_RESTS) {
        atomic_store(&c->carrier_sleeps, 1);
        if (atomic_load(&c->state) == ONECCL_RESTS) tutti_futex_wait(&c->state, ONECCL_RESTS, TUTTI_NEVER);
        atomic_store(&c->carrier_sleeps, 0);
        state = atomic_load(&c->state);
    }
    return state;
}

static void destroy(struct oneccl_carrier *c)
{
    if (!c->comm) return;
    const bool held = oneccl_lock();
    c->library->comm_destroy(c->comm);
    oneccl_unlock(held);
}

static void stay(struct oneccl_carrier *c)
{
    for (;;) tutti_futex_wait(&c->state, ONECCL_LEFT, TUTTI_NEVER);
}

static void *carrier_run(void *arg)
{
    struct oneccl_carrier *c = arg;
    uint32_t state, was = ONECCL_ASKED;
    oneccl_stack_find(c);
    while ((state = rest(c)) == ONECCL_ASKED) {
        oneccl_stack_below(c, job_run);
        was = ONECCL_ASKED;
        if (!atomic_compare_exchange_strong(&c->state, &was, ONECCL_RESTS)) stay(c);
        if (atomic_load(&c->caller_sleeps)) tutti_futex_wake(&c->state, INT32_MAX);
    }
    if (state == ONECCL_LEFT) stay(c);
    if (state == ONECCL_QUITS) {
        carrier_free(c);
        return NULL;
    }
    oneccl_stack_below(c, destroy);
    was = ONECCL_ENDS;
    if (!atomic_compare_exchange_strong(&c->state, &was, ONECCL_OVER)) stay(c);
    tutti_futex_wake(&c->state, INT32_MAX);
    return NULL; /* the waiting thread frees */
}

/* ---- its caller ---- */

enum tutti_status oneccl_carrier_start(struct oneccl_carrier **out, const struct oneccl_carrier *like)
{
    struct oneccl_carrier *c = tutti_alloc(sizeof *c);
    if (!c) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for oneCCL's thread");
    *c = *like;
    c->heard = tutti_alloc_array((size_t)c->n + 1, ONECCL_SAID * sizeof(uint64_t));
    if (!c->heard) {
        carrier_free(c);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for oneCCL's thread");
    }
    if (tutti_thread_start(&c->thread, 0, carrier_run, c) != 0) {
        carrier_free(c);
        return tutti_fail(TUTTI_ERR_SYSTEM, "a thread for oneCCL can not be started");
    }
    *out = c;
    return TUTTI_OK;
}

enum tutti_status oneccl_carrier_room(struct oneccl_carrier *c, size_t bytes)
{
    if (bytes <= c->bytes) return TUTTI_OK;
    size_t more = c->bytes ? c->bytes : (size_t)64 << 10;
    while (more < bytes) more *= 2;
    char *memory = tutti_map_lazy(more);
    if (!memory) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes that oneCCL works on", more);
    if (c->memory) tutti_unmap(c->memory, c->bytes);
    c->memory = memory;
    c->bytes = more;
    return TUTTI_OK;
}

enum tutti_status oneccl_carrier_refused(const struct oneccl_carrier *c)
{
    return tutti_fail(TUTTI_ERR_SYSTEM, "%s failed with result %d%s%s", c->failed, c->result, c->text[0] ? ": " : "",
                      c->text);
}

void oneccl_carrier_ask(struct oneccl_carrier *c)
{
    atomic_store(&c->state, ONECCL_ASKED);
    if (atomic_load(&c->carrier_sleeps)) tutti_futex_wake(&c->state, INT32_MAX);
}

static void join(struct oneccl_carrier *c)
{
    pthread_join(c->thread, NULL);
    carrier_free(c);
}

/* It does not rest: its thread is stopped, or goes on at a priority that takes nothing from anybody. One that drives a
 * device may have locks of the driver, which all threads need. */
static void leave(struct oneccl_carrier *c)
{
    const struct sched_param none = {0};
    const int frozen = c->on_device ? -1 : oneccl_freeze(c);
    if (atomic_exchange(&c->state, ONECCL_LEFT) == ONECCL_OVER) {
        oneccl_thaw(frozen);
        join(c);
        return;
    }
    oneccl_lose();
    (void)pthread_setschedparam(c->thread, SCHED_IDLE, &none);
    pthread_detach(c->thread);
    tutti_log(TUTTI_LOG_INFO, "a thread is left within oneCCL, %s", frozen >= 0 ? "stopped" : "where it may spin");
}

uint64_t oneccl_sooner(uint64_t timeout_ns, uint64_t deadline_ns)
{
    const uint64_t own = tutti_deadline_ns(timeout_ns);
    return own < deadline_ns ? own : deadline_ns;
}

void oneccl_carrier_end(struct oneccl_carrier *c, bool well, uint64_t deadline_ns)
{
    const uint64_t until = oneccl_sooner(ENDING_NS, deadline_ns);
    const pthread_t thread = c->thread;
    uint32_t state = ONECCL_RESTS;
    if (!atomic_compare_exchange_strong(&c->state, &state, well ? ONECCL_ENDS : ONECCL_QUITS)) {
        leave(c);
        return;
    }
    tutti_futex_wake(&c->state, INT32_MAX);
    if (!well) {
        pthread_detach(thread); /* it frees what is its */
        return;
    }
    while ((state = atomic_load(&c->state)) == ONECCL_ENDS && tutti_now_ns() < until)
        tutti_futex_wait(&c->state, ONECCL_ENDS, until);
    if (state == ONECCL_OVER)
        join(c);
    else
        leave(c);
}

/* A thread that is left within oneCCL would spin there for ever, move what others begin, and be surprised by the end of
 * the process. So its stack is given to a userfaultfd that nobody reads: the next thing that it writes there stops it.
 * The process ends as ever; what the thread holds stays held. */

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* Linux 5.11; absent from older headers */
#endif
#define APART_PAGES 2 /* between what the carrier itself uses of its stack and what oneCCL does */

void oneccl_stack_find(struct oneccl_carrier *c)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    pthread_attr_t attributes;
    void *low = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    if (pthread_attr_getstack(&attributes, &low, &bytes) != 0) low = NULL;
    pthread_attr_destroy(&attributes);
    if (!low) return;
    c->stack[0] = ((uintptr_t)low + page - 1) / page * page;
    c->stack[1] = (uintptr_t)__builtin_frame_address(0) / page * page - APART_PAGES * page;
}

/* Frames of what it calls lie where the thread can be stopped. */
__attribute__((noinline)) void oneccl_stack_below(struct oneccl_carrier *c, void (*function)(struct oneccl_carrier *c))
{
    char gap[(APART_PAGES + 2) * 4096];
    __asm__ volatile("" : : "r"(gap) : "memory");
    function(c);
    __asm__ volatile("" : : "r"(gap) : "memory"); /* it is there until the function has returned */
}

int oneccl_freeze(const struct oneccl_carrier *c)
{
#if defined(SYS_userfaultfd) && defined(UFFDIO_WRITEPROTECT)
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect protect = {.mode = UFFDIO_WRITEPROTECT_MODE_WP};
    if (!c->stack[0] || c->stack[1] <= c->stack[0]) return -1;
    range.range = protect.range = (struct uffdio_range){.start = c->stack[0], .len = c->stack[1] - c->stack[0]};
    const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0) return -1;
    if (ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0 &&
        ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0)
        return fd;
    close(fd);
#else
    (void)c;
#endif
    return -1;
}

void oneccl_thaw(int frozen)
{
    if (frozen >= 0) close(frozen);
}
