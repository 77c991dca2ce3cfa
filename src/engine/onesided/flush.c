/* SPDX-License-Identifier: BSD-3-Clause */

/* Flushes: when all that was called before has taken effect. Accesses of a team are numbered in the order of their
 * calls, so a flush knows by one number for each peer what it waits for. */

#include "engine/onesided/access.h"

uint64_t tutti_pair_pending(const struct tutti_one_pair *pair)
{
    if (pair->answered < pair->sent) return pair->open[(pair->answered + 1) % TUTTI_ONE_OPEN].order;
    return pair->first ? pair->first->order : UINT64_MAX;
}

static void want(struct tutti_ones *ones, struct tutti_one_pair *pair, uint64_t order)
{
    if (tutti_pair_pending(pair) > order) return;
    pair->ask = order;
    tutti_pair_ready(ones, pair);
}

void tutti_flush_begin(struct tutti_team *team, struct tutti_one_access *access)
{
    struct tutti_ones *ones = team->ones;

    access->at = NULL;
    if (access->info.peer != TUTTI_NO_SLOT) {
        want(ones, tutti_one_pair(team, access->info.peer), access->order);
    } else {
        access->at = ones->known;
        for (struct tutti_one_pair *pair = ones->known; pair; pair = pair->next) want(ones, pair, access->order);
    }
    *ones->flushes_end = access;
    ones->flushes_end = &access->queued;
    ones->flushed = true;
}

static bool is_flushed(struct tutti_ones *ones, struct tutti_one_access *access)
{
    if (access->info.peer != TUTTI_NO_SLOT) return tutti_pair_pending(&ones->pairs[access->info.peer]) > access->order;
    while (access->at && tutti_pair_pending(access->at) > access->order) access->at = access->at->next;
    return access->at == NULL;
}

/* A refusal that came after its access was complete; NULL: there is none. */
static struct tutti_one_pair *refused(struct tutti_ones *ones, const struct tutti_one_access *access)
{
    const uint32_t peer = access->info.peer;

    if (peer != TUTTI_NO_SLOT) return ones->pairs[peer].refusal.name ? &ones->pairs[peer] : NULL;
    struct tutti_one_pair *pair = ones->known;
    while (pair && !pair->refusal.name) pair = pair->next;
    return pair;
}

static void flush_end(struct tutti_team *team, struct tutti_one_access *access)
{
    struct tutti_one_pair *pair = refused(team->ones, access);
    struct tutti_error error;

    if (pair) {
        tutti_refusal_error(team, pair->slot, &pair->refusal, &error);
        pair->refusal.name = NULL;
    }
    tutti_access_end(team, access, pair ? &error : NULL);
}

void tutti_flushes_look(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;

    ones->flushed = false;
    for (struct tutti_one_access **at = &ones->flushes; *at;) {
        struct tutti_one_access *access = *at;
        if (!is_flushed(ones, access)) {
            at = &access->queued;
            continue;
        }
        *at = access->queued;
        if (!*at) ones->flushes_end = at;
        flush_end(team, access);
    }
}
