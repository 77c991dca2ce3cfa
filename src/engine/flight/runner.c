/* SPDX-License-Identifier: BSD-3-Clause */

/* Runners: collectives that a back end carries out whole. One flies as a call of one slice without steps: it has its
 * number, its place in the order and its deadline as every call has, and it is advanced by the owner. What a rank
 * carries out past the engine, while nothing is in flight, is only counted. */

#include "engine/flight/flight.h"
#include "engine/report/report.h"

/* Turns in a row; then other teams, messages and threads have theirs. */
#define TURNS 16

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
