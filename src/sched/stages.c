/* SPDX-License-Identifier: BSD-3-Clause */
/* Cuts the steps of a world into stages, for a device's stream or whatever else carries out a rank's steps one after
 * another. A stage begins with messages, which are under way together, and goes on with what each rank does by itself.
 * Both ends of a message have it in one stage, and every rank goes through the stages in their order, so nobody waits
 * for ever.
 *
 * A send is as early as its own hazards allow; what it brings may come before the receiver has a place for it, and then
 * lies aside until it has. So a message waits for nothing at its receiver, as if channels had credits without end, and
 * a schedule that ends with one credit also comes to its end here.
 *
 * Steps get their stages in waves over all ranks: a step has one when all have theirs that it waits for. */
#include "sched/sched.h"

#include <stdlib.h>

#define OPEN UINT32_MAX /* not known yet */

struct rank {
    const struct tutti_schedule *schedule;
    uint32_t *meet, *done; /* by step: the stage of its message, the stage that ends it */
    uint32_t *upto;        /* the last stage of the steps up to this one */
    uint32_t first;        /* steps before it are known */
};
struct world {
    struct rank *ranks;
    uint32_t n;
    uint32_t **sends;  /* by pair (sender, receiver): the sender's steps, by their number among its messages */
    uint32_t *n_sends; /* and how many there are */
    uint32_t *memory;  /* all numbers */
    size_t n_steps;
};

static uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static size_t pair_of(const struct world *world, uint32_t from, uint32_t to)
{
    return (size_t)from * world->n + to;
}

/* ---- who meets whom ---- */

static void count_sends(struct world *world, uint32_t r)
{
    const struct tutti_schedule *s = world->ranks[r].schedule;
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (tutti_step_sends(&s->steps[i])) world->n_sends[pair_of(world, r, s->steps[i].peer)]++;
}

static void list_sends(struct world *world, uint32_t r)
{
    const struct tutti_schedule *s = world->ranks[r].schedule;
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (tutti_step_sends(&s->steps[i])) world->sends[pair_of(world, r, s->steps[i].peer)][s->steps[i].fifo] = i;
}

/* Memory of a world whose steps were counted. */
static enum tutti_status world_open(struct world *world, const struct tutti_schedule *const *schedules, uint32_t n)
{
    const size_t n_pairs = (size_t)n * n;
    *world = (struct world){.n = n};
    for (uint32_t r = 0; r < n; r++) world->n_steps += schedules[r]->n_steps;
    world->ranks = tutti_alloc_array(n, sizeof *world->ranks);
    world->sends = tutti_alloc_array(n_pairs, sizeof *world->sends);
    world->n_sends = tutti_alloc_array(n_pairs, sizeof *world->n_sends);
    world->memory = tutti_alloc_array(4 * world->n_steps + 1, sizeof *world->memory);
    if (!world->ranks || !world->sends || !world->n_sends || !world->memory)
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the stages of %zu steps", world->n_steps);
    uint32_t *at = world->memory;
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t n_steps = schedules[r]->n_steps;
        world->ranks[r] =
            (struct rank){.schedule = schedules[r], .meet = at, .done = at + n_steps, .upto = at + 2 * (size_t)n_steps};
        at += 3 * (size_t)n_steps;
        for (uint32_t i = 0; i < n_steps; i++) world->ranks[r].meet[i] = world->ranks[r].done[i] = OPEN;
        count_sends(world, r);
    }
    for (size_t p = 0; p < n_pairs; p++) world->sends[p] = at, at += world->n_sends[p];
    for (uint32_t r = 0; r < n; r++) list_sends(world, r);
    return TUTTI_OK;
}

static void world_close(struct world *world)
{
    tutti_free(world->ranks);
    tutti_free(world->sends);
    tutti_free(world->n_sends);
    tutti_free(world->memory);
}

/* ---- stages ---- */

/* The last stage of what step i waits for, hazards and the window alike; `before` is the first stage behind all of it
 * for a message, which comes ahead of what its stage has besides. False: not all is known. */
static bool behind(const struct rank *rank, uint32_t i, uint32_t *last, uint32_t *before)
{
    const struct tutti_step *step = &rank->schedule->steps[i];
    *last = *before = 0;
    if (i >= TUTTI_WINDOW) *last = rank->upto[i - TUTTI_WINDOW], *before = *last + 1;
    for (uint64_t left = step->wait; left; left &= left - 1) {
        const uint32_t d = i - 1 - (uint32_t)__builtin_ctzll(left);
        if (rank->done[d] == OPEN) return false;
        *last = later(*last, rank->done[d]);
        *before = later(*before, rank->done[d] + 1);
    }
    return true;
}

