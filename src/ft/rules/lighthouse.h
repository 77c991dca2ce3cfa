/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RULES_LIGHTHOUSE_H
#define TUTTI_FT_RULES_LIGHTHOUSE_H

/* The groups that take part in the next step: the rules of quorums of replica groups, as a machine without sockets,
 * threads or clocks. Requests, heartbeats and the time go in; answers come out through struct tutti_lighthouse_out. The
 * rules are torchft's (github.com/meta-pytorch/torchft, src/lighthouse.rs of 2026-04), so that its managers get the
 * answers that they expect, but for four things that go wrong there: a group that does not wait any more is no member;
 * a quorum is never empty; groups that were not heard for long are forgotten; a quorum's number is never used twice,
 * even after a restart (tutti_lighthouse_restore).
 *
 * A group is heard: its last heartbeat is younger than heartbeat_timeout. It asks: one of its requests is open. It is
 * ready: both. A quorum of all ready groups, in the order of their names, is published
 *   - at once, when all members of the last quorum are ready (only these, when a ready group asks to shrink only);
 *   - else when at least min_replicas and more than half of those that are heard are ready, and either all that are
 *     heard are ready or the oldest open request has waited for join_timeout.
 * Its number rises when its members are others than the last time, or when one of them could not commit.
 *
 * Cost: a heartbeat O(log groups), a request O(log groups) and one copy of it, a published quorum O(groups); nothing is
 * looked through while nothing changes.
 *
 * Thread: one at a time. Times are of one clock that never goes back. Ownership: arguments are copied; a quorum is
 * reference-counted. Begin with lighthouse.c. */

#include "base/base.h"

struct tutti_lighthouse_options {
    uint64_t min_replicas;
    uint64_t join_timeout_ns;
    uint64_t heartbeat_timeout_ns;
    uint64_t tick_ns;    /* a group that was left out of a quorum is considered again so much later */
    uint64_t forget_ns;  /* so long after its last heartbeat a group's name is forgotten; at least heartbeat_timeout */
    uint32_t max_groups; /* known at once; one that is not heard is forgotten for a new one. 0: any */
};

/* What a group says of itself: torchft's QuorumMember. Strings end with 0 and are never NULL. */
struct tutti_replica {
    const char *replica_id, *address, *store_address, *data;
    const uint8_t *raw; /* the same as it goes to the others, with what the machine does not know; n_raw 0: none */
    size_t n_raw;
    const char *const *handles; /* by which the process groups of its ranks are reached, as managers tell one another */
    uint32_t n_handles;         /* world_size, or 0. Not copied: to the machine they are a part of raw */
    int64_t step, commit_failures;
    uint64_t world_size;
    bool shrink_only;
};

/* Published; never changes. */
struct tutti_quorum {
    uint32_t refs;
    uint32_t n;
    int64_t id;
    int64_t created_ns;             /* wall clock, since 1970 */
    struct tutti_replica **members; /* in the order of their names' bytes */
    void *encoded;                  /* the edge's: what goes to clients, made once */
    void (*discard)(void *encoded); /* the edge's: called when the quorum goes, if set */
};
/* Makes a view of no members yet, which are of tutti_alloc; NULL: out of memory. */
struct tutti_quorum *tutti_quorum_new(uint32_t n);
void tutti_quorum_give(struct tutti_quorum *quorum); /* NULL is allowed */
/* NULL: it is not a member. */
const struct tutti_replica *tutti_quorum_find(const struct tutti_quorum *quorum, const char *replica_id);

/* How far a group's slowest rank is, as its manager says it with heartbeats. */
struct tutti_progress {
    int64_t step;
    uint64_t collective;
    uint32_t rank, n_ranks; /* n_ranks 0: nothing was said */
    uint64_t changed_ns;    /* the machine's: since when it is so */
};

struct tutti_lighthouse_out {
    void *arg;
    /* The request is over: its group is a member. Counted for the receiver, which gives it back. */
    void (*answer)(void *arg, uint64_t request, struct tutti_quorum *quorum);
    /* The next number is about to be used: what must be durable before anybody hears of it. False: it is not, so
     * nothing is published now; the machine asks again at its next tick. NULL: nothing is to be done. */
    bool (*commit)(void *arg, const struct tutti_quorum *quorum);
    /* The group was heard, and is no more: it is late, or left. The machine may not be called from here. NULL: nobody
     * wants to know. */
    void (*lost)(void *arg, const char *replica_id);
};

