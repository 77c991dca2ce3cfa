/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrivals: identity -> slice -> step. What a receive waits for goes straight into place; an eager message that came
 * early is held; what was there before is dropped. Signatures are compared at each arrival that belongs to a call. */
#include "device/cpu/copy.h"
#include "engine/flight/flight.h"
#include "engine/team/report.h"

#include <string.h>

/* Whether two messages are the same by identity. */
static bool same_message(const struct tutti_packet *a, const struct tutti_packet *b)
{
    return a->seq == b->seq && a->slice == b->slice && a->fifo == b->fifo;
}

static struct tutti_held *held_at(const struct tutti_team *team, uint32_t peer, uint32_t i)
{
    return (struct tutti_held *)(void *)(team->hold + (size_t)peer * team->hold_stride) + i;
}

static unsigned char *block_at(const struct tutti_team *team, uint32_t peer, uint32_t i)
{
    return (unsigned char *)held_at(team, peer, TUTTI_CREDITS) + i * team->credit_bytes;
}

/* The lowest bit of the mask, as a number. */
static uint32_t lowest(uint64_t mask)
{
    return (uint32_t)__builtin_ctzll(mask);
}

static struct tutti_slice *slice_find(struct tutti_team *team, uint64_t seq, uint32_t index)
{
    for (uint32_t i = 0; i < team->n_active; i++)
        if (team->order[i]->flight->work.seq == seq && team->order[i]->index == index)
            return team->order[i]->flight->runner ? NULL : team->order[i];
    return NULL;
}

static size_t step_bytes(const struct tutti_slice *slice, const struct tutti_step *step)
{
    struct tutti_operand place = step->op == TUTTI_STEP_SEND ? tutti_operand_src(step) : tutti_operand_dst(step);
    return tutti_layout_bytes(&slice->flight->layout, &place, slice->index);
}

/* The step of the fifo-th message to or from a peer, from the window on; TUTTI_NO_STEP: before it, thus complete. */
static uint32_t step_find(const struct tutti_slice *slice, bool sending, uint32_t peer, uint32_t fifo)
{
    const struct tutti_schedule *schedule = slice->flight->bind.schedule;

    for (uint32_t i = slice->base; i < schedule->n_steps; i++) {
        const struct tutti_step *step = &schedule->steps[i];
        if (step->peer != peer || !tutti_step_is_message(step) || (step->op == TUTTI_STEP_SEND) != sending) continue;
        if (step->fifo == fifo) return i;
        if (step->fifo > fifo) break;
    }
    return TUTTI_NO_STEP;
}

static bool in_mask(const struct tutti_slice *slice, uint64_t mask, uint32_t step)
{
    return step - slice->base < TUTTI_WINDOW && (mask & tutti_slice_bit(step - slice->base)) != 0;
}

static void consumed(struct tutti_team *team, uint32_t peer, size_t bytes)
{
    struct tutti_channel *channel = &team->channels[peer];

    channel->consumed = (uint8_t)(channel->consumed + tutti_credits_of(team, bytes));
    team->owing = true;
    tutti_team_list(team, peer);
}

/* ---- held packets ---- */

/* The message into place, and its room given back. */
static void held_apply(struct tutti_team *team, const struct tutti_slice *slice, const struct tutti_step *step,
                       uint32_t i)
{
    struct tutti_channel *channel = &team->channels[step->peer];
    const struct tutti_held *held = held_at(team, step->peer, i);
    const size_t total = held->packet.bytes;
    size_t at = 0;

    for (uint64_t left = held->blocks; left; left &= left - 1) {
        const size_t bytes = total - at < team->credit_bytes ? total - at : team->credit_bytes;
        tutti_step_apply(slice, step, at, bytes, block_at(team, step->peer, lowest(left)));
        at += bytes;
    }
    channel->held &= ~(UINT64_C(1) << i), channel->blocks &= ~held->blocks;
    channel->n_held = (uint8_t)(channel->n_held - tutti_credits_of(team, total));
    consumed(team, step->peer, total);
}

