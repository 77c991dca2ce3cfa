/* SPDX-License-Identifier: BSD-3-Clause */

/* What algorithms may emit: calls land where their view says, and everything that can not be is a defect, said in a
 * sentence. */

#include "sched/sched.h"

#include <string.h>

#include "test.h"

/* ---- calls ---- */

/* Slots base + i * stride pass chunks along: member m sends to m + 1, through SCRATCH. */
static void chain_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->slot > 0) {
        tutti_emit_recv(emit, shape->slot - 1, TUTTI_SCRATCH, 1, 1);
        tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 1, 1, TUTTI_LEFT);
    }
    if (shape->slot + 1 < shape->size) tutti_emit_send(emit, shape->slot + 1, TUTTI_DATA, 0, 1);
}

static uint32_t two(const struct tutti_shape *shape)
{
    (void)shape;
    return 2;
}

static uint32_t one(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}

static const struct tutti_schedule_ops chain_ops = {.scratch = two, .rounds = one, .round = chain_round};
static const struct tutti_algorithm chain = {.name = "chain", .kinds = {[TUTTI_SCAN] = &chain_ops}};

static const struct tutti_algorithm *chain_reference(enum tutti_kind kind, const struct tutti_shape *sub)
{
    (void)sub;
    return kind == TUTTI_SCAN ? &chain : NULL;
}

static struct tutti_view called;

static void caller_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)shape, (void)round;
    tutti_emit_call(emit, TUTTI_SCAN, &called);
}

static uint32_t twelve(const struct tutti_shape *shape)
{
    (void)shape;
    return 12;
}

static const struct tutti_schedule_ops caller_ops = {
    .chunks = twelve, .scratch = two, .rounds = one, .round = caller_round};
static const struct tutti_algorithm caller = {.name = "caller", .kinds = {[TUTTI_ALL_REDUCE] = &caller_ops}};

static struct tutti_schedule *seal_caller(uint32_t slot, bool expand)
{
    struct tutti_shape shape = {.slot = slot, .size = 20};
    struct tutti_schedule *schedule = NULL;

    tutti_schedule_set_reference(chain_reference);
    assert_int_equal(tutti_schedule_seal(&caller, TUTTI_ALL_REDUCE, &shape, expand, &schedule), TUTTI_OK);
    return schedule;
}

static void test_calls_map_through_views(void **state)
{
    (void)state;
    called = (struct tutti_view){.base = 3, .stride = 4, .size = 4, .chunk = 2, .n_chunks = 2, .width = 3};
    struct tutti_schedule *schedule = seal_caller(7, true); /* member 1 of 3, 7, 11, 15 */
    const struct tutti_step *recv = &schedule->steps[0], *reduce = &schedule->steps[1], *send = &schedule->steps[2];

    assert_null(schedule->defect);
    assert_int_equal(schedule->n_scratch, 2 + 2 * 6);
    assert_int_equal(recv->op, TUTTI_STEP_RECV);
    assert_int_equal(recv->peer, 3);
    assert_int_equal(recv->dst, 2 + 6); /* behind the caller's two, chunk 1 of width 6 */
    assert_int_equal(recv->n, 6);
    assert_int_equal(recv->extent, 2);
    assert_int_equal(reduce->flags, TUTTI_STEP_LEFT | TUTTI_STEP_DST_INPUT);
    assert_int_equal(reduce->dst, 2);
    assert_int_equal(send->peer, 11);
    assert_int_equal(send->src, 2);
    assert_int_equal(send->n, 6);
    tutti_schedule_destroy(schedule);

    schedule = seal_caller(7, false);
    assert_int_equal(schedule->n_calls, 1);
    assert_int_equal(schedule->steps[0].op, TUTTI_STEP_CALL);
    assert_int_equal(schedule->calls[0].view.stride, 4);
    tutti_schedule_destroy(schedule);
}

