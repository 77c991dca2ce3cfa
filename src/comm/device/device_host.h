/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_DEVICE_DEVICE_HOST_H
#define TUTTI_COMM_DEVICE_DEVICE_HOST_H

/* What the files of the way through the host share. A passage is what goes that way at once: on its stream follow one
 * another the copies to its twin, a host function that tells the thread of the communicator, a wait for the word `go`,
 * the copies back, and a host function that says that it is over. In between the thread carries out the requests on the
 * twin, one passage after the other, in the order of the calls.
 *
 * Threads for each communicator, since a passage may wait for peers, and must hold up no other communicator. A word
 * rather than a host function that blocks: the driver runs the functions of all streams on few threads. */

#include "comm/device/device.h"

/* Pinned host memory that a twin lies in. */
struct tutti_room {
    struct tutti_room *next;
    char *at;
    size_t bytes;
};

struct tutti_passage {
    struct tutti_passage *next; /* in the queue */
    struct tutti_through *through;
    uint32_t number;         /* from 1, modulo 2^32: its stream goes on when `go` has come to it */
    struct tutti_room *room; /* NULL: no byte travels */
    _Atomic bool arrived;
    struct tutti_work **works; /* n, room for the thread */
    size_t n;
    struct tutti_request requests[]; /* on the twin, prepared */
};

struct tutti_through {
    struct tutti_comm *comm;
    struct tutti_device *device;
    _Atomic(struct tutti_comm *) own; /* see tutti_through_enqueue; NULL: the calls are comm's, or there was none yet */

    pthread_mutex_t order; /* of who enqueues; held while the driver waits for streams: the thread never takes it */
    bool runs;             /* the threads, and what follows */
    pthread_t thread, asker;
    _Atomic uint32_t question; /* to the asker */
    void *pulse;               /* an event that is never recorded: asked, it tells whether the device is in order */
    _Atomic uint32_t *go;
    void *end_event, *last; /* recorded on `last`, the stream of the last passage, behind it */

    pthread_mutex_t lock; /* host functions take it: never held across calls of the driver */
    struct tutti_passage *first, **end;
    struct tutti_room *rooms; /* idle ones */
    size_t used_bytes;        /* of rooms in use */

    /* Numbers of passages, and how many are over, which is in no order. All ring the bell. */
    _Atomic uint32_t enqueued, started, n_over;
    _Atomic uint32_t bell;
    _Atomic bool closing;
};

/* Wakes all who sleep on the bell to look again. */
void tutti_through_ring(struct tutti_through *through);
static inline bool tutti_through_passed(uint32_t number, uint32_t counter)
{
    return (int32_t)(counter - number) >= 0;
}
/* Ends the communicator for the reason in the thread's record, which stays. */
void tutti_through_fail(struct tutti_through *through);

/* ---- device_host_run.c: the thread's side ---- */
void *tutti_through_serve(void *through);
/* The thread of questions to the driver, and its end. */
void *tutti_through_ask(void *through);
void tutti_through_ask_no_more(struct tutti_through *through);
void tutti_passage_release(struct tutti_passage *passage); /* of requests that are not started */

/* ---- device_host_room.c ---- */
enum tutti_status tutti_room_take(struct tutti_through *through, size_t bytes, struct tutti_room **out);
void tutti_room_give(struct tutti_through *through, struct tutti_room *room); /* the lock is held */
void tutti_rooms_free(struct tutti_through *through);

#endif