static void hold(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    struct tutti_channel *channel = &team->channels[peer];
    const uint8_t credits = tutti_credits_of(team, packet->bytes);

    for (uint64_t left = channel->held; left; left &= left - 1) {
        if (!same_message(&held_at(team, peer, lowest(left))->packet, packet)) continue;
        team->engine->stats.duplicates_dropped++;
        return;
    }
    if (packet->bytes > team->eager || channel->n_held + credits > TUTTI_CREDITS) {
        tutti_report_protocol(team, peer, NULL, "a message that it had no credit for");
        return;
    }
    const uint32_t room = lowest(~channel->held);
    struct tutti_held *held = held_at(team, peer, room);
    *held = (struct tutti_held){.packet = *packet};
    for (size_t at = 0; at < packet->bytes; at += team->credit_bytes) {
        const size_t left = packet->bytes - at;
        const uint32_t block = lowest(~channel->blocks); /* above those that the message has */
        memcpy(block_at(team, peer, block), (const unsigned char *)payload + at,
               left < team->credit_bytes ? left : team->credit_bytes);
        held->blocks |= UINT64_C(1) << block, channel->blocks |= UINT64_C(1) << block;
    }
    channel->held |= UINT64_C(1) << room;
    channel->n_held = (uint8_t)(channel->n_held + credits);
    team->engine->stats.held++;
    team->owing = true;
    tutti_team_list(team, peer);
}

bool tutti_held_take(struct tutti_team *team, struct tutti_slice *slice, uint32_t index, bool *failed)
{
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[index];
    struct tutti_channel *channel = &team->channels[step->peer];
    struct tutti_packet wanted = {.seq = slice->flight->work.seq, .slice = slice->index, .fifo = step->fifo};

    for (uint64_t left = channel->held; left; left &= left - 1) {
        const uint32_t i = lowest(left);
        const struct tutti_packet *packet = &held_at(team, step->peer, i)->packet;
        if (!same_message(packet, &wanted)) continue;
        size_t total = step_bytes(slice, step);
        if (packet->total != total) {
            *failed = true;
            tutti_report_sizes(team, slice, index, packet->total, total);
            return false;
        }
        held_apply(team, slice, step, i);
        return true;
    }
    return false;
}

/* Whether the sender of a packet calls the same; runners have no packets. */
static bool is_same_call(const struct tutti_flight *flight, uint64_t signature)
{
    return !flight->runner && flight->info.signature == signature;
}

bool tutti_held_check(struct tutti_team *team, const struct tutti_flight *flight)
{
    for (uint32_t at = team->listed; at; at = team->channels[at - 1].next_listed) {
        const struct tutti_channel *channel = &team->channels[at - 1];
        for (uint64_t left = channel->held; left; left &= left - 1) {
            const struct tutti_packet *held = &held_at(team, at - 1, lowest(left))->packet;
            if (held->seq != flight->work.seq || is_same_call(flight, held->signature)) continue;
            tutti_report_mismatch(team, flight, at - 1, held->count, held->call);
            return false;
        }
        for (uint32_t i = 0; i < channel->n_grants; i++) {
            const struct tutti_grant *grant = &channel->grants[i];
            if (grant->seq != flight->work.seq || is_same_call(flight, grant->signature)) continue;
            tutti_report_mismatch(team, flight, at - 1, grant->count, grant->call);
            return false;
        }
    }
    return true;
}

/* ---- where a message belongs ---- */

enum belongs { EARLY, ACTIVE, LATE, REFUSED };

/* Compares the packet with what is in progress here. ACTIVE: *out is its slice. REFUSED: the team broke. */
static enum belongs place(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet,
                          struct tutti_slice **out)
{
    struct tutti_flight *flight = NULL;