static void test_bad_calls_are_defects(void **state)
{
    const struct tutti_view bad[] = {
        {.base = 3, .stride = 4, .size = 6, .chunk = 0, .n_chunks = 1, .width = 1},  /* beyond the last rank */
        {.base = 4, .stride = 4, .size = 2, .chunk = 0, .n_chunks = 1, .width = 1},  /* 7 is not a member */
        {.base = 3, .stride = 0, .size = 2, .chunk = 0, .n_chunks = 1, .width = 1},  /* no stride */
        {.base = 3, .stride = 4, .size = 4, .chunk = 10, .n_chunks = 3, .width = 1}, /* chunks */
        {.base = 3, .stride = 4, .size = 4, .chunk = 0, .n_chunks = 0, .width = 1},
        {.base = 3, .stride = 4, .size = 4, .chunk = 0, .n_chunks = UINT32_MAX, .width = UINT32_MAX},
        {.base = 3, .stride = UINT32_MAX, .size = UINT32_MAX, .chunk = 0, .n_chunks = 1, .width = 1},
        {.base = 3, .stride = 4, .size = 4, .chunk = 0, .n_chunks = 1, .width = 1, .root = 4},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++) {
        called = bad[i];
        struct tutti_schedule *schedule = seal_caller(7, true);
        assert_non_null(schedule->defect);
        assert_non_null(strstr(schedule->defect, "caller all_reduce, size 20"));
        assert_non_null(strstr(schedule->defect, "rank 7, round 0, step 0"));
        tutti_schedule_destroy(schedule);
    }
}

/* ---- defects ---- */

static int planted;

static void defective_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)shape, (void)round;
    switch (planted) {
    case 0:
        tutti_emit_send(emit, 4, TUTTI_DATA, 0, 1);
        break;
    case 1:
        tutti_emit_send(emit, 1, TUTTI_DATA, 0, 1);
        break; /* itself */
    case 2:
        tutti_emit_send(emit, 0, TUTTI_DATA, 12, 1);
        break;
    case 3:
        tutti_emit_recv(emit, 0, TUTTI_DATA, 11, 2);
        break;
    case 4:
        tutti_emit_recv(emit, 0, TUTTI_DATA, 1, 0);
        break;
    case 5:
        tutti_emit_recv(emit, 0, TUTTI_IN, 1, 1);
        break;
    case 6:
        tutti_emit_send(emit, 0, TUTTI_IN, 0, 1);
        break; /* all_gather has no IN */
    case 7:
        tutti_emit_send(emit, 0, TUTTI_SCRATCH, 0, 1);
        break;
    case 8:
        tutti_emit_send(emit, 0, TUTTI_DATA, 0, 1);
        break; /* holds nothing before */
    case 9:
        tutti_emit_recv_reduce(emit, 0, TUTTI_DATA, 3, 1, TUTTI_RIGHT);
        break; /* no operation */
    case 10:
        tutti_emit_copy(emit, TUTTI_DATA, 3, TUTTI_DATA, 4, 2);
        break;
    case 11:
        tutti_emit_send(emit, UINT32_MAX, TUTTI_DATA, UINT32_MAX, UINT32_MAX);
        break;
    case 12:
        tutti_emit_send(emit, 0, (enum tutti_buffer)7, 0, 1);
        break;
    case 13:
        tutti_emit_send(emit, 0, TUTTI_DATA, 3, 1);
        break; /* sound, but all else is missing */
    default:
        break;
    }
}

static const struct tutti_schedule_ops defective_ops = {
    .chunks = twelve, .scratch = one, .rounds = one, .round = defective_round};
static const struct tutti_algorithm defective = {.name = "defective", .kinds = {[TUTTI_ALL_GATHER] = &defective_ops}};

