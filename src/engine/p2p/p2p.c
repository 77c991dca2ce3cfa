/* SPDX-License-Identifier: BSD-3-Clause */

/* Point-to-point: letters are matched by (source, tag) in the order of the calls. A small message goes with its
 * envelope while the receiver has a slot for it; else the envelope goes alone, and the receiver asks for the payload
 * once a receive has matched. Envelopes leave for a peer in order, so a message never overtakes another. */

#include "engine/p2p/p2p.h"
#include "device/cpu/copy.h"
#include "engine/report/report.h"

#include <string.h>

/* ---- lists ---- */

static void letter_append(struct tutti_letter ***end, struct tutti_letter *letter)
{
    letter->next = NULL;
    **end = letter;
    *end = &letter->next;
}

/* Takes the letter at *at off its list, and ends it. */
static void letter_end(struct tutti_team *team, struct tutti_letter **at, const struct tutti_error *error)
{
    struct tutti_letter *letter = *at;
    bool send = letter->work.type == TUTTI_WORK_SEND;

    *at = letter->next;
    if (!letter->next) *(send ? &team->sends_end : &team->recvs_end) = at;
    tutti_team_complete(&letter->work, error);
}

static struct tutti_letter **letter_find(struct tutti_letter **at, enum tutti_letter_state state, uint32_t peer,
                                         uint64_t number)
{
    while (*at && ((*at)->state != state || (*at)->peer != (int32_t)peer || (*at)->number != number)) at = &(*at)->next;
    return at;
}

static void break_protocol(struct tutti_team *team, uint32_t peer, const char *what)
{
    char text[TUTTI_ERROR_TEXT];

    snprintf(text, sizeof(text), "on communicator %" PRIx64 ", rank %u received from rank %u %s", team->id, team->slot,
             peer, what);
    tutti_team_break(team, TUTTI_ERR_PROTOCOL, (int32_t)peer, NULL, TUTTI_NO_STEP, text);
}

/* False when the team broke; a peer that is gone needs no answers. */
static bool sent_well(struct tutti_team *team, const struct tutti_letter *letter, enum tutti_status status)
{
    char where[TUTTI_CALL_TEXT];

    if (status >= 0) return true;
    if (status != TUTTI_ERR_PEER_DEAD && status != TUTTI_ERR_PEER_LEFT) {
        tutti_team_break(team, status, letter->peer, NULL, TUTTI_NO_STEP, tutti_last_error()->text);
        return false;
    }
    tutti_say_letter(letter, where, sizeof(where));
    tutti_report_lost(team, (uint32_t)letter->peer, status == TUTTI_ERR_PEER_DEAD ? TUTTI_LIFE_DEAD : TUTTI_LIFE_LEFT,
                      where, NULL, TUTTI_NO_STEP);
    return false;
}

static struct tutti_packet packet_of(const struct tutti_letter *letter, uint8_t type)
{
    return (struct tutti_packet){
        .type = type, .seq = letter->number, .slice = (uint32_t)letter->tag, .total = letter->total};
}

/* ---- sending ---- */

/* The envelope, with the payload if there is a slot for it. Returns true when the letter is complete. */
static bool send_envelope(struct tutti_team *team, struct tutti_letter *letter)
{
    struct tutti_channel *channel = &team->channels[letter->peer];
    struct tutti_packet packet = packet_of(letter, TUTTI_PACKET_P2P);
    struct tutti_span span = {letter->buffer, letter->bytes};
    bool small = letter->bytes <= team->eager;
    bool whole = letter->bytes == 0 || (small && channel->p2p_paid - channel->p2p_paid_returned < TUTTI_CREDITS);
    enum tutti_status status = TUTTI_AGAIN;

    if (whole) packet.flags = TUTTI_PACKET_EAGER | TUTTI_PACKET_LAST, packet.bytes = (uint32_t)letter->bytes;
    if (channel->p2p_pass != team->letter_pass && letter->number - channel->p2p_returned <= team->envelope_share)
        status = tutti_team_send(team, (uint32_t)letter->peer, &packet, &span, packet.bytes > 0);
    if (status == TUTTI_AGAIN) channel->p2p_pass = team->letter_pass; /* those after it must not overtake it */
    if (status != TUTTI_OK) {
        sent_well(team, letter, status);
        return false;
    }
    if (packet.bytes > 0) channel->p2p_paid++;
    letter->state = TUTTI_LETTER_WAITING;
    return whole;
}

