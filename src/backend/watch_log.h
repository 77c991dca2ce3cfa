/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_WATCH_LOG_H
#define TUTTI_BACKEND_WATCH_LOG_H

/* What each rank called on a device, as a log in memory of the host that all of them map. Kernels carry no signatures;
 * so the watch compares logs to find ranks that called different things. One rank writes a log, at its communicator's
 * turn; anybody reads it, at any time. */

#include "backend/backend.h"

#include <stdatomic.h>

#define WATCH_MAX_RANKS 16
#define WATCH_LOG_ENTRIES 256
struct watch_entry {
    _Atomic uint64_t seq, signature, call, count; /* call: tutti_call_word */
    _Atomic uint64_t hash;                        /* over all signatures up to this one */
};
struct watch_messages { /* messages with one peer: how many, and a hash of the sizes of the first n at n % 2 */
    _Atomic uint64_t n, hash[2];
};
/* Collectives and messages in the order in which the rank enqueued them. */
#define WATCH_LOG_ITEMS 256
#define WATCH_MESSAGES (UINT64_C(1) << 55)
static inline uint64_t watch_launch_seq(uint64_t launch) /* the collective's; 0: messages */
{
    return launch & WATCH_MESSAGES ? 0 : launch;
}
struct watch_item {
    _Atomic uint64_t launch; /* as kernels report it: a collective's number, or of messages WATCH_MESSAGES | another */
    _Atomic uint64_t with;   /* messages: 2 * peer, + 1 if it is sent */
    _Atomic uint64_t nth;    /* ... between the two in that direction, from 1 */
    _Atomic uint64_t bytes, timeout_ns;
};
struct watch_log {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t n; /* entries posted */
    _Atomic uint64_t over;                         /* the last call that is known to be over, and all before it */
    _Atomic uint64_t n_items, items_over;          /* posted; known to be over, since no graph holds any */
    _Atomic uint32_t closed;                       /* the rank has closed its side */
    _Atomic uint32_t made; /* it has the communicator of the library that carries out its calls */
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t dropped[WATCH_MAX_RANKS]; /* members that touch its scratch no more */
    struct watch_messages sent[WATCH_MAX_RANKS], received[WATCH_MAX_RANKS];
    struct watch_entry entries[WATCH_LOG_ENTRIES];
    struct watch_item items[WATCH_LOG_ITEMS];
};
/* For who reads a log while its rank writes it. */
#define WATCH_LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define WATCH_STORE(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)
static inline const struct watch_entry *watch_log_entry(const struct watch_log *log, uint64_t i)
{
    return &log->entries[i % WATCH_LOG_ENTRIES];
}
static inline const struct watch_item *watch_log_item(const struct watch_log *log, uint64_t i)
{
    return &log->items[i % WATCH_LOG_ITEMS];
}
/* Whether what was read of entry i was whole: entry n - WATCH_LOG_ENTRIES may be being overwritten. */
static inline bool watch_log_keeps(const struct watch_log *log, uint64_t i)
{
    atomic_thread_fence(memory_order_acquire);
    return WATCH_LOAD(log->n) < i + WATCH_LOG_ENTRIES;
}
static inline bool watch_log_keeps_item(const struct watch_log *log, uint64_t i)
{
    atomic_thread_fence(memory_order_acquire);
    return WATCH_LOAD(log->n_items) < i + WATCH_LOG_ITEMS;
}

/* ---- writing and reading one log (watch_log.c) ---- */
/* where: of a method for windows, the window and the offset in it, so that a rank which calls in another window, or in
 * none, is found out; 0: of other methods. timeout_ns: of the launch. */
void watch_log_post(struct watch_log *log, const struct tutti_backend_call *call, uint64_t where, uint64_t timeout_ns);
/* launch: watch_log_round, before the first of those that go together. */
void watch_log_message(struct watch_log *log, uint64_t launch, uint32_t peer, bool sends, size_t bytes,
                       uint64_t timeout_ns);
uint64_t watch_log_round(const struct watch_log *log);
/* The last entry as a board; false: it has called nothing. */
bool watch_log_last(const struct watch_log *log, struct tutti_board *out);
/* The entry of call `seq`; false: it is not there, or not any more. */
bool watch_log_find(const struct watch_log *log, uint64_t seq, struct tutti_board *out);
/* The deadline of a launch, or `otherwise` where it is forgotten. */
uint64_t watch_log_timeout(const struct watch_log *log, uint64_t launch, uint64_t otherwise);
/* ---- comparing two (watch_log.c) ---- */
/* Whether two ranks called different things, as far as both have come and remember: then what each called. */
bool watch_log_differ(const struct watch_log *mine, const struct watch_log *theirs, struct tutti_board *my_call,
                      struct tutti_board *their_call);

/* The first of my calls that they have not made; false: there is none, or it is forgotten. */
bool watch_log_ahead(const struct watch_log *mine, const struct watch_log *theirs, struct tutti_board *out);

/* Two ranks' logs: this one's, a peer's. */
struct watch_pair {
    const struct watch_log *mine, *theirs;
    uint32_t me, peer;
};
/* Whether two ranks see messages between them differently: after the first *n messages, the last point that both have
 * reached, their sizes are not the same. */
bool watch_log_letters(const struct watch_pair *pair, uint64_t *n);

/* ---- what watches make of them (watch_log.c) ---- */
/* The last call of a rank, and what has become of it, as engines' boards
 * say it; kind TUTTI_N_KINDS: it has called nothing. */
void watch_log_board(const struct watch_log *log, struct tutti_board *out);
/* The call of a launch that waits for the peer, or the message; if the launch has several messages, rather one that the
 * peer has not made. */
void watch_log_launched(const struct watch_pair *pair, uint64_t launch, struct tutti_board *out);
/* Whether the peer has not made all calls and messages that this rank has made. */
bool watch_log_behind(const struct watch_pair *pair);
/* Whether the peer has made its parts of a launch; whether it knows all that this rank made with it to be over. */
bool watch_log_made(const struct watch_pair *pair, uint64_t launch);
bool watch_log_done(const struct watch_pair *pair);
/* The first call or message that waits for something which the peer has not made, among those not known to be over. If
 * the peer `died`: rather one that it has made, but is not known to have done. Of calls that the log has forgotten: the
 * first collective, or its number alone. False: there is none. */
bool watch_log_awaits(const struct watch_pair *pair, bool died, struct tutti_board *out);
/* The peer's life as control knows it, for ranks that wait. A peer that left has closed its side after all that it
 * called was over; it counts as alive where nothing waits for more of it. *out: what waits for a peer that is gone. */
enum tutti_life watch_log_life(const struct watch_pair *pair, enum tutti_life life, struct tutti_board *out);
/* A mismatch: two ranks called different things, or one called something on host memory, or one sent what the other
 * does not receive. */
struct watch_mismatch {
    enum { WATCH_CALLS_DIFFER, WATCH_CALLED_ELSEWHERE, WATCH_SIZES_DIFFER } what;
    struct tutti_board mine, theirs; /* calls, those of which there are */
    uint64_t n;                      /* messages so far */
};
/* Whether there is one, and what; the team then fails with its sentence. */
bool watch_log_mismatch(struct tutti_team *team, const struct watch_pair *pair, struct watch_mismatch *out);
void watch_log_tell(struct tutti_team *team, const struct watch_pair *pair, const struct watch_mismatch *found);
/* Whether a peer has been gone long enough to be told: it may have done its part before it went. *since_ns is kept from
 * look to look, 0 at first. */
bool watch_log_gone(uint64_t *since_ns, enum tutti_life life, uint64_t now);

#endif
