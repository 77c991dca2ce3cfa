/* SPDX-License-Identifier: BSD-3-Clause */
/* Sentences for failures that are found here. They say who called what, who waits for whom, and where the chain of
 * waiting ranks ends: all from the boards, which every rank can read without the other's help. */
#include "engine/team/report.h"

#include <string.h>

#define NAMED 6 /* ranks that a list names one by one */

/* ---- different calls ---- */

void tutti_report_failed(struct tutti_team *team, const struct tutti_flight *flight)
{
    const struct tutti_error *error = tutti_last_error();
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    tutti_say_flight(flight, call, sizeof(call));
    tutti_append(text, sizeof(text), "%s failed on rank %u: %s", call, tutti_said_rank(team, team->slot), error->text);
    tutti_team_break(team, error->status < 0 ? error->status : TUTTI_ERR_INTERNAL, error->peer, flight, TUTTI_NO_STEP,
                     text);
}

void tutti_report_mismatch(struct tutti_team *team, const struct tutti_flight *flight, uint32_t peer, uint64_t count,
                           uint64_t call)
{
    struct tutti_board mine = {0}, theirs = {.seq = flight->work.seq};
    char text[TUTTI_ERROR_TEXT];

    tutti_board_fill(&mine, flight);
    tutti_call_unpack(call, count, &theirs);
    tutti_say_mismatch(team, peer, &mine, &theirs,
                       "other tables or options, another root in a call before, or a call before without data", text,
                       sizeof(text));
    tutti_team_break(team, TUTTI_ERR_MISMATCH, (int32_t)peer, flight, TUTTI_NO_STEP, text);
}

void tutti_report_called(struct tutti_team *team, const struct tutti_flight *flight, const struct tutti_runner *runner,
                         uint32_t peer)
{
    uint64_t call = 0, count = 0;

    runner->ops->called(runner, &call, &count);
    tutti_report_mismatch(team, flight, peer, count, call);
}

void tutti_report_protocol(struct tutti_team *team, uint32_t peer, const struct tutti_flight *flight, const char *what)
{
    char text[TUTTI_ERROR_TEXT];

    snprintf(text, sizeof(text), "on communicator %" PRIx64 ", rank %u received from rank %u %s", tutti_said_comm(team),
             tutti_said_rank(team, team->slot), tutti_said_rank(team, peer), what);
    tutti_team_break(team, TUTTI_ERR_PROTOCOL, (int32_t)peer, flight, TUTTI_NO_STEP, text);
}

void tutti_report_sizes(struct tutti_team *team, const struct tutti_slice *slice, uint32_t index, uint64_t sent,
                        uint64_t expected)
{
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[index];
    bool sending = step->op == TUTTI_STEP_SEND;
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT];

    tutti_say_flight(slice->flight, call, sizeof(call));
    snprintf(text, sizeof(text), "%s: rank %u sends %" PRIu64 " bytes to rank %u, which expects %" PRIu64, call,
             tutti_said_rank(team, sending ? team->slot : step->peer), sent,
             tutti_said_rank(team, sending ? step->peer : team->slot), expected);
    tutti_team_break(team, TUTTI_ERR_MISMATCH, (int32_t)step->peer, slice->flight, index, text);
}

void tutti_report_in_vain(struct tutti_team *team, const struct tutti_slice *slice, uint32_t index)
{
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[index];
    const char *what = step->op == TUTTI_STEP_SEND ? "never asked for the message that rank %u has for it"
                                                   : "never sent the message that rank %u expects of it";
    char call[TUTTI_CALL_TEXT], how[96], text[TUTTI_ERROR_TEXT];

    tutti_say_flight(slice->flight, call, sizeof(call));
    snprintf(how, sizeof(how), what, tutti_said_rank(team, team->slot));
    snprintf(text, sizeof(text), "%s: rank %u has completed it and %s at step %u: their counts differ, or it was lost",
             call, tutti_said_rank(team, step->peer), how, index + 1);
    tutti_team_break(team, TUTTI_ERR_MISMATCH, (int32_t)step->peer, slice->flight, index, text);
}

/* ---- waiting in vain ---- */

