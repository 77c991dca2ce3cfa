/* SPDX-License-Identifier: BSD-3-Clause */

/* Accesses of a peer are carried out: what has an order when all before it has taken effect, gets at once. An answer
 * that finds no room waits, and what is behind it waits with it. */

#include "engine/onesided/access.h"

#define TELL_AT (TUTTI_ONE_OPEN / 4) /* so much is applied before it is told unasked */

/* What became of an answer: *held is over, or lent; or AGAIN. */
static enum tutti_status answered(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held,
                                  enum tutti_status status)
{
    const bool gone = status == TUTTI_ERR_PEER_DEAD || status == TUTTI_ERR_PEER_LEFT;

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
    const uint64_t owed = pair->applied - pair->told;
    struct tutti_one_held none = {.state = TUTTI_ONE_OVER};

    if (pair->gone) pair->told = pair->applied;
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
