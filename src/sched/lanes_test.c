/* SPDX-License-Identifier: BSD-3-Clause */

/* Lanes: which slots they join, and what schedules that are sealed for them keep: calls of their groups in one piece,
 * with first touch by kind, and nothing else. */

#include "sched/sched.h"

#include "test.h"

#include <string.h>

static struct tutti_shape shape_of(const char *levels)
{
    struct tutti_shape shape = {.size = 1};

    while (tutti_shape_parse_levels(&shape, levels) < 0) shape.size++;
    return shape;
}

/* base, stride, size of each level of each slot; size 0: no lane. */
static void expect_lanes(const char *levels, uint32_t level, const uint32_t (*expected)[3])
{
    const struct tutti_shape shape = shape_of(levels);

    for (uint32_t slot = 0; slot < shape.size; slot++) {
        struct tutti_lane lane;
        bool found = tutti_shape_lane(&shape, slot, level, &lane);
        assert_int_equal(found, expected[slot][2] > 0);
        if (!found) continue;
        assert_int_equal(lane.base, expected[slot][0]);
        assert_int_equal(lane.stride, expected[slot][1]);
        assert_int_equal(lane.size, expected[slot][2]);
        assert_int_equal(lane.kinds, 0);
    }
}

static void test_groups_of_levels(void **state)
{
    (void)state;
    expect_lanes("3,1,2", 0, (const uint32_t[][3]){{0, 1, 3}, {0, 1, 3}, {0, 1, 3}, {0}, {4, 1, 2}, {4, 1, 2}});
    expect_lanes("2,2,2;2,1", 1, (const uint32_t[][3]){{0, 2, 2}, {1, 2, 2}, {0, 2, 2}, {1, 2, 2}, {0}, {0}});
    /* Units of different sizes have no places in common. */
    expect_lanes("1,2,3;2,1", 1, (const uint32_t[][3]){{0}, {0}, {0}, {0}, {0}, {0}});
    expect_lanes(
        "1x8;2x4;2,2", 2,
        (const uint32_t[][3]){{0, 2, 2}, {1, 2, 2}, {0, 2, 2}, {1, 2, 2}, {4, 2, 2}, {5, 2, 2}, {4, 2, 2}, {5, 2, 2}});
}

/* ---- sealing: one call, and what goes with it ---- */

static enum tutti_kind called;
static struct tutti_view view;
static uint32_t n_chunks;

static uint32_t chunks(const struct tutti_shape *shape)
{
    (void)shape;
    return n_chunks;
}

static uint32_t two(const struct tutti_shape *shape)
{
    (void)shape;
    return 2;
}

static uint32_t n_times = 1;

/* The group calls, then slot 1 passes chunk 1 to slot 2, of the other group. */
static void round_steps(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    if (round == 0) {
        for (uint32_t i = 0; shape->slot < 2 && i < n_times; i++) tutti_emit_call(emit, called, &view);
    } else if (shape->slot == 1) {
        tutti_emit_send(emit, 2, TUTTI_DATA, 1, 1);
    } else if (shape->slot == 2) {
        tutti_emit_recv(emit, 1, TUTTI_DATA, 1, 1);
    }
}

static const struct tutti_schedule_ops caller_ops = {.chunks = chunks, .rounds = two, .round = round_steps};
static const struct tutti_algorithm caller = {
    .name = "caller",
    .kinds = {[TUTTI_ALL_REDUCE] = &caller_ops, [TUTTI_GATHER] = &caller_ops, [TUTTI_SCATTER] = &caller_ops}};

/* The reference of everything: the others send to the first. */
static void reference_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot == 1) tutti_emit_send(emit, 0, TUTTI_DATA, 0, 1);
    if (shape->slot == 0) tutti_emit_recv(emit, 1, TUTTI_DATA, 0, 1);
}
static uint32_t one(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}
static const struct tutti_schedule_ops reference_ops = {.chunks = one, .rounds = one, .round = reference_round};
static const struct tutti_algorithm reference = {
    .name = "reference",
    .kinds = {&reference_ops, &reference_ops, &reference_ops, &reference_ops, &reference_ops, &reference_ops}};
static const struct tutti_algorithm *find_reference(enum tutti_kind kind, const struct tutti_shape *sub)
{
    (void)kind, (void)sub;
    return &reference;
}