/* "rank 2 has not called it (its last call is all_gather #16, complete)". board: what it shows, NULL: nothing. */
static void tutti_say_state(const struct tutti_team *team, const struct tutti_board *board, enum tutti_life life,
                            uint64_t seq, uint32_t peer, char *out, size_t capacity)
{
    tutti_say_rank(team, peer, out, capacity);
    if (life == TUTTI_LIFE_DEAD) {
        tutti_append(out, capacity, " is dead");
    } else if (!board) {
        tutti_append(out, capacity, "%s",
                     life == TUTTI_LIFE_LEFT ? " has left" : " shows nothing of this communicator");
    } else if (board->seq < seq) {
        tutti_append(out, capacity, " has %s ", board->state == TUTTI_BOARD_LEFT ? "left without" : "not");
        tutti_append(out, capacity, board->state == TUTTI_BOARD_LEFT ? "calling it" : "called it");
        if (board->seq == 0)
            tutti_append(out, capacity, " (it has called nothing yet)");
        else
            tutti_append(out, capacity, " (its last call is %s #%" PRIu64 ", %s)",
                         board->kind < TUTTI_N_KINDS ? tutti_kind_name((enum tutti_kind)board->kind) : "?",
                         tutti_said_call(team, board->seq),
                         board->completed >= board->seq ? "complete" : "in progress");
    } else if (board->completed >= seq) {
        tutti_append(out, capacity, " has completed it");
    } else {
        tutti_append(out, capacity, " is in it");
        if (board->seq == seq && board->n_steps > 0)
            tutti_append(out, capacity, ", at step %u of %u", board->step + 1, board->n_steps);
        if (board->seq == seq && board->peer >= 0)
            tutti_append(out, capacity, ", waiting for rank %u", tutti_said_rank(team, (uint32_t)board->peer));
    }
}

static void say_state(struct tutti_team *team, uint64_t seq, uint32_t peer, char *out, size_t capacity)
{
    const enum tutti_life life = tutti_team_life(team, peer);
    struct tutti_board board;
    const enum tutti_status status = tutti_team_peek(team, peer, &board);

    if (life == TUTTI_LIFE_UNKNOWN) {
        tutti_say_rank(team, peer, out, capacity);
        tutti_append(out, capacity, " has not been heard of for long");
    } else if (status != TUTTI_OK && status != TUTTI_AGAIN && !tutti_life_gone(life)) {
        tutti_append(out, capacity, "what ");
        tutti_say_rank(team, peer, out, capacity);
        tutti_append(out, capacity, " is doing is not known");
    } else {
        tutti_say_state(team, status == TUTTI_OK ? &board : NULL, life, seq, peer, out, capacity);
    }
}

/* The rank that the chain of waiting ranks ends with. */
static uint32_t chain_end(struct tutti_team *team, uint64_t seq, uint32_t peer)
{
    struct tutti_board board;

    for (uint32_t hops = 0; hops < team->size; hops++) {
        if (tutti_team_peek(team, peer, &board) != TUTTI_OK || board.state != TUTTI_BOARD_IN_USE) return peer;
        if (board.seq != seq || board.completed >= seq || board.peer < 0) return peer;
        if ((uint32_t)board.peer >= team->size || (uint32_t)board.peer == team->slot) return peer;
        peer = (uint32_t)board.peer;
    }
    return peer; /* a circle */
}

/* "; nor have ranks 5, 7" */
static void say_missing(struct tutti_team *team, uint64_t seq, uint32_t named, char *out, size_t capacity)
{
    struct tutti_board board;
    uint32_t n = 0, more = 0;

    for (uint32_t i = 0; i < team->size; i++) {
        if (i == named || i == team->slot || tutti_team_peek(team, i, &board) != TUTTI_OK) continue;
        if (board.seq >= seq) continue;
        if (n++ >= NAMED)
            more++;
        else
            tutti_append(out, capacity, "%s%u", n == 1 ? "; not called by rank " : ", ", tutti_said_rank(team, i));
    }
    if (more > 0) tutti_append(out, capacity, " and %u more", more);
}

/* The oldest slice of a flight that has begun, else NULL: a runner begins when those before it are over. */
static const struct tutti_slice *begun(const struct tutti_team *team, const struct tutti_flight *flight)
{
    const struct tutti_slice *slice = tutti_flight_oldest(team, flight);
    return slice && flight->runner && team->order[tutti_runner_oldest(team)] != slice ? NULL : slice;
}

