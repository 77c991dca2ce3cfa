/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_LOOP_H
#define TUTTI_BASE_LOOP_H

/* A thread that waits for descriptors, times and posts of other threads, and calls back. Who registers something keeps
 * its memory (nothing is allocated here) until it has removed it on the loop's thread.
 *
 *     static void ready(struct tutti_loop_fd *w, uint32_t events) { struct link *link = link_of(w); ... }
 *     link->watch = (struct tutti_loop_fd){.fd = fd, .ready = ready};
 *     tutti_loop_watch(loop, &link->watch, EPOLLIN);
 *
 * Thread: `post` and `run` any; all others the loop's own (or any, before `start`). Posts and runs are called in their
 * order: when `run` has returned, all that the same thread posted before has been called. A time that is past is due in
 * the next turn, so that timers and posts that come again can not keep descriptors waiting. */

#include "base/base.h"

#include <sys/epoll.h>

struct tutti_loop;
struct tutti_loop_fd {
    int fd;
    void (*ready)(struct tutti_loop_fd *w, uint32_t events); /* EPOLLIN ..., level-triggered */
};
struct tutti_loop_timer {
    uint64_t due_ns; /* by CLOCK_MONOTONIC; set by tutti_loop_at */
    void (*due)(struct tutti_loop_timer *timer);
    /* the loop's: a heap; NULL and due_ns 0 at first */
    struct tutti_loop_timer *child, *next, **link; /* the first below it, the next beside it, what points here */
    uint64_t number; /* orders two that are due at once: the first that was set comes first */
};
struct tutti_loop_post {
    void (*call)(struct tutti_loop_post *post);
    struct tutti_loop_post *next;
    _Atomic bool posted; /* false at first; false again before `call` is called */
};

enum tutti_status tutti_loop_open(const char *thread_name, struct tutti_loop **out);
enum tutti_status tutti_loop_start(struct tutti_loop *loop); /* the thread, with all signals blocked */
void tutti_loop_close(struct tutti_loop *loop);              /* joins it; not from the thread itself */

enum tutti_status tutti_loop_watch(struct tutti_loop *loop, struct tutti_loop_fd *w, uint32_t events);
void tutti_loop_change(struct tutti_loop *loop, struct tutti_loop_fd *w, uint32_t events);
void tutti_loop_forget(struct tutti_loop *loop, struct tutti_loop_fd *w); /* `ready` is not called any more */
void tutti_loop_at(struct tutti_loop *loop, struct tutti_loop_timer *timer, uint64_t due_ns); /* again: moves it */
void tutti_loop_stop(struct tutti_loop *loop, struct tutti_loop_timer *timer);
/* Once on the loop's thread; while it is posted, another post of it is the same. */
void tutti_loop_post(struct tutti_loop *loop, struct tutti_loop_post *post);
/* On the loop's thread, and waits until it is done. From the thread itself: at once. */
void tutti_loop_run(struct tutti_loop *loop, void (*call)(void *arg), void *arg);

#endif