/* Payload that was asked for. Returns true when the letter is complete. */
static bool send_payload(struct tutti_team *team, struct tutti_letter *letter)
{
    const struct tutti_ticket what = {
        .team = team, .of = letter, .step = TUTTI_NO_STEP, .peer = (uint32_t)letter->peer};
    struct tutti_packet packet = packet_of(letter, TUTTI_PACKET_P2P_DATA);
    size_t most = team->port->transport->max_payload;
    enum tutti_status status;

    if (letter->offered) return false;
    if (letter->offset == 0 &&
        tutti_offer_locate(team, (uint32_t)letter->peer, letter->buffer, letter->bytes, &packet.offset)) {
        packet.flags = TUTTI_PACKET_OFFER | TUTTI_PACKET_LAST;
        status = tutti_team_send(team, (uint32_t)letter->peer, &packet, NULL, 0);
        letter->offered = status == TUTTI_OK;
        if (letter->offered) team->engine->stats.zero_copy_messages++;
        sent_well(team, letter, status);
        return false;
    }
    while (letter->offset < letter->bytes) {
        size_t left = letter->bytes - letter->offset;
        struct tutti_span span = {letter->buffer + letter->offset, left < most ? left : most};
        packet.offset = letter->offset;
        packet.bytes = (uint32_t)span.bytes;
        packet.flags = span.bytes == left ? TUTTI_PACKET_LAST : 0;
        status = tutti_team_lend(team, (uint32_t)letter->peer, &packet, &span, 1, &what);
        if (status != TUTTI_OK && status != TUTTI_PENDING) {
            sent_well(team, letter, status);
            return false;
        }
        letter->offset += span.bytes;
    }
    return !tutti_is_lent(team->port, letter, TUTTI_NO_STEP);
}

static bool sends_run(struct tutti_team *team)
{
    bool moved = false;

    for (struct tutti_letter **at = &team->sends; *at && !team->halted;) {
        struct tutti_letter *letter = *at;
        bool over = false;
        if (letter->state == TUTTI_LETTER_QUEUED)
            over = send_envelope(team, letter);
        else if (letter->state == TUTTI_LETTER_MOVING)
            over = send_payload(team, letter);
        if (team->halted) return true;
        moved |= over;
        if (over)
            letter_end(team, at, NULL);
        else
            at = &letter->next;
    }
    return moved;
}

/* ---- receiving ---- */

static void recv_end(struct tutti_team *team, struct tutti_letter **at)
{
    struct tutti_letter *letter = *at;
    struct tutti_error error;

    if (letter->message) *letter->message = (struct tutti_message){letter->peer, letter->tag, letter->total};
    if (letter->total <= letter->bytes) {
        letter_end(team, at, NULL);
        return;
    }
    tutti_error_set(&error, TUTTI_ERR_TRUNCATED,
                    "recv on communicator %" PRIx64
                    ": the message of rank %d (tag %d) has %zu bytes, the buffer of rank "
                    "%u has %zu",
                    team->id, letter->peer, letter->tag, letter->total, team->slot, letter->bytes);
    error.peer = letter->peer;
    error.collective = "recv";
    letter_end(team, at, &error);
}

/* What fits into the buffer. */
static void recv_bytes(struct tutti_letter *letter, size_t offset, size_t bytes, const unsigned char *payload)
{
    if (offset >= letter->bytes || bytes == 0) return;
    size_t room = letter->bytes - offset;
    if (bytes > room) bytes = room;
    if (letter->total >= TUTTI_PAST_CACHE_BYTES)
        tutti_copy_past_cache(letter->buffer + offset, payload, bytes);
    else
        memcpy(letter->buffer + offset, payload, bytes);
}

/* A letter meets its message. */
static void recv_match(struct tutti_team *team, struct tutti_letter **at, const struct tutti_envelope *e,
                       const unsigned char *payload)
{
    struct tutti_letter *letter = *at;

    letter->peer = (int32_t)e->source, letter->tag = e->tag;
    letter->number = e->number, letter->total = (size_t)e->total;
    team->channels[e->source].p2p_freed++;
    team->owing = true;
    tutti_team_list(team, e->source);
    if (e->total == 0 || payload) {
        recv_bytes(letter, 0, (size_t)e->total, payload);
        recv_end(team, at);
        return;
    }
    letter->state = TUTTI_LETTER_WAITING;
    team->letters_dirty = true;
}

static bool recvs_run(struct tutti_team *team)
{
    bool moved = false;

    for (struct tutti_letter **at = &team->recvs; *at;) {
        struct tutti_letter *letter = *at;
        bool asking = letter->state == TUTTI_LETTER_WAITING;
        if (asking || letter->state == TUTTI_LETTER_READ_OWED) {
            struct tutti_packet packet = packet_of(letter, asking ? TUTTI_PACKET_P2P_GRANT : TUTTI_PACKET_P2P_READ);
            enum tutti_status status = tutti_team_send(team, (uint32_t)letter->peer, &packet, NULL, 0);
            bool gone = status == TUTTI_ERR_PEER_DEAD || status == TUTTI_ERR_PEER_LEFT;
            if (status == TUTTI_OK && asking) letter->state = TUTTI_LETTER_MOVING;
            moved |= status == TUTTI_OK;
            if (!asking && (status == TUTTI_OK || gone)) {
                recv_end(team, at);
                continue;
            }
            if (!sent_well(team, letter, status)) return true;
        }
        at = &letter->next;
    }
    return moved;
}