/* ", waiting for rank 1; that one waits in turn, in the end for rank 2; rank 2 is dead". Returns the last rank. */
static uint32_t say_wait(struct tutti_team *team, uint64_t seq, const char *what, uint32_t peer, char *out,
                         size_t capacity)
{
    uint32_t end = chain_end(team, seq, peer);

    tutti_append(out, capacity, ", waiting %s rank %u; ", what, tutti_said_rank(team, peer));
    if (end != peer)
        tutti_append(out, capacity, "that one waits in turn, in the end for rank %u; ", tutti_said_rank(team, end));
    say_state(team, seq, end, out, capacity);
    say_missing(team, seq, end, out, capacity);
    return end;
}

void tutti_report_timeout(struct tutti_team *team, const struct tutti_flight *flight)
{
    const struct tutti_schedule *schedule = flight->bind.schedule;
    const struct tutti_slice *slice = begun(team, flight);
    uint32_t step = slice && schedule ? slice->base : TUTTI_NO_STEP;
    int32_t peer = slice ? tutti_slice_awaits(slice) : -1;
    bool awaits_input = flight->bind.gate && flight->next_slice > 0;
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    tutti_say_flight(flight, call, sizeof(call));
    tutti_append(text, sizeof(text), "%s: rank %u " TUTTI_SAYS_TIMED_OUT, call, tutti_said_rank(team, team->slot),
                 tutti_says_ms(flight->work.timeout_ns));
    if (!slice)
        tutti_append(text, sizeof(text), " %s", awaits_input ? "while its input comes" : "behind the calls before it");
    if (step != TUTTI_NO_STEP) tutti_append(text, sizeof(text), " at step %u of %u", step + 1, schedule->n_steps);
    if (peer >= 0) {
        bool message = step != TUTTI_NO_STEP && schedule->steps[step].op != TUTTI_STEP_CALL;
        const char *what = !message                                      ? "for"
                           : schedule->steps[step].op == TUTTI_STEP_SEND ? "to be asked for a message by"
                                                                         : "for a message from";
        peer = (int32_t)say_wait(team, flight->work.seq, what, (uint32_t)peer, text, sizeof(text));
    }
    tutti_team_break(team, TUTTI_ERR_TIMEOUT, peer, flight, step, text);
}

void tutti_report_message_timeout(struct tutti_team *team, const struct tutti_p2p_message *msg)
{
    static const char *const waiting[2][4] = {
        {"its message never came", "its message was not asked for", "its message came in part", "it was read"},
        {"no room to announce it", "it was announced, and never asked for", "it was sent in part", "it was not read"},
    };
    bool send = msg->work.type == TUTTI_WORK_SEND;
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    tutti_say_message(msg, call, sizeof(call));
    tutti_append(text, sizeof(text), "%s: rank %u " TUTTI_SAYS_TIMED_OUT, call, tutti_said_rank(team, team->slot),
                 tutti_says_ms(msg->work.timeout_ns));
    tutti_append(text, sizeof(text), ": %s", msg->offered ? "it was not read" : waiting[send][msg->state]);
    tutti_team_break(team, TUTTI_ERR_TIMEOUT, msg->peer, NULL, TUTTI_NO_STEP, text);
}

void tutti_report_flight_lost(struct tutti_team *team, const struct tutti_flight *flight, uint32_t peer,
                              enum tutti_life life, uint32_t step)
{
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    tutti_say_flight(flight, call, sizeof(call));
    tutti_say_lost(team, peer, life, call, text, sizeof(text));
    if (step != TUTTI_NO_STEP)
        tutti_append(text, sizeof(text), ", at step %u of %u", step + 1, flight->bind.schedule->n_steps);
    tutti_team_break(team, tutti_lost_status(life), (int32_t)peer, flight, step, text);
}

void tutti_report_message_lost(struct tutti_team *team, const struct tutti_p2p_message *msg, uint32_t peer,
                               enum tutti_life life)
{
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    tutti_say_message(msg, call, sizeof(call));
    tutti_say_lost(team, peer, life, call, text, sizeof(text));
    tutti_team_break(team, tutti_lost_status(life), (int32_t)peer, NULL, TUTTI_NO_STEP, text);
}

/* What this rank called last, past the engine or not: what was only counted has no name. */
static void say_last(const struct tutti_team *team, const struct tutti_board *board, uint64_t seq, char *out,
                     size_t capacity)
{
    const char *name =
        board->seq == seq && board->kind < TUTTI_N_KINDS ? tutti_kind_name((enum tutti_kind)board->kind) : "call";
    if (seq > 0)
        snprintf(out, capacity, "after %s #%" PRIu64 " on communicator %" PRIx64, name, tutti_said_call(team, seq),
                 tutti_said_comm(team));
    else
        snprintf(out, capacity, "before any call on communicator %" PRIx64, tutti_said_comm(team));
}