/* Whether the step got its stage. */
static bool place(struct world *world, uint32_t r, uint32_t i)
{
    struct rank *rank = &world->ranks[r];
    const struct tutti_step *step = &rank->schedule->steps[i];
    uint32_t last, before;
    if (!behind(rank, i, &last, &before)) return false;
    if (tutti_step_sends(step)) {
        const uint32_t *sends = world->sends[pair_of(world, r, step->peer)];
        const uint32_t previous = step->fifo ? rank->meet[sends[step->fifo - 1]] : 0;
        if (previous == OPEN) return false;
        rank->meet[i] = rank->done[i] = later(before, previous);
    } else if (tutti_step_receives(step)) {
        const size_t pair = pair_of(world, step->peer, r);
        if (step->fifo >= world->n_sends[pair]) return false;
        rank->meet[i] = world->ranks[step->peer].meet[world->sends[pair][step->fifo]];
        if (rank->meet[i] == OPEN) return false;
        rank->done[i] = later(last, rank->meet[i]);
    } else {
        rank->done[i] = last;
    }
    return true;
}

/* Steps of the window; false: none of them got on. */
static bool sweep(struct world *world, uint32_t r)
{
    struct rank *rank = &world->ranks[r];
    const uint32_t n = rank->schedule->n_steps;
    bool moved = false;
    for (uint32_t i = rank->first; i < n && i < rank->first + TUTTI_WINDOW; i++)
        if (rank->done[i] == OPEN && place(world, r, i)) moved = true;
    for (; rank->first < n && rank->done[rank->first] != OPEN; rank->first++)
        rank->upto[rank->first] = later(rank->done[rank->first], rank->first ? rank->upto[rank->first - 1] : 0);
    return moved;
}

static enum tutti_status place_all(struct world *world)
{
    for (bool moved = true, open = true; open;) {
        if (!moved)
            return tutti_fail(TUTTI_ERR_INTERNAL, "%s: its steps wait for one another",
                              world->ranks[0].schedule->algorithm->name);
        moved = open = false;
        for (uint32_t r = 0; r < world->n; r++) {
            moved |= sweep(world, r);
            open |= world->ranks[r].first < world->ranks[r].schedule->n_steps;
        }
    }
    return TUTTI_OK;
}

/* ---- what one rank does ---- */

static int by_stage(const void *a, const void *b)
{
    const struct tutti_stage_act *x = a, *y = b;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    if ((x->act == TUTTI_ACT_HERE) != (y->act == TUTTI_ACT_HERE)) return x->act == TUTTI_ACT_HERE ? 1 : -1;
    return (x->step > y->step) - (x->step < y->step);
}

/* A receive goes to its place at once where that is free before the stage begins. */
static bool is_aside(const struct rank *rank, uint32_t i)
{
    uint32_t last, before;
    (void)behind(rank, i, &last, &before);
    return rank->schedule->steps[i].op == TUTTI_STEP_RECV_REDUCE || before > rank->meet[i];
}

static void list_acts(const struct rank *rank, struct tutti_stages *out)
{
    for (uint32_t i = 0; i < rank->schedule->n_steps; i++) {
        const struct tutti_step *step = &rank->schedule->steps[i];
        const bool message = tutti_step_is_message(step);
        const bool aside = tutti_step_receives(step) && is_aside(rank, i);
        if (message)
            out->acts[out->n++] = (struct tutti_stage_act){rank->meet[i], i,
                                                           !aside                           ? TUTTI_ACT_MESSAGE
                                                           : rank->done[i] == rank->meet[i] ? TUTTI_ACT_ASIDE
                                                                                            : TUTTI_ACT_KEPT};
        if (!message || aside) out->acts[out->n++] = (struct tutti_stage_act){rank->done[i], i, TUTTI_ACT_HERE};
    }
    qsort(out->acts, out->n, sizeof *out->acts, by_stage);
}

enum tutti_status tutti_stages_make(const struct tutti_schedule *const *schedules, uint32_t n, uint32_t slot,
                                    struct tutti_stages *out)
{
    struct world world;
    enum tutti_status status = world_open(&world, schedules, n);
    *out = (struct tutti_stages){0};
    if (status >= 0) status = place_all(&world);
    if (status >= 0 && !(out->acts = tutti_alloc_array(2 * (size_t)schedules[slot]->n_steps + 1, sizeof *out->acts)))
        status = tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the stages of %zu steps", world.n_steps);
    if (status >= 0) list_acts(&world.ranks[slot], out);
    world_close(&world);
    return status;
}

void tutti_stages_fini(struct tutti_stages *stages)
{
    tutti_free(stages->acts);
    *stages = (struct tutti_stages){0};
}
