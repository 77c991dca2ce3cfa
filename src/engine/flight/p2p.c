/* SPDX-License-Identifier: BSD-3-Clause */
/* Point-to-point: messages are matched by (source, tag) in the order of the calls. Here is their way through the
 * engine: how they start, what a pass does with them, to whom packets go, and how they fail. p2p.c and p2p_recv.c have
 * the two ends of a message. */
#include "engine/flight/p2p.h"
#include "engine/team/report.h"

/* ---- starting ---- */

static enum tutti_status message_start(struct tutti_team *team, enum tutti_work_type type,
                                       const struct tutti_p2p_message_info *info, bool helper, struct tutti_work **work)
{
    struct tutti_p2p_message *msg = tutti_work_new(team->engine->works, type);
    bool send = type == TUTTI_WORK_SEND;

    if (!msg) return tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", send ? "send" : "recv");
    msg->next = NULL;
    msg->state = TUTTI_P2P_QUEUED;
    msg->buffer = send ? (unsigned char *)(uintptr_t)info->send : info->recv; /* a send's is only read */
    msg->bytes = info->bytes, msg->total = send ? info->bytes : 0;
    msg->offset = 0;
    msg->peer = info->peer, msg->tag = info->tag;
    msg->number = 0;
    msg->offered = false;
    msg->inflow = (struct tutti_inflow){.received = 0};
    msg->message = info->message;
    msg->work.team = team;
    msg->work.timeout_ns = info->timeout_ns ? info->timeout_ns : team->timeout_ns;
    enum tutti_status status = tutti_team_submit(&msg->work, helper);
    if (status < 0) {
        tutti_work_drop(&msg->work);
        return status;
    }
    *work = &msg->work;
    return TUTTI_OK;
}

enum tutti_status tutti_engine_send(struct tutti_team *team, const struct tutti_p2p_message_info *info, bool helper,
                                    struct tutti_work **work)
{
    return message_start(team, TUTTI_WORK_SEND, info, helper, work);
}

enum tutti_status tutti_engine_recv(struct tutti_team *team, const struct tutti_p2p_message_info *info, bool helper,
                                    struct tutti_work **work)
{
    return message_start(team, TUTTI_WORK_RECV, info, helper, work);
}

static void message_append(struct tutti_p2p_message ***end, struct tutti_p2p_message *msg)
{
    msg->next = NULL;
    **end = msg;
    *end = &msg->next;
}

void tutti_p2p_message_begin(struct tutti_team *team, struct tutti_p2p_message *msg)
{
    struct tutti_p2p_message **at = team->recvs_end;

    tutti_engine_watch_by(team->engine, msg->work.deadline_ns);
    if (msg->work.type == TUTTI_WORK_SEND) {
        msg->number = ++team->channels[msg->peer].p2p_sent;
        message_append(&team->sends_end, msg);
        team->messages_dirty = true;
        return;
    }
    message_append(&team->recvs_end, msg);
    tutti_recv_begin(team, at);
}

/* ---- on the way ---- */

bool tutti_p2p_messages_run(struct tutti_team *team, bool retry)
{
    if (!team->messages_dirty && !retry) return false;
    team->messages_dirty = false;
    team->message_pass++;
    bool moved = tutti_sends_run(team);
    return !team->halted && tutti_recvs_run(team) ? true : moved;
}

void tutti_p2p_messages_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                                const void *payload)
{
    if (packet->type == TUTTI_PACKET_P2P)
        tutti_recv_envelope(team, source, packet, payload);
    else if (packet->type == TUTTI_PACKET_P2P_GRANT)
        tutti_send_granted(team, source, packet);
    else if (packet->type == TUTTI_PACKET_P2P_DATA)
        tutti_recv_payload(team, source, packet, payload);
    else
        tutti_send_read(team, source, packet);
}

void tutti_p2p_messages_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status)
{
    struct tutti_p2p_message *msg = loan->of;

    if (status < 0)
        tutti_p2p_message_sent(team, msg, status);
    else if (msg->work.type == TUTTI_WORK_SEND)
        team->messages_dirty = true; /* the last of its loans ends it: send_payload */
    else
        tutti_recv_placed(team, msg);
}