    if (packet->seq > team->started) return EARLY;
    *out = slice_find(team, packet->seq, packet->slice);
    flight = *out ? (*out)->flight : tutti_flight_find(team, packet->seq);
    if (!flight) return LATE;
    if (!is_same_call(flight, packet->signature)) {
        tutti_report_mismatch(team, flight, peer, packet->count, packet->call);
        return REFUSED;
    }
    if (*out) return ACTIVE;
    if (packet->slice >= flight->layout.n_slices) {
        tutti_report_protocol(team, peer, flight, "a slice that the call does not have");
        return REFUSED;
    }
    return packet->slice >= flight->next_slice ? EARLY : LATE;
}

/* ---- messages of schedules ---- */

static void eager(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    struct tutti_slice *slice = NULL;
    enum belongs belongs = place(team, peer, packet, &slice);
    uint32_t index = TUTTI_NO_STEP;

    if (belongs == REFUSED) return;
    if (packet->bytes != packet->total || packet->offset != 0) {
        tutti_report_protocol(team, peer, NULL, "a part of a message that must come whole");
        return;
    }
    if (belongs == ACTIVE) {
        index = step_find(slice, false, peer, packet->fifo);
        if (index == TUTTI_NO_STEP) {
            belongs = LATE;
        } else {
            const struct tutti_step *step = &slice->flight->bind.schedule->steps[index];
            size_t total = step_bytes(slice, step);
            if (total != packet->total) {
                tutti_report_sizes(team, slice, index, packet->total, total);
                return;
            }
            if (in_mask(slice, slice->busy, index)) {
                tutti_step_apply(slice, step, 0, total, payload);
                tutti_slice_complete(slice, index);
                consumed(team, peer, total);
                return;
            }
            belongs = in_mask(slice, slice->done, index) ? LATE : EARLY;
        }
    }
    if (belongs == LATE)
        team->engine->stats.duplicates_dropped++;
    else
        hold(team, peer, packet, payload);
}

static struct tutti_incoming *incoming_find(struct tutti_channel *channel, const struct tutti_packet *packet)
{
    for (uint32_t i = 0; i < TUTTI_GRANTS; i++) {
        struct tutti_incoming *in = &channel->incoming[i];
        if (!in->slice || in->slice->flight->work.seq != packet->seq || in->slice->index != packet->slice) continue;
        if (in->slice->flight->bind.schedule->steps[in->step].fifo == packet->fifo) return in;
    }
    return NULL;
}

/* The granted message of a step; NULL: there is none. */
static struct tutti_incoming *incoming_of(struct tutti_channel *channel, const struct tutti_slice *slice, uint32_t step)
{
    for (uint32_t i = 0; i < TUTTI_GRANTS; i++)
        if (channel->incoming[i].slice == slice && channel->incoming[i].step == step) return &channel->incoming[i];
    return NULL;
}

static void incoming_free(struct tutti_team *team, struct tutti_channel *channel, struct tutti_incoming *in)
{
    in->slice = NULL;
    channel->n_incoming--;
    team->retry = true; /* another message may be granted */
}

static void granted(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    struct tutti_channel *channel = &team->channels[peer];
    struct tutti_incoming *in = incoming_find(channel, packet);
    bool broken = false;

    if (!in) {
        team->engine->stats.duplicates_dropped++;
        return;
    }
    struct tutti_slice *slice = in->slice;
    uint32_t index = in->step;
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[index];
    size_t total = step_bytes(slice, step);
    if (packet->total != total) {
        tutti_report_sizes(team, slice, index, packet->total, total);
        return;
    }
    if (packet->flags & TUTTI_PACKET_OFFER) {
        const void *from = tutti_offer_map(team, peer, packet->offset, total);
        if (!from) {
            tutti_report_protocol(team, peer, slice->flight, "an offer of memory that it can not read");
            return;
        }
        tutti_step_apply(slice, step, 0, total, from);
        incoming_free(team, channel, in);
        slice->ack |= tutti_slice_bit(index - slice->base);
        slice->dirty = true;
        return;
    }
    if (tutti_inflow_add(&in->inflow, total, packet->offset, packet->bytes, &broken)) {
        tutti_step_apply(slice, step, packet->offset, packet->bytes, payload);
        if (in->inflow.received < total || tutti_is_lent(team->port, slice, index)) return;
        incoming_free(team, channel, in);
        tutti_slice_complete(slice, index);
    } else if (broken) {
        tutti_report_protocol(team, peer, slice->flight,
                              "a part of a message that is out of range or far out of order");
    } else {
        team->engine->stats.duplicates_dropped++;
    }
}

