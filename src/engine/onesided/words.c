/* SPDX-License-Identifier: BSD-3-Clause */

/* Accesses as sentences, and how they break the team. */

#include "engine/onesided/access.h"
#include "engine/report/report.h"

static void say_where(const struct tutti_one_refusal *what, char *out, size_t capacity)
{
    tutti_append(out, capacity, "window %u", what->window);
    if (what->bytes > 0)
        tutti_append(out, capacity, ", %" PRIu64 " bytes at offset %" PRIu64, what->bytes, what->offset);
}

static const char *const towards[] = {[TUTTI_ONE_PUT] = "to",
                                      [TUTTI_ONE_GET] = "from",
                                      [TUTTI_ONE_ADD] = "at",
                                      [TUTTI_ONE_SWAP] = "at",
                                      [TUTTI_ONE_FLUSH] = "of"};

void tutti_say_access(const struct tutti_one_access *access, char *out, size_t capacity)
{
    const struct tutti_one_info *info = &access->info;
    const struct tutti_team *team = access->work.team;
    const struct tutti_one_refusal where = {info->name, info->offset, info->bytes, info->window, TUTTI_ONE_FINE};

    out[0] = '\0';
    tutti_append(out, capacity, "%s %s ", info->name, towards[info->kind]);
    if (info->peer == TUTTI_NO_SLOT)
        tutti_append(out, capacity, "all ranks");
    else
        tutti_say_rank(team, info->peer, out, capacity);
    tutti_append(out, capacity, " (");
    say_where(&where, out, capacity);
    if (access->work.label) tutti_append(out, capacity, ", label '%.40s'", access->work.label);
    tutti_append(out, capacity, ") on communicator %" PRIx64, team->id);
}

int32_t tutti_access_awaits(const struct tutti_one_access *access)
{
    if (access->info.peer != TUTTI_NO_SLOT) return (int32_t)access->info.peer;
    return access->at ? (int32_t)access->at->slot : -1;
}

void tutti_access_timeout(struct tutti_team *team, const struct tutti_one_access *access)
{
    const int32_t peer = tutti_access_awaits(access);
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    tutti_say_access(access, call, sizeof(call));
    tutti_append(text, sizeof(text), "%s: rank %u " TUTTI_SAYS_TIMED_OUT, call, team->slot,
                 tutti_says_ms(access->work.timeout_ns));
    if (peer >= 0) {
        const bool silent = tutti_team_life(team, (uint32_t)peer) == TUTTI_LIFE_UNKNOWN;
        tutti_append(text, sizeof(text), ": ");
        tutti_say_rank(team, (uint32_t)peer, text, sizeof(text));
        tutti_append(text, sizeof(text),
                     silent         ? " has not been heard of for long"
                     : access->left ? " did not answer"
                                    : " did not answer to what was sent before");
    }
    tutti_team_break(team, TUTTI_ERR_TIMEOUT, peer, NULL, TUTTI_NO_STEP, text);
}

void tutti_access_lost(struct tutti_team *team, const struct tutti_one_access *access, uint32_t peer,
                       enum tutti_life life)
{
    char call[TUTTI_CALL_TEXT] = "an answer to its access", text[TUTTI_ERROR_TEXT] = "";

    if (access) tutti_say_access(access, call, sizeof(call));
    tutti_say_lost(team, peer, life, call, text, sizeof(text));
    tutti_team_break(team, tutti_lost_status(life), (int32_t)peer, NULL, TUTTI_NO_STEP, text);
}

void tutti_access_unsent(struct tutti_team *team, const struct tutti_one_access *access, uint32_t peer,
                         enum tutti_status status)
{
    if (status == TUTTI_ERR_PEER_DEAD || status == TUTTI_ERR_PEER_LEFT)
        tutti_access_lost(team, access, peer, status == TUTTI_ERR_PEER_DEAD ? TUTTI_LIFE_DEAD : TUTTI_LIFE_LEFT);
    else
        tutti_team_break(team, status, (int32_t)peer, NULL, TUTTI_NO_STEP, tutti_last_error()->text);
}

void tutti_refusal_error(const struct tutti_team *team, uint32_t peer, const struct tutti_one_refusal *refusal,
                         struct tutti_error *error)
{
    static const char *const words[TUTTI_N_ONE_REASONS] = {
        [TUTTI_ONE_FINE] = "refused it",
        [TUTTI_ONE_GONE] = "has destroyed the window",
        [TUTTI_ONE_RANGE] = "has a smaller part: offset and bytes reach past its end",
        [TUTTI_ONE_ALIGNMENT] = "has no word there: offset is not aligned to 8 bytes",
        [TUTTI_ONE_INDEX] = "has no such signal: index is out of range",
        [TUTTI_ONE_LEFT] = "has left the communicator",
    };
    char text[TUTTI_CALL_TEXT] = "";

    tutti_append(text, sizeof(text), "%s on rank %u (", refusal->name, team->slot);
    say_where(refusal, text, sizeof(text));
    tutti_append(text, sizeof(text), ") on communicator %" PRIx64 ": ", team->id);
    tutti_say_rank(team, peer, text, sizeof(text));
    tutti_error_set(error, TUTTI_ERR_ARGUMENT, "%s %s", text, words[refusal->why]);
    error->peer = (int32_t)peer;
    error->collective = refusal->name;
}