/* ---- credits and failures ---- */

void tutti_p2p_messages_credit(struct tutti_team *team, struct tutti_channel *channel,
                               const struct tutti_packet *packet)
{
    const uint32_t paid = packet->fifo - channel->p2p_paid_returned;
    const bool more = packet->count > channel->p2p_returned && packet->count <= channel->p2p_sent;

    if (more) channel->p2p_returned = packet->count;
    if (paid <= channel->p2p_paid - channel->p2p_paid_returned) channel->p2p_paid_returned = packet->fifo;
    if (more && team->sends) team->messages_dirty = true;
}

bool tutti_p2p_messages_owe(const struct tutti_team *team, const struct tutti_channel *channel)
{
    return channel->p2p_paid_freed - channel->p2p_paid_credited >= 2 ||
           channel->p2p_freed - channel->p2p_credited >= team->envelope_share / 4;
}

void tutti_p2p_messages_fail(struct tutti_team *team, const struct tutti_error *error)
{
    while (team->sends) tutti_p2p_message_end(team, &team->sends, error);
    while (team->recvs) tutti_p2p_message_end(team, &team->recvs, error);
}

/* ---- What sending and receiving share: the team's lists of messages, the first words of a packet, and how a message
 * breaks the team. ---- */

void tutti_p2p_message_end(struct tutti_team *team, struct tutti_p2p_message **at, const struct tutti_error *error)
{
    struct tutti_p2p_message *msg = *at;
    bool send = msg->work.type == TUTTI_WORK_SEND;

    *at = msg->next;
    if (team->board.message && msg->work.start_ns == team->board.message_since_ns) {
        team->board.message = TUTTI_BOARD_NO_MESSAGE;
        team->board.message_since_ns = 0;
        tutti_team_publish(team);
    }
    if (!msg->next) *(send ? &team->sends_end : &team->recvs_end) = at;
    tutti_team_complete(&msg->work, error);
}

struct tutti_p2p_message **tutti_p2p_message_find(struct tutti_p2p_message **at, enum tutti_p2p_message_state state,
                                                  uint32_t peer, uint64_t number)
{
    while (*at && ((*at)->state != state || (*at)->peer != (int32_t)peer || (*at)->number != number)) at = &(*at)->next;
    return at;
}

bool tutti_p2p_message_sent(struct tutti_team *team, const struct tutti_p2p_message *msg, enum tutti_status status)
{
    if (status >= 0) return true;
    if (!tutti_status_is_gone(status)) {
        tutti_team_break(team, status, msg->peer, NULL, TUTTI_NO_STEP, tutti_last_error()->text);
        return false;
    }
    tutti_report_message_lost(team, msg, (uint32_t)msg->peer,
                              status == TUTTI_ERR_PEER_DEAD ? TUTTI_LIFE_DEAD : TUTTI_LIFE_LEFT);
    return false;
}

struct tutti_packet tutti_p2p_message_packet(const struct tutti_p2p_message *msg, uint8_t type)
{
    return (struct tutti_packet){.type = type, .seq = msg->number, .slice = (uint32_t)msg->tag, .total = msg->total};
}

/* ---- Sending: a small message goes with its envelope while the receiver has a slot for it. Else the envelope goes
 * alone, and the payload follows when it was asked for. Envelopes leave for a peer in order, so no message overtakes
 * another. ---- */

