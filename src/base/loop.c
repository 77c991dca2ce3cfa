/* SPDX-License-Identifier: BSD-3-Clause */

/* The loop: one epoll set, a heap of timers (a pairing heap: a server has one for each call), a queue of posts with an
 * eventfd that wakes the thread. */

#include "base/loop.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BATCH 64

struct tutti_loop {
    int epoll_fd;
    struct tutti_loop_fd wake;
    pthread_t thread;
    bool started, stops;
    char name[16];
    uint64_t now_ns;                 /* when this turn began */
    struct tutti_loop_timer *timers; /* the first that is due; below it the others */
    uint64_t n_set;
    struct epoll_event batch[BATCH]; /* this turn's; data.ptr NULL: forgotten */
    int n_batch;
    pthread_mutex_t mutex; /* guards the posts */
    struct tutti_loop_post *first, **last;
};

static _Thread_local const struct tutti_loop *loop_here; /* the loop whose thread this is */

/* ---- posts ---- */

static void wake_drain(struct tutti_loop_fd *w, uint32_t events)
{
    uint64_t count;
    (void)events;
    while (read(w->fd, &count, sizeof count) < 0 && errno == EINTR) continue;
}

void tutti_loop_post(struct tutti_loop *loop, struct tutti_loop_post *post)
{
    const uint64_t one = 1;
    if (atomic_exchange(&post->posted, true)) return;
    pthread_mutex_lock(&loop->mutex);
    const bool was_empty = !loop->first;
    post->next = NULL;
    *loop->last = post;
    loop->last = &post->next;
    /* While it holds the mutex: who took the post could close the loop. */
    while (was_empty && write(loop->wake.fd, &one, sizeof one) < 0 && errno == EINTR) continue;
    pthread_mutex_unlock(&loop->mutex);
}

/* Those that are there now: what they post waits for the next turn, so that times and descriptors have theirs. */
static void posts_call(struct tutti_loop *loop)
{
    pthread_mutex_lock(&loop->mutex);
    struct tutti_loop_post *post = loop->first, *next;
    loop->first = NULL;
    loop->last = &loop->first;
    pthread_mutex_unlock(&loop->mutex);
    for (; post; post = next) {
        next = post->next;
        atomic_store(&post->posted, false);
        post->call(post);
    }
}

struct run {
    struct tutti_loop_post post; /* first: the post is the run */
    void (*call)(void *arg);
    void *arg;
    _Atomic uint32_t done;
};

static void run_call(struct tutti_loop_post *post)
{
    struct run *run = (struct run *)post;
    run->call(run->arg);
    atomic_store(&run->done, 1);
    tutti_futex_wake(&run->done, 1); /* the run may be gone: then nobody sleeps there */
}

void tutti_loop_run(struct tutti_loop *loop, void (*call)(void *arg), void *arg)
{
    struct run run = {.post = {.call = run_call}, .call = call, .arg = arg};
    if (!loop->started || loop_here == loop) {
        call(arg);
        return;
    }
    tutti_loop_post(loop, &run.post);
    while (!atomic_load(&run.done)) tutti_futex_wait(&run.done, 0, TUTTI_NEVER);
}

/* ---- timers ---- */

