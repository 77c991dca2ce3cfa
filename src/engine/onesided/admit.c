/* SPDX-License-Identifier: BSD-3-Clause */

/* Accesses of peers as they come: what can not be ends the communicator, what may not be is refused, what came before
 * is dropped. A payload goes straight into the part, or to a move; what has to wait is kept, which is a packet without
 * payload. */

#include "engine/onesided/access.h"
#include "engine/report/report.h"

#include <string.h>

/* Whether there can be such an access at all. */
static bool is_well_formed(const struct tutti_team *team, const struct tutti_packet *packet)
{
    const uint8_t kind = packet->flags & TUTTI_ONE_KIND;
    const bool signals = packet->flags & TUTTI_ONE_HAS_SIGNAL;

    if (packet->flags & ~(TUTTI_ONE_KIND | TUTTI_ONE_HAS_SIGNAL | TUTTI_ONE_SIGNAL_ADD)) return false;
    if (packet->flags & TUTTI_ONE_SIGNAL_ADD && !signals) return false;
    if (kind == TUTTI_ONE_PUT) return packet->total == packet->bytes && (packet->bytes > 0 || signals);
    if (signals || packet->bytes > 0) return false;
    if (kind == TUTTI_ONE_GET) return packet->total > 0 && packet->total <= team->port->transport->max_payload;
    return kind < TUTTI_ONE_REFUSED && packet->total == 0;
}

static enum tutti_one_reason reason_of(const struct tutti_part *part, const struct tutti_packet *packet)
{
    const uint8_t kind = packet->flags & TUTTI_ONE_KIND;
    const bool word = kind == TUTTI_ONE_ADD || kind == TUTTI_ONE_SWAP;
    const uint64_t bytes = word ? sizeof(uint64_t) : packet->total;

    if (kind == TUTTI_ONE_FLUSH) return TUTTI_ONE_FINE;
    if (!part) return TUTTI_ONE_GONE;
    const struct tutti_exposed *exposed = &part->exposed;
    if (bytes > 0 && (packet->offset > exposed->bytes || bytes > exposed->bytes - packet->offset))
        return TUTTI_ONE_RANGE;
    if (word && ((uintptr_t)exposed->base + packet->offset) % sizeof(uint64_t) != 0) return TUTTI_ONE_ALIGNMENT;
    if (packet->flags & TUTTI_ONE_HAS_SIGNAL && packet->fifo >= exposed->n_signals) return TUTTI_ONE_INDEX;
    return TUTTI_ONE_FINE;
}

/* Whether the number is new. *wrong: the peer has no right to use it yet. */
static bool is_new(struct tutti_one_pair *pair, uint64_t number, bool *wrong)
{
    *wrong = number == 0 || (number > pair->applied && number - pair->applied > TUTTI_ONE_OPEN);
    return number > pair->applied && !*wrong && tutti_one_held(pair, number)->state == TUTTI_ONE_FREE;
}

static struct tutti_one_held *keep(struct tutti_one_pair *pair, const struct tutti_packet *packet,
                                   enum tutti_one_reason why, enum tutti_one_state state)
{
    struct tutti_one_held *held = tutti_one_held(pair, packet->seq);

    *held = (struct tutti_one_held){.packet = *packet, .state = state, .why = why};
    return held;
}

bool tutti_admit_place(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                       struct tutti_target *target, struct tutti_loan *what)
{
    struct tutti_part *part = tutti_part_find(team->ones, packet->slice);
    bool wrong;

    if (!is_well_formed(team, packet) || packet->bytes == 0 || !is_new(pair, packet->seq, &wrong)) return false;
    if (reason_of(part, packet) != TUTTI_ONE_FINE) return false;
    struct tutti_move *move = part->exposed.move ? tutti_move_take(team) : NULL;
    if (part->exposed.move && !move) return false; /* it arrives, and that is told then */
    keep(pair, packet, TUTTI_ONE_FINE, TUTTI_ONE_PLACED)->move = move;
    if (!move) part->n_lent++;
    *target = (struct tutti_target){move ? move->memory : (unsigned char *)part->exposed.base + packet->offset,
                                    packet->bytes};
    what->of = move ? NULL : part;
    what->step = TUTTI_LOAN_PART;
    what->number = packet->seq;
    return true;
}

void tutti_admit_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                      const void *payload)
{
    struct tutti_part *part = tutti_part_find(team->ones, packet->slice);
    const bool get = (packet->flags & TUTTI_ONE_KIND) == TUTTI_ONE_GET;
    bool wrong = false;

    if (!is_well_formed(team, packet)) {
        tutti_report_protocol(team, pair->slot, NULL, "an access that can not be");
        return;
    }
    if (!is_new(pair, packet->seq, &wrong)) {
        if (wrong)
            tutti_report_protocol(team, pair->slot, NULL, "more accesses than it may make without an answer");
        else
            team->engine->stats.duplicates_dropped++;
        return;
    }
    const enum tutti_one_reason why = reason_of(part, packet);
    const bool moves = why == TUTTI_ONE_FINE && (get || packet->bytes > 0) && part->exposed.move;
    struct tutti_move *move = moves ? tutti_move_take(team) : NULL;
    if (moves && !move) {
        tutti_access_unsent(team, NULL, pair->slot, TUTTI_ERR_MEMORY);
        return;
    }
    struct tutti_one_held *held =
        keep(pair, packet, why, why == TUTTI_ONE_FINE ? tutti_one_rest(packet) : TUTTI_ONE_DUE);
    held->move = move;
    if (move) {
        if (packet->bytes > 0) memcpy(move->memory, payload, packet->bytes);
        tutti_move_begin(team, pair, part, held);
        return;
    }
    if (packet->bytes > 0 && why == TUTTI_ONE_FINE) tutti_part_write(part, packet->offset, payload, packet->bytes);
    if (get) pair->gets |= UINT64_C(1) << packet->seq % TUTTI_ONE_OPEN;
    tutti_pair_ready(team->ones, pair);
}

/* The payload is where its move wants it, if its part is still there. */
static void move_on(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held)
{
    struct tutti_part *part = tutti_part_find(team->ones, held->packet.slice);

    if (part) {
        tutti_move_begin(team, pair, part, held);
        return;
    }
    tutti_move_give(team->ones, held);
    held->state = TUTTI_ONE_DUE;
    held->why = TUTTI_ONE_GONE;
}

void tutti_part_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status)
{
    struct tutti_one_pair *pair = &team->ones->pairs[loan->peer];
    struct tutti_one_held *held = tutti_one_held(pair, loan->number);
    struct tutti_part *part = loan->of;

    if (part) part->n_lent--;
    if (status < 0) pair->gone = true; /* it sends no more, and what it sent is not whole */
    if (held->state == TUTTI_ONE_LENT) {
        held->state = TUTTI_ONE_OVER;
        tutti_move_give(team->ones, held);
    } else if (held->state == TUTTI_ONE_PLACED && status == TUTTI_OK) {
        if (held->move)
            move_on(team, pair, held);
        else
            held->state = tutti_one_rest(&held->packet);
    }
    tutti_pair_ready(team->ones, pair);
}