bool tutti_letters_run(struct tutti_team *team, bool retry)
{
    if (!team->letters_dirty && !retry) return false;
    team->letters_dirty = false;
    team->letter_pass++;
    bool moved = sends_run(team);
    return !team->halted && recvs_run(team) ? true : moved;
}

/* ---- arrivals ---- */

/* The first receive that asks for such a message. */
static struct tutti_letter **posted_find(struct tutti_team *team, uint32_t source, int32_t tag)
{
    struct tutti_letter **at = &team->recvs;

    for (; *at; at = &(*at)->next)
        if ((*at)->state == TUTTI_LETTER_QUEUED && ((*at)->peer < 0 || (*at)->peer == (int32_t)source) &&
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
    struct tutti_letter **at = posted_find(team, source, e.tag);

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
        struct tutti_letter **at = posted_find(team, source, e->tag);
        if (!*at) continue;
        recv_match(team, at, e, tutti_envelope_payload(team, e));
        tutti_envelope_drop(team, e);
    }
}

static void envelope_arrived(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                             const void *payload)
{
    struct tutti_channel *channel = &team->channels[source];
    bool fits = true;

    if (packet->seq <= channel->p2p_taken || tutti_envelope_find_early(team, source, packet->seq)) {
        team->engine->stats.duplicates_dropped++;
        return;
    }
    if (packet->bytes > 0 && packet->bytes != packet->total) {
        break_protocol(team, source, "an envelope with a part of its message");
        return;
    }
    if (packet->seq == channel->p2p_taken + 1) {
        fits = envelope_take(team, source, packet, payload);
        if (fits) early_take(team, source);
    } else {
        fits = tutti_envelope_keep(team, source, packet, payload, true);
    }
    if (!fits) break_protocol(team, source, "an envelope that it had no room for");
}

static void grant_arrived(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    struct tutti_letter *letter = *letter_find(&team->sends, TUTTI_LETTER_WAITING, source, packet->seq);

    if (!letter) {
        team->engine->stats.duplicates_dropped++;
        return;
    }
    letter->state = TUTTI_LETTER_MOVING;
    team->letters_dirty = true;
}

static void payload_arrived(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                            const void *payload)
{
    struct tutti_letter **at = letter_find(&team->recvs, TUTTI_LETTER_MOVING, source, packet->seq), *letter = *at;
    bool broken = false;

    if (!letter) {
        team->engine->stats.duplicates_dropped++;
    } else if (packet->total != letter->total) {
        break_protocol(team, source, "a message of another size than it announced");
    } else if (packet->flags & TUTTI_PACKET_OFFER) {
        const void *from = tutti_offer_map(team, source, packet->offset, letter->total);
        if (!from) {
            break_protocol(team, source, "an offer of memory that it can not read");
            return;
        }
        recv_bytes(letter, 0, letter->total, from);
        letter->state = TUTTI_LETTER_READ_OWED;
        team->letters_dirty = true;
    } else if (tutti_inflow_add(&letter->inflow, letter->total, packet->offset, packet->bytes, &broken)) {
        recv_bytes(letter, (size_t)packet->offset, packet->bytes, payload);
        if (letter->inflow.received == letter->total && !tutti_is_lent(team->port, letter, TUTTI_NO_STEP))
            recv_end(team, at);
    } else if (broken) {
        break_protocol(team, source, "a part of a message that is out of range or far out of order");
    } else {
        team->engine->stats.duplicates_dropped++;
    }
}

bool tutti_letters_place(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                         struct tutti_target *target, struct tutti_ticket *what)
{
    struct tutti_letter *letter = *letter_find(&team->recvs, TUTTI_LETTER_MOVING, source, packet->seq);
    bool broken;

    if (!letter || packet->flags & TUTTI_PACKET_OFFER || packet->total != letter->total) return false;
    if (packet->offset > letter->bytes || packet->bytes > letter->bytes - packet->offset) return false;
    if (!tutti_inflow_add(&letter->inflow, letter->total, packet->offset, packet->bytes, &broken)) return false;
    *target = (struct tutti_target){letter->buffer + packet->offset, packet->bytes};
    *what = (struct tutti_ticket){.team = team, .of = letter, .step = TUTTI_NO_STEP, .peer = source};
    return true;
}

