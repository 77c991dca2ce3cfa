/* SPDX-License-Identifier: BSD-3-Clause */

/* What is in progress in a team, and whom it waits for: questions that change nothing. */

#include "engine/team/team.h"

struct tutti_flight *tutti_flight_find(const struct tutti_team *team, uint64_t seq)
{
    for (uint32_t i = 0; i < team->n_active; i++)
        if (team->order[i]->flight->work.seq == seq) return team->order[i]->flight;
    for (struct tutti_flight *f = team->pending; f && f->work.seq <= seq; f = f->next)
        if (f->work.seq == seq) return f;
    return NULL;
}

const char *tutti_flight_name(const struct tutti_team *team, uint64_t seq)
{
    const struct tutti_flight *flight = tutti_flight_find(team, seq);
    return flight ? tutti_kind_name(flight->info.kind) : "";
}

const struct tutti_slice *tutti_flight_oldest(const struct tutti_team *team, const struct tutti_flight *flight)
{
    for (uint32_t i = 0; i < team->n_active; i++)
        if (team->order[i]->flight == flight) return team->order[i];
    return NULL;
}

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

bool tutti_team_is_calling(const struct tutti_team *team)
{
    for (uint32_t l = 0; l < team->n_lanes; l++)
        if (team->lanes[l].slice) return true;
    return false;
}

int32_t tutti_calling_awaits(const struct tutti_calling *calling)
{
    const struct tutti_runner *runner = (const struct tutti_runner *)(const void *)calling->room;

    if (!calling->slice || !calling->blocked) return -1;
    return (int32_t)(calling->group.base + runner->ops->awaits(runner) * calling->group.stride);
}

static const struct tutti_calling *calling_find(const struct tutti_team *team, const struct tutti_slice *slice,
                                                uint32_t step)
{
    const struct tutti_call *calls = slice->flight->bind.schedule->calls;

    for (uint32_t l = 0; l < team->n_lanes; l++)
        if (team->lanes[l].slice == slice && calls[team->lanes[l].call].step == step) return &team->lanes[l];
    return NULL;
}

int32_t tutti_slice_awaits(const struct tutti_slice *slice)
{
    if (slice->flight->runner) return tutti_runner_awaits(slice->flight);
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[slice->base];
    if (step->op == TUTTI_STEP_CALL) {
        const struct tutti_calling *calling = calling_find(slice->flight->work.team, slice, slice->base);
        return calling ? tutti_calling_awaits(calling) : -1;
    }
    return tutti_step_is_message(step) ? (int32_t)step->peer : -1;
}
