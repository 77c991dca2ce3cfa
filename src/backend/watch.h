/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_WATCH_H
#define TUTTI_BACKEND_WATCH_H

/* The watch over back ends that enqueue on devices: cuda, xpu, nccl and oneccl. Their calls return long before their
 * kernels run, so it is the watch that finds out what goes wrong (a call runs out of time, ranks called different
 * things, a peer is gone). It stops the device, and fails the team with the sentence that engines have for it. It
 * touches no data. It may use the engine and all below it, and the contract of back ends.
 *
 * A rank has one watch for all instances of a world (struct tutti_backend_host), with two threads while there are
 * instances. One asks the driver what is over, and does nothing else: the driver may keep it waiting until the device
 * is idle. The other one looks at memory of the host alone, so it can always stop a kernel that waits for a dead peer.
 *
 * An instance embeds a struct watched, and says by a struct watch_ops how its calls are asked for and stopped. Each
 * member writes what it enqueues into a log that all map (watch_log.h): from two logs the watch tells who called what.
 *
 * Begin with this file; then watch.c (the threads), watch_log.c (logs, and what two of them tell),
 * watch_member.c (logs opened and mapped, and what stays for peers when an instance is closed), watch_library.h (what
 * back ends over another maker's library share). */

#include "backend/backend.h"
#include "backend/watch_log.h"

struct watched;

/* What a rank has for all instances of a world; made by the first one (struct tutti_backend_host). */
struct watch {
    pthread_mutex_t life;         /* held to start and end the threads */
    pthread_mutex_t asking, lock; /* guard the list: changed with both; held while asking, while looking */
    struct watched *first;
    pthread_t threads[2];
    bool runs;
    _Atomic uint32_t wake; /* moves when there is something to look at, or to end for */
    _Atomic uint32_t n_asleep;
    _Atomic bool ends;
    pthread_mutex_t keeping; /* guards what follows */
    struct watch_kept *kept; /* what stays for peers */
};

struct watch_ops {
    /* Stops all that waits on the device, without waiting for anybody. True: nothing is left to be stopped. */
    bool (*stop)(struct watched *w);
    /* Finds what only the back end can see, in memory of the host. True: the device must be stopped, or it is stopped
     * and the team has failed. */
    bool (*look)(struct watched *w, uint64_t now_ns);
    /* Asks the driver what is over, and counts it in n_over. */
    void (*ask)(struct watched *w);
    /* Whether there is anything to look after besides calls in flight. NULL: no. */
    bool (*waits)(const struct watched *w);
    /* Whether a peer lives, for those who wait (watch_log_life). NULL: as its log and the transport say. */
    enum tutti_life (*life)(const struct watched *w, uint32_t peer, struct tutti_board *call);
};

struct watched {
    const struct watch_ops *ops;
    struct watch *watch;
    struct tutti_transport *transport;
    struct tutti_control *control; /* tells who lives */
    struct tutti_team *team;
    uint32_t members[WATCH_MAX_RANKS]; /* the transport's numbers */
    uint32_t n, me;
    struct watch_log *logs[WATCH_MAX_RANKS];
    size_t log_bytes;
    bool addresses; /* logs are addresses of this process */
    bool seen;      /* this member has seen all cards, and may have mapped what they tell of */
    bool agreed;    /* all members know how opening has ended */

    _Atomic uint64_t n_enqueued; /* calls that were enqueued outside of captures, */
    _Atomic uint64_t n_over;     /* and those that are known to be over */
    _Atomic bool tends;          /* `ask` has something to do without calls in flight, too */
    _Atomic bool captured;       /* graphs hold calls: any may be in flight at any time */

    /* the watch's */
    struct watched *next;
    bool listed;
    uint64_t gone_ns[WATCH_MAX_RANKS]; /* when a peer was first found gone */
    _Atomic bool told;                 /* the device is stopped: there is nothing left to look for */
};

static inline struct watch_log *watch_own_log(const struct watched *w)
{
    return w->logs[w->me];
}
static inline struct watch_pair watch_pair_of(const struct watched *w, uint32_t peer)
{
    return (struct watch_pair){w->logs[w->me], w->logs[peer], w->me, peer};
}

/* ---- members (watch_member.c) ---- */
/* Fills w for this member, and opens its log: log_bytes, of which the first are a struct watch_log. *where is for the
 * cards. UNSUPPORTED: there are too many ranks, or no memory that all of them map; `name` is the back end's. */
enum tutti_status watch_member_open(struct watched *w, const struct tutti_backend_config *config, const char *name,
                                    size_t log_bytes, uint64_t *where);
/* Maps a peer's log. First of all for all peers, so that each hears when this member closes. */
enum tutti_status watch_member_map(struct watched *w, uint32_t r, uint64_t where);
/* What peers' kernels may touch until they have closed, too: given back by release(gpu, memory). NULL: nothing. */
struct watch_remains {
    void (*release)(struct tutti_device *gpu, void *memory);
    struct tutti_device *gpu;
    void *memory;
};
/* Tells peers that this member has closed. Its log and what remains stay until all of them have, too, or are gone. */
void watch_member_close(struct watched *w, struct watch_remains remains);

/* ---- looking (watch.c) ---- */
enum tutti_status watch_add(struct watched *w);
void watch_remove(struct watched *w); /* if it was added */
void watch_wake(struct watched *w);   /* something was enqueued */
void watch_hurry(struct watched *w);  /* the caller waits for calls to be over */
void watch_now(struct watched *w);    /* looks, on this thread */
static inline bool watch_is_in_flight(const struct watched *w)
{
    return atomic_load(&w->n_over) != atomic_load(&w->n_enqueued);
}
/* Whether no call of any instance of the rank is known to be in flight. By the asking thread. */
bool watch_is_quiet(const struct watch *watch);
/* A launch has run out of time, waiting for the peer: stops the device, fails the team. */
void watch_tell_late(struct watched *w, uint64_t launch, uint32_t peer, uint64_t timeout_ns);
enum tutti_life watch_life(const struct watched *w, uint32_t peer, struct tutti_board *call);

#endif
