/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_WORK_H
#define TUTTI_ENGINE_WORK_H

/* Handles of calls, and who is told of their end. A work comes from a pool, is shared by the handle's owner and the
 * engine, and goes back when both let go; so the pool outlives the engine while handles are held. The room uses owner
 * to wait and to hand work over; it knows nothing of teams. Begin with work.c, then notify.c. */

#include "engine/engine.h"
#include "engine/owner.h"

enum tutti_work_type {
    TUTTI_WORK_FLIGHT,
    TUTTI_WORK_RUNNER, /* a flight, too */
    TUTTI_WORK_SEND,
    TUTTI_WORK_RECV,
    TUTTI_WORK_FOLLOWED,
    TUTTI_WORK_WAIT,
    TUTTI_WORK_ACCESS,
    TUTTI_WORK_PROMISED,
    TUTTI_WORK_JOIN,
    TUTTI_N_WORK_TYPES
};
static inline bool tutti_work_flies(enum tutti_work_type type)
{
    return type == TUTTI_WORK_FLIGHT || type == TUTTI_WORK_RUNNER;
}

struct tutti_work {
    struct tutti_works *works;
    struct tutti_team *team; /* while pending */
    struct tutti_work *next; /* pool, submissions, lists of the team */
    enum tutti_work_type type;
    _Atomic uint32_t done; /* then the fields below are final */
    _Atomic uint32_t refs; /* the handle, and the engine while it is in progress */
    uint64_t start_ns, end_ns, timeout_ns, deadline_ns;
    uint64_t seq;
    const char *label;
    const void *home;                   /* the team as a name, complete or not: it may be gone */
    _Atomic(struct tutti_hook *) hooks; /* notices to be queued when it is done (notify.c) */
    struct tutti_error error;
};

struct tutti_notice;
struct tutti_notifier { /* the completion thread's state */
    _Atomic bool runs;
    _Atomic uint32_t word, sleeping;
    _Atomic uint32_t n_run, n_drains; /* functions that returned; threads that wait for that */
    pthread_t thread;
    pthread_mutex_t lock; /* the next lines */
    struct tutti_notice *first, **end;
    uint32_t n_queued, running_number;
    const void *running_home;
    bool stop, ended; /* ended: there is no such thread any more */
};

struct tutti_join {         /* a work that is complete when its children are */
    struct tutti_work work; /* first */
    struct tutti_work **children;
    size_t n;
};

/* All works of an engine. */
struct tutti_works {
    _Atomic uint32_t refs; /* the engine's, one a work, and one of the completion thread */
    uint32_t n_forks;      /* tutti_n_forks when they were made */
    size_t bytes[TUTTI_N_WORK_TYPES];
    struct tutti_owner owner; /* its lock: the next lines */
    struct tutti_work *pool[TUTTI_N_WORK_TYPES];
    struct tutti_work *submitted, **submitted_end;
    _Atomic bool has_submitted;
    struct tutti_notifier notifier;
};

/* ARGUMENT: it is NULL, or of the process that this one was forked off from (work.c). */
enum tutti_status tutti_work_check(const struct tutti_work *work, const char *call);

/* ---- work.c: any thread ---- */
/* bytes: of a work of each type, but for JOIN and PROMISED. NULL: no memory. */
struct tutti_works *tutti_works_create(const size_t bytes[TUTTI_N_WORK_TYPES], uint64_t spin_ns);
void tutti_works_unref(struct tutti_works *works);
void *tutti_work_new(struct tutti_works *works, enum tutti_work_type type); /* NULL: no memory */
void tutti_work_drop(struct tutti_work *work);                              /* one reference */
/* Visits the work, or what a joined one consists of; stops at an error. An empty joined work is its own part. */
enum tutti_status tutti_work_parts(struct tutti_work *work,
                                   enum tutti_status (*visit)(struct tutti_work *part, void *arg), void *arg);
static inline void tutti_works_lock(struct tutti_works *works)
{
    pthread_mutex_lock(&works->owner.lock);
}
static inline void tutti_works_unlock(struct tutti_works *works)
{
    pthread_mutex_unlock(&works->owner.lock);
}

/* ---- work.c: notices ---- */
/* The part is done and may have hooks: queues what is due. */
void tutti_work_due(struct tutti_work *part);
struct tutti_hook {
    struct tutti_hook *next; /* in the same part */
    struct tutti_notice *notice;
};
struct tutti_notice {
    struct tutti_notice *next; /* in the queue */
    struct tutti_work *work;   /* held */
    tutti_work_function function;
    void *arg;
    const void *home;      /* the team of the part that was last, as a name: it may be gone */
    uint32_t number;       /* in the queue */
    _Atomic uint32_t left; /* parts that are not complete */
    struct tutti_hook hooks[];
};
void tutti_notice_run(struct tutti_notice *notice);
bool tutti_notice_runs(void); /* this thread runs one: it waits for no others, which may wait for it */
void tutti_notifier_wake(struct tutti_notifier *notifier);

/* ---- work.c: any thread, where nothing else is said ---- */
/* Queues the work; the engine holds a reference from now on. number: the last number given, of which the work gets the
 * next one; NULL: it gets none. helper: nobody may wait for it. On failure (the helper can not start) nothing was
 * queued. */
enum tutti_status tutti_work_submit(struct tutti_work *work, _Atomic uint64_t *number, bool helper);
/* Owner: what was submitted since the last time, in order. */
struct tutti_work *tutti_works_take(struct tutti_works *works);
/* Owner: publishes the result (NULL: success), wakes, drops the engine's reference. */
void tutti_work_complete(struct tutti_work *work, const struct tutti_error *error);
/* tutti_work_join, tutti_work_past and tutti_work_promise of engine.h. */
enum tutti_status tutti_works_join(struct tutti_works *works, struct tutti_work **children, size_t n,
                                   struct tutti_work **out);
enum tutti_status tutti_works_past(struct tutti_works *works, const void *home, uint64_t seq, uint64_t start_ns,
                                   struct tutti_work **out);
enum tutti_status tutti_works_promise(struct tutti_works *works, const void *home, uint64_t seq, const char *label,
                                      struct tutti_work **out);

/* ---- notify.c: any thread ---- */
/* Runs what is queued and ends the thread. Called from within a function that the thread runs, it ends the thread
 * later. */
void tutti_notifier_stop(struct tutti_works *works);
/* Waits until the functions queued for works of this home have returned. Not from within one. */
void tutti_notifier_drain(struct tutti_works *works, const void *home);
#endif
