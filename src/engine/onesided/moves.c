/* SPDX-License-Identifier: BSD-3-Clause */

/* Moves: what is done to parts that the engine does not touch itself. Each has memory for one payload, in which a put
 * waits until it is written, and what a get has read until it has left. There are as many as were ever under way at
 * once, which is at most TUTTI_ONE_OPEN a peer. */

#include "engine/onesided/access.h"

struct tutti_move *tutti_move_take(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_move *move = ones->idle;

    if (move) {
        ones->idle = move->next;
        return move;
    }
    move = tutti_alloc(sizeof(*move) + team->port->transport->max_payload);
    if (!move) {
        tutti_fail(TUTTI_ERR_MEMORY, "rank %u: out of memory for an access to a window of a device", team->slot);
        return NULL;
    }
    move->memory = move + 1;
    move->made = ones->made;
    ones->made = move;
    return move;
}

void tutti_move_give(struct tutti_ones *ones, struct tutti_one_held *held)
{
    if (!held->move) return;
    held->move->next = ones->idle;
    ones->idle = held->move;
    held->move = NULL;
}

/* ---- there ---- */

static const enum tutti_move_kind kinds[] = {
    [TUTTI_ONE_PUT] = TUTTI_MOVE_WRITE,
    [TUTTI_ONE_GET] = TUTTI_MOVE_READ,
    [TUTTI_ONE_ADD] = TUTTI_MOVE_ADD,
    [TUTTI_ONE_SWAP] = TUTTI_MOVE_SWAP,
};

void tutti_move_begin(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_part *part,
                      struct tutti_one_held *held)
{
    const struct tutti_packet *packet = &held->packet;
    struct tutti_move *move = held->move;

    move->kind = kinds[packet->flags & TUTTI_ONE_KIND];
    move->offset = packet->offset;
    move->bytes = packet->total;
    move->value = packet->call;
    move->expected = packet->signature;
    move->error.status = TUTTI_OK;
    move->team = team;
    move->part = part;
    move->peer = pair->slot;
    move->number = packet->seq;
    held->state = TUTTI_ONE_MOVING;
    part->n_moving++;
    part->exposed.move(part->exposed.arg, move);
}

/* ---- and back ---- */

void tutti_move_over(struct tutti_move *move)
{
    struct tutti_owner *owner = move->team->engine->owner;
    struct tutti_ones *ones = move->team->ones;

    move->next = atomic_load(&ones->over);
    while (!atomic_compare_exchange_weak(&ones->over, &move->next, move)) {
    }
    tutti_owner_kick(owner); /* who is about to sleep looks after it said so, this thread asks after it put the move */
}

static void over(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held)
{
    const struct tutti_move *move = held->move;

    if (move->error.status < 0) {
        tutti_access_unsent(team, NULL, pair->slot, tutti_fail_record(&move->error));
        return;
    }
    if (move->kind == TUTTI_MOVE_READ) {
        held->state = TUTTI_ONE_DUE;
        pair->gets |= UINT64_C(1) << move->number % TUTTI_ONE_OPEN;
    } else {
        held->before = move->before;
        held->state = held->done ? TUTTI_ONE_DUE : tutti_one_rest(&held->packet);
        tutti_move_give(team->ones, held);
    }
    tutti_pair_ready(team->ones, pair);
}

void tutti_moves_take(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_move *move = atomic_exchange(&ones->over, NULL), *first = NULL;

    while (move) {
        struct tutti_move *next = move->next;
        move->next = first;
        first = move;
        move = next;
    }
    while ((move = first) != NULL) {
        struct tutti_one_pair *pair = &ones->pairs[move->peer];
        first = move->next;
        move->part->n_moving--;
        if (!team->halted) over(team, pair, tutti_one_held(pair, move->number));
    }
}
