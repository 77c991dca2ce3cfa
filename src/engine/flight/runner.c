/* SPDX-License-Identifier: BSD-3-Clause */

/* Runners: collectives that a back end carries out whole. One flies as a call of one slice without steps: it has its
 * number, its place in the order and its deadline as every call has, and it is advanced by the owner. What a rank
 * carries out past the engine, while nothing is in flight, is only counted. */

#include "engine/core.h"

#include <string.h>

/* Turns in a row; then other teams, messages and threads have theirs. */
#define TURNS 16

/* ---- any thread ---- */

/* The others have this call in their order, so there is no going on without it. */
static enum tutti_status give_up(struct tutti_team *team, struct tutti_runner *runner)
{
    struct tutti_error error = *tutti_last_error();

    tutti_team_fail(team, &error, true);
    tutti_owner_enter(team->engine);
    runner->ops->cancel(runner);
    tutti_owner_leave(team->engine);
    return tutti_fail_record(&error);
}

enum tutti_status tutti_engine_run(struct tutti_team *team, struct tutti_runner *runner, size_t bytes,
                                   const struct tutti_call_info *info, bool helper, struct tutti_work **work)
{
    if (bytes > TUTTI_RUNNER_BYTES) {
        tutti_fail(TUTTI_ERR_INTERNAL, "%s: a runner of %zu bytes", tutti_kind_name(info->kind), bytes);
        return give_up(team, runner);
    }
    struct tutti_flight *flight = tutti_flight_new(team, TUTTI_WORK_RUNNER, info);
    if (!flight) return give_up(team, runner);
    memcpy(flight->room, runner, bytes);
    flight->runner = (struct tutti_runner *)(void *)flight->room;
    flight->bind = (struct tutti_bind){.schedule = NULL};
    flight->layout.n_slices = 1;
    if (tutti_work_submit(&flight->work, helper) < 0) {
        tutti_work_drop(&flight->work);
        return give_up(team, runner);
    }
    *work = &flight->work;
    return TUTTI_OK;
}

uint64_t tutti_team_next(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->seq, memory_order_relaxed) + 1;
}

bool tutti_team_quiet(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->n_open, memory_order_acquire) == 0 &&
           !tutti_control_alarmed(team->port->control);
}

void tutti_team_count(struct tutti_team *team)
{
    tutti_team_number(team);
}

bool tutti_team_failed(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->failed, memory_order_acquire);
}

void tutti_team_set_overlay(struct tutti_team *team, tutti_overlay overlay, void *arg)
{
    tutti_owner_enter(team->engine);
    team->overlay = overlay, team->overlay_arg = arg;
    tutti_owner_leave(team->engine);
}

/* ---- owner ---- */

uint32_t tutti_runner_oldest(const struct tutti_team *team)
{
    uint32_t i = 0;

    while (i < team->n_active && !team->order[i]->flight->runner) i++;
    return i;
}

int32_t tutti_runner_awaits(const struct tutti_flight *flight)
{
    return flight->blocked ? (int32_t)flight->runner->ops->awaits(flight->runner) : -1;
}

void tutti_report_failed(struct tutti_team *team, const struct tutti_flight *flight)
{
    const struct tutti_error *error = tutti_last_error();
    char call[TUTTI_CALL_TEXT], text[TUTTI_ERROR_TEXT] = "";

    tutti_say_flight(flight, call, sizeof(call));
    tutti_say(text, sizeof(text), "%s failed on rank %u: %s", call, team->slot, error->text);
    tutti_team_break(team, error->status < 0 ? error->status : TUTTI_ERR_INTERNAL, error->peer, flight, TUTTI_NO_STEP,
                     text);
}

static void report_mismatch(struct tutti_team *team, const struct tutti_flight *flight)
{
    const struct tutti_runner *runner = flight->runner;
    uint64_t call = 0, count = 0;

    runner->ops->called(runner, &call, &count);
    tutti_report_mismatch(team, flight, runner->ops->awaits(runner), count, call);
}

enum tutti_advance tutti_runner_turns(struct tutti_runner *runner, bool *moved)
{
    enum tutti_advance outcome = TUTTI_RUN_MOVED;
    int turns = 0;

    while (outcome == TUTTI_RUN_MOVED && turns < TURNS) outcome = runner->ops->advance(runner), turns++;
    *moved |= turns > 1 || outcome != TUTTI_RUN_BLOCKED;
    return outcome;
}

bool tutti_runner_advance(struct tutti_team *team, struct tutti_flight *flight, bool *moved)
{
    enum tutti_advance outcome = tutti_runner_turns(flight->runner, moved);

    flight->blocked = outcome == TUTTI_RUN_BLOCKED;
    if (outcome == TUTTI_RUN_MISMATCH) report_mismatch(team, flight);
    if (outcome == TUTTI_RUN_FAILED) tutti_report_failed(team, flight);
    return outcome == TUTTI_RUN_DONE;
}
