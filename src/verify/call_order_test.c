/* SPDX-License-Identifier: BSD-3-Clause */

/* What engines demand of schedules whose calls are carried out whole: they come to their end even if every slot takes
 * its steps one by one, a send waits for its receive, and a call for all slots of its group. Hazards, windows and
 * orders of channels and lanes make steps wait for earlier ones alone, so then they can not wait in a circle. */

#include "algo/algo.h"
#include "sched/sched.h"

#include "test.h"

#include <stdio.h>
#include <string.h>

#define MAX_SLOTS 40

struct world {
    struct tutti_schedule *slots[MAX_SLOTS];
    uint32_t n, at[MAX_SLOTS]; /* the step that each slot is at */
    uint32_t n_calls;          /* in all slots, on lanes */
};

static void seal_slot(struct world *world, const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                      struct tutti_shape shape)
{
    struct tutti_lanes lanes = {.n = 0};

    for (uint32_t level = 0; level < shape.n_levels; level++) {
        struct tutti_lane *lane = &lanes.lanes[lanes.n];
        if (!tutti_shape_lane(&shape, shape.slot, level, lane)) continue;
        lane->kinds = UINT32_MAX;
        lanes.n++;
    }
    assert_int_equal(tutti_schedule_seal_lanes(algorithm, kind, &shape, &lanes, &world->slots[shape.slot]), TUTTI_OK);
    assert_null(world->slots[shape.slot]->defect);
    world->n_calls += world->slots[shape.slot]->n_calls;
}

static void world_make(struct world *world, const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                       const struct tutti_shape *shape)
{
    struct tutti_shape own = *shape;

    *world = (struct world){.n = shape->size};
    for (own.slot = 0; own.slot < shape->size; own.slot++) seal_slot(world, algorithm, kind, own);
}

static void world_free(struct world *world)
{
    for (uint32_t s = 0; s < world->n; s++) tutti_schedule_destroy(world->slots[s]);
}

static const struct tutti_step *step_of(const struct world *world, uint32_t slot)
{
    const struct tutti_schedule *schedule = world->slots[slot];
    return world->at[slot] < schedule->n_steps ? &schedule->steps[world->at[slot]] : NULL;
}

static const struct tutti_lane_call *call_of(const struct world *world, uint32_t slot)
{
    const struct tutti_step *step = step_of(world, slot);
    return step && step->op == TUTTI_STEP_CALL ? &world->slots[slot]->calls[step->peer] : NULL;
}

static bool take_send(struct world *world, uint32_t slot, const struct tutti_step *send)
{
    const struct tutti_step *recv = step_of(world, send->peer);

    if (!recv || (recv->op != TUTTI_STEP_RECV && recv->op != TUTTI_STEP_RECV_REDUCE)) return false;
    if (recv->peer != slot || recv->fifo != send->fifo) return false;
    world->at[slot]++, world->at[send->peer]++;
    return true;
}

/* All slots of the group are at the same call of theirs, with the same number on the lane. */
static bool take_call(struct world *world, const struct tutti_lane_call *call)
{
    const struct tutti_view *view = &call->view;

    for (uint32_t i = 0; i < view->size; i++) {
        const struct tutti_lane_call *other = call_of(world, view->base + i * view->stride);
        if (!other || other->kind != call->kind || memcmp(&other->view, view, sizeof(*view)) != 0) return false;
        assert_int_equal(other->number, call->number);
        assert_true((other->lane == TUTTI_NO_LANE) == (call->lane == TUTTI_NO_LANE));
    }
    for (uint32_t i = 0; i < view->size; i++) world->at[view->base + i * view->stride]++;
    return true;
}

static bool take(struct world *world, uint32_t slot)
{
    const struct tutti_step *step = step_of(world, slot);

    if (!step || step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_RECV_REDUCE) return false;
    if (step->op == TUTTI_STEP_SEND) return take_send(world, slot, step);
    if (step->op == TUTTI_STEP_CALL) return take_call(world, call_of(world, slot));
    world->at[slot]++;
    return true;
}