static struct tutti_schedule *seal(enum tutti_kind kind, uint32_t slot, uint32_t kinds)
{
    struct tutti_shape shape = shape_of("2,2");
    struct tutti_lanes lanes = {.n = 1};
    struct tutti_schedule *schedule = NULL;

    shape.slot = slot;
    tutti_schedule_set_reference(find_reference);
    assert_true(tutti_shape_lane(&shape, slot, 0, &lanes.lanes[0]));
    lanes.lanes[0].kinds = kinds;
    assert_int_equal(tutti_schedule_seal_lanes(&caller, kind, &shape, &lanes, &schedule), TUTTI_OK);
    return schedule;
}

static bool keeps(enum tutti_kind kind, enum tutti_kind call, const struct tutti_view *of, uint32_t of_chunks,
                  uint32_t kinds)
{
    called = call, view = *of, n_chunks = of_chunks;
    struct tutti_schedule *schedule = seal(kind, 1, kinds);
    bool kept = schedule->n_calls == 1;

    if (kept) {
        assert_null(schedule->defect);
        assert_int_equal(schedule->calls[0].lane, 0);
        assert_int_equal(schedule->steps[schedule->calls[0].step].op, TUTTI_STEP_CALL);
    }
    tutti_schedule_destroy(schedule);
    return kept;
}

static void test_what_is_kept(void **state)
{
    const struct tutti_view whole = {.stride = 1, .size = 2, .n_chunks = 1, .width = 1};
    const struct tutti_view wide = {.stride = 1, .size = 2, .n_chunks = 1, .width = 2};
    const struct tutti_view apart = {.stride = 2, .size = 2, .n_chunks = 1, .width = 1};
    const struct tutti_view two_blocks = {.stride = 1, .size = 2, .n_chunks = 2, .width = 1};
    const uint32_t all = UINT32_MAX;

    (void)state;
    assert_true(keeps(TUTTI_ALL_REDUCE, TUTTI_REDUCE, &whole, 4, all));
    assert_true(keeps(TUTTI_ALL_REDUCE, TUTTI_BROADCAST, &whole, 4, UINT32_C(1) << TUTTI_BROADCAST));
    assert_false(keeps(TUTTI_ALL_REDUCE, TUTTI_BROADCAST, &whole, 4, ~(UINT32_C(1) << TUTTI_BROADCAST)));
    assert_false(keeps(TUTTI_ALL_REDUCE, TUTTI_REDUCE, &wide, 4, all));  /* slices of it are two runs of memory */
    assert_false(keeps(TUTTI_ALL_REDUCE, TUTTI_REDUCE, &apart, 4, all)); /* another group */
    assert_true(keeps(TUTTI_GATHER, TUTTI_GATHER, &two_blocks, 4, all));
    assert_false(keeps(TUTTI_GATHER, TUTTI_GATHER, &two_blocks, 8, all)); /* half blocks */
    assert_false(keeps(TUTTI_ALL_REDUCE, TUTTI_GATHER, &two_blocks, 4, all));
}

/* Flags of the call, and of what slot 1 sends of chunk 1 after it: whether they read the user's input. */
static void expect_touch(enum tutti_kind kind, enum tutti_kind call, uint32_t root, uint32_t slot, bool input,
                         bool sends_input)
{
    bool blocks = call == TUTTI_GATHER || call == TUTTI_SCATTER;
    const struct tutti_view of = {
        .stride = 1, .size = 2, .chunk = blocks ? 0 : 1, .n_chunks = blocks ? 2 : 1, .width = 1, .root = root};
    called = call, view = of, n_chunks = 4;
    struct tutti_schedule *schedule = seal(kind, slot, UINT32_MAX);

    assert_null(schedule->defect);
    assert_int_equal(schedule->n_calls, 1);
    assert_int_equal(schedule->steps[0].op, TUTTI_STEP_CALL);
    assert_int_equal(schedule->steps[0].flags, input ? TUTTI_STEP_SRC_INPUT : 0);
    if (slot == 1) {
        assert_int_equal(schedule->steps[1].op, TUTTI_STEP_SEND);
        assert_int_equal(schedule->steps[1].flags, sends_input ? TUTTI_STEP_SRC_INPUT : 0);
        assert_int_equal(schedule->steps[1].wait, 1); /* for the call */
    }
    tutti_schedule_destroy(schedule);
}

