/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_DEVICE_STAGING_H
#define TUTTI_COMM_DEVICE_STAGING_H

/* What the files of staging share. Calls that are staged together (a group, or one call) put on their stream, one after
 * another: copies to pinned memory, a host function that tells the thread of the communicator, a wait for the word
 * `go`, copies back, and a host function that says that it is over. In between the thread carries out the calls on the
 * pinned copies, in the order in which they were enqueued. A large call is cut into pieces (staging.c): a piece
 * is copied in or out while others travel, and there is a word of the host and one of `go` for each.
 *
 * Each communicator has threads of its own, since calls may wait for peers, and must hold up no other communicator. A
 * stream waits for a word rather than in a host function: the driver runs the functions of all streams on few threads.
 *
 * Begin with staging_enqueue.c (the caller's side), then staging_run.c (the threads'). */

#include "comm/call/device.h"
#include "comm/call/pinned.h"

/* Some slices of a call. */
#define TUTTI_PIECES 32
struct tutti_piece {
    struct tutti_staged *staged;
    uint32_t until; /* the slice behind its last one; it begins where the one before ends */
};

/* Calls that are staged together. */
struct tutti_staged {
    struct tutti_staged *next; /* in the queue */
    struct tutti_staging *staging;
    uint32_t number;             /* from 1, modulo 2^32 */
    uint32_t go;                 /* `go` before it; with each piece that is over it comes one further */
    struct tutti_pinned *pinned; /* NULL: no byte is copied */
    _Atomic bool arrived;        /* the stream has come to it: the copies are there */
    struct tutti_work **works;   /* n, for the thread */
    size_t n;
    uint32_t n_pieces, n_passed; /* n_pieces 1: it is not cut; n_passed: the engine's owner's */
    struct tutti_layout layout;  /* the layout of a call that is cut, */
    struct tutti_gate gate;      /* and its slices */
    struct tutti_piece pieces[TUTTI_PIECES];
    struct tutti_call calls[]; /* on the pinned copies, prepared */
};

struct tutti_staging {
    struct tutti_comm *comm;
    struct tutti_device *device;
    _Atomic(struct tutti_comm *) own; /* see tutti_staging_enqueue; NULL: the calls are comm's, or there was none yet */

    pthread_mutex_t order; /* held to enqueue, also while the driver waits for streams: the thread never takes it */
    uint32_t n_pieces;     /* that were enqueued: where `go` comes to. Under order */
    bool runs;             /* the threads, and what follows */
    pthread_t thread, asker;
    _Atomic uint32_t question; /* to the asker */
    void *pulse;               /* an event that is never recorded: asked, it tells whether the device is in order */
    _Atomic uint32_t *go;
    void *end_event, *last; /* recorded on `last`, the stream of the last calls, behind them */

    pthread_mutex_t lock; /* host functions take it: never held across calls of the driver */
    struct tutti_staged *first, **end;
    struct tutti_pinned_pool *pool; /* the communicator's */

    /* Numbers, and how many are over, which is in no order. All ring the bell. */
    _Atomic uint32_t enqueued, started, n_over;
    _Atomic uint32_t bell;
    _Atomic bool closing;
};

/* ---- staging.c ---- */
/* Takes threads and events at the first call. `order` is held. */
enum tutti_status tutti_staging_ensure(struct tutti_staging *staging);

/* ---- staging.c ---- */
/* Calls on pinned copies, prepared, for the thread that enqueues them. */
void tutti_staging_cut(struct tutti_staged *staged);
/* What is copied in and out as the p-th piece; NULL: all. */
const struct tutti_pinned_part *tutti_staging_part(const struct tutti_staged *staged, uint32_t p,
                                                   struct tutti_pinned_part *out);
/* The function that a stream calls behind the p-th piece that came, and its argument. */
void tutti_staging_arrived(void *piece);

/* ---- staging.c ---- */
/* What the thread that asks the driver is told. */
enum tutti_ask { TUTTI_ASK_NOTHING, TUTTI_ASK, TUTTI_ASK_NO_MORE };
void tutti_staging_question(struct tutti_staging *staging, enum tutti_ask question);
/* Wakes all who wait below to look again. */
void tutti_staging_ring(struct tutti_staging *staging);
/* Sleeps until `holds`, or until_ns; whether it holds. Has the device asked meanwhile. */
bool tutti_staging_wait(struct tutti_staging *staging, bool (*holds)(struct tutti_staging *staging, const void *arg),
                        const void *arg, uint64_t until_ns);
static inline bool tutti_staging_failed(const struct tutti_staging *staging)
{
    return tutti_team_failed(staging->comm->team);
}
/* Ends the communicator for the reason in the thread's record, which stays. */
void tutti_staging_fail(struct tutti_staging *staging);

/* ---- staging_run.c: the threads ---- */
void *tutti_staging_serve(void *staging);
void *tutti_staging_ask(void *staging); /* the body of the thread that asks the driver */

#endif
