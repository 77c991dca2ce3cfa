/* SPDX-License-Identifier: BSD-3-Clause */

/* What asking and serving share: pairs, their packets, and how an access ends. */

#include "engine/onesided/access.h"

struct tutti_one_pair *tutti_one_pair(struct tutti_team *team, uint32_t slot)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_one_pair *pair = &ones->pairs[slot];

    if (pair->known) return pair;
    pair->known = true;
    pair->slot = slot;
    pair->end = &pair->first;
    *ones->known_end = pair;
    ones->known_end = &pair->next;
    return pair;
}

void tutti_pair_ready(struct tutti_ones *ones, struct tutti_one_pair *pair)
{
    if (pair->ready) return;
    pair->ready = true;
    pair->next_ready = ones->ready;
    ones->ready = pair;
}

enum tutti_status tutti_one_send(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_packet *packet,
                                 const struct tutti_span *span, const struct tutti_loan *what)
{
    packet->count = pair->applied;
    enum tutti_status status = tutti_team_lend(team, pair->slot, packet, span, span != NULL, what);
    if (status != TUTTI_OK && status != TUTTI_PENDING) return status;
    pair->told = pair->applied;
    pair->owes = false;
    team->ones->n_moves++;
    return status;
}

bool tutti_one_lost(const struct tutti_ones *ones, uint32_t slot, uint32_t window)
{
    for (uint32_t i = 0; i < ones->n_lost && i < TUTTI_ONE_GONE_KEPT; i++)
        if (ones->lost[i].slot == slot && ones->lost[i].window == window) return true;
    return false;
}

void tutti_one_lose(struct tutti_ones *ones, uint32_t slot, uint32_t window)
{
    if (tutti_one_lost(ones, slot, window)) return;
    uint32_t i = ones->n_lost++ % TUTTI_ONE_GONE_KEPT;
    ones->lost[i].slot = slot, ones->lost[i].window = window;
}

/* ---- ends ---- */

void tutti_access_end(struct tutti_team *team, struct tutti_one_access *access, const struct tutti_error *error)
{
    struct tutti_ones *ones = team->ones;

    *(access->previous ? &access->previous->next : &ones->first) = access->next;
    *(access->next ? &access->next->previous : &ones->last) = access->previous;
    if (access->info.end) access->info.end(access->info.arg, error);
    tutti_team_complete(&access->work, error);
}

static void end_refused(struct tutti_team *team, struct tutti_one_access *access)
{
    const struct tutti_one_info *info = &access->info;
    const struct tutti_one_refusal refusal = {info->name, info->offset, info->bytes, info->window, access->why};
    struct tutti_error error;

    tutti_refusal_error(team, info->peer, &refusal, &error);
    tutti_access_end(team, access, &error);
}

void tutti_access_settle(struct tutti_team *team, struct tutti_one_access *access)
{
    if (!access->left || access->n_open > 0 || access->n_lent > 0) return;
    if (access->why == TUTTI_ONE_FINE)
        tutti_access_end(team, access, NULL);
    else
        end_refused(team, access);
}