struct tutti_lighthouse;
enum tutti_status tutti_lighthouse_create(const struct tutti_lighthouse_options *options,
                                          const struct tutti_lighthouse_out *out, struct tutti_lighthouse **made);
/* Open requests are dropped without an answer. */
void tutti_lighthouse_destroy(struct tutti_lighthouse *l);
/* Before the first event: the last quorum of an earlier run, by its number and its members' names, in order. They count
 * as heard until heartbeat_timeout from now. n 0: numbers begin above this one. */
enum tutti_status tutti_lighthouse_restore(struct tutti_lighthouse *l, int64_t id, const char *const *names, uint32_t n,
                                           uint64_t now);

/* ---- events. Each may publish; wall: the wall clock, for `created_ns` ---- */
struct tutti_lighthouse_time {
    uint64_t now;
    int64_t wall;
};
/* ARGUMENT: the name is empty. MEMORY: there are max_groups. */
enum tutti_status tutti_lighthouse_beat(struct tutti_lighthouse *l, const char *replica_id,
                                        struct tutti_lighthouse_time t);
/* ... of a group that was heard; others are ignored. */
void tutti_lighthouse_progress(struct tutti_lighthouse *l, const char *replica_id,
                               const struct tutti_progress *progress, uint64_t now);
/* A group asks, which is a heartbeat, too. `request` is the caller's number for it, unlike any open one. A group may
 * have several: the last one says what it is. */
enum tutti_status tutti_lighthouse_ask(struct tutti_lighthouse *l, const struct tutti_replica *replica,
                                       uint64_t request, struct tutti_lighthouse_time t);
/* The caller waits no more: no answer comes. An unknown number is ignored. */
void tutti_lighthouse_cancel(struct tutti_lighthouse *l, uint64_t request, struct tutti_lighthouse_time t);
/* The group is known to be gone: as if it had not been heard for long. */
void tutti_lighthouse_leave(struct tutti_lighthouse *l, const char *replica_id, struct tutti_lighthouse_time t);
/* The same, unless it was heard after `since`. */
void tutti_lighthouse_leave_unless(struct tutti_lighthouse *l, const char *replica_id, uint64_t since,
                                   struct tutti_lighthouse_time t);
/* The thread that drives the machine was away until now: heartbeats of that time may not have come in yet, so a group
 * that is heard is not late before a quarter of heartbeat_timeout has passed. */
void tutti_lighthouse_away(struct tutti_lighthouse *l, uint64_t now);
/* Time has passed. */
void tutti_lighthouse_tick(struct tutti_lighthouse *l, struct tutti_lighthouse_time t);
/* When tick must be called next, UINT64_MAX: not before another event. */
uint64_t tutti_lighthouse_due(const struct tutti_lighthouse *l);

/* When nobody will have been heard for forget; UINT64_MAX: somebody is heard, or asks. */
uint64_t tutti_lighthouse_idle(const struct tutti_lighthouse *l);

/* Each open request. */
void tutti_lighthouse_requests(const struct tutti_lighthouse *l, void (*see)(void *arg, uint64_t request), void *arg);

/* ---- what people see ---- */
const struct tutti_quorum *tutti_lighthouse_last(const struct tutti_lighthouse *l); /* NULL: there was none */
struct tutti_lighthouse_counts {
    uint32_t n_known, n_heard, n_asking, n_ready, n_missing; /* missing: of the last quorum, not ready */
    bool shrink_only;
};
void tutti_lighthouse_counts(const struct tutti_lighthouse *l, struct tutti_lighthouse_counts *out);
struct tutti_lighthouse_seen {
    const char *replica_id;
    bool heard, asks, member;
    uint64_t beat_ns;                    /* when its last heartbeat came */
    const struct tutti_replica *replica; /* as it asks, else as it was in the last quorum; NULL: it said nothing */
    struct tutti_progress progress;
};
/* Each group that is known, in the order of their names. */
void tutti_lighthouse_each(const struct tutti_lighthouse *l,
                           void (*see)(void *arg, const struct tutti_lighthouse_seen *seen), void *arg);
/* Why there is no quorum now, or which one there would be: a sentence that ends like torchft's,
 * "[2/3 participants healthy][4 heartbeating][shrink_only=false]". Returns whether there is one. */
bool tutti_lighthouse_reason(const struct tutti_lighthouse *l, uint64_t now, char *out, size_t capacity);
#endif
