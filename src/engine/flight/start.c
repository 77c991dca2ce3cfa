/* SPDX-License-Identifier: BSD-3-Clause */

/* How a collective starts, by any thread: all memory that it needs is taken here, so that nothing is allocated on the
 * progress path. */

#include "device/cpu/copy.h"
#include "engine/flight/flight.h"

#include <string.h>

/* Reductions read again what they wrote. */
static bool goes_past_cache(const struct tutti_flight *flight)
{
    const struct tutti_layout *l = &flight->layout;
    return !tutti_kind_info(flight->info.kind)->reduces &&
           l->largest * l->per_block >= TUTTI_PAST_CACHE_BYTES / l->element / l->n_blocks;
}

static struct tutti_flight *flight_new(struct tutti_team *team, enum tutti_work_type type,
                                       const struct tutti_call_info *info)
{
    struct tutti_flight *flight = tutti_work_new(team->engine->works, type);

    if (!flight) {
        tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", tutti_kind_name(info->kind));
        return NULL;
    }
    flight->next = NULL;
    flight->runner = NULL;
    flight->region = (struct tutti_region){NULL, 0};
    flight->next_slice = flight->n_finished = flight->n_compared = 0;
    flight->told_missing = flight->in_vain = flight->blocked = false;
    flight->info = *info;
    flight->work.team = team;
    flight->work.label = info->label;
    flight->work.timeout_ns = info->timeout_ns ? info->timeout_ns : team->timeout_ns;
    return flight;
}

enum tutti_status tutti_engine_start(struct tutti_team *team, const struct tutti_bind *bind,
                                     const struct tutti_call_info *info, bool helper, struct tutti_work **work)
{
    struct tutti_need need = {0};
    enum tutti_status status;
    struct tutti_flight *flight = flight_new(team, TUTTI_WORK_FLIGHT, info);

    if (!flight) {
        tutti_bind_release(bind);
        return TUTTI_ERR_MEMORY;
    }
    flight->bind = *bind;
    if (bind->schedule->lanes.n > team->n_lanes) {
        status = tutti_fail(TUTTI_ERR_INTERNAL, "%s: its schedule has calls of %u lanes, its team has %u",
                            tutti_kind_name(info->kind), bind->schedule->lanes.n, team->n_lanes);
        goto err_work;
    }
    TUTTI_TRY_GOTO(status, tutti_layout_init(&flight->layout, bind, team->slice_bytes, &need), err_work);
    if (need.bytes > 0 && !tutti_region_take(team, need.bytes, &flight->region)) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory for %zu bytes of scratch", tutti_kind_name(info->kind),
                            need.bytes);
        goto err_work;
    }
    tutti_layout_fill(&flight->layout, bind, &need, flight->region.base);
    flight->past_cache = goes_past_cache(flight);
    struct tutti_board board = {0};
    tutti_board_fill(&board, flight);
    flight->packed_call = tutti_call_pack(&board), flight->packed_count = board.count;
    TUTTI_TRY_GOTO(status, tutti_team_submit(&flight->work, helper), err_region);
    *work = &flight->work;
    return TUTTI_OK;
err_region:
    tutti_region_give(team, flight->region);
err_work:
    tutti_work_drop(&flight->work);
    tutti_bind_release(bind);
    return status;
}

/* ---- runners ---- */

/* The others have this call in their order, so there is no going on without it. */
static enum tutti_status give_up(struct tutti_team *team, struct tutti_runner *runner)
{
    struct tutti_error error = *tutti_last_error();

    tutti_team_fail(team, &error, true);
    tutti_owner_enter(team->engine->owner);
    runner->ops->cancel(runner);
    tutti_owner_leave(team->engine->owner);
    return tutti_fail_record(&error);
}

enum tutti_status tutti_engine_run(struct tutti_team *team, struct tutti_runner *runner, size_t bytes,
                                   const struct tutti_call_info *info, bool helper, struct tutti_work **work)
{
    if (bytes > TUTTI_RUNNER_BYTES) {
        tutti_fail(TUTTI_ERR_INTERNAL, "%s: a runner of %zu bytes", tutti_kind_name(info->kind), bytes);
        return give_up(team, runner);
    }
    struct tutti_flight *flight = flight_new(team, TUTTI_WORK_RUNNER, info);
    if (!flight) return give_up(team, runner);
    memcpy(flight->room, runner, bytes);
    flight->runner = (struct tutti_runner *)(void *)flight->room;
    flight->bind = (struct tutti_bind){.schedule = NULL};
    flight->layout.n_slices = 1;
    if (tutti_team_submit(&flight->work, helper) < 0) {
        tutti_work_drop(&flight->work);
        return give_up(team, runner);
    }
    *work = &flight->work;
    return TUTTI_OK;
}
