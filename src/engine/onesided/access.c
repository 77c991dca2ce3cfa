/* SPDX-License-Identifier: BSD-3-Clause */

/* Accesses to parts of peers: how they start, and what a pass does with all pairs. */

#include "engine/onesided/access.h"

/* ---- any thread ---- */

enum tutti_status tutti_engine_one(struct tutti_team *team, const struct tutti_one_info *info, bool helper,
                                   struct tutti_work **work)
{
    const bool all = info->kind == TUTTI_ONE_FLUSH && info->peer == TUTTI_NO_SLOT;

    if (info->kind > TUTTI_ONE_FLUSH || (info->peer >= team->size && !all))
        return tutti_fail(TUTTI_ERR_INTERNAL, "%s: an access of kind %d to rank %u of %u", info->name, (int)info->kind,
                          info->peer, team->size);
    TUTTI_TRY(tutti_ones_need(team));
    struct tutti_one_access *access = tutti_work_new(team->engine->works, TUTTI_WORK_ACCESS);
    if (!access) return tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", info->name);
    access->next = access->previous = access->queued = NULL;
    access->info = *info;
    access->fence = atomic_load(&team->ones->fence);
    access->sent = 0;
    access->n_open = access->n_lent = 0;
    access->left = false;
    access->why = TUTTI_ONE_FINE;
    access->work.team = team;
    access->work.label = info->label;
    access->work.timeout_ns = info->timeout_ns ? info->timeout_ns : team->timeout_ns;
    enum tutti_status status = tutti_team_submit(&access->work, helper);
    if (status < 0) {
        tutti_work_drop(&access->work);
        return status;
    }
    *work = &access->work;
    return TUTTI_OK;
}

void tutti_engine_one_fence(struct tutti_team *team)
{
    if (team->ones) atomic_fetch_add(&team->ones->fence, 1);
}

/* ---- begin, and end with a failure ---- */

void tutti_access_begin(struct tutti_team *team, struct tutti_one_access *access)
{
    struct tutti_ones *ones = team->ones;
    const struct tutti_one_info *info = &access->info;

    if (team->failed) { /* its queues end in accesses that have ended */
        if (info->end) info->end(info->arg, &team->error);
        tutti_team_complete(&access->work, &team->error);
        return;
    }
    access->previous = ones->last;
    *(ones->last ? &ones->last->next : &ones->first) = access;
    ones->last = access;
    access->order = ++ones->order;
    tutti_engine_watch_by(team->engine, access->work.deadline_ns);
    if (info->kind == TUTTI_ONE_FLUSH) {
        tutti_flush_begin(team, access);
        return;
    }
    struct tutti_one_pair *pair = tutti_one_pair(team, info->peer);
    if (tutti_one_lost(ones, info->peer, info->window)) access->why = TUTTI_ONE_GONE;
    access->left =
        access->why != TUTTI_ONE_FINE || (info->kind <= TUTTI_ONE_GET && info->bytes == 0 && !info->has_signal);
    if (access->left) {
        tutti_access_settle(team, access);
        return;
    }
    *pair->end = access;
    pair->end = &access->queued;
    tutti_pair_ready(ones, pair);
}

void tutti_one_leave(struct tutti_port *port, const struct tutti_packet *packet)
{
    const struct tutti_packet answer = {.version = TUTTI_WIRE_VERSION,
                                        .type = TUTTI_PACKET_ONE_ANSWER,
                                        .flags = TUTTI_ONE_REFUSED,
                                        .comm = packet->comm,
                                        .epoch = packet->epoch,
                                        .seq = packet->seq,
                                        .call = TUTTI_ONE_LEFT};

    /* Where there is no room, its board tells. */
    if (packet->source < port->transport->n)
        (void)port->transport->ops->send(port->transport, packet->source, &answer, NULL, 0, 0);
}

void tutti_ones_fail(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_ones *ones = team->ones;

    if (!ones) return;
    while (ones->first) tutti_access_end(team, ones->first, error);
}

/* ---- a pass ---- */

bool tutti_ones_run(struct tutti_team *team, bool retry)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_one_pair *stalled = NULL, *pair;

    if (!ones) return false;
    const uint64_t before = ones->n_moves;
    if (tutti_moves_any(ones)) tutti_moves_take(team);
    for (int list = 0; list < 2; list++) {
        struct tutti_one_pair **from = list == 0 ? &ones->ready : &ones->stalled;
        if (list == 1 && !retry) break;
        while ((pair = *from) != NULL && !team->halted) {
            *from = pair->next_ready;
            pair->ready = false;
            if (tutti_pair_serve(team, pair) && tutti_pair_ask(team, pair)) continue;
            pair->ready = true;
            pair->next_ready = stalled;
            stalled = pair;
        }
    }
    while ((pair = stalled) != NULL) {
        stalled = pair->next_ready;
        pair->next_ready = ones->stalled;
        ones->stalled = pair;
    }
    if (ones->flushed && !team->halted) tutti_flushes_look(team);
    return ones->n_moves != before;
}

/* ---- events of the wire ---- */

void tutti_ones_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                        const void *payload)
{
    struct tutti_one_pair *pair = tutti_one_source(team, source, packet);

    if (!pair) return;
    if (packet->type == TUTTI_PACKET_ONE)
        tutti_admit_take(team, pair, packet, payload);
    else
        tutti_answer_take(team, pair, packet, payload);
}

bool tutti_ones_place(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                      struct tutti_target *target, struct tutti_loan *what)
{
    struct tutti_one_pair *pair = tutti_one_source(team, source, packet);

    if (!pair) return false;
    *what = (struct tutti_loan){.team = team, .peer = source};
    if (packet->type == TUTTI_PACKET_ONE) return tutti_admit_place(team, pair, packet, target, what);
    return tutti_answer_place(team, pair, packet, target, what);
}

void tutti_ones_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status)
{
    struct tutti_one_access *access = loan->of;

    if (loan->step == TUTTI_LOAN_PART) {
        tutti_part_back(team, loan, status);
        return;
    }
    access->n_lent--;
    if (status < 0)
        tutti_access_unsent(team, access, loan->peer, status);
    else
        tutti_access_settle(team, access);
}