uint64_t tutti_team_where(struct tutti_team *team, char *out, size_t capacity)
{
    char call[TUTTI_CALL_TEXT];

    tutti_owner_enter(team->engine->owner);
    const struct tutti_flight *flight = team->n_active > 0 ? team->order[0]->flight : team->pending;
    const struct tutti_p2p_message *msg = team->recvs ? team->recvs : team->sends;
    struct tutti_board board = team->board;
    tutti_team_complete_board(team, team->slot, &board);
    uint64_t counted = atomic_load_explicit(&team->seq, memory_order_relaxed);
    uint64_t seq = board.seq > counted ? board.seq : counted;
    bool past = board.seq > team->board.seq && board.completed < board.seq; /* in a call, past the engine */
    if (flight)
        tutti_say_flight(flight, call, sizeof(call)), seq = flight->work.seq;
    else if (past)
        tutti_say_call(team, &board, NULL, call, sizeof(call)), seq = board.seq;
    else if (msg)
        tutti_say_message(msg, call, sizeof(call)), seq = 0;
    if (flight || past || msg)
        snprintf(out, capacity, "in %s", call);
    else
        say_last(team, &board, seq, out, capacity);
    tutti_owner_leave(team->engine->owner);
    return seq;
}

void tutti_report_undelivered(struct tutti_team *team, const struct tutti_slice *slice, uint32_t step, uint32_t peer,
                              enum tutti_status status)
{
    if (tutti_status_is_gone(status))
        tutti_report_flight_lost(team, slice->flight, peer,
                                 status == TUTTI_ERR_PEER_DEAD ? TUTTI_LIFE_DEAD : TUTTI_LIFE_LEFT, step);
    else
        tutti_team_break(team, status, (int32_t)peer, slice->flight, step, tutti_last_error()->text);
}

/* ---- What a call is, as text. The board of a rank carries the same fields, so that its call reads alike on all
 * others. ---- */

/* "float32, 1024 elements, sum, root 0"; empty for a barrier. */
static void say_arguments(const struct tutti_team *team, const struct tutti_board *b, char *out, size_t capacity)
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
    if (b->root >= 0)
        tutti_append(out, capacity, ", root %u", team ? tutti_said_rank(team, (uint32_t)b->root) : (uint32_t)b->root);
}

static const char *kind_name(const struct tutti_board *b)
{
    return b->kind < TUTTI_N_KINDS ? tutti_kind_name((enum tutti_kind)b->kind) : "something unknown";
}

void tutti_say_board(const struct tutti_team *team, const struct tutti_board *board, char *out, size_t capacity)
{
    char arguments[128];

    say_arguments(team, board, arguments, sizeof(arguments));
    snprintf(out, capacity, "%s(%s)", kind_name(board), arguments);
}

void tutti_say_call(const struct tutti_team *team, const struct tutti_board *board, const char *label, char *out,
                    size_t capacity)
{
    char arguments[192];

    say_arguments(team, board, arguments, sizeof(arguments));
    if (label) tutti_append(arguments, sizeof(arguments), "%slabel '%.40s'", arguments[0] ? ", " : "", label);
    snprintf(out, capacity, "%s #%" PRIu64, kind_name(board), team ? tutti_said_call(team, board->seq) : board->seq);
    if (arguments[0]) tutti_append(out, capacity, " (%s)", arguments);
    if (team) tutti_append(out, capacity, " on communicator %" PRIx64, tutti_said_comm(team));
}

void tutti_say_flight(const struct tutti_flight *flight, char *out, size_t capacity)
{
    struct tutti_board board = {0};

    tutti_board_fill(&board, flight);
    tutti_say_call(flight->work.team, &board, flight->work.label, out, capacity);
}

