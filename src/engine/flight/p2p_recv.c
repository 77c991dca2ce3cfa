/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: the first receive that asks for (source, tag) meets the first such envelope, in the order of the calls; an
 * envelope that no receive has asked for is kept in the table (p2p_recv.c). Once they have met, the receiver asks for a
 * payload that did not come along. */
#include "device/cpu/copy.h"
#include "engine/flight/p2p.h"
#include "engine/team/report.h"

#include <string.h>

/* ---- a message and its message ---- */

static void recv_end(struct tutti_team *team, struct tutti_p2p_message **at)
{
    struct tutti_p2p_message *msg = *at;
    struct tutti_error error;

    if (msg->message) *msg->message = (struct tutti_message){msg->peer, msg->tag, msg->total};
    if (msg->total <= msg->bytes) {
        tutti_p2p_message_end(team, at, NULL);
        return;
    }
    tutti_error_set(&error, TUTTI_ERR_TRUNCATED,
                    "recv on communicator %" PRIx64
                    ": the message of rank %d (tag %d) has %zu bytes, the buffer of rank "
                    "%u has %zu",
                    team->id, msg->peer, msg->tag, msg->total, team->slot, msg->bytes);
    error.peer = msg->peer;
    error.collective = "recv";
    tutti_p2p_message_end(team, at, &error);
}

/* What fits into the buffer. */
static void recv_bytes(struct tutti_p2p_message *msg, size_t offset, size_t bytes, const unsigned char *payload)
{
    if (offset >= msg->bytes || bytes == 0) return;
    size_t room = msg->bytes - offset;
    if (bytes > room) bytes = room;
    if (msg->total >= TUTTI_PAST_CACHE_BYTES)
        tutti_copy_past_cache(msg->buffer + offset, payload, bytes);
    else
        memcpy(msg->buffer + offset, payload, bytes);
}

/* A message meets its message. */
static void recv_match(struct tutti_team *team, struct tutti_p2p_message **at, const struct tutti_envelope *e,
                       const unsigned char *payload)
{
    struct tutti_p2p_message *msg = *at;

    msg->peer = (int32_t)e->source, msg->tag = e->tag;
    msg->number = e->number, msg->total = (size_t)e->total;
    team->channels[e->source].p2p_freed++;
    team->owing = true;
    tutti_team_list(team, e->source);
    if (e->total == 0 || payload) {
        recv_bytes(msg, 0, (size_t)e->total, payload);
        recv_end(team, at);
        return;
    }
    msg->state = TUTTI_P2P_WAITING;
    team->messages_dirty = true;
}

void tutti_recv_begin(struct tutti_team *team, struct tutti_p2p_message **at)
{
    struct tutti_p2p_message *msg = *at;
    struct tutti_envelope *e = tutti_envelope_find(team, msg->peer, msg->tag);

    if (!e) return;
    recv_match(team, at, e, tutti_envelope_payload(team, e));
    tutti_envelope_drop(team, e);
}

bool tutti_recvs_run(struct tutti_team *team)
{
    bool moved = false;

    for (struct tutti_p2p_message **at = &team->recvs; *at;) {
        struct tutti_p2p_message *msg = *at;
        bool asking = msg->state == TUTTI_P2P_WAITING;
        if (asking || msg->state == TUTTI_P2P_READ_OWED) {
            struct tutti_packet packet =
                tutti_p2p_message_packet(msg, asking ? TUTTI_PACKET_P2P_GRANT : TUTTI_PACKET_P2P_READ);
            enum tutti_status status = tutti_team_send(team, (uint32_t)msg->peer, &packet, NULL, 0);
            bool gone = tutti_status_is_gone(status);
            if (status == TUTTI_OK && asking) msg->state = TUTTI_P2P_MOVING;
            moved |= status == TUTTI_OK;
            if (!asking && (status == TUTTI_OK || gone)) {
                recv_end(team, at);
                continue;
            }
            if (!tutti_p2p_message_sent(team, msg, status)) return true;
        }
        at = &msg->next;
    }
    return moved;
}

/* ---- arrivals ---- */

/* The first receive that asks for such a message. */
static struct tutti_p2p_message **posted_find(struct tutti_team *team, uint32_t source, int32_t tag)
{
    struct tutti_p2p_message **at = &team->recvs;

    for (; *at; at = &(*at)->next)
        if ((*at)->state == TUTTI_P2P_QUEUED && ((*at)->peer < 0 || (*at)->peer == (int32_t)source) &&
            ((*at)->tag < 0 || (*at)->tag == tag))
            break;
    return at;
}

