/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_MANAGER_RANKS_H
#define TUTTI_FT_MANAGER_RANKS_H

/* What the machine knows of its ranks. Of this room alone. */

#include "ft/manager/manager.h"

#define NO_REQUEST UINT64_MAX
#define MANAGER_TEXT 400

struct rank {
    uint64_t asks, votes; /* the numbers of its requests, NO_REQUEST: none */
    struct tutti_manager_ask ask;
    char *metadata, *handle; /* the last ones */
    int64_t vote_step;
    bool vote, said, dead; /* said: its step is known */
    int64_t step;
    uint64_t collective;
};
enum phase { GATHERS, ASKS, PAUSES };
struct tutti_manager {
    struct tutti_manager_options options;
    struct tutti_manager_out out;
    char *replica_id, *address, *store_address;
    struct rank *ranks;
    const char **handles; /* the question's */
    uint32_t n_asking, n_voting, n_dead;
    enum phase phase;
    uint32_t n_failed; /* questions of this round that got no answer */
    uint64_t again_ns, beat_ns;
    char dead[MANAGER_TEXT]; /* the rank that died, and how */
};

/* ---- barrier.c ---- */
/* The rank asks no more; what was asked of the lighthouse is withdrawn. */
void manager_unask(struct tutti_manager *m, uint32_t rank);
void manager_refuse_asking(struct tutti_manager *m, enum tutti_manager_why why, const char *text);
void manager_send(struct tutti_manager *m);

/* ---- commit.c ---- */
void manager_unvote(struct tutti_manager *m, uint32_t rank);
void manager_refuse_voting(struct tutti_manager *m, enum tutti_manager_why why, const char *text);

/* ---- ranks.c ---- */
/* Whether a request of the rank can be taken; else it is refused. A dead rank that asks is back. */
bool manager_admits(struct tutti_manager *m, uint32_t rank, uint64_t request);
/* The rank has shown that it is at this step. */
void manager_note(struct rank *rank, int64_t step, uint64_t collective);

#endif