void tutti_say_message(const struct tutti_p2p_message *msg, char *out, size_t capacity)
{
    bool send = msg->work.type == TUTTI_WORK_SEND;
    const struct tutti_team *team = msg->work.team;
    char peer[160] = "", tag[32] = "any tag";

    if (msg->peer >= 0 && team)
        tutti_say_rank(team, (uint32_t)msg->peer, peer, sizeof(peer));
    else if (msg->peer >= 0)
        snprintf(peer, sizeof(peer), "rank %d", msg->peer);
    else
        snprintf(peer, sizeof(peer), "any rank");
    if (msg->tag >= 0) snprintf(tag, sizeof(tag), "tag %d", msg->tag);
    snprintf(out, capacity, "%s %s (%s, %zu bytes", send ? "send to" : "recv from", peer, tag, msg->bytes);
    if (msg->work.label) tutti_append(out, capacity, ", label '%.40s'", msg->work.label);
    tutti_append(out, capacity, ")");
    if (team) tutti_append(out, capacity, " on communicator %" PRIx64, tutti_said_comm(team));
}

void tutti_say_rank(const struct tutti_team *team, uint32_t slot, char *out, size_t capacity)
{
    const struct tutti_control *control = team->port->control;
    char host[128] = "";

    if (control->ops->host) control->ops->host(control, team->members[slot], host, sizeof(host));
    tutti_append(out, capacity, host[0] ? "rank %u on host %s" : "rank %u", tutti_said_rank(team, slot), host);
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
                 tutti_said_rank(team, team->slot), call);
}

void tutti_say_mismatch(const struct tutti_team *team, uint32_t peer, const struct tutti_board *mine,
                        const struct tutti_board *theirs, const char *other, char *out, size_t capacity)
{
    char my_call[112], their_call[160];

    tutti_say_board(team, mine, my_call, sizeof(my_call));
    tutti_say_board(team, theirs, their_call, sizeof(their_call));
    if (mine->seq != theirs->seq)
        tutti_append(their_call, sizeof(their_call), " as its #%" PRIu64, tutti_said_call(team, theirs->seq));
    else if (strcmp(my_call, their_call) == 0)
        tutti_append(their_call, sizeof(their_call), " with another algorithm, %s", other);
    snprintf(out, capacity, "%s #%" PRIu64 " on communicator %" PRIx64 ": rank %u called %s, rank %u called %s",
             mine->kind < TUTTI_N_KINDS ? tutti_kind_name((enum tutti_kind)mine->kind) : "call",
             tutti_said_call(team, mine->seq), tutti_said_comm(team), tutti_said_rank(team, peer), their_call,
             tutti_said_rank(team, team->slot), my_call);
}

/* ---- Sentences for calls on devices, which never pass the engine. The watch (backend/watch.h) finds what became of
 * such a call; the functions here tell it in the words that the engine uses for its own calls. ---- */

static void say_call(const struct tutti_team *team, const struct tutti_board *call, char *out, size_t capacity)
{
    if (call->seq > 0 && call->kind >= TUTTI_N_KINDS)
        snprintf(out, capacity, "call #%" PRIu64 " on communicator %" PRIx64, tutti_said_call(team, call->seq),
                 tutti_said_comm(team));
    else if (call->seq > 0)
        tutti_say_call(team, call, NULL, out, capacity);
    else if (call->kind == TUTTI_REPORT_SEND || call->kind == TUTTI_REPORT_RECV)
        snprintf(out, capacity, "%s rank %d (%" PRIu64 " bytes) on communicator %" PRIx64,
                 call->kind == TUTTI_REPORT_SEND ? "send to" : "recv from", (int)call->peer, call->count,
                 tutti_said_comm(team));
    else if (call->kind == TUTTI_REPORT_WAIT_SIGNAL)
        snprintf(out, capacity, "wait_signal (signal %" PRIu64 ") on communicator %" PRIx64, call->count,
                 tutti_said_comm(team));
    else if (call->kind == TUTTI_REPORT_ONE_SIDED)
        snprintf(out, capacity, "one-sided calls on communicator %" PRIx64, tutti_said_comm(team));
    else
        snprintf(out, capacity, "messages on communicator %" PRIx64, tutti_said_comm(team));
}

static void end(struct tutti_team *team, enum tutti_status status, const struct tutti_board *call, uint32_t peer,
                const char *text)
{
    struct tutti_error error;
    bool named = call && call->seq > 0 && call->kind < TUTTI_N_KINDS;

    tutti_error_set(&error, status, "%s", text);
    error.peer = (int32_t)peer;
    error.step = TUTTI_NO_STEP;
    error.seq = named ? call->seq : 0;
    error.collective = named ? tutti_kind_name((enum tutti_kind)call->kind) : "";
    tutti_team_fail(team, &error, true);
    if (tutti_team_state(team, &error) < 0 && strcmp(error.text, text) == 0) tutti_log(TUTTI_LOG_WARN, "%s", text);
}

