/* SPDX-License-Identifier: BSD-3-Clause */

/* Sentences for calls on devices, which never pass the engine. The watch (backend/watch.h) finds what became of such a
 * call; the functions here tell it in the words that the engine uses for its own calls. */

#include "engine/report/report.h"

#include <string.h>

static void say_call(const struct tutti_team *team, const struct tutti_board *call, char *out, size_t capacity)
{
    if (call->seq > 0 && call->kind >= TUTTI_N_KINDS)
        snprintf(out, capacity, "call #%" PRIu64 " on communicator %" PRIx64, call->seq, team->id);
    else if (call->seq > 0)
        tutti_say_call(team, call, NULL, out, capacity);
    else if (call->kind == TUTTI_TOLD_SEND || call->kind == TUTTI_TOLD_RECV)
        snprintf(out, capacity, "%s rank %d (%" PRIu64 " bytes) on communicator %" PRIx64,
                 call->kind == TUTTI_TOLD_SEND ? "send to" : "recv from", (int)call->peer, call->count, team->id);
    else if (call->kind == TUTTI_TOLD_WAIT_SIGNAL)
        snprintf(out, capacity, "wait_signal (signal %" PRIu64 ") on communicator %" PRIx64, call->count, team->id);
    else if (call->kind == TUTTI_TOLD_ONE_SIDED)
        snprintf(out, capacity, "one-sided calls on communicator %" PRIx64, team->id);
    else
        snprintf(out, capacity, "messages on communicator %" PRIx64, team->id);
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

void tutti_team_tell_timeout(struct tutti_team *team, const struct tutti_board *call, uint64_t timeout_ns,
                             uint32_t peer, const struct tutti_board *theirs)
{
    enum tutti_life life = tutti_team_life(team, peer);
    char what[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    say_call(team, call, what, sizeof(what));
    tutti_append(text, sizeof(text), "%s: rank %u " TUTTI_SAYS_TIMED_OUT, what, team->slot, tutti_says_ms(timeout_ns));
    tutti_append(text, sizeof(text), " on the device, waiting for rank %u", peer);
    if (call->seq > 0 || tutti_life_gone(life)) {
        tutti_append(text, sizeof(text), "; ");
        tutti_say_state(team, theirs, life, call->seq, peer, text, sizeof(text));
    }
    end(team, TUTTI_ERR_TIMEOUT, call, peer, text);
}

void tutti_team_tell_signal(struct tutti_team *team, const struct tutti_told_signal *signal)
{
    static const char *const compares[] = {"==", "!=", "<", "<=", ">", ">="};
    const bool barrier = signal->compare >= TUTTI_ARRAY_LEN(compares);
    char text[TUTTI_ERROR_TEXT] = "";

    tutti_append(text, sizeof(text), "%s on communicator %" PRIx64 ": rank %u " TUTTI_SAYS_TIMED_OUT,
                 barrier ? "barrier of kernels" : "wait_signal", team->id, team->slot,
                 tutti_says_ms(signal->timeout_ns));
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

void tutti_team_tell_mismatch(struct tutti_team *team, const struct tutti_board *call, uint32_t peer,
                              const struct tutti_board *theirs)
{
    char text[TUTTI_ERROR_TEXT];

    tutti_say_mismatch(team, peer, call, theirs, "other tables or another place in a window", text, sizeof(text));
    end(team, TUTTI_ERR_MISMATCH, call, peer, text);
}

void tutti_team_tell_elsewhere(struct tutti_team *team, const struct tutti_board *call, uint32_t peer)
{
    char what[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT];

    say_call(team, call, what, sizeof(what));
    snprintf(text, sizeof(text),
             "%s: rank %u called it on device memory, rank %u did not: buffers are device memory on all ranks or none",
             what, team->slot, peer);
    end(team, TUTTI_ERR_MISMATCH, call, peer, text);
}

void tutti_team_tell_messages(struct tutti_team *team, uint32_t peer, uint64_t n)
{
    char text[TUTTI_ERROR_TEXT];

    snprintf(text, sizeof(text),
             "messages on communicator %" PRIx64 ": of the first %" PRIu64
             " messages between rank %u and rank %u one was received with another size than it was sent with",
             team->id, n, team->slot, peer);
    end(team, TUTTI_ERR_MISMATCH, NULL, peer, text);
}

void tutti_team_tell_lost(struct tutti_team *team, const struct tutti_board *call, uint32_t peer, enum tutti_life life)
{
    char what[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    say_call(team, call, what, sizeof(what));
    tutti_say_lost(team, peer, life, what, text, sizeof(text));
    end(team, tutti_lost_status(life), call, peer, text);
}