/* Whether all slots come to their end. */
static bool ends(struct world *world)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t s = 0; s < world->n; s++)
            while (take(world, s)) moved = true;
    }
    for (uint32_t s = 0; s < world->n; s++)
        if (step_of(world, s)) return false;
    return true;
}

static void check(enum tutti_kind kind, const struct tutti_shape *shape, const char *levels)
{
    struct world world;

    world_make(&world, &tutti_algorithm_hierarchical, kind, shape);
    if (!ends(&world))
        fail_msg("%s, levels %s, root %u, radix %u waits in a circle", tutti_kind_name(kind), levels, shape->root,
                 shape->radix);
    /* The blocks of several slots as one are not in one piece when the call is cut into slices. */
    assert_true((world.n_calls > 0) == !(kind == TUTTI_ALL_GATHER && shape->radix == 1));
    world_free(&world);
}

static void test_hierarchical_ends(void **state)
{
    static const char *const levels[] = {"2,2",         "4,4",         "3,5",           "2,2,2",       "1,3",
                                         "1,2,3,4,5",   "8x4",         "2x4;2,2",       "2x4;1,3",     "3,3,2;2,1",
                                         "2x8;2x4;2,2", "4,4,3,4;2,2", "8,8,7,8,8;2,3", "5,1,1,2;4;1", "2,3,2,3;2,2"};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(levels); i++) {
        struct tutti_shape shape = {.size = 0};
        for (shape.size = 1; tutti_shape_parse_levels(&shape, levels[i]) < 0; shape.size++)
            assert_true(shape.size < MAX_SLOTS);
        for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
            enum tutti_kind kind = (enum tutti_kind)k;
            const struct tutti_schedule_ops *ops = tutti_algorithm_hierarchical.kinds[kind];
            uint32_t roots = tutti_kind_info(kind)->rooted ? shape.size : 1;
            uint32_t radices = ops && (ops->needs & TUTTI_TAKES_RADIX) ? shape.size : 0;
            for (shape.root = 0; ops && shape.root < roots; shape.root++)
                for (shape.radix = 0; shape.radix <= radices; shape.radix++) check(kind, &shape, levels[i]);
            shape.root = shape.radix = 0;
        }
    }
}

/* ---- it can fail ---- */

static uint32_t one(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}

/* Slot 0 waits in the call for slot 1, which waits for slot 2, which waits for slot 0. */
static void circle(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const struct tutti_view view = {.stride = 1, .size = 2, .n_chunks = 1, .width = 1, .root = 1};
    (void)round;
    if (shape->slot == 0) {
        tutti_emit_call(emit, TUTTI_REDUCE, &view);
        tutti_emit_send(emit, 2, TUTTI_DATA, 0, 1);
    } else if (shape->slot == 1) {
        tutti_emit_recv(emit, 2, TUTTI_DATA, 0, 1);
        tutti_emit_call(emit, TUTTI_REDUCE, &view);
    } else {
        tutti_emit_recv_reduce(emit, 0, TUTTI_DATA, 0, 1, TUTTI_RIGHT);
        tutti_emit_send(emit, 1, TUTTI_DATA, 0, 1);
    }
}

static void test_a_circle_is_found(void **state)
{
    static const struct tutti_schedule_ops ops = {.rounds = one, .round = circle};
    static const struct tutti_algorithm algorithm = {.name = "circle", .kinds = {[TUTTI_ALL_REDUCE] = &ops}};
    struct tutti_shape shape = {.size = 3};
    struct world world;

    (void)state;
    assert_int_equal(tutti_shape_parse_levels(&shape, "2,1"), TUTTI_OK);
    world_make(&world, &algorithm, TUTTI_ALL_REDUCE, &shape);
    assert_int_equal(world.n_calls, 2);
    assert_false(ends(&world));
    world_free(&world);
}

int main(void)
{
    tutti_algorithms_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hierarchical_ends),
        cmocka_unit_test(test_a_circle_is_found),
    };
    return cmocka_run_group_tests_name("call order", tests, NULL, NULL);
}
