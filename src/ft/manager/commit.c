/* SPDX-License-Identifier: BSD-3-Clause */
/* Votes on a step. */
#include "ft/manager/ranks.h"

#include <inttypes.h>
#include <stdio.h>

void manager_unvote(struct tutti_manager *m, uint32_t rank)
{
    if (m->ranks[rank].votes == NO_REQUEST) return;
    m->ranks[rank].votes = NO_REQUEST;
    m->n_voting--;
}

void manager_refuse_voting(struct tutti_manager *m, enum tutti_manager_why why, const char *text)
{
    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const uint64_t request = m->ranks[i].votes;
        manager_unvote(m, i);
        if (request != NO_REQUEST) m->out.refused(m->out.arg, request, why, text);
    }
}

static void decide(struct tutti_manager *m)
{
    bool commit = true;

    for (uint32_t i = 0; i < m->options.world_size; i++) commit &= m->ranks[i].vote;
    for (uint32_t i = 0; i < m->options.world_size; i++) {
        const uint64_t request = m->ranks[i].votes;
        manager_unvote(m, i);
        m->out.decided(m->out.arg, request, commit);
    }
}

/* A rank that voted for another step than this one; world_size: there is none. */
static uint32_t find_other(const struct tutti_manager *m, int64_t step)
{
    uint32_t i = 0;

    while (i < m->options.world_size && (m->ranks[i].votes == NO_REQUEST || m->ranks[i].vote_step == step)) i++;
    return i;
}

void tutti_manager_vote(struct tutti_manager *m, uint32_t group_rank, int64_t step, bool vote, uint64_t request)
{
    char text[MANAGER_TEXT];

    if (!manager_admits(m, group_rank, request)) return;
    struct rank *rank = &m->ranks[group_rank];
    const uint64_t older = rank->votes;
    manager_unvote(m, group_rank);
    if (older != NO_REQUEST) {
        snprintf(text, sizeof text, "rank %" PRIu32 " of %s voted again", group_rank, m->replica_id);
        m->out.refused(m->out.arg, older, TUTTI_MANAGER_REPLACED, text);
    }
    rank->votes = request;
    rank->vote = vote;
    rank->vote_step = step;
    manager_note(rank, step, rank->collective);
    m->n_voting++;
    const uint32_t other = find_other(m, step);
    if (other < m->options.world_size) {
        snprintf(text, sizeof text,
                 "ranks of %s vote for different steps: rank %" PRIu32 " for %" PRId64 ", rank %" PRIu32
                 " for %" PRId64,
                 m->replica_id, other, m->ranks[other].vote_step, group_rank, step);
        manager_refuse_voting(m, TUTTI_MANAGER_ARGUMENT, text);
    } else if (m->n_voting == m->options.world_size) {
        decide(m);
    }
}
