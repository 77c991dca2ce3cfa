/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RULES_PLACE_H
#define TUTTI_FT_RULES_PLACE_H

/* A group's place in a quorum: what its ranks do in the next step, which groups recover, and from which. The rules are
 * torchft's (compute_quorum_results in src/manager.rs of 2026-04), so that groups with its managers and with ours
 * agree.
 *
 * Members that are at the greatest step are up to date; the others recover from them. At step 0 of all, with init_sync,
 * all but one take their state from that one, since nobody's is the right one. Each rank of a group has its own sources
 * and its own store, shifted by its number, so that the load is shared. Behind torchft's one source come the next ones
 * that are up to date: a rank that can read from several does, and these offer their state, too.
 *
 * Thread: any. Ownership: the strings are the quorum's. */

#include "ft/rules/lighthouse.h"

#define TUTTI_NOBODY UINT32_MAX
#define TUTTI_SOURCES 4 /* members that one recovers from at most */

struct tutti_place {
    uint32_t rank, size;         /* among the members, in the order of their names */
    uint32_t max_rank, max_size; /* among those that are up to date; max_rank TUTTI_NOBODY: it is not */
    int64_t max_step;
    int64_t commit_failures;   /* the most that a member had one after another */
    const char *store_address; /* where this rank of all groups meets */
    bool heals;
    uint32_t source;            /* the member that it recovers from, TUTTI_NOBODY if it does not */
    const char *source_address; /* its manager's, "" if it does not */
    uint32_t n_sources;         /* that one and the next: 0 if it does not recover */
    uint32_t sources[TUTTI_SOURCES];
    bool offers;        /* it is one of somebody's sources */
    uint32_t n_targets; /* members that recover from this one ... */
    uint32_t *targets;  /* ... freed by tutti_place_fini */
};
/* group_rank: the caller's rank in its group. ARGUMENT: the group is no member, whose ids the text names. MEMORY. */
enum tutti_status tutti_place_find(const struct tutti_quorum *quorum, const char *replica_id, uint32_t group_rank,
                                   bool init_sync, struct tutti_place *out);
void tutti_place_fini(struct tutti_place *place);

#endif
