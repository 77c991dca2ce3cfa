/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for words of the own memory, which peers change in place or by messages: the owner looks at them in every pass,
 * and while it sleeps their bells wake it. */
#include "engine/flight/onesided.h"
#include "engine/flight/onesided_access.h"
#include "engine/team/report.h"

enum tutti_status tutti_engine_wait_word(struct tutti_team *team, const struct tutti_one_wait *what, bool helper,
                                         struct tutti_work **work)
{
    struct tutti_word_wait *wait = tutti_work_new(team->engine->works, TUTTI_WORK_WAIT);

    if (!wait) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the work of a wait");
    wait->next = NULL;
    wait->what = *what;
    wait->work.team = team;
    wait->work.seq = 0;
    wait->work.label = what->label;
    wait->work.timeout_ns = what->timeout_ns ? what->timeout_ns : team->timeout_ns;
    enum tutti_status status = tutti_team_submit(&wait->work, helper);
    if (status < 0) {
        tutti_work_drop(&wait->work);
        return status;
    }
    *work = &wait->work;
    return TUTTI_OK;
}

/* ---- owner ---- */

static bool is_reached(const struct tutti_word_wait *wait)
{
    const struct tutti_one_wait *what = &wait->what;
    return tutti_compare_holds(atomic_load_explicit(what->word, memory_order_acquire), what->compare, what->value);
}

/* The one that *at points to. */
static void end(struct tutti_team *team, struct tutti_word_wait **at, const struct tutti_error *error)
{
    struct tutti_word_wait *wait = *at;

    *at = wait->next;
    if (!wait->next) team->waits_end = at;
    if (team->board.message && wait->work.start_ns == team->board.message_since_ns) {
        team->board.message = TUTTI_BOARD_NO_MESSAGE;
        tutti_team_publish(team);
    }
    if (wait->what.end) wait->what.end(wait->what.arg, error);
    tutti_team_complete(&wait->work, error);
}

void tutti_waits_begin(struct tutti_team *team, struct tutti_word_wait *wait)
{
    *team->waits_end = wait;
    team->waits_end = &wait->next;
    tutti_engine_watch_by(team->engine, wait->work.deadline_ns);
}

bool tutti_waits_run(struct tutti_team *team)
{
    bool any = false;

    for (struct tutti_word_wait **at = &team->waits; *at;)
        if (is_reached(*at))
            end(team, at, NULL), any = true;
        else
            at = &(*at)->next;
    return any;
}

void tutti_waits_fail(struct tutti_team *team, const struct tutti_error *error)
{
    while (team->waits) end(team, &team->waits, error);
}

bool tutti_waits_any(const struct tutti_team *team)
{
    for (const struct tutti_word_wait *wait = team->waits; wait; wait = wait->next)
        if (is_reached(wait)) return true;
    return false;
}

bool tutti_wait_listens(const struct tutti_word_wait *wait, const struct tutti_wake_set *wakes)
{
    for (uint32_t i = 0; i < wakes->n_bells; i++)
        if (wakes->bells[i] == wait->what.bell) return true;
    return !wait->what.bell;
}

bool tutti_wait_listen(const struct tutti_word_wait *wait, struct tutti_wake_set *wakes)
{
    struct tutti_bell *bell = wait->what.bell;
    const uint32_t event = tutti_bell_listen(bell);

    wakes->bells[wakes->n_bells++] = bell;
    tutti_sources_add_word(&wakes->sources, &bell->event, event);
    return !bell->fences;
}

/* ---- sentences ---- */

static const char *const compares[] = {
    [TUTTI_COMPARE_EQ] = "==", [TUTTI_COMPARE_NE] = "!=", [TUTTI_COMPARE_LT] = "<",
    [TUTTI_COMPARE_LE] = "<=", [TUTTI_COMPARE_GT] = ">",  [TUTTI_COMPARE_GE] = ">=",
};

/* "wait_signal (signal 3 >= 1 from rank 1, label 'row') on communicator 4f2a" */
static void say_wait(const struct tutti_team *team, const struct tutti_word_wait *wait, char *out, size_t capacity)
{
    const struct tutti_one_wait *what = &wait->what;

    snprintf(out, capacity, "wait_signal (signal %u %s %" PRIu64 " from ", what->signal, compares[what->compare],
             what->value);
    if (what->from >= 0)
        tutti_say_rank(team, (uint32_t)what->from, out, capacity);
    else
        tutti_append(out, capacity, "any rank");
    if (what->label) tutti_append(out, capacity, ", label '%.40s'", what->label);
    tutti_append(out, capacity, ") on communicator %" PRIx64, team->id);
}

static uint64_t value_of(const struct tutti_word_wait *wait)
{
    return atomic_load_explicit(wait->what.word, memory_order_relaxed);
}

void tutti_report_wait_timeout(struct tutti_team *team, const struct tutti_word_wait *wait)
{
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    say_wait(team, wait, call, sizeof(call));
    tutti_append(text, sizeof(text), "%s: rank %u " TUTTI_SAYS_TIMED_OUT ": the signal is %" PRIu64, call, team->slot,
                 tutti_says_ms(wait->work.timeout_ns), value_of(wait));
    tutti_team_break(team, TUTTI_ERR_TIMEOUT, wait->what.from, NULL, TUTTI_NO_STEP, text);
}

void tutti_report_wait_lost(struct tutti_team *team, const struct tutti_word_wait *wait, uint32_t peer,
                            enum tutti_life life)
{
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    say_wait(team, wait, call, sizeof(call));
    tutti_say_lost(team, peer, life, call, text, sizeof(text));
    tutti_append(text, sizeof(text), ": the signal is %" PRIu64, value_of(wait));
    tutti_team_break(team, tutti_lost_status(life), (int32_t)peer, NULL, TUTTI_NO_STEP, text);
}

enum tutti_status tutti_report_one_lost(struct tutti_team *team, uint32_t peer, const char *name)
{
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";
    struct tutti_error error;

    snprintf(call, sizeof(call), "%s on communicator %" PRIx64, name, team->id);
    tutti_say_lost(team, peer, TUTTI_LIFE_DEAD, call, text, sizeof(text));
    tutti_error_set(&error, TUTTI_ERR_PEER_DEAD, "%s", text);
    error.peer = (int32_t)peer;
    tutti_team_fail(team, &error, true);
    tutti_team_state(team, &error);
    return tutti_fail_record(&error);
}

/* ---- Accesses as sentences, and how they break the team. ---- */

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

static void tutti_say_access(const struct tutti_one_access *access, char *out, size_t capacity)
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
    if (tutti_status_is_gone(status))
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
