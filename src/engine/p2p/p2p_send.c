/* SPDX-License-Identifier: BSD-3-Clause */

/* Sending: a small message goes with its envelope while the receiver has a slot for it. Else the envelope goes alone,
 * and the payload follows when it was asked for. Envelopes leave for a peer in order, so no message overtakes another.
 */

#include "engine/p2p/p2p.h"

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