void tutti_letters_back(struct tutti_team *team, const struct tutti_ticket *ticket, enum tutti_status status)
{
    struct tutti_letter *letter = ticket->of, **at = &team->recvs;

    if (status < 0) {
        tutti_fail(status, "on communicator %" PRIx64 ", rank %u: the wire lost a message with rank %u", team->id,
                   team->slot, ticket->peer);
        sent_well(team, letter, status);
    } else if (letter->work.type == TUTTI_WORK_SEND) {
        team->letters_dirty = true; /* the last of its tickets ends it: send_payload */
    } else if (letter->inflow.received == letter->total && !tutti_is_lent(team->port, letter, TUTTI_NO_STEP)) {
        while (*at != letter) at = &(*at)->next;
        recv_end(team, at);
    }
}

static void read_arrived(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    struct tutti_letter **at = letter_find(&team->sends, TUTTI_LETTER_MOVING, source, packet->seq);

    if (*at && (*at)->offered)
        letter_end(team, at, NULL);
    else
        team->engine->stats.duplicates_dropped++;
}

void tutti_letters_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                           const void *payload)
{
    if (packet->type == TUTTI_PACKET_P2P)
        envelope_arrived(team, source, packet, payload);
    else if (packet->type == TUTTI_PACKET_P2P_GRANT)
        grant_arrived(team, source, packet);
    else if (packet->type == TUTTI_PACKET_P2P_DATA)
        payload_arrived(team, source, packet, payload);
    else
        read_arrived(team, source, packet);
}

/* ---- credits ---- */

void tutti_letters_credit(struct tutti_channel *channel, const struct tutti_packet *packet)
{
    uint32_t paid = packet->fifo - channel->p2p_paid_returned;

    if (packet->seq > channel->p2p_returned && packet->seq <= channel->p2p_sent) channel->p2p_returned = packet->seq;
    if (paid <= channel->p2p_paid - channel->p2p_paid_returned) channel->p2p_paid_returned = packet->fifo;
}

bool tutti_letters_owe(const struct tutti_team *team, const struct tutti_channel *channel)
{
    return channel->p2p_paid_freed - channel->p2p_paid_told >= 2 ||
           channel->p2p_freed - channel->p2p_told >= team->envelope_share / 4;
}

/* ---- starting and failing ---- */

void tutti_letter_begin(struct tutti_team *team, struct tutti_letter *letter)
{
    tutti_engine_watch_by(team->engine, letter->work.deadline_ns);
    if (letter->work.type == TUTTI_WORK_SEND) {
        letter->number = ++team->channels[letter->peer].p2p_sent;
        letter_append(&team->sends_end, letter);
        team->letters_dirty = true;
        return;
    }
    struct tutti_letter **at = team->recvs_end;
    letter_append(&team->recvs_end, letter);
    struct tutti_envelope *e = tutti_envelope_find(team, letter->peer, letter->tag);
    if (!e) return;
    recv_match(team, at, e, tutti_envelope_payload(team, e));
    tutti_envelope_drop(team, e);
}

void tutti_letters_fail(struct tutti_team *team, const struct tutti_error *error)
{
    while (team->sends) letter_end(team, &team->sends, error);
    while (team->recvs) letter_end(team, &team->recvs, error);
}

static enum tutti_status letter_start(struct tutti_team *team, enum tutti_work_type type,
                                      const struct tutti_letter_info *info, bool helper, struct tutti_work **work)
{
    struct tutti_letter *letter = tutti_work_new(team->engine->works, type);
    bool send = type == TUTTI_WORK_SEND;

    if (!letter) return tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", send ? "send" : "recv");
    letter->next = NULL;
    letter->state = TUTTI_LETTER_QUEUED;
    letter->buffer = send ? (unsigned char *)(uintptr_t)info->send : info->recv; /* a send's is only read */
    letter->bytes = info->bytes, letter->total = send ? info->bytes : 0;
    letter->offset = 0;
    letter->peer = info->peer, letter->tag = info->tag;
    letter->number = 0;
    letter->offered = false;
    letter->inflow = (struct tutti_inflow){.received = 0};
    letter->message = info->message;
    letter->work.team = team;
    letter->work.timeout_ns = info->timeout_ns ? info->timeout_ns : team->timeout_ns;
    enum tutti_status status = tutti_team_submit(&letter->work, helper);
    if (status < 0) {
        tutti_work_drop(&letter->work);
        return status;
    }
    *work = &letter->work;
    return TUTTI_OK;
}

enum tutti_status tutti_engine_send(struct tutti_team *team, const struct tutti_letter_info *info, bool helper,
                                    struct tutti_work **work)
{
    return letter_start(team, TUTTI_WORK_SEND, info, helper, work);
}

enum tutti_status tutti_engine_recv(struct tutti_team *team, const struct tutti_letter_info *info, bool helper,
                                    struct tutti_work **work)
{
    return letter_start(team, TUTTI_WORK_RECV, info, helper, work);
}
