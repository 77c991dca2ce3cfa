/* SPDX-License-Identifier: BSD-3-Clause */
/* When steps would run if messages took one unit of time, under the engine's rules (waits, window, order in channels,
 * rendezvous): the vertical axis of the drawing. */

#include "sched.h"

#include "verify/world.h"

static const double MESSAGE = 1.0, LOCAL = 0.3, BETWEEN_SENDS = 0.25;

struct clockwork {
    const struct tutti_world *world;
    struct sched_times *times;
    double *last_send; /* by slot */
};

/* The end of all that a step waits for at its rank. */
static double ready(const struct clockwork *clock, uint32_t slot, uint32_t index)
{
    const double *end = clock->times->end + clock->times->base[slot];
    double time = 0;
    for (uint32_t j = 0; j < TUTTI_WINDOW && j < index; j++) {
        const bool awaited = tutti_world_step(clock->world, slot, index)->wait >> j & 1;
        if ((awaited || j + 1 == TUTTI_WINDOW) && end[index - 1 - j] > time) time = end[index - 1 - j];
    }
    return time;
}

static void time_message(const struct clockwork *clock, uint32_t slot, uint32_t number)
{
    const struct tutti_world *world = clock->world;
    struct sched_times *times = clock->times;
    const uint32_t send = world->match[number], from = tutti_world_slot(world, send);
    double begin = ready(clock, from, send - world->base[from]);
    if (begin < clock->last_send[from] + BETWEEN_SENDS) begin = clock->last_send[from] + BETWEEN_SENDS;
    times->start[number] = ready(clock, slot, number - world->base[slot]);
    /* The message leaves when both are ready. */
    if (begin < times->start[number]) begin = times->start[number];
    clock->last_send[from] = times->start[send] = begin;
    times->end[send] = times->end[number] = begin + MESSAGE;
}

static enum tutti_status times_fill(struct tutti_world *world, struct sched_times *times)
{
    struct clockwork clock = {.world = world, .times = times};
    clock.last_send = tutti_alloc_array(world->n, sizeof *clock.last_send);
    if (!clock.last_send) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to draw %u ranks", world->n);
    for (uint32_t s = 0; s < world->n; s++) clock.last_send[s] = -BETWEEN_SENDS;
    for (uint32_t i = 0; i < world->n_order; i++) {
        const uint32_t number = world->order[i], slot = tutti_world_slot(world, number);
        if (world->match[number] != TUTTI_NO_INDEX) {
            time_message(&clock, slot, number);
        } else {
            times->start[number] = ready(&clock, slot, number - world->base[slot]);
            times->end[number] = times->start[number] + LOCAL;
        }
        if (times->end[number] > times->last) times->last = times->end[number];
    }
    tutti_free(clock.last_send);
    return TUTTI_OK;
}

enum tutti_status sched_times_make(const struct sched_world *sealed, struct sched_times *out)
{
    struct tutti_verdict verdict = {.ok = true};
    struct tutti_world world;
    struct sched_times times = {0};
    enum tutti_status status;
    TUTTI_TRY_GOTO(status,
                   tutti_world_init(&world, (const struct tutti_schedule *const *)sealed->slots, sealed->n, &verdict),
                   err_world);
    if (verdict.ok) TUTTI_TRY_GOTO(status, tutti_world_check_steps(&world), err_world);
    if (verdict.ok) TUTTI_TRY_GOTO(status, tutti_world_match(&world), err_world);
    if (verdict.ok) TUTTI_TRY_GOTO(status, tutti_world_check_deadlock(&world), err_world);
    if (!verdict.ok) {
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s", verdict.text);
        goto err_world;
    }
    times.start = tutti_alloc_array((size_t)world.n_steps + 1, sizeof *times.start);
    times.end = tutti_alloc_array((size_t)world.n_steps + 1, sizeof *times.end);
    if (!times.start || !times.end) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to draw %u steps", world.n_steps);
        goto err_times;
    }
    times.base = world.base;
    TUTTI_TRY_GOTO(status, times_fill(&world, &times), err_times);
    world.base = NULL; /* the caller's now */
    *out = times;
    tutti_world_fini(&world);
    return TUTTI_OK;
err_times:
    tutti_free(times.start);
    tutti_free(times.end);
err_world:
    tutti_world_fini(&world);
    return status;
}

void sched_times_free(struct sched_times *times)
{
    tutti_free(times->start);
    tutti_free(times->end);
    tutti_free(times->base);
}
