/* SPDX-License-Identifier: BSD-3-Clause */

/* Waits for words of the own memory, which peers change in place or by messages: the owner looks at them in every pass,
 * and while it sleeps their bells wake it. */

#include "engine/onesided/onesided.h"
#include "engine/report/report.h"

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
    if (team->board.letter && wait->work.start_ns == team->board.letter_ns) {
        team->board.letter = TUTTI_BOARD_NO_LETTER;
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

bool tutti_wait_listens(const struct tutti_word_wait *wait, const struct tutti_bed *bed)
{
    for (uint32_t i = 0; i < bed->n_bells; i++)
        if (bed->bells[i] == wait->what.bell) return true;
    return !wait->what.bell;
}

bool tutti_wait_listen(const struct tutti_word_wait *wait, struct tutti_bed *bed)
{
    struct tutti_bell *bell = wait->what.bell;
    const uint32_t event = tutti_bell_listen(bell);

    bed->bells[bed->n_bells++] = bell;
    tutti_sources_add_word(&bed->sources, &bell->event, event);
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
