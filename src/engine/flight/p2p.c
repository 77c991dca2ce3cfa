/* SPDX-License-Identifier: BSD-3-Clause */
/* Point-to-point: letters are matched by (source, tag) in the order of the calls. Here is their way through the engine:
 * how they start, what a pass does with them, to whom packets go, and how they fail. p2p.c and p2p_recv.c have the
 * two ends of a message. */
#include "engine/flight/p2p.h"
#include "engine/team/report.h"

/* ---- starting ---- */

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

static void letter_append(struct tutti_letter ***end, struct tutti_letter *letter)
{
    letter->next = NULL;
    **end = letter;
    *end = &letter->next;
}

void tutti_letter_begin(struct tutti_team *team, struct tutti_letter *letter)
{
    struct tutti_letter **at = team->recvs_end;

    tutti_engine_watch_by(team->engine, letter->work.deadline_ns);
    if (letter->work.type == TUTTI_WORK_SEND) {
        letter->number = ++team->channels[letter->peer].p2p_sent;
        letter_append(&team->sends_end, letter);
        team->letters_dirty = true;
        return;
    }
    letter_append(&team->recvs_end, letter);
    tutti_recv_begin(team, at);
}

/* ---- on the way ---- */

bool tutti_letters_run(struct tutti_team *team, bool retry)
{
    if (!team->letters_dirty && !retry) return false;
    team->letters_dirty = false;
    team->letter_pass++;
    bool moved = tutti_sends_run(team);
    return !team->halted && tutti_recvs_run(team) ? true : moved;
}

void tutti_letters_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
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

void tutti_letters_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status)
{
    struct tutti_letter *letter = loan->of;

    if (status < 0)
        tutti_letter_sent(team, letter, status);
    else if (letter->work.type == TUTTI_WORK_SEND)
        team->letters_dirty = true; /* the last of its loans ends it: send_payload */
    else
        tutti_recv_placed(team, letter);
}

/* ---- credits and failures ---- */

void tutti_letters_credit(struct tutti_team *team, struct tutti_channel *channel, const struct tutti_packet *packet)
{
    const uint32_t paid = packet->fifo - channel->p2p_paid_returned;
    const bool more = packet->count > channel->p2p_returned && packet->count <= channel->p2p_sent;

    if (more) channel->p2p_returned = packet->count;
    if (paid <= channel->p2p_paid - channel->p2p_paid_returned) channel->p2p_paid_returned = packet->fifo;
    if (more && team->sends) team->letters_dirty = true;
}

bool tutti_letters_owe(const struct tutti_team *team, const struct tutti_channel *channel)
{
    return channel->p2p_paid_freed - channel->p2p_paid_told >= 2 ||
           channel->p2p_freed - channel->p2p_told >= team->envelope_share / 4;
}

void tutti_letters_fail(struct tutti_team *team, const struct tutti_error *error)
{
    while (team->sends) tutti_letter_end(team, &team->sends, error);
    while (team->recvs) tutti_letter_end(team, &team->recvs, error);
}

/* ---- What sending and receiving share: the team's lists of letters, the first words of a packet, and how a letter
 * breaks the team. ---- */

void tutti_letter_end(struct tutti_team *team, struct tutti_letter **at, const struct tutti_error *error)
{
    struct tutti_letter *letter = *at;
    bool send = letter->work.type == TUTTI_WORK_SEND;

    *at = letter->next;
    if (team->board.letter && letter->work.start_ns == team->board.letter_ns) {
        team->board.letter = TUTTI_BOARD_NO_LETTER;
        team->board.letter_ns = 0;
        tutti_team_publish(team);
    }
    if (!letter->next) *(send ? &team->sends_end : &team->recvs_end) = at;
    tutti_team_complete(&letter->work, error);
}

struct tutti_letter **tutti_letter_find(struct tutti_letter **at, enum tutti_letter_state state, uint32_t peer,
                                        uint64_t number)
{
    while (*at && ((*at)->state != state || (*at)->peer != (int32_t)peer || (*at)->number != number)) at = &(*at)->next;
    return at;
}