/* The next envelope of a peer, in order: to the first receive that asked for it, or into the table. */
static bool envelope_take(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                          const void *payload)
{
    const struct tutti_envelope e = {
        .source = source, .tag = (int32_t)packet->slice, .number = packet->seq, .total = packet->total};
    struct tutti_p2p_message **at = posted_find(team, source, e.tag);

    team->channels[source].p2p_taken++;
    if (!*at) return tutti_envelope_keep(team, source, packet, payload, false);
    if (packet->bytes > 0) team->channels[source].p2p_paid_freed++;
    recv_match(team, at, &e, packet->bytes > 0 ? payload : NULL);
    return true;
}

/* Envelopes that came too early and whose turn it is now. */
static void early_take(struct tutti_team *team, uint32_t source)
{
    struct tutti_envelope *e;

    while ((e = tutti_envelope_find_early(team, source, team->channels[source].p2p_taken + 1)) != NULL) {
        team->channels[source].p2p_taken++;
        tutti_envelope_promote(team, e);
        struct tutti_p2p_message **at = posted_find(team, source, e->tag);
        if (!*at) continue;
        recv_match(team, at, e, tutti_envelope_payload(team, e));
        tutti_envelope_drop(team, e);
    }
}

void tutti_recv_envelope(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                         const void *payload)
{
    struct tutti_channel *channel = &team->channels[source];
    bool fits = true;

    if (packet->seq <= channel->p2p_taken || tutti_envelope_find_early(team, source, packet->seq)) {
        team->engine->stats.duplicates_dropped++;
        return;
    }
    if (packet->bytes > 0 && packet->bytes != packet->total) {
        tutti_report_protocol(team, source, NULL, "an envelope with a part of its message");
        return;
    }
    if (packet->seq == channel->p2p_taken + 1) {
        fits = envelope_take(team, source, packet, payload);
        if (fits) early_take(team, source);
    } else {
        fits = tutti_envelope_keep(team, source, packet, payload, true);
    }
    if (!fits) tutti_report_protocol(team, source, NULL, "an envelope that it had no room for");
}

void tutti_recv_payload(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                        const void *payload)
{
    struct tutti_p2p_message **at = tutti_p2p_message_find(&team->recvs, TUTTI_P2P_MOVING, source, packet->seq),
                             *msg = *at;
    bool broken = false;

    if (!msg) {
        team->engine->stats.duplicates_dropped++;
    } else if (packet->total != msg->total) {
        tutti_report_protocol(team, source, NULL, "a message of another size than it announced");
    } else if (packet->flags & TUTTI_PACKET_OFFER) {
        const void *from = tutti_offer_map(team, source, packet->offset, msg->total);
        if (!from) {
            tutti_report_protocol(team, source, NULL, "an offer of memory that it can not read");
            return;
        }
        recv_bytes(msg, 0, msg->total, from);
        msg->state = TUTTI_P2P_READ_OWED;
        team->messages_dirty = true;
    } else if (tutti_inflow_add(&msg->inflow, msg->total, packet->offset, packet->bytes, &broken)) {
        recv_bytes(msg, (size_t)packet->offset, packet->bytes, payload);
        if (msg->inflow.received == msg->total && !tutti_is_lent(team->port, msg, TUTTI_NO_STEP)) recv_end(team, at);
    } else if (broken) {
        tutti_report_protocol(team, source, NULL, "a part of a message that is out of range or far out of order");
    } else {
        team->engine->stats.duplicates_dropped++;
    }
}

bool tutti_p2p_messages_place(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                              struct tutti_target *target, struct tutti_loan *what)
{
    struct tutti_p2p_message *msg = *tutti_p2p_message_find(&team->recvs, TUTTI_P2P_MOVING, source, packet->seq);
    bool broken;

    if (!msg || packet->flags & TUTTI_PACKET_OFFER || packet->total != msg->total) return false;
    if (packet->offset > msg->bytes || packet->bytes > msg->bytes - packet->offset) return false;
    if (!tutti_inflow_add(&msg->inflow, msg->total, packet->offset, packet->bytes, &broken)) return false;
    *target = (struct tutti_target){msg->buffer + packet->offset, packet->bytes};
    *what = (struct tutti_loan){.team = team, .of = msg, .step = TUTTI_NO_STEP, .peer = source};
    return true;
}

void tutti_recv_placed(struct tutti_team *team, const struct tutti_p2p_message *msg)
{
    struct tutti_p2p_message **at = &team->recvs;

    if (msg->inflow.received != msg->total || tutti_is_lent(team->port, msg, TUTTI_NO_STEP)) return;
    while (*at != msg) at = &(*at)->next;
    recv_end(team, at);
}

/* ---- Envelopes that nobody asked for yet: a table that was reserved with the team, a share for each peer, and a few
 * slots for small payloads. A message keeps its place among those of its sender even if a transport disorders them.
 * ---- */

static unsigned char *slot_at(const struct tutti_team *team, uint32_t peer, uint32_t i)
{
    return team->p2p_hold + ((size_t)peer * TUTTI_P2P_CREDITS + i) * team->p2p_stride;
}

