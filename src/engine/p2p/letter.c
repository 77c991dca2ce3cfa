/* SPDX-License-Identifier: BSD-3-Clause */

/* What sending and receiving share: the team's lists of letters, the first words of a packet, and how a letter breaks
 * the team. */

#include "engine/p2p/p2p.h"
#include "engine/report/report.h"

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
