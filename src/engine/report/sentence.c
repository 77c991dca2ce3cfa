/* SPDX-License-Identifier: BSD-3-Clause */

/* What a call is, as text. The board of a rank carries the same fields, so that its call reads alike on all others. */

#include "engine/report/report.h"

#include <string.h>

/* "float32, 1024 elements, sum, root 0"; empty for a barrier. */
static void say_arguments(const struct tutti_board *b, char *out, size_t capacity)
{
    out[0] = '\0';
    if (b->kind == TUTTI_BARRIER) return;
    tutti_append(out, capacity, "%s, ", tutti_dtype_name((enum tutti_dtype)b->dtype));
    if (b->count & TUTTI_COUNT_UNEQUAL)
        tutti_append(out, capacity, "unequal blocks");
    else
        tutti_append(out, capacity, "%" PRIu64 " element%s", b->count, b->count == 1 ? "" : "s");
    if (b->op == TUTTI_BOARD_USER_OP)
        tutti_append(out, capacity, ", user operation");
    else if (b->op != TUTTI_BOARD_NO_OP)
        tutti_append(out, capacity, ", %s", tutti_op_name((enum tutti_op)b->op));
    if (b->root >= 0) tutti_append(out, capacity, ", root %d", b->root);
}

static const char *kind_name(const struct tutti_board *b)
{
    return b->kind < TUTTI_N_KINDS ? tutti_kind_name((enum tutti_kind)b->kind) : "something unknown";
}

void tutti_say_board(const struct tutti_board *board, char *out, size_t capacity)
{
    char arguments[128];

    say_arguments(board, arguments, sizeof(arguments));
    snprintf(out, capacity, "%s(%s)", kind_name(board), arguments);
}

void tutti_say_call(const struct tutti_team *team, const struct tutti_board *board, const char *label, char *out,
                    size_t capacity)
{
    char arguments[192];

    say_arguments(board, arguments, sizeof(arguments));
    if (label) tutti_append(arguments, sizeof(arguments), "%slabel '%.40s'", arguments[0] ? ", " : "", label);
    snprintf(out, capacity, "%s #%" PRIu64, kind_name(board), board->seq);
    if (arguments[0]) tutti_append(out, capacity, " (%s)", arguments);
    if (team) tutti_append(out, capacity, " on communicator %" PRIx64, team->id);
}

void tutti_say_flight(const struct tutti_flight *flight, char *out, size_t capacity)
{
    struct tutti_board board = {0};

    tutti_board_fill(&board, flight);
    tutti_say_call(flight->work.team, &board, flight->work.label, out, capacity);
}

void tutti_say_letter(const struct tutti_letter *letter, char *out, size_t capacity)
{
    bool send = letter->work.type == TUTTI_WORK_SEND;
    const struct tutti_team *team = letter->work.team;
    char peer[160] = "", tag[32] = "any tag";

    if (letter->peer >= 0 && team)
        tutti_say_rank(team, (uint32_t)letter->peer, peer, sizeof(peer));
    else if (letter->peer >= 0)
        snprintf(peer, sizeof(peer), "rank %d", letter->peer);
    else
        snprintf(peer, sizeof(peer), "any rank");
    if (letter->tag >= 0) snprintf(tag, sizeof(tag), "tag %d", letter->tag);
    snprintf(out, capacity, "%s %s (%s, %zu bytes", send ? "send to" : "recv from", peer, tag, letter->bytes);
    if (letter->work.label) tutti_append(out, capacity, ", label '%.40s'", letter->work.label);
    tutti_append(out, capacity, ")");
    if (team) tutti_append(out, capacity, " on communicator %" PRIx64, team->id);
}

void tutti_say_rank(const struct tutti_team *team, uint32_t slot, char *out, size_t capacity)
{
    const struct tutti_control *control = team->port->control;
    char host[128] = "";

    if (control->ops->host) control->ops->host(control, team->members[slot], host, sizeof(host));
    tutti_append(out, capacity, host[0] ? "rank %u on host %s" : "rank %u", slot, host);
}

void tutti_say_lost(const struct tutti_team *team, uint32_t peer, enum tutti_life life, const char *call, char *out,
                    size_t capacity)
{
    const bool one_host = !team->port->control->ops->host;

    tutti_append(out, capacity, TUTTI_SAYS_CLOSED ": ");
    tutti_say_rank(team, peer, out, capacity);
    tutti_append(out, capacity, " %s while rank %u waited for it in %s",
                 life != TUTTI_LIFE_DEAD ? "left the communicator"
                 : one_host              ? "died (its process is gone)"
                                         : "died (its process or its host is gone)",
                 team->slot, call);
}

void tutti_say_mismatch(const struct tutti_team *team, uint32_t peer, const struct tutti_board *mine,
                        const struct tutti_board *theirs, const char *other, char *out, size_t capacity)
{
    char my_call[112], their_call[160];

    tutti_say_board(mine, my_call, sizeof(my_call));
    tutti_say_board(theirs, their_call, sizeof(their_call));
    if (mine->seq != theirs->seq)
        tutti_append(their_call, sizeof(their_call), " as its #%" PRIu64, theirs->seq);
    else if (strcmp(my_call, their_call) == 0)
        tutti_append(their_call, sizeof(their_call), " with another algorithm, %s", other);
    snprintf(out, capacity, "%s #%" PRIu64 " on communicator %" PRIx64 ": rank %u called %s, rank %u called %s",
             mine->kind < TUTTI_N_KINDS ? tutti_kind_name((enum tutti_kind)mine->kind) : "call", mine->seq, team->id,
             peer, their_call, team->slot, my_call);
}
