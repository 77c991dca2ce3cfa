/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RULES_STATE_H
#define TUTTI_FT_RULES_STATE_H

/* What the machine knows: groups in the order of their names, two queues of them by time, and counts that are kept up
 * to date, so that no event looks at all groups. Private to this folder. */

#include "ft/rules/lighthouse.h"

struct group;
struct request {
    struct request *next; /* in the group */
    struct group *group;
    uint64_t number;
};
struct queue {
    struct group *first, *last;
};
struct link {
    struct group *before, *after;
};
enum { BY_BEAT, BY_JOIN, N_QUEUES };
struct group {
    char *name;
    bool heard, member; /* member: of the last quorum */
    uint64_t beat_ns, joined_ns;
    struct tutti_progress progress;
    struct tutti_replica *replica; /* as it asked; NULL: it does not ask */
    struct request *requests;
    struct link links[N_QUEUES]; /* BY_BEAT: known ones; BY_JOIN: those that ask. The oldest is first */
};

struct tutti_lighthouse {
    struct tutti_lighthouse_options options;
    struct tutti_lighthouse_out out;
    struct group **groups; /* by name */
    uint32_t n, capacity;
    struct request **requests; /* by number */
    uint32_t n_requests, request_capacity;
    struct queue queues[N_QUEUES];
    struct group *oldest_heard; /* in the queue by beat: those before it are heard no more */
    uint32_t n_heard, n_asking, n_ready, n_shrink, n_members, n_missing;
    uint64_t away_ns;  /* until then its thread was away; 0: it never was */
    uint64_t again_ns; /* somebody was left out: look again */
    int64_t id;
    struct tutti_quorum *last;
};

/* ---- groups.c ---- */
struct group *lighthouse_find(const struct tutti_lighthouse *l, const char *name);
/* True: there are max_groups, and none can be forgotten. */
bool lighthouse_is_full(struct tutti_lighthouse *l);
/* Finds or adds; NULL: out of memory. */
struct group *lighthouse_know(struct tutti_lighthouse *l, const char *name, uint64_t now);
void lighthouse_hear(struct tutti_lighthouse *l, struct group *group, uint64_t now);
/* Groups whose last heartbeat is too old are heard no more, or forgotten. */
void lighthouse_expire(struct tutti_lighthouse *l, uint64_t now);
/* When the group that was heard longest ago is late; UINT64_MAX: nobody is heard. */
uint64_t lighthouse_late_due(const struct tutti_lighthouse *l);
/* When the next one is to be forgotten. */
uint64_t lighthouse_forget_due(const struct tutti_lighthouse *l);
void lighthouse_silence(struct tutti_lighthouse *l, struct group *group);
/* The group asks no more: returns what it asked with, the caller's from now on. NULL: it did not ask. */
struct tutti_replica *lighthouse_unjoin(struct tutti_lighthouse *l, struct group *group);
/* The group, which does not ask, asks from now on; replica is its own. */
void lighthouse_join(struct tutti_lighthouse *l, struct group *group, struct tutti_replica *replica, uint64_t now);
void lighthouse_be_member(struct tutti_lighthouse *l, struct group *group, bool member);
void lighthouse_drop_group(struct tutti_lighthouse *l, struct group *group);

struct request *lighthouse_request(const struct tutti_lighthouse *l, uint64_t number);
enum tutti_status lighthouse_request_add(struct tutti_lighthouse *l, struct group *group, uint64_t number);
void lighthouse_request_end(struct tutti_lighthouse *l, struct request *request);
struct tutti_replica *tutti_replica_copy(const struct tutti_replica *replica); /* NULL: out of memory */

#endif
