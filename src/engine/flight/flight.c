/* SPDX-License-Identifier: BSD-3-Clause */

/* Collectives in flight. The owner takes them over in the order of the calls and cuts them into slices; the oldest
 * slices are active. */

#include "engine/flight/flight.h"

#include <string.h>

/* The last call before the oldest one in flight. */
static uint64_t completed_up_to(const struct tutti_team *team)
{
    if (team->n_active > 0) return team->order[0]->flight->work.seq - 1;
    return team->pending ? team->pending->work.seq - 1 : team->started;
}

void tutti_flight_end(struct tutti_team *team, struct tutti_flight *flight, const struct tutti_error *error)
{
    if (error && flight->runner) flight->runner->ops->cancel(flight->runner);
    tutti_bind_release(&flight->bind);
    tutti_region_give(team, flight->region);
    flight->region = (struct tutti_region){NULL, 0};
    if (flight->bind.gate && flight->bind.gate->over) flight->bind.gate->over(flight->bind.gate->arg);
    if (!error) {
        team->board.completed = completed_up_to(team);
        team->board.step = team->board.n_steps = 0;
        team->board.peer = -1;
        team->board.since_ns = tutti_owner_now(team->engine->owner);
        tutti_team_publish(team);
    }
    tutti_team_complete(&flight->work, error);
}

/* ---- calls whose input comes bit by bit ---- */

static bool has_input(const struct tutti_flight *flight)
{
    return !flight->bind.gate || flight->next_slice < atomic_load(&flight->bind.gate->n_open);
}

void tutti_gate_open(struct tutti_team *team, struct tutti_gate *gate, uint32_t n)
{
    atomic_store(&gate->n_open, n);
    tutti_owner_kick(team->engine->owner);
}

bool tutti_flights_may_begin(const struct tutti_team *team)
{
    const struct tutti_flight *flight = team->pending;
    return flight && flight->bind.gate && team->n_active < TUTTI_ACTIVE && has_input(flight);
}

static void tell_passed(const struct tutti_team *team, const struct tutti_flight *flight)
{
    const struct tutti_slice *oldest = tutti_flight_oldest(team, flight);
    flight->bind.gate->passed(flight->bind.gate->arg, oldest ? oldest->index : flight->next_slice);
}

/* ---- slices ---- */

/* Keeps the oldest slices active. A barrier waits until those before it are over: whoever passes it knows that they are
 * over on all ranks. */
static void activate(struct tutti_team *team)
{
    while (team->pending && team->n_active < TUTTI_ACTIVE) {
        struct tutti_flight *flight = team->pending;
        uint32_t i = 0;
        if (flight->info.kind == TUTTI_BARRIER && team->n_active > 0) break;
        if (!has_input(flight)) break;
        while (team->slices[i].flight) i++;
        team->slices[i] = (struct tutti_slice){.flight = flight, .index = flight->next_slice++, .dirty = true};
        team->order[team->n_active++] = &team->slices[i];
        if (flight->runner) team->n_runners++;
        if (flight->next_slice < flight->layout.n_slices) continue;
        team->pending = flight->next;
        if (!team->pending) team->pending_end = &team->pending;
    }
}

void tutti_flight_begin(struct tutti_team *team, struct tutti_flight *flight)
{
    struct tutti_engine *engine = team->engine;
    uint64_t half = flight->work.timeout_ns / 2, after = engine->config.compare_after_ns;

    flight->compare_ns = flight->work.start_ns + (half < after ? half : after);
    tutti_engine_watch_by(engine, flight->compare_ns < flight->work.deadline_ns ? flight->compare_ns
                                                                                : flight->work.deadline_ns);
    team->started = flight->work.seq;
    *team->pending_end = flight;
    team->pending_end = &flight->next;
    tutti_board_fill(&team->board, flight);
    team->board.called_ns = team->board.since_ns = flight->work.start_ns;
    team->board.completed = completed_up_to(team); /* those past the engine, too */
    tutti_team_publish(team);
    if (tutti_held_check(team, flight)) activate(team);
}

/* Ends the i-th active slice, and with the last one its flight. */
static void slice_end(struct tutti_team *team, uint32_t i)
{
    struct tutti_slice *slice = team->order[i];
    struct tutti_flight *flight = slice->flight;

    if (flight->runner)
        team->n_runners--;
    else
        tutti_slice_finish(slice);
    slice->flight = NULL;
    team->n_active--;
    memmove(&team->order[i], &team->order[i + 1], (team->n_active - i) * sizeof(team->order[0]));
    flight->n_finished++;
    if (flight->bind.gate) tell_passed(team, flight);
    if (flight->n_finished == flight->layout.n_slices) tutti_flight_end(team, flight, NULL);
    activate(team);
    if (i == 0) team->retry = true; /* the oldest slice has a credit of its own */
}

bool tutti_team_run_runners(struct tutti_team *team)
{
    bool moved = false;

    while (team->n_runners > 0) {
        uint32_t i = tutti_runner_oldest(team);
        bool done = tutti_runner_advance(team, team->order[i]->flight, &moved);
        if (!done) break;
        slice_end(team, i);
    }
    return moved;
}

bool tutti_flights_run(struct tutti_team *team, bool retry)
{
    bool moved = false;

    if (tutti_flights_may_begin(team)) activate(team);
    for (uint32_t i = 0; i < team->n_active;) {
        struct tutti_slice *slice = team->order[i];
        if (slice->flight->runner) {
            i++;
            continue;
        }
        if (slice->dirty || (slice->stalled && (retry || i == 0))) moved |= tutti_slice_issue(team, slice);
        if (team->halted) return true;
        if (tutti_slice_over(slice)) {
            slice_end(team, i);
            moved = true;
        } else {
            i++;
        }
    }
    if (team->n_runners > 0) moved |= tutti_team_run_runners(team);
    if (team->n_lanes > 0 && !team->halted) moved |= tutti_team_call(team);
    return moved;
}

void tutti_flights_fail(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_flight *pending = team->pending, *before = NULL;

    team->pending = NULL, team->pending_end = &team->pending;
    tutti_team_cancel_calls(team);
    /* Slices of one flight follow one another; the last active flight may be the first pending one. */
    for (uint32_t i = 0; i < team->n_active; i++) {
        struct tutti_flight *flight = team->order[i]->flight;
        team->order[i]->flight = NULL;
        if (flight != before && flight != pending) tutti_flight_end(team, flight, error);
        before = flight;
    }
    team->n_active = team->n_runners = 0;
    team->board.failed = true;
    tutti_team_publish(team);
    while (pending) {
        struct tutti_flight *flight = pending;
        pending = flight->next;
        tutti_flight_end(team, flight, error);
    }
}