bool tutti_flights_place(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet,
                         struct tutti_target *target, struct tutti_loan *what)
{
    struct tutti_incoming *in = incoming_find(&team->channels[peer], packet);
    bool broken;

    if (!in || packet->flags & (TUTTI_PACKET_EAGER | TUTTI_PACKET_OFFER)) return false;
    const struct tutti_slice *slice = in->slice;
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[in->step];
    struct tutti_operand dst = tutti_operand_dst(step);
    size_t total = step_bytes(slice, step);
    unsigned char *at;
    if (step->op != TUTTI_STEP_RECV || packet->total != total || packet->bytes == 0 || packet->offset > total ||
        packet->bytes > total - packet->offset)
        return false;
    if (tutti_layout_run(&slice->flight->layout, &dst, slice->index, packet->offset, packet->bytes, &at) <
            packet->bytes ||
        !tutti_inflow_add(&in->inflow, total, packet->offset, packet->bytes, &broken))
        return false;
    *target = (struct tutti_target){at, packet->bytes};
    *what = (struct tutti_loan){.team = team, .of = in->slice, .step = in->step, .peer = peer};
    return true;
}

void tutti_flights_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status)
{
    struct tutti_slice *slice = loan->of;
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[loan->step];
    struct tutti_channel *channel = &team->channels[loan->peer];

    if (status < 0) {
        tutti_report_undelivered(team, slice, loan->step, loan->peer, status);
        return;
    }
    if (tutti_is_lent(team->port, slice, loan->step)) return;
    if (step->op == TUTTI_STEP_SEND) {
        if (channel->out_slice == slice && channel->out_step == loan->step) return; /* more is to be sent */
    } else {
        struct tutti_incoming *in = incoming_of(channel, slice, loan->step);
        if (!in) {
            tutti_report_protocol(team, loan->peer, slice->flight, "a part of a message that was not asked for");
            return;
        }
        if (in->inflow.received < step_bytes(slice, step)) return;
        incoming_free(team, channel, in);
    }
    tutti_slice_complete(slice, loan->step);
}

void tutti_flights_data(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    (packet->flags & TUTTI_PACKET_EAGER ? eager : granted)(team, peer, packet, payload);
}

void tutti_flights_grant(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    struct tutti_channel *channel = &team->channels[peer];
    struct tutti_slice *slice = NULL;
    enum belongs belongs = place(team, peer, packet, &slice);
    bool known = belongs == LATE || packet->total <= team->eager; /* eager ones are only asked about: tutti_recv_ask */

    (void)payload;
    if (belongs == REFUSED) return;
    if (belongs == ACTIVE) {
        uint32_t index = step_find(slice, true, peer, packet->fifo);
        known |= index == TUTTI_NO_STEP || in_mask(slice, slice->done | slice->busy, index) ||
                 (channel->out_slice == slice && channel->out_step == index);
        if (index != TUTTI_NO_STEP) {
            size_t total = step_bytes(slice, &slice->flight->bind.schedule->steps[index]);
            if (total != packet->total) {
                tutti_report_sizes(team, slice, index, total, packet->total);
                return;
            }
        }
    }
    for (uint32_t i = 0; i < channel->n_grants; i++)
        known |= channel->grants[i].seq == packet->seq && channel->grants[i].slice == packet->slice &&
                 channel->grants[i].fifo == packet->fifo;
    if (known) {
        team->engine->stats.duplicates_dropped++;
        return;
    }
    if (channel->n_grants == TUTTI_GRANTS) {
        tutti_report_protocol(team, peer, NULL, "more grants than there are credits");
        return;
    }
    channel->grants[channel->n_grants++] = (struct tutti_grant){
        packet->seq, packet->signature, packet->total, packet->slice, packet->fifo, packet->count, packet->call};
    tutti_team_list(team, peer);
    if (slice) slice->dirty = true;
}

