/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses of a peer are carried out: what has an order when all before it has taken effect, gets at once. An answer
 * that finds no room waits, and what is behind it waits with it. */
#include "engine/flight/onesided_access.h"
#include "engine/team/report.h"

#include <string.h>

#define TELL_AT (TUTTI_ONE_OPEN / 4) /* so much is applied before it is told unasked */

/* What became of an answer: *held is over, or lent; or AGAIN. */
static enum tutti_status answered(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held,
                                  enum tutti_status status)
{
    const bool gone = tutti_status_is_gone(status);

    if (status == TUTTI_AGAIN) return status;
    if (gone) pair->gone = true; /* it misses no answer */
    if (status < 0 && !gone) {
        tutti_access_unsent(team, NULL, pair->slot, status);
        return status;
    }
    held->state = status == TUTTI_PENDING ? TUTTI_ONE_LENT : TUTTI_ONE_OVER;
    return TUTTI_OK;
}

/* An answer without payload. */
static enum tutti_status answer(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held)
{
    const bool refuses = held->why != TUTTI_ONE_FINE;
    struct tutti_packet packet = {.type = TUTTI_PACKET_ONE_ANSWER,
                                  .flags = refuses ? TUTTI_ONE_REFUSED : held->packet.flags & TUTTI_ONE_KIND,
                                  .seq = held->packet.seq,
                                  .call = refuses ? (uint64_t)held->why : held->before};

    return answered(team, pair, held, tutti_one_send(team, pair, &packet, NULL, NULL));
}

/* ---- gets ---- */

/* Where the bytes are that a get asks for. */
static const void *get_find(const struct tutti_part *part, struct tutti_one_held *held)
{
    const struct tutti_packet *packet = &held->packet;

    if (held->move) return held->move->memory;
    const unsigned char *at = (const unsigned char *)part->exposed.base + packet->offset;
    if (!tutti_part_is_word(part, packet->offset, packet->total)) return at;
    held->before = atomic_load_explicit((const _Atomic uint64_t *)(const void *)at, memory_order_relaxed);
    return &held->before; /* so short a payload is copied */
}

static enum tutti_status get_answer(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held)
{
    struct tutti_part *part = tutti_part_find(team->ones, held->packet.slice);
    struct tutti_packet packet = {.type = TUTTI_PACKET_ONE_ANSWER,
                                  .flags = TUTTI_ONE_GET,
                                  .seq = held->packet.seq,
                                  .bytes = (uint32_t)held->packet.total,
                                  .total = held->packet.total};
    const struct tutti_loan what = {.team = team,
                                    .of = held->move ? NULL : part,
                                    .step = TUTTI_LOAN_PART,
                                    .peer = pair->slot,
                                    .number = packet.seq};

    if (!part && !held->move && held->why == TUTTI_ONE_FINE) held->why = TUTTI_ONE_GONE;
    if (held->why != TUTTI_ONE_FINE) return answer(team, pair, held);
    enum tutti_status status =
        tutti_one_send(team, pair, &packet, &(struct tutti_span){get_find(part, held), packet.bytes}, &what);
    if (status == TUTTI_PENDING && what.of) part->n_lent++;
    status = answered(team, pair, held, status);
    if (held->state == TUTTI_ONE_OVER) tutti_move_give(team->ones, held);
    return status;
}

static enum tutti_status gets_answer(struct tutti_team *team, struct tutti_one_pair *pair)
{
    for (uint64_t number = pair->applied + 1; pair->gets; number++) {
        const uint64_t bit = UINT64_C(1) << number % TUTTI_ONE_OPEN;
        if (!(pair->gets & bit)) continue;
        enum tutti_status status = get_answer(team, pair, tutti_one_held(pair, number));
        if (status != TUTTI_OK) return status;
        pair->gets &= ~bit;
    }
    return TUTTI_OK;
}

/* ---- what has an order ---- */

/* Its turn has come. What needs no answer of its own is over then. */
static enum tutti_status carry_out(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held)
{
    const uint8_t kind = held->packet.flags & TUTTI_ONE_KIND;
    struct tutti_part *part = tutti_part_find(team->ones, held->packet.slice);

    if (kind == TUTTI_ONE_FLUSH) {
        pair->owes = true;
        held->state = TUTTI_ONE_OVER;
        return TUTTI_OK;
    }
    held->done = true;
    if (!part && held->why == TUTTI_ONE_FINE) held->why = TUTTI_ONE_GONE;
    if (held->why != TUTTI_ONE_FINE) return TUTTI_OK;
    if (kind == TUTTI_ONE_PUT) {
        held->state = TUTTI_ONE_OVER;
        tutti_part_signal(part, &held->packet);
    } else if (part->exposed.move) {
        held->move = tutti_move_take(team);
        if (!held->move) return TUTTI_ERR_MEMORY;
        tutti_move_begin(team, pair, part, held);
        return TUTTI_OK;
    } else {
        tutti_part_change(part, &held->packet, &held->before);
    }
    if (part->exposed.changed) part->exposed.changed(part->exposed.arg);
    return TUTTI_OK;
}

static enum tutti_status apply(struct tutti_team *team, struct tutti_one_pair *pair)
{
    enum tutti_status status;

    for (;;) {
        struct tutti_one_held *held = tutti_one_held(pair, pair->applied + 1);
        if (held->state == TUTTI_ONE_DUE && (held->packet.flags & TUTTI_ONE_KIND) == TUTTI_ONE_GET) return TUTTI_AGAIN;
        if (held->state == TUTTI_ONE_DUE && !held->done && (status = carry_out(team, pair, held)) < 0) {
            tutti_access_unsent(team, NULL, pair->slot, status);
            return status;
        }
        if (held->state == TUTTI_ONE_DUE && (status = answer(team, pair, held)) != TUTTI_OK) return status;
        if (held->state != TUTTI_ONE_OVER) return TUTTI_OK;
        held->state = TUTTI_ONE_FREE;
        pair->applied++;
    }
}

/* Tells what has taken effect, if that is due: most of it rides on other packets. */
static enum tutti_status tell(struct tutti_team *team, struct tutti_one_pair *pair)
{
    struct tutti_packet packet = {.type = TUTTI_PACKET_ONE_ANSWER};
    const uint64_t owed = pair->applied - pair->acknowledged;
    struct tutti_one_held none = {.state = TUTTI_ONE_OVER};

    if (pair->gone) pair->acknowledged = pair->applied;
    if (owed == 0 || pair->gone) pair->owes = false;
    if (pair->gone || !(pair->owes || owed >= TELL_AT)) return TUTTI_OK;
    return answered(team, pair, &none, tutti_one_send(team, pair, &packet, NULL, NULL));
}

bool tutti_pair_serve(struct tutti_team *team, struct tutti_one_pair *pair)
{
    enum tutti_status status = pair->gets ? gets_answer(team, pair) : TUTTI_OK;

    if (status == TUTTI_OK) status = apply(team, pair);
    if (status == TUTTI_OK) status = tell(team, pair);
    return status != TUTTI_AGAIN;
}

/* ---- Accesses of peers as they come: what can not be ends the communicator, what may not be is refused, what came
 * before is dropped. A payload goes straight into the part, or to a move; what has to wait is kept, which is a packet
 * without payload. ---- */

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