const unsigned char *tutti_envelope_payload(const struct tutti_team *team, const struct tutti_envelope *envelope)
{
    return envelope->payload ? slot_at(team, envelope->source, envelope->payload - 1) : NULL;
}

/* An envelope with the payload kept; NULL: the sender broke the rules. */
static struct tutti_envelope *envelope_new(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                                           const void *payload, uint32_t *index)
{
    struct tutti_channel *channel = &team->channels[source];
    uint32_t slot = 0;

    if (packet->bytes > 0) {
        while (slot < TUTTI_P2P_CREDITS && (channel->p2p_used >> slot & 1)) slot++;
        if (slot == TUTTI_P2P_CREDITS || packet->bytes > team->eager) return NULL;
    }
    if (team->envelope_free) {
        *index = team->envelope_free;
        team->envelope_free = team->envelopes[*index].next;
    } else {
        if (team->envelope_used == team->size * team->envelope_share) return NULL;
        *index = ++team->envelope_used;
    }
    struct tutti_envelope *envelope = &team->envelopes[*index];
    *envelope = (struct tutti_envelope){.source = source,
                                        .tag = (int32_t)packet->slice,
                                        .payload = packet->bytes > 0 ? slot + 1 : 0,
                                        .number = packet->seq,
                                        .total = packet->total};
    if (packet->bytes > 0) {
        channel->p2p_used |= UINT32_C(1) << slot;
        memcpy(slot_at(team, source, slot), payload, packet->bytes);
    }
    team->engine->stats.held++;
    return envelope;
}

bool tutti_envelope_keep(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                         const void *payload, bool early)
{
    uint32_t index;

    if (!envelope_new(team, source, packet, payload, &index)) return false;
    if (early) {
        team->envelopes[index].next = team->envelope_early;
        team->envelope_early = index;
        return true;
    }
    if (team->envelope_last)
        team->envelopes[team->envelope_last].next = index;
    else
        team->envelope_first = index;
    team->envelope_last = index;
    return true;
}

struct tutti_envelope *tutti_envelope_find(struct tutti_team *team, int32_t source, int32_t tag)
{
    for (uint32_t i = team->envelope_first; i; i = team->envelopes[i].next) {
        struct tutti_envelope *e = &team->envelopes[i];
        if ((source < 0 || e->source == (uint32_t)source) && (tag < 0 || e->tag == tag)) return e;
    }
    return NULL;
}

struct tutti_envelope *tutti_envelope_find_early(struct tutti_team *team, uint32_t source, uint64_t number)
{
    for (uint32_t i = team->envelope_early; i; i = team->envelopes[i].next)
        if (team->envelopes[i].source == source && team->envelopes[i].number == number) return &team->envelopes[i];
    return NULL;
}

/* Unlinks from one of the two lists; returns the one before it. */
static uint32_t unlink_from(struct tutti_team *team, uint32_t *first, uint32_t index)
{
    uint32_t before = 0;

    if (*first == index) {
        *first = team->envelopes[index].next;
        return 0;
    }
    for (before = *first; before && team->envelopes[before].next != index; before = team->envelopes[before].next)
        continue;
    if (before) team->envelopes[before].next = team->envelopes[index].next;
    return before;
}

void tutti_envelope_promote(struct tutti_team *team, struct tutti_envelope *envelope)
{
    uint32_t index = (uint32_t)(envelope - team->envelopes);

    unlink_from(team, &team->envelope_early, index);
    envelope->next = 0;
    if (team->envelope_last)
        team->envelopes[team->envelope_last].next = index;
    else
        team->envelope_first = index;
    team->envelope_last = index;
}

void tutti_envelope_drop(struct tutti_team *team, struct tutti_envelope *envelope)
{
    uint32_t index = (uint32_t)(envelope - team->envelopes);
    struct tutti_channel *channel = &team->channels[envelope->source];

    uint32_t before = unlink_from(team, &team->envelope_first, index);
    if (team->envelope_last == index) team->envelope_last = before;
    if (envelope->payload) {
        channel->p2p_used &= ~(UINT32_C(1) << (envelope->payload - 1));
        channel->p2p_paid_freed++;
    }
    envelope->next = team->envelope_free;
    team->envelope_free = index;
}

enum tutti_status tutti_engine_probe(struct tutti_team *team, int32_t source, int32_t tag, struct tutti_message *out)
{
    struct tutti_owner *owner = team->engine->owner;
    enum tutti_status status = TUTTI_AGAIN;

    tutti_owner_enter(owner);
    tutti_owner_pass(owner);
    if (team->halted) {
        status = tutti_fail_record(&team->error);
    } else {
        const struct tutti_envelope *e = tutti_envelope_find(team, source, tag);
        if (e) {
            *out = (struct tutti_message){(int32_t)e->source, e->tag, (size_t)e->total};
            status = TUTTI_OK;
        }
    }
    tutti_owner_leave(owner);
    return status;
}