void tutti_flights_read(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    struct tutti_slice *slice = slice_find(team, packet->seq, packet->slice);
    uint32_t index = slice ? step_find(slice, true, peer, packet->fifo) : TUTTI_NO_STEP;

    (void)payload;
    if (index != TUTTI_NO_STEP && in_mask(slice, slice->busy, index) && !tutti_is_lent(team->port, slice, index))
        tutti_slice_complete(slice, index);
    else
        team->engine->stats.duplicates_dropped++;
}

/* ---- Bytes into place: local copies and reductions, and what arrives. Places are gathered from runs (bind.c), so no
 * step ever needs staging. First touch makes reductions three-operand: the old value may be the user's input. ---- */

/* dst = old op in, or in op old. */
static void combine(const struct tutti_flight *flight, const struct tutti_step *step, void *dst, const void *old,
                    const void *in, size_t bytes)
{
    const struct tutti_bind *bind = &flight->bind;
    bool left = (step->flags & TUTTI_STEP_LEFT) != 0;
    size_t n = bytes / flight->layout.element;

    if (bind->reduce)
        bind->reduce(dst, left ? in : old, left ? old : in, n);
    else if (bind->user)
        bind->user(left ? in : old, left ? old : in, dst, n, bind->dtype, bind->user_arg);
    /* else a barrier: its tokens mean nothing */
}

static void copy(const struct tutti_flight *flight, unsigned char *to, const unsigned char *from, size_t bytes)
{
    size_t apart = to > from ? (size_t)(to - from) : (size_t)(from - to);

    if (flight->past_cache && apart >= bytes)
        tutti_copy_past_cache(to, from, bytes);
    else if (apart > 0)
        memmove(to, from, bytes);
}

/* `bytes` of the step's destination from `offset` on; payload: what comes in, NULL: it is the step's source. */
static inline void put(const struct tutti_slice *slice, const struct tutti_step *step, size_t offset, size_t bytes,
                       const unsigned char *payload)
{
    const struct tutti_flight *flight = slice->flight;
    const struct tutti_layout *l = &flight->layout;
    struct tutti_operand src = tutti_operand_src(step), dst = tutti_operand_dst(step), old = tutti_operand_old(step);
    bool stores = !tutti_step_reduces(step);

    for (size_t at = 0; at < bytes;) {
        unsigned char *to, *was, *in = NULL;
        size_t run = tutti_layout_run(l, &dst, slice->index, offset + at, bytes - at, &to);
        if (!payload) run = tutti_layout_run(l, &src, slice->index, offset + at, run, &in);
        if (run == 0) break;
        const unsigned char *from = payload ? payload + at : in;
        if (stores) {
            copy(flight, to, from, run);
        } else {
            run = tutti_layout_run(l, &old, slice->index, offset + at, run, &was);
            combine(flight, step, to, was, from, run);
        }
        at += run;
    }
}

void tutti_step_local(const struct tutti_slice *slice, const struct tutti_step *step)
{
    struct tutti_operand dst = tutti_operand_dst(step);
    put(slice, step, 0, tutti_layout_bytes(&slice->flight->layout, &dst, slice->index), NULL);
}

void tutti_step_apply(const struct tutti_slice *slice, const struct tutti_step *step, size_t offset, size_t bytes,
                      const unsigned char *payload)
{
    put(slice, step, offset, bytes, payload);
}