bool tutti_letter_sent(struct tutti_team *team, const struct tutti_letter *letter, enum tutti_status status)
{
    if (status >= 0) return true;
    if (status != TUTTI_ERR_PEER_DEAD && status != TUTTI_ERR_PEER_LEFT) {
        tutti_team_break(team, status, letter->peer, NULL, TUTTI_NO_STEP, tutti_last_error()->text);
        return false;
    }
    tutti_report_letter_lost(team, letter, (uint32_t)letter->peer,
                             status == TUTTI_ERR_PEER_DEAD ? TUTTI_LIFE_DEAD : TUTTI_LIFE_LEFT);
    return false;
}

struct tutti_packet tutti_letter_packet(const struct tutti_letter *letter, uint8_t type)
{
    return (struct tutti_packet){
        .type = type, .seq = letter->number, .slice = (uint32_t)letter->tag, .total = letter->total};
}

/* ---- Sending: a small message goes with its envelope while the receiver has a slot for it. Else the envelope goes
 * alone, and the payload follows when it was asked for. Envelopes leave for a peer in order, so no message overtakes
 * another. ---- */

/* The envelope, with the payload if there is a slot for it. Returns true when the letter is complete. */
static bool send_envelope(struct tutti_team *team, struct tutti_letter *letter)
{
    struct tutti_channel *channel = &team->channels[letter->peer];
    struct tutti_packet packet = tutti_letter_packet(letter, TUTTI_PACKET_P2P);
    struct tutti_span span = {letter->buffer, letter->bytes};
    bool small = letter->bytes <= team->eager;
    bool whole = letter->bytes == 0 || (small && channel->p2p_paid - channel->p2p_paid_returned < TUTTI_CREDITS);
    enum tutti_status status = TUTTI_AGAIN;

    if (whole) packet.flags = TUTTI_PACKET_EAGER | TUTTI_PACKET_LAST, packet.bytes = (uint32_t)letter->bytes;
    if (channel->p2p_pass != team->letter_pass && letter->number - channel->p2p_returned <= team->envelope_share)
        status = tutti_team_send(team, (uint32_t)letter->peer, &packet, &span, packet.bytes > 0);
    if (status == TUTTI_AGAIN) channel->p2p_pass = team->letter_pass; /* those after it must not overtake it */
    if (status != TUTTI_OK) {
        tutti_letter_sent(team, letter, status);
        return false;
    }
    if (packet.bytes > 0) channel->p2p_paid++;
    letter->state = TUTTI_LETTER_WAITING;
    return whole;
}

/* Payload that was asked for. Returns true when the letter is complete. */
static bool send_payload(struct tutti_team *team, struct tutti_letter *letter)
{
    const struct tutti_loan what = {.team = team, .of = letter, .step = TUTTI_NO_STEP, .peer = (uint32_t)letter->peer};
    struct tutti_packet packet = tutti_letter_packet(letter, TUTTI_PACKET_P2P_DATA);
    size_t most = team->port->transport->max_payload;
    enum tutti_status status;

    if (letter->offered) return false;
    if (letter->offset == 0 &&
        tutti_offer_locate(team, (uint32_t)letter->peer, letter->buffer, letter->bytes, &packet.offset)) {
        packet.flags = TUTTI_PACKET_OFFER | TUTTI_PACKET_LAST;
        status = tutti_team_send(team, (uint32_t)letter->peer, &packet, NULL, 0);
        letter->offered = status == TUTTI_OK;
        if (letter->offered) team->engine->stats.zero_copy_messages++;
        tutti_letter_sent(team, letter, status);
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
            tutti_letter_sent(team, letter, status);
            return false;
        }
        letter->offset += span.bytes;
    }
    return !tutti_is_lent(team->port, letter, TUTTI_NO_STEP);
}

bool tutti_sends_run(struct tutti_team *team)
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
            tutti_letter_end(team, at, NULL);
        else
            at = &letter->next;
    }
    return moved;
}

void tutti_send_granted(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    struct tutti_letter *letter = *tutti_letter_find(&team->sends, TUTTI_LETTER_WAITING, source, packet->seq);

    if (!letter) {
        team->engine->stats.duplicates_dropped++;
        return;
    }
    letter->state = TUTTI_LETTER_MOVING;
    team->letters_dirty = true;
}

void tutti_send_read(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    struct tutti_letter **at = tutti_letter_find(&team->sends, TUTTI_LETTER_MOVING, source, packet->seq);

    if (*at && (*at)->offered)
        tutti_letter_end(team, at, NULL);
    else
        team->engine->stats.duplicates_dropped++;
}
