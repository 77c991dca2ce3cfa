/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_WINDOW_STREAM_H
#define TUTTI_COMM_WINDOW_STREAM_H

/* One-sided calls of a rank with a device, on a window whose parts it does not map: each is put on its stream, and goes
 * by the engine's messages when the stream comes to it. There it is copied to pinned memory, a host function starts its
 * access, and where the caller gets something, or lends memory of the host, the stream waits for a word that the
 * engine's owner writes. Neither that owner nor the host function calls the driver, which may wait for the stream.
 *
 * Large calls are pieces, each an access of its own. What is under way is bounded; who enqueues more waits.
 *
 * Begin with stream_calls.c (the caller's side), then stream_run.c (the stream's and the engine's). */

#include "comm/call/pinned.h"
#include "comm/window/window.h"
#include "engine/flight/onesided.h"

/* A window's stream of calls. A driver's stream holds some hundred host functions and waits; a caller that enqueues
 * more is kept within the driver, and with him the mover, for whose signals the stream may be waiting (seen at 128 on
 * an H200). */
#define TUTTI_STREAMED_MOST 32

/* Pinned, a line for each that is under way. */
struct tutti_streamed_word {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t go; /* comes to `turn` when the stream may go on */
    uint64_t before;                                /* an atomic's result, for memory of the device; READ's */
};

/* A call or piece that is under way. */
struct tutti_streamed {
    struct tutti_streamed *next; /* idle ones */
    struct tutti_streams *of;
    struct tutti_streamed_word *word;
    uint32_t turn;            /* modulo 2^32 */
    _Atomic uint32_t n_holds; /* holds by those that read it: stream, engine, caller */
    struct tutti_pinned *pinned;
    enum tutti_access_kind kind;
    struct tutti_one_info info;  /* the part that goes by messages */
    struct tutti_one_wait wait;  /* WAIT's */
    struct tutti_signal_info on; /* for READ and WRITE: the own signal */
};

struct tutti_streams {
    struct tutti_window *window; /* until `closed` */
    struct tutti_own_pad *pad;   /* the window's */
    struct tutti_comm *comm;
    struct tutti_pinned_pool *pool; /* held */
    struct tutti_pinned *words;     /* memory for struct tutti_streamed_word */
    size_t piece_bytes;
    pthread_mutex_t lock; /* the next two lines */
    struct tutti_streamed *idle;
    struct tutti_error error; /* the failure of what could not start, for the next caller */
    _Atomic uint32_t n_used, n_starting;
    _Atomic uint32_t bell, n_listening; /* rung when one is over */
    _Atomic bool closed;
    struct tutti_streamed calls[TUTTI_STREAMED_MOST];
};

/* ---- stream_run.c ---- */
enum tutti_status tutti_streams_open(struct tutti_comm *comm, struct tutti_window *window, struct tutti_streams **out);
/* Waits for what is enqueued, until deadline_ns; what comes later does nothing. NULL: none. */
void tutti_streams_close(struct tutti_streams *streams, uint64_t deadline_ns);
/* One that is idle, held once; waits for it until the time is over. PENDING: none is, and `now`. TIMEOUT, or the
 * communicator's failure. */
enum tutti_status tutti_streamed_take(struct tutti_streams *streams, bool now, uint64_t timeout_ns,
                                      struct tutti_streamed **out);
void tutti_streamed_drop(struct tutti_streamed *streamed); /* one hold */
void tutti_streamed_arrived(void *streamed);               /* what the stream calls: the call starts, */
void tutti_streamed_passed(void *streamed);                /* and the stream has come past its results */
/* Until it is; false: the time is over, or the communicator has failed. */
bool tutti_streamed_wait(struct tutti_streamed *streamed, uint64_t timeout_ns);

#endif