static void test_defects_are_sentences(void **state)
{
    const char *const words[] = {"exchanges with rank 4 of 4",
                                 "itself",
                                 "chunk 12 of DATA, which has 12",
                                 "chunk 12 of DATA",
                                 "0 chunks",
                                 "IN, which is read-only",
                                 "chunk 0 of IN, which has 0",
                                 "SCRATCH before it is written",
                                 "chunk 0 of DATA, which holds nothing",
                                 "no operation",
                                 "overlap",
                                 "rank 4294967295",
                                 "does not exist",
                                 "chunk 0 of DATA was never written"};
    enum { AFTER_ROUNDS = TUTTI_ARRAY_LEN(words) - 1 };
    struct tutti_shape shape = {.slot = 1, .size = 4};

    (void)state;
    for (planted = 0; planted < (int)TUTTI_ARRAY_LEN(words); planted++) {
        struct tutti_schedule *schedule = NULL;
        assert_int_equal(tutti_schedule_seal(&defective, TUTTI_ALL_GATHER, &shape, true, &schedule), TUTTI_OK);
        assert_non_null(schedule->defect);
        if (!strstr(schedule->defect, words[planted])) fail_msg("%d: %s", planted, schedule->defect);
        const char *where = planted == AFTER_ROUNDS
                                ? "defective all_gather, size 4, root 0, radix 0: rank 1, after the last"
                                : "defective all_gather, size 4, root 0, radix 0: rank 1, round 0";
        if (!strstr(schedule->defect, where)) fail_msg("%d: %s", planted, schedule->defect);
        tutti_schedule_destroy(schedule);
    }
}

static uint32_t endless(const struct tutti_shape *shape)
{
    (void)shape;
    return UINT32_MAX;
}

static uint32_t five(const struct tutti_shape *shape)
{
    (void)shape;
    return 5;
}

static void test_impossible_numbers_are_defects(void **state)
{
    const struct tutti_schedule_ops bad[] = {
        {.rounds = endless, .round = defective_round},
        {.chunks = endless, .rounds = one, .round = defective_round},
        {.chunks = five, .rounds = one, .round = defective_round}, /* not a multiple of 4 blocks */
        {.scratch = endless, .rounds = one, .round = defective_round},
    };
    struct tutti_shape shape = {.slot = 1, .size = 4};

    (void)state;
    planted = -1;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++) {
        struct tutti_algorithm algorithm = {.name = "bad", .kinds = {[TUTTI_ALL_GATHER] = &bad[i]}};
        struct tutti_schedule *schedule = NULL;
        assert_int_equal(tutti_schedule_seal(&algorithm, TUTTI_ALL_GATHER, &shape, true, &schedule), TUTTI_OK);
        assert_non_null(schedule->defect);
        tutti_schedule_destroy(schedule);
    }
}

static void test_what_does_not_fit_is_unsupported(void **state)
{
    const struct tutti_schedule_ops two_power = {
        .needs = TUTTI_NEEDS_POWER_OF_TWO, .rounds = one, .round = defective_round};
    const struct tutti_schedule_ops levels = {.needs = TUTTI_NEEDS_LEVELS, .rounds = one, .round = defective_round};
    const struct tutti_algorithm algorithm = {.name = "fussy",
                                              .kinds = {[TUTTI_SCAN] = &two_power, [TUTTI_REDUCE] = &levels}};
    struct tutti_shape shape = {.slot = 1, .size = 6};
    struct tutti_schedule *schedule = NULL;

    (void)state;
    assert_int_equal(tutti_schedule_seal(&algorithm, TUTTI_SCAN, &shape, true, &schedule), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error()->text, "power of two"));
    assert_int_equal(tutti_schedule_seal(&algorithm, TUTTI_REDUCE, &shape, true, &schedule), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_schedule_seal(&algorithm, TUTTI_GATHER, &shape, true, &schedule), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error()->text, "gather"));
    assert_int_equal(tutti_schedule_seal(&defective, TUTTI_ALL_GATHER, &(struct tutti_shape){.size = 6, .radix = 2},
                                         true, &schedule),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error()->text, "with 6 ranks: it has no radix"));
    shape.n_levels = 1;
    shape.levels[0] = (struct tutti_level){1, {{4, 1}}}; /* adds up to 4 */
    assert_int_equal(tutti_schedule_seal(&algorithm, TUTTI_REDUCE, &shape, true, &schedule), TUTTI_ERR_UNSUPPORTED);
    shape.root = 6;
    assert_false(tutti_algorithm_fits(&algorithm, TUTTI_REDUCE, &shape, NULL, 0));
    assert_null(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_map_through_views),
        cmocka_unit_test(test_bad_calls_are_defects),
        cmocka_unit_test(test_defects_are_sentences),
        cmocka_unit_test(test_impossible_numbers_are_defects),
        cmocka_unit_test(test_what_does_not_fit_is_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
