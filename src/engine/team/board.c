/* SPDX-License-Identifier: BSD-3-Clause */

/* Boards: what this rank shows of its calls, and what the others show. */

#include "engine/team/team.h"

static uint32_t board_slot(const struct tutti_team *team)
{
    return (uint32_t)(team->id % TUTTI_BOARD_SLOTS);
}

_Atomic uint64_t *tutti_team_counter(struct tutti_team *team)
{
    struct tutti_control *control = team->port->control;
    return control->ops->counter ? control->ops->counter(control, board_slot(team)) : NULL;
}

void tutti_team_publish(struct tutti_team *team)
{
    struct tutti_control *control = team->port->control;
    control->ops->publish(control, board_slot(team), &team->board);
}

/* The signature is that of the published call. */
void tutti_team_complete_board(struct tutti_team *team, uint32_t peer, struct tutti_board *board)
{
    uint64_t seq = board->seq;

    if (!team->overlay) return;
    team->overlay(team->overlay_arg, peer, board);
    if (board->seq != seq) board->signature = 0;
}

enum tutti_status tutti_team_peek(struct tutti_team *team, uint32_t peer, struct tutti_board *out)
{
    struct tutti_control *control = team->port->control;
    enum tutti_status status = control->ops->peek(control, team->members[peer], board_slot(team), out);

    if (status != TUTTI_OK) return status;
    if (out->comm != team->id || out->state == TUTTI_BOARD_EMPTY) return TUTTI_AGAIN;
    tutti_team_complete_board(team, peer, out);
    return TUTTI_OK;
}

uint64_t tutti_team_reached(const struct tutti_team *team, uint32_t peer)
{
    struct tutti_control *control = team->port->control;
    struct tutti_board board;

    if (control->ops->peek(control, team->members[peer], board_slot(team), &board) != TUTTI_OK) return 0;
    return board.comm == team->id && board.state == TUTTI_BOARD_IN_USE ? board.seq : 0;
}

enum tutti_life tutti_team_life(struct tutti_team *team, uint32_t peer)
{
    struct tutti_transport *t = team->port->transport;
    struct tutti_control *control = team->port->control;
    uint32_t member = team->members[peer];
    enum tutti_life life = control->ops->life(control, member);

    if (life == TUTTI_LIFE_DEAD) t->ops->cut(t, member);
    return life;
}

void tutti_board_fill(struct tutti_board *board, const struct tutti_flight *flight)
{
    const struct tutti_call_info *info = &flight->info;

    board->seq = flight->work.seq;
    board->signature = info->signature;
    board->count = flight->bind.v ? info->count | TUTTI_COUNT_UNEQUAL : info->count;
    board->step = 0, board->n_steps = flight->bind.schedule ? flight->bind.schedule->n_steps : 0;
    board->peer = -1;
    board->root = info->root;
    board->kind = (uint8_t)info->kind;
    board->dtype = (uint8_t)info->dtype;
    board->op = info->op < 0 ? TUTTI_BOARD_NO_OP : info->op < TUTTI_N_OPS ? (uint8_t)info->op : TUTTI_BOARD_USER_OP;
}

uint64_t tutti_call_pack(const struct tutti_board *b)
{
    return tutti_call_word(b->kind, b->dtype, b->op, b->root);
}

void tutti_call_unpack(uint64_t call, uint64_t count, struct tutti_board *b)
{
    b->kind = (uint8_t)call, b->dtype = (uint8_t)(call >> 8), b->op = (uint8_t)(call >> 16);
    b->root = (int32_t)(uint32_t)(call >> 32);
    b->count = count;
}
