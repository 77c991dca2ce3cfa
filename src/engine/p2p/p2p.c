/* SPDX-License-Identifier: BSD-3-Clause */

/* Point-to-point: letters are matched by (source, tag) in the order of the calls. Here is their way through the engine:
 * how they start, what a pass does with them, to whom packets go, and how they fail. p2p_send.c and p2p_recv.c have the
 * two ends of a message. */

#include "engine/p2p/p2p.h"

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