void tutti_team_report_timeout(struct tutti_team *team, const struct tutti_board *call, uint64_t timeout_ns,
                               uint32_t peer, const struct tutti_board *theirs)
{
    enum tutti_life life = tutti_team_life(team, peer);
    char what[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    say_call(team, call, what, sizeof(what));
    tutti_append(text, sizeof(text), "%s: rank %u " TUTTI_SAYS_TIMED_OUT, what, tutti_said_rank(team, team->slot),
                 tutti_says_ms(timeout_ns));
    tutti_append(text, sizeof(text), " on the device, waiting for rank %u", tutti_said_rank(team, peer));
    if (call->seq > 0 || tutti_life_gone(life)) {
        tutti_append(text, sizeof(text), "; ");
        tutti_say_state(team, theirs, life, call->seq, peer, text, sizeof(text));
    }
    end(team, TUTTI_ERR_TIMEOUT, call, peer, text);
}

void tutti_team_report_signal(struct tutti_team *team, const struct tutti_reported_signal *signal)
{
    static const char *const compares[] = {"==", "!=", "<", "<=", ">", ">="};
    const bool barrier = signal->compare >= TUTTI_ARRAY_LEN(compares);
    char text[TUTTI_ERROR_TEXT] = "";

    tutti_append(text, sizeof(text), "%s on communicator %" PRIx64 ": rank %u " TUTTI_SAYS_TIMED_OUT,
                 barrier ? "barrier of kernels" : "wait_signal", tutti_said_comm(team),
                 tutti_said_rank(team, team->slot), tutti_says_ms(signal->timeout_ns));
    if (barrier)
        tutti_append(text, sizeof(text), " on the device at barrier %u", signal->index);
    else
        tutti_append(text, sizeof(text), " on the device: signal %u is %" PRIu64 " and not %s %" PRIu64, signal->index,
                     signal->seen, compares[signal->compare], signal->value);
    if (signal->from >= 0) {
        const enum tutti_life life = tutti_team_life(team, (uint32_t)signal->from);
        tutti_append(text, sizeof(text), ", waiting for ");
        tutti_say_rank(team, (uint32_t)signal->from, text, sizeof(text));
        if (tutti_life_gone(life)) {
            tutti_append(text, sizeof(text), "; ");
            tutti_say_state(team, NULL, life, 0, (uint32_t)signal->from, text, sizeof(text));
        }
    }
    end(team, TUTTI_ERR_TIMEOUT, NULL, (uint32_t)signal->from, text);
}

void tutti_team_report_mismatch(struct tutti_team *team, const struct tutti_board *call, uint32_t peer,
                                const struct tutti_board *theirs)
{
    char text[TUTTI_ERROR_TEXT];

    tutti_say_mismatch(team, peer, call, theirs, "other tables or another place in a window", text, sizeof(text));
    end(team, TUTTI_ERR_MISMATCH, call, peer, text);
}

void tutti_team_report_elsewhere(struct tutti_team *team, const struct tutti_board *call, uint32_t peer)
{
    char what[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT];

    say_call(team, call, what, sizeof(what));
    snprintf(text, sizeof(text),
             "%s: rank %u called it on device memory, rank %u did not: buffers are device memory on all ranks or none",
             what, tutti_said_rank(team, team->slot), tutti_said_rank(team, peer));
    end(team, TUTTI_ERR_MISMATCH, call, peer, text);
}

void tutti_team_report_messages(struct tutti_team *team, uint32_t peer, uint64_t n)
{
    char text[TUTTI_ERROR_TEXT];

    snprintf(text, sizeof(text),
             "messages on communicator %" PRIx64 ": of the first %" PRIu64
             " messages between rank %u and rank %u one was received with another size than it was sent with",
             tutti_said_comm(team), n, tutti_said_rank(team, team->slot), tutti_said_rank(team, peer));
    end(team, TUTTI_ERR_MISMATCH, NULL, peer, text);
}

void tutti_team_report_lost(struct tutti_team *team, const struct tutti_board *call, uint32_t peer,
                            enum tutti_life life)
{
    char what[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    say_call(team, call, what, sizeof(what));
    tutti_say_lost(team, peer, life, what, text, sizeof(text));
    end(team, tutti_lost_status(life), call, peer, text);
}