static bool is_before(const struct tutti_loop_timer *a, const struct tutti_loop_timer *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

/* Two heaps as one; either may be NULL. */
static struct tutti_loop_timer *meld(struct tutti_loop_timer *a, struct tutti_loop_timer *b)
{
    if (!a || !b) return a ? a : b;
    struct tutti_loop_timer *top = is_before(b, a) ? b : a, *below = top == a ? b : a;
    below->next = top->child;
    below->link = &top->child;
    if (below->next) below->next->link = &below->next;
    top->child = below;
    return top;
}

/* Heaps in a row as one: in pairs, then from the last to the first. */
static struct tutti_loop_timer *meld_row(struct tutti_loop_timer *row)
{
    struct tutti_loop_timer *pairs = NULL, *all = NULL;
    while (row) {
        struct tutti_loop_timer *a = row, *b = row->next;
        row = b ? b->next : NULL;
        a->next = NULL;
        if (b) b->next = NULL;
        struct tutti_loop_timer *pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct tutti_loop_timer *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        all = meld(all, pair);
    }
    return all;
}

static void set_top(struct tutti_loop *loop, struct tutti_loop_timer *top)
{
    loop->timers = top;
    if (top) top->link = &loop->timers;
}

void tutti_loop_stop(struct tutti_loop *loop, struct tutti_loop_timer *timer)
{
    if (timer->due_ns == 0) return;
    struct tutti_loop_timer *below = meld_row(timer->child);
    *timer->link = timer->next;
    if (timer->next) timer->next->link = timer->link;
    timer->child = timer->next = NULL;
    timer->due_ns = 0;
    set_top(loop, meld(loop->timers, below));
}

void tutti_loop_at(struct tutti_loop *loop, struct tutti_loop_timer *timer, uint64_t due_ns)
{
    tutti_loop_stop(loop, timer);
    /* Not in this turn: a timer that is always due would keep the loop in it. */
    timer->due_ns = due_ns > loop->now_ns ? due_ns : loop->now_ns + 1;
    timer->number = loop->n_set++;
    set_top(loop, meld(loop->timers, timer));
}

static void timers_call(struct tutti_loop *loop)
{
    for (struct tutti_loop_timer *timer; (timer = loop->timers) && timer->due_ns <= loop->now_ns;) {
        tutti_loop_stop(loop, timer);
        timer->due(timer);
    }
}

/* Milliseconds to sleep, rounded up; -1: nothing is due. */
static int timers_rest(const struct tutti_loop *loop)
{
    if (!loop->timers || loop->timers->due_ns == TUTTI_NEVER) return -1;
    const uint64_t due = loop->timers->due_ns, now = tutti_now_ns();
    const uint64_t ms = due > now ? (due - now + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS : 0;
    return ms < 60000 ? (int)ms : 60000;
}

/* ---- descriptors ---- */

enum tutti_status tutti_loop_watch(struct tutti_loop *loop, struct tutti_loop_fd *w, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = w};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, w->fd, &event) < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not wait for descriptor %d", w->fd);
    return TUTTI_OK;
}

void tutti_loop_change(struct tutti_loop *loop, struct tutti_loop_fd *w, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = w};
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, w->fd, &event);
}

void tutti_loop_forget(struct tutti_loop *loop, struct tutti_loop_fd *w)
{
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    for (int i = 0; i < loop->n_batch; i++)
        if (loop->batch[i].data.ptr == w) loop->batch[i].data.ptr = NULL;
}

/* ---- the thread ---- */

static void turn(struct tutti_loop *loop)
{
    const int n = epoll_wait(loop->epoll_fd, loop->batch, BATCH, timers_rest(loop));
    loop->now_ns = tutti_now_ns();
    loop->n_batch = n > 0 ? n : 0;
    for (int i = 0; i < loop->n_batch; i++) {
        struct tutti_loop_fd *w = loop->batch[i].data.ptr;
        if (w) w->ready(w, loop->batch[i].events);
    }
    loop->n_batch = 0;
    timers_call(loop);
    posts_call(loop);
}

static void *thread_main(void *arg)
{
    struct tutti_loop *loop = arg;
    pthread_setname_np(pthread_self(), loop->name);
    loop_here = loop;
    while (!loop->stops) turn(loop);
    loop_here = NULL;
    return NULL;
}

enum tutti_status tutti_loop_open(const char *thread_name, struct tutti_loop **out)
{
    enum tutti_status status;
    struct tutti_loop *loop = tutti_alloc(sizeof *loop);
    if (!loop) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the loop of %s", thread_name);
    for (size_t i = 0; i + 1 < sizeof loop->name && thread_name[i]; i++) loop->name[i] = thread_name[i];
    loop->last = &loop->first;
    pthread_mutex_init(&loop->mutex, NULL);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = (struct tutti_loop_fd){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = wake_drain};
    if (loop->epoll_fd < 0 || loop->wake.fd < 0)
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "no descriptors for the loop of %s (`ulimit -n`)", thread_name);
    else
        status = tutti_loop_watch(loop, &loop->wake, EPOLLIN);
    if (status < 0)
        tutti_loop_close(loop);
    else
        *out = loop;
    return status;
}

enum tutti_status tutti_loop_start(struct tutti_loop *loop)
{
    loop->started = true; /* before: the thread may call all of this */
    const int failed = tutti_thread_start(&loop->thread, 0, thread_main, loop);
    if (!failed) return TUTTI_OK;
    loop->started = false;
    errno = failed;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not start the thread %s", loop->name);
}

static void stop_call(void *arg)
{
    struct tutti_loop *loop = arg;
    loop->stops = true;
}

void tutti_loop_close(struct tutti_loop *loop)
{
    if (loop->started) {
        tutti_loop_run(loop, stop_call, loop);
        pthread_join(loop->thread, NULL);
    }
    if (loop->wake.fd >= 0) close(loop->wake.fd);
    if (loop->epoll_fd >= 0) close(loop->epoll_fd);
    pthread_mutex_destroy(&loop->mutex);
    tutti_free(loop);
}