static void test_first_touch(void **state)
{
    (void)state;
    expect_touch(TUTTI_ALL_REDUCE, TUTTI_REDUCE, 1, 1, true, false);
    expect_touch(TUTTI_ALL_REDUCE, TUTTI_REDUCE, 0, 1, true, true); /* a rank that is not the root keeps what it had */
    expect_touch(TUTTI_ALL_REDUCE, TUTTI_BROADCAST, 0, 1, false, false); /* it reads nothing */
    expect_touch(TUTTI_ALL_REDUCE, TUTTI_BROADCAST, 1, 1, true, true);   /* the root keeps what it has where it is */
    expect_touch(TUTTI_ALL_REDUCE, TUTTI_ALL_REDUCE, 0, 1, true, false);
    expect_touch(TUTTI_GATHER, TUTTI_GATHER, 1, 1, true, false); /* the own block, too */
    expect_touch(TUTTI_GATHER, TUTTI_GATHER, 0, 1, true, true);
    expect_touch(TUTTI_SCATTER, TUTTI_SCATTER, 0, 0, true, false);
    expect_touch(TUTTI_SCATTER, TUTTI_SCATTER, 0, 1, false, false);
}

/* Lanes of the same slots take turns; numbers count the calls of each. */
static void test_turns(void **state)
{
    const struct tutti_shape shape = shape_of("2,2");
    struct tutti_lanes lanes = {.n = 3};
    struct tutti_schedule *schedule;

    (void)state;
    called = TUTTI_REDUCE, n_chunks = 4, n_times = 7;
    view = (struct tutti_view){.stride = 1, .size = 2, .n_chunks = 1, .width = 1};
    tutti_schedule_set_reference(find_reference);
    for (uint32_t l = 0; l < lanes.n; l++) {
        assert_true(tutti_shape_lane(&shape, 0, 0, &lanes.lanes[l]));
        lanes.lanes[l].kinds = l == 1 ? 0 : UINT32_MAX; /* one serves nothing */
    }
    assert_int_equal(tutti_schedule_seal_lanes(&caller, TUTTI_ALL_REDUCE, &shape, &lanes, &schedule), TUTTI_OK);
    assert_int_equal(schedule->n_calls, n_times);
    for (uint32_t c = 0; c < n_times; c++) {
        assert_int_equal(schedule->calls[c].lane, c % 2 == 0 ? 0 : 2);
        assert_int_equal(schedule->calls[c].number, c / 2);
    }
    n_times = 1;
    tutti_schedule_destroy(schedule);
}

/* ---- the cache tells schedules of different lanes apart ---- */

static void test_cache(void **state)
{
    struct tutti_shape shape = shape_of("2,2");
    struct tutti_lanes lanes = {.n = 1}, less = {.n = 1};
    const struct tutti_schedule *kept, *expanded, *other, *again;
    struct tutti_cache *cache;

    (void)state;
    called = TUTTI_REDUCE, n_chunks = 4;
    view = (struct tutti_view){.stride = 1, .size = 2, .n_chunks = 1, .width = 1};
    tutti_schedule_set_reference(find_reference);
    assert_true(tutti_shape_lane(&shape, 0, 0, &lanes.lanes[0]));
    less = lanes;
    lanes.lanes[0].kinds = UINT32_MAX;
    assert_int_equal(tutti_cache_create(8, &cache), TUTTI_OK);
    assert_int_equal(tutti_cache_get(cache, &caller, TUTTI_ALL_REDUCE, &shape, &lanes, &kept), TUTTI_OK);
    assert_int_equal(tutti_cache_get(cache, &caller, TUTTI_ALL_REDUCE, &shape, NULL, &expanded), TUTTI_OK);
    assert_int_equal(tutti_cache_get(cache, &caller, TUTTI_ALL_REDUCE, &shape, &less, &other), TUTTI_OK);
    assert_int_equal(tutti_cache_get(cache, &caller, TUTTI_ALL_REDUCE, &shape, &lanes, &again), TUTTI_OK);
    assert_ptr_equal(kept, again);
    assert_ptr_not_equal(kept, expanded);
    assert_ptr_not_equal(kept, other);
    assert_ptr_not_equal(expanded, other);
    assert_int_equal(kept->n_calls, 1);
    assert_int_equal(expanded->n_calls + other->n_calls, 0);
    assert_int_equal(kept->hash, expanded->hash); /* equal on all slots, whatever their lanes */
    tutti_cache_release(cache, kept);
    tutti_cache_release(cache, again);
    tutti_cache_release(cache, expanded);
    tutti_cache_release(cache, other);
    tutti_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_levels),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_first_touch),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
