/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting so that Ctrl-C works: Python runs the handlers of signals in its main thread, between two steps of its own.
 * So waits of that thread are cut into slices, and what the library can only do in one piece (split, window_create) is
 * done by a thread of its own while the main thread looks. Other threads wait as they are. */
#include "module.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define SLICE_NS 50000000

static pthread_t main_thread;

static void forked(void)
{
    main_thread = pthread_self();
}

bool waits_make(void)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident) main_thread = (pthread_t)PyLong_AsUnsignedLong(ident);
    Py_DecRef(threading), Py_DecRef(thread), Py_DecRef(ident);
    (void)pthread_atfork(NULL, NULL, forked);
    return !PyErr_Occurred();
}

bool is_main_thread(void)
{
    return pthread_equal(pthread_self(), main_thread);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

enum tutti_status wait_work(struct tutti_work *work, uint64_t timeout_ns, struct tutti_error *error)
{
    const uint64_t end_ns = timeout_ns ? now_ns() + timeout_ns : 0;
    const bool hears = is_main_thread();
    for (;;) {
        uint64_t slice_ns = hears ? SLICE_NS : timeout_ns;
        if (hears && timeout_ns && timeout_ns < slice_ns) slice_ns = timeout_ns;
        LOCK_GIVE();
        enum tutti_status status = tutti_work_wait(work, slice_ns);
        if (status < 0) tutti_work_error(work, error);
        LOCK_TAKE();
        if (status != TUTTI_PENDING || PyErr_CheckSignals() < 0) return status;
        if (!timeout_ns) continue;
        const uint64_t now = now_ns();
        if (now >= end_ns) return TUTTI_PENDING;
        timeout_ns = end_ns - now;
    }
}

/* ---- functions that wait inside the library ---- */

struct errand {
    enum tutti_status (*function)(void *arg);
    void (*undo)(void *arg);
    void *arg;
    pthread_mutex_t lock; /* the next two */
    pthread_cond_t changed;
    bool is_over, is_left; /* whichever comes second ends the errand */
    enum tutti_status status;
    struct tutti_error error;
};

static void errand_end(struct errand *errand)
{
    pthread_cond_destroy(&errand->changed);
    pthread_mutex_destroy(&errand->lock);
    free(errand);
}

static void *errand_run(void *arg)
{
    struct errand *errand = arg;
    errand->status = errand->function(errand->arg);
    if (errand->status < 0) errand->error = *tutti_last_error();
    pthread_mutex_lock(&errand->lock);
    errand->is_over = true;
    const bool is_left = errand->is_left;
    pthread_cond_signal(&errand->changed);
    pthread_mutex_unlock(&errand->lock);
    if (is_left) {
        errand->undo(errand->arg);
        errand_end(errand);
    }
    return NULL;
}

static struct errand *errand_start(enum tutti_status (*function)(void *arg), void (*undo)(void *arg), void *arg)
{
    struct errand *errand = calloc(1, sizeof *errand);
    pthread_condattr_t monotonic;
    pthread_t thread;
    if (!errand) return NULL;
    errand->function = function, errand->undo = undo, errand->arg = arg;
    pthread_mutex_init(&errand->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&errand->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&thread, NULL, errand_run, errand) != 0) {
        errand_end(errand);
        return NULL;
    }
    pthread_detach(thread);
    return errand;
}

/* One slice. With the errand's lock, without the interpreter's. */
static void errand_look(struct errand *errand)
{
    struct timespec until;
    const uint64_t end_ns = now_ns() + SLICE_NS;
    until.tv_sec = (time_t)(end_ns / 1000000000u), until.tv_nsec = (long)(end_ns % 1000000000u);
    for (int got = 0; !errand->is_over && got != ETIMEDOUT;)
        got = pthread_cond_timedwait(&errand->changed, &errand->lock, &until);
}

/* Without a thread, as it is. */
static enum tutti_status carry_out(enum tutti_status (*function)(void *arg), void *arg, struct tutti_error *error)
{
    LOCK_GIVE();
    const enum tutti_status status = function(arg);
    if (status < 0) *error = *tutti_last_error();
    LOCK_TAKE();
    return status;
}

enum tutti_status wait_function(enum tutti_status (*function)(void *arg), void (*undo)(void *arg), void *arg,
                                struct tutti_error *error)
{
    struct errand *errand = is_main_thread() ? errand_start(function, undo, arg) : NULL;
    if (!errand) return carry_out(function, arg, error);
    for (;;) {
        LOCK_GIVE();
        pthread_mutex_lock(&errand->lock);
        errand_look(errand);
        bool is_over = errand->is_over;
        pthread_mutex_unlock(&errand->lock);
        LOCK_TAKE();
        if (!is_over && PyErr_CheckSignals() < 0) {
            pthread_mutex_lock(&errand->lock);
            is_over = errand->is_over;
            errand->is_left = true;
            pthread_mutex_unlock(&errand->lock);
            if (!is_over) return TUTTI_PENDING; /* the thread ends it */
            undo(arg);
            errand_end(errand);
            return TUTTI_PENDING;
        }
        if (!is_over) continue;
        const enum tutti_status status = errand->status;
        *error = errand->error;
        errand_end(errand);
        return status;
    }
}