/* The envelope, with the payload if there is a slot for it. Returns true when the message is complete. */
static bool send_envelope(struct tutti_team *team, struct tutti_p2p_message *msg)
{
    struct tutti_channel *channel = &team->channels[msg->peer];
    struct tutti_packet packet = tutti_p2p_message_packet(msg, TUTTI_PACKET_P2P);
    struct tutti_span span = {msg->buffer, msg->bytes};
    bool small = msg->bytes <= team->eager;
    bool whole = msg->bytes == 0 || (small && channel->p2p_paid - channel->p2p_paid_returned < TUTTI_P2P_CREDITS);
    enum tutti_status status = TUTTI_AGAIN;

    if (whole) packet.flags = TUTTI_PACKET_EAGER | TUTTI_PACKET_LAST, packet.bytes = (uint32_t)msg->bytes;
    if (channel->p2p_pass != team->message_pass && msg->number - channel->p2p_returned <= team->envelope_share)
        status = tutti_team_send(team, (uint32_t)msg->peer, &packet, &span, packet.bytes > 0);
    if (status == TUTTI_AGAIN) channel->p2p_pass = team->message_pass; /* those after it must not overtake it */
    if (status != TUTTI_OK) {
        tutti_p2p_message_sent(team, msg, status);
        return false;
    }
    if (packet.bytes > 0) channel->p2p_paid++;
    msg->state = TUTTI_P2P_WAITING;
    return whole;
}

/* Payload that was asked for. Returns true when the message is complete. */
static bool send_payload(struct tutti_team *team, struct tutti_p2p_message *msg)
{
    const struct tutti_loan what = {.team = team, .of = msg, .step = TUTTI_NO_STEP, .peer = (uint32_t)msg->peer};
    struct tutti_packet packet = tutti_p2p_message_packet(msg, TUTTI_PACKET_P2P_DATA);
    size_t most = team->port->transport->max_payload;
    enum tutti_status status;

    if (msg->offered) return false;
    if (msg->offset == 0 && tutti_offer_locate(team, (uint32_t)msg->peer, msg->buffer, msg->bytes, &packet.offset)) {
        packet.flags = TUTTI_PACKET_OFFER | TUTTI_PACKET_LAST;
        status = tutti_team_send(team, (uint32_t)msg->peer, &packet, NULL, 0);
        msg->offered = status == TUTTI_OK;
        if (msg->offered) team->engine->stats.zero_copy_messages++;
        tutti_p2p_message_sent(team, msg, status);
        return false;
    }
    while (msg->offset < msg->bytes) {
        size_t left = msg->bytes - msg->offset;
        struct tutti_span span = {msg->buffer + msg->offset, left < most ? left : most};
        packet.offset = msg->offset;
        packet.bytes = (uint32_t)span.bytes;
        packet.flags = span.bytes == left ? TUTTI_PACKET_LAST : 0;
        status = tutti_team_lend(team, (uint32_t)msg->peer, &packet, &span, 1, &what);
        if (status != TUTTI_OK && status != TUTTI_PENDING) {
            tutti_p2p_message_sent(team, msg, status);
            return false;
        }
        msg->offset += span.bytes;
    }
    return !tutti_is_lent(team->port, msg, TUTTI_NO_STEP);
}

bool tutti_sends_run(struct tutti_team *team)
{
    bool moved = false;

    for (struct tutti_p2p_message **at = &team->sends; *at && !team->halted;) {
        struct tutti_p2p_message *msg = *at;
        bool over = false;
        if (msg->state == TUTTI_P2P_QUEUED)
            over = send_envelope(team, msg);
        else if (msg->state == TUTTI_P2P_MOVING)
            over = send_payload(team, msg);
        if (team->halted) return true;
        moved |= over;
        if (over)
            tutti_p2p_message_end(team, at, NULL);
        else
            at = &msg->next;
    }
    return moved;
}

void tutti_send_granted(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    struct tutti_p2p_message *msg = *tutti_p2p_message_find(&team->sends, TUTTI_P2P_WAITING, source, packet->seq);

    if (!msg) {
        team->engine->stats.duplicates_dropped++;
        return;
    }
    msg->state = TUTTI_P2P_MOVING;
    team->messages_dirty = true;
}

void tutti_send_read(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    struct tutti_p2p_message **at = tutti_p2p_message_find(&team->sends, TUTTI_P2P_MOVING, source, packet->seq);

    if (*at && (*at)->offered)
        tutti_p2p_message_end(team, at, NULL);
    else
        team->engine->stats.duplicates_dropped++;
}
