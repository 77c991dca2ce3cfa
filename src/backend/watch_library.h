/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_WATCH_LIBRARY_H
#define TUTTI_BACKEND_WATCH_LIBRARY_H

/* What back ends over a library of another maker share (nccl, oneccl): events around each of its calls, which say when
 * a call's turn came and when it was over; how its streams are tied; how the making of its communicator waits for
 * peers; and how what it fails with is told. */

#include "backend/watch.h"
#include "device/device.h"

/* A call in flight, with an event before and after it, so that its time counts from when its turn came. A mark serves
 * another call once the watch has seen that its own call is over; a caller that is so far ahead waits for that. Events
 * are made at first use. */
#define WATCH_MARKS WATCH_LOG_ENTRIES /* the log has what is in flight */
struct watch_mark {
    void *begun, *over;
    _Atomic uint64_t launch, timeout_ns; /* launch: of the call's items in the log, */
    _Atomic uint64_t items;              /* which then had as many */
};
struct watch_marks {
    struct watched *watched;
    struct tutti_device *gpu;
    const char *name; /* the back end's */
    /* All under the communicator's turn. Of the calls enqueued the last one's mark is n_enqueued - 1; fewer than
     * WATCH_MARKS are not over. */
    struct watch_mark of[WATCH_MARKS];
    void *stream; /* the last one's */
    /* for the watch */
    _Atomic uint64_t turn_ns; /* when the turn of the first that is not over came, 0: not yet */
    _Atomic uint64_t
        within_ns;        /* since when a call is within the library, 0: none is; its mark is that of n_enqueued */
    _Atomic bool stopped; /* what is over from now on is not done */
};

/* ---- a call, by its caller ---- */
/* The team's failure, if there is one. */
enum tutti_status watch_state(const struct watched *w);
/* Waits until one more can be in flight. TIMEOUT: peers may have made the call. */
enum tutti_status watch_marks_wait(struct watch_marks *m, uint64_t timeout_ns);
/* The next mark is of this launch (0: of messages that are about to be posted). */
void watch_marks_next(struct watch_marks *m, uint64_t launch, uint64_t timeout_ns);
/* Around what is enqueued. The stream comes after the one before. */
enum tutti_status watch_marks_begin(struct watch_marks *m, void *stream);
enum tutti_status watch_marks_end(struct watch_marks *m, void *stream);
void watch_marks_post(const struct watch_marks *m, const struct tutti_backend_message *messages, size_t n,
                      uint64_t timeout_ns);

/* ---- waiting for peers, and failing ---- */
/* OK after a nap if there is any point in waiting on; else why not: deaths, the deadline. */
enum tutti_status watch_go_on(const struct watched *w, uint64_t timeout_ns, uint64_t deadline_ns, const char *what);
/* So long an error of a library is not told: if a peer is found dead meanwhile, the error was only an echo of that. */
#define WATCH_ECHO_NS (300 * TUTTI_NS_PER_MS)
/* Until the team has failed, or as long as that. */
void watch_echo_wait(const struct watched *w);
/* The thread's record as the end of the team; stops the device. seq 0: it has none. */
enum tutti_status watch_fail(struct watched *w, const char *what, uint64_t seq);

/* ---- the watch's part (struct watch_ops) ---- */
void watch_marks_ask(struct watch_marks *m);
/* A call has had its turn for too long, or does not come out of the library. True: it was told. */
bool watch_marks_late(struct watch_marks *m, uint64_t now);
/* The communicator takes all members to make: who left before that (watch_log.made) is missed, whatever was called. */
enum tutti_life watch_library_life(const struct watched *w, uint32_t peer, struct tutti_board *call);

/* ---- the end ---- */
void *watch_marks_last(const struct watch_marks *m); /* an event; NULL: nothing was enqueued */
/* Whether all that was enqueued is over at the deadline, and well. */
bool watch_marks_over(struct watch_marks *m, uint64_t deadline_ns);
/* Peers may still be reading what the library has here. True: all are done with it. */
bool watch_peers_done(const struct watched *w);
void watch_marks_free(struct watch_marks *m);

#endif
