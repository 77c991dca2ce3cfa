/* SPDX-License-Identifier: BSD-3-Clause */

/* Runners: collectives that a back end carries out whole. One flies as a call of one slice without steps: it has its
 * number, its place in the order and its deadline as every call has, and it is advanced by the owner. What a rank
 * carries out past the engine, while nothing is in flight, is only counted. */

#include "engine/flight/flight.h"
#include "engine/report/report.h"

/* Turns in a row; then other teams, messages and threads have theirs. */
#define TURNS 16

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
    if (outcome == TUTTI_RUN_MISMATCH)
        tutti_report_called(team, flight, flight->runner, flight->runner->ops->awaits(flight->runner));
    if (outcome == TUTTI_RUN_FAILED) tutti_report_failed(team, flight);
    return outcome == TUTTI_RUN_DONE;
}
