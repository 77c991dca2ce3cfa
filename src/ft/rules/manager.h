/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RULES_MANAGER_H
#define TUTTI_FT_RULES_MANAGER_H

/* What speaks for a replica group, as a machine without sockets, threads or clocks: its ranks' requests and votes, what
 * the lighthouse says and the time go in; questions to the lighthouse and answers come out through struct
 * tutti_manager_out.
 *
 * Quorum: when all ranks have asked, the lighthouse is asked for the group: with the smallest step of the ranks, so
 * that all of them recover if one has to; the most failed commits; and shrink_only, if any rank says so. What it
 * answers, or that it does not, all ranks are told at once. A rank whose request is cancelled is waited for again.
 * Commit: when all ranks have voted for one step; those that vote for another are told so, all together. A rank whose
 * process died ends what the others wait for, and the lighthouse hears that the group leaves. Where it differs from
 * torchft's (src/manager.rs of 2026-04): there the last rank's step is the group's, votes of other steps count, and
 * ranks are told nothing when the lighthouse fails or a rank dies.
 *
 * Thread: one at a time; no function may be called from a callback. Times are of one clock that never goes back.
 * Ownership: arguments are copied, what callbacks get is borrowed. Begin with manager.c. */

#include "ft/rules/place.h"

struct tutti_manager_options {
    const char *replica_id, *address, *store_address;
    uint32_t world_size;
    uint32_t quorum_retries; /* so often the lighthouse is asked anew when it refused */
    uint64_t heartbeat_ns;   /* 0: none */
};

struct tutti_manager_ask {
    int64_t step, commit_failures;
    const char *checkpoint_metadata; /* where others fetch this rank's state */
    const char *handle;              /* by which its process group is reached, "" if it has none */
    bool shrink_only, init_sync;
    uint64_t deadline_ns;
};

/* Why somebody is refused. */
enum tutti_manager_why {
    TUTTI_MANAGER_ARGUMENT,  /* what it said can not be */
    TUTTI_MANAGER_NO_MEMBER, /* the quorum is without this group */
    TUTTI_MANAGER_REPLACED,  /* the rank asked again */
    TUTTI_MANAGER_NO_ANSWER, /* the lighthouse did not answer, or refused */
    TUTTI_MANAGER_LATE,      /* ... in time */
    TUTTI_MANAGER_DEAD,      /* a rank's process is gone */
    TUTTI_MANAGER_MEMORY,
};

/* How far the slowest rank is, of those that said it. */
struct tutti_manager_progress {
    uint32_t n_ranks; /* 0: nobody said anything */
    uint32_t rank;
    int64_t step;
    uint64_t collective;
};

struct tutti_manager_out {
    void *arg;
    /* The lighthouse is to be asked; one question at a time, until `withdraw` or the machine is told of its end. */
    void (*ask)(void *arg, const struct tutti_replica *group, uint64_t deadline_ns);
    void (*withdraw)(void *arg);
    /* Ends of requests. */
    void (*placed)(void *arg, uint64_t request, uint32_t group_rank, const struct tutti_quorum *quorum,
                   const struct tutti_place *place);
    void (*decided)(void *arg, uint64_t request, bool commit);
    void (*refused)(void *arg, uint64_t request, enum tutti_manager_why why, const char *text);
    /* To the lighthouse. */
    void (*beat)(void *arg, const struct tutti_manager_progress *progress);
    void (*leave)(void *arg, const char *why);
};

struct tutti_manager;
enum tutti_status tutti_manager_create(const struct tutti_manager_options *options, const struct tutti_manager_out *out,
                                       uint64_t now, struct tutti_manager **made);
/* Open requests are dropped without an answer. */
void tutti_manager_destroy(struct tutti_manager *m);

/* ---- events. `request` is the caller's number, unlike any open one ---- */
void tutti_manager_ask(struct tutti_manager *m, uint32_t group_rank, const struct tutti_manager_ask *ask,
                       uint64_t request);
void tutti_manager_vote(struct tutti_manager *m, uint32_t group_rank, int64_t step, bool vote, uint64_t request);
/* The caller waits no more: no answer comes. An unknown number is ignored. */
void tutti_manager_cancel(struct tutti_manager *m, uint64_t request);
/* What the lighthouse answered to the question that is open; without one it is ignored. */
void tutti_manager_answered(struct tutti_manager *m, const struct tutti_quorum *quorum);
/* why: NO_ANSWER, or LATE when its deadline has passed. */
void tutti_manager_unanswered(struct tutti_manager *m, enum tutti_manager_why why, const char *text, uint64_t now);
/* The question is to be asked once more, at the next tick: it was not understood, and will be said in other words. */
void tutti_manager_repeat(struct tutti_manager *m, uint64_t now);
/* Heartbeats are so far apart from now on. */
void tutti_manager_beat_every(struct tutti_manager *m, uint64_t heartbeat_ns, uint64_t now);
/* How far the rank is. False: the group has no such rank. */
bool tutti_manager_progress(struct tutti_manager *m, uint32_t group_rank, int64_t step, uint64_t collective);
/* The rank's process is gone; it comes back with its next request. */
void tutti_manager_dead(struct tutti_manager *m, uint32_t group_rank, const char *why);
void tutti_manager_tick(struct tutti_manager *m, uint64_t now);
/* When tick must be called next, TUTTI_NEVER: not before another event. */
uint64_t tutti_manager_due(const struct tutti_manager *m);

/* What this open request waits for, as a sentence: "1 of 2 ranks of a have asked for a quorum". */
void tutti_manager_waits(const struct tutti_manager *m, uint64_t request, char *out, size_t n);
/* What the rank gave as checkpoint_metadata; NULL: it has not asked yet, or there is none. */
const char *tutti_manager_metadata(const struct tutti_manager *m, uint32_t group_rank);

#endif
