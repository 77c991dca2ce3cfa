/* SPDX-License-Identifier: BSD-3-Clause */

/* Text forms: levels and schedules, printed and read back, and what happens to text that is not of the form. */

#include "sched/sched.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

/* ---- levels ---- */

static void test_levels_round_trip(void **state)
{
    const struct {
        uint32_t size, n_levels;
        const char *text, *printed;
    } cases[] = {
        {31, 1, "8,8,7,8", "8x2,7,8"},
        {31, 2, "8,8,7,8;2,2", "8x2,7,8;2x2"},
        {64, 3, "8x8;4x2;2", "8x8;4x2;2"},
        {100000, 1, "8x12500", "8x12500"},
        {1, 1, "1", "1"},
        {5, 0, "", ""},
        {4, 1, "2x1,2", "2x2"},
    };
    char text[128];

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_shape shape = {.size = cases[i].size}, again = {.size = cases[i].size};
        assert_int_equal(tutti_shape_parse_levels(&shape, cases[i].text), TUTTI_OK);
        assert_int_equal(shape.n_levels, cases[i].n_levels);
        tutti_shape_levels_text(&shape, text, sizeof(text));
        assert_string_equal(text, cases[i].printed);
        assert_int_equal(tutti_shape_parse_levels(&again, text), TUTTI_OK);
        assert_true(tutti_shape_same_world(&shape, &again));
    }
}

static void test_bad_levels_are_sentences(void **state)
{
    const char *const bad[] = {"8,8,7,7",
                               "8,8,7,8;3,2",
                               "8,,8",
                               "x",
                               "8x",
                               "0,31",
                               "31;1;1;1",
                               "31 ",
                               "-31",
                               "31x0",
                               "4294967296",
                               "8,8,7,8;4;1;1",
                               "1,2,1,2,1,2,1,2,19",
                               "31,x",
                               ";31",
                               "31;",
                               "31;;1",
                               "31y"};

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++) {
        struct tutti_shape shape = {.size = 31, .n_levels = 0};
        if (tutti_shape_parse_levels(&shape, bad[i]) != TUTTI_ERR_ARGUMENT) fail_msg("took \"%s\"", bad[i]);
        assert_non_null(strstr(tutti_last_error()->text, bad[i]));
        assert_int_equal(shape.n_levels, 0);
    }
}

/* Against counting units one by one. */
static void test_level_find(void **state)
{
    struct tutti_shape shape = {.size = 47};

    (void)state;
    assert_int_equal(tutti_shape_parse_levels(&shape, "8x2,7,1x3,5,8,8,0x1"), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_shape_parse_levels(&shape, "8x2,7,1x3,5,8x2"), TUTTI_OK);
    const uint32_t sizes[] = {8, 8, 7, 1, 1, 1, 5, 8, 8};
    uint32_t unit = 0;
    for (uint32_t g = 0; g < TUTTI_ARRAY_LEN(sizes); g++) {
        uint32_t start = unit;
        for (uint32_t i = 0; i < sizes[g]; i++, unit++) {
            uint32_t group, first, size;
            tutti_level_find(&shape.levels[0], unit, &group, &first, &size);
            assert_int_equal(group, g);
            assert_int_equal(first, start);
            assert_int_equal(size, sizes[g]);
        }
    }
    assert_int_equal(tutti_level_groups(&shape.levels[0]), TUTTI_ARRAY_LEN(sizes));
}

/* ---- schedules ---- */

static uint64_t seed;

static uint32_t eight(const struct tutti_shape *shape)
{
    (void)shape;
    return 8;
}

/* All operations, buffers, flags and calls, by chance. Writes SCRATCH first, so that it may be read. */
static void any_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint64_t random = seed + round;
    uint32_t peer = (shape->slot + 1 + (uint32_t)(tutti_random64(&random) % (shape->size - 1))) % shape->size;
    uint32_t chunk = (uint32_t)(tutti_random64(&random) % 4), n = 1 + (uint32_t)(tutti_random64(&random) % 4);
    enum tutti_side side = tutti_random64(&random) % 2 ? TUTTI_LEFT : TUTTI_RIGHT;
    struct tutti_view view = {
        .base = shape->slot % 2, .stride = 2, .size = 2, .chunk = chunk, .n_chunks = 1, .width = n, .root = round % 2};

    if (round == 0) tutti_emit_copy(emit, TUTTI_SCRATCH, 0, TUTTI_DATA, 0, 8);
    switch (tutti_random64(&random) % 6) {
    case 0:
        tutti_emit_send(emit, peer, TUTTI_DATA, chunk, n);
        break;
    case 1:
        tutti_emit_recv(emit, peer, TUTTI_SCRATCH, chunk, n);
        break;
    case 2:
        tutti_emit_recv_reduce(emit, peer, TUTTI_DATA, chunk, n, side);
        break;
    case 3:
        tutti_emit_copy(emit, TUTTI_DATA, chunk, TUTTI_SCRATCH, chunk, n);
        break;
    case 4:
        tutti_emit_reduce(emit, TUTTI_SCRATCH, chunk, TUTTI_DATA, chunk, n, side);
        break;
    default:
        tutti_emit_call(emit, TUTTI_REDUCE, &view);
        break;
    }
}

static const struct tutti_schedule_ops any_ops = {.needs = TUTTI_NEEDS_LEVELS | TUTTI_TAKES_RADIX,
                                                  .chunks = eight,
                                                  .scratch = eight,
                                                  .rounds = eight,
                                                  .round = any_round};
static const struct tutti_algorithm any = {.name = "any_thing", .kinds = {[TUTTI_ALL_REDUCE] = &any_ops}};

static struct tutti_schedule *seal_any(uint32_t slot)
{
    struct tutti_shape shape = {
        .slot = slot, .size = 4, .radix = 7, .n_levels = 2, .levels = {{2, {{2, 1}, {1, 2}}}, {1, {{3, 1}}}}};
    struct tutti_schedule *schedule = NULL;

    assert_int_equal(tutti_schedule_seal(&any, TUTTI_ALL_REDUCE, &shape, false, &schedule), TUTTI_OK);
    if (schedule->defect) fail_msg("%s", schedule->defect);
    return schedule;
}

static void same_steps(const struct tutti_schedule *a, const struct tutti_schedule *b)
{
    assert_int_equal(a->n_steps, b->n_steps);
    for (uint32_t i = 0; i < a->n_steps; i++) {
        const struct tutti_step *x = &a->steps[i], *y = &b->steps[i];
        assert_true(x->wait == y->wait && x->op == y->op && x->flags == y->flags && x->peer == y->peer);
        assert_true(x->src_buffer == y->src_buffer && x->dst_buffer == y->dst_buffer && x->src == y->src);
        assert_true(x->dst == y->dst && x->n == y->n && x->fifo == y->fifo && x->round == y->round);
        assert_true(x->extent == y->extent);
    }
}

static void same_schedule(const struct tutti_schedule *a, const struct tutti_schedule *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->shape.slot, b->shape.slot);
    assert_true(tutti_shape_same_world(&a->shape, &b->shape));
    assert_string_equal(a->algorithm->name, b->algorithm->name);
    assert_int_equal(a->algorithm->kinds[a->kind]->needs, b->algorithm->kinds[b->kind]->needs);
    assert_int_equal(a->n_chunks, b->n_chunks);
    assert_int_equal(a->n_scratch, b->n_scratch);
    assert_int_equal(a->n_rounds, b->n_rounds);
    assert_true(a->hash == b->hash);
    assert_int_equal(a->n_calls, b->n_calls);
    for (uint32_t i = 0; i < a->n_calls; i++) {
        assert_int_equal(a->calls[i].kind, b->calls[i].kind);
        assert_memory_equal(&a->calls[i].view, &b->calls[i].view, sizeof(a->calls[i].view));
    }
    same_steps(a, b);
}

static void test_schedules_round_trip(void **state)
{
    (void)state;
    for (seed = test_seed(); seed < test_seed() + 200; seed++) {
        struct tutti_schedule *schedule = seal_any((uint32_t)(seed % 4)), *again = NULL;
        char *text = NULL, *second = NULL;
        assert_int_equal(tutti_schedule_print(schedule, &text), TUTTI_OK);
        if (tutti_schedule_parse(text, strlen(text), &again) != TUTTI_OK)
            fail_msg("%s\n%s", tutti_last_error()->text, text);
        same_schedule(schedule, again);
        assert_int_equal(tutti_schedule_print(again, &second), TUTTI_OK);
        assert_string_equal(text, second);
        tutti_free(text);
        tutti_free(second);
        tutti_schedule_destroy(schedule);
        tutti_schedule_destroy(again);
    }
}

static void defective_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    tutti_emit_send(emit, shape->slot, TUTTI_DATA, 0, 1);
}

static void test_defects_round_trip(void **state)
{
    const struct tutti_schedule_ops ops = {.rounds = eight, .round = defective_round};
    const struct tutti_algorithm algorithm = {.name = "bad", .kinds = {[TUTTI_SCAN] = &ops}};
    struct tutti_shape shape = {.slot = 1, .size = 4};
    struct tutti_schedule *schedule = NULL, *again = NULL;
    char *text = NULL;

    (void)state;
    assert_int_equal(tutti_schedule_seal(&algorithm, TUTTI_SCAN, &shape, true, &schedule), TUTTI_OK);
    assert_int_equal(tutti_schedule_print(schedule, &text), TUTTI_OK);
    assert_int_equal(tutti_schedule_parse(text, strlen(text), &again), TUTTI_OK);
    assert_non_null(again->defect);
    assert_string_equal(schedule->defect, again->defect);
    tutti_free(text);
    tutti_schedule_destroy(schedule);
    tutti_schedule_destroy(again);
}

/* Every prefix is refused, in memory of exactly its size, so that the sanitizers see a read behind it. */
static void test_truncated_text_is_refused(void **state)
{
    struct tutti_schedule *schedule, *again = NULL;
    char *text = NULL;

    (void)state;
    seed = test_seed();
    schedule = seal_any(2);
    assert_int_equal(tutti_schedule_print(schedule, &text), TUTTI_OK);
    size_t bytes = strlen(text);
    for (size_t n = 0; n < bytes; n++) {
        char *part = tutti_alloc(n);
        memcpy(part, text, n);
        assert_int_equal(tutti_schedule_parse(part, n, &again), TUTTI_ERR_ARGUMENT);
        tutti_free(part);
    }
    tutti_free(text);
    tutti_schedule_destroy(schedule);
}

/* Whatever random damage leaves readable is sound: all ranges lie inside their buffers. */
static void check_sound(const struct tutti_schedule *schedule)
{
    const uint32_t limits[] = {schedule->n_chunks, schedule->n_scratch, 0};

    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        const struct tutti_step *step = &schedule->steps[i];
        bool has_src = step->op == TUTTI_STEP_SEND || step->op == TUTTI_STEP_COPY || step->op == TUTTI_STEP_REDUCE;
        assert_true(step->op <= TUTTI_STEP_CALL && step->n > 0);
        if (has_src) assert_true((uint64_t)step->src + step->n <= limits[step->src_buffer]);
        if (step->op != TUTTI_STEP_SEND) assert_true((uint64_t)step->dst + step->n <= limits[step->dst_buffer]);
        if (step->op <= TUTTI_STEP_RECV_REDUCE)
            assert_true(step->peer < schedule->shape.size && step->peer != schedule->shape.slot);
        if (step->op == TUTTI_STEP_CALL) assert_true(step->peer < schedule->n_calls);
        if (i < TUTTI_WINDOW) assert_true(step->wait >> i == 0);
    }
}

static void test_damaged_text_is_refused_or_sound(void **state)
{
    struct tutti_schedule *schedule;
    char *text = NULL;
    uint64_t random = test_seed() + 3;
    uint32_t refused = 0;

    (void)state;
    seed = test_seed() + 5;
    schedule = seal_any(3);
    assert_int_equal(tutti_schedule_print(schedule, &text), TUTTI_OK);
    size_t bytes = strlen(text);
    for (int trial = 0; trial < 20000; trial++) {
        char *copy = tutti_alloc(bytes);
        struct tutti_schedule *again = NULL;
        memcpy(copy, text, bytes);
        for (uint64_t hits = 1 + tutti_random64(&random) % 2; hits > 0; hits--) {
            uint64_t dice = tutti_random64(&random);
            copy[dice % bytes] = dice >> 60 ? "0123456789- \nxf"[(dice >> 32) % 15] : (char)(dice >> 40);
        }
        if (tutti_schedule_parse(copy, bytes, &again) == TUTTI_OK) {
            check_sound(again);
            tutti_schedule_destroy(again);
        } else {
            refused++;
        }
        tutti_free(copy);
    }
    assert_true(refused > 10000);
    tutti_free(text);
    tutti_schedule_destroy(schedule);
}

static void test_refusals_name_the_line(void **state)
{
    const char *const head = "tutti schedule 1\nalgorithm a needs 0\nscan slot 1 size 4 root 0 radix 0 levels -\n"
                             "chunks 2 scratch 1 rounds 3 hash 0\n";
    const struct {
        const char *line, *reason;
    } bad[] = {
        {"step 1 round 0 wait 0 send peer 0 src data 0 n 1 fifo 0 extent 0", "line 5: expected step 0"},
        {"step 0 round 4 wait 0 send peer 0 src data 0 n 1 fifo 0 extent 0", "at most 3"},
        {"step 0 round 0 wait 1 send peer 0 src data 0 n 1 fifo 0 extent 0", "before the first"},
        {"step 0 round 0 wait 0 send peer 1 src data 0 n 1 fifo 0 extent 0", "peer 1"},
        {"step 0 round 0 wait 0 send peer 4 src data 0 n 1 fifo 0 extent 0", "peer 4"},
        {"step 0 round 0 wait 0 send peer 0 src data 1 n 2 fifo 0 extent 0", "chunks 1 to 2 of data"},
        {"step 0 round 0 wait 0 send peer 0 src in 0 n 1 fifo 0 extent 0", "of in, which has 0"},
        {"step 0 round 0 wait 0 send peer 0 src data 0 n 1 fifo 0 extent 0 left", "unexpected \"left\""},
        {"step 0 round 0 wait 0 recv peer 0 dst scratch 1 n 1 fifo 0 extent 0", "of scratch, which has 1"},
        {"step 0 round 0 wait 0 call peer 0 dst data 0 src data 0 n 1 extent 0", "no call 0"},
        {"step 0 round 0 wait 0 jump peer 0", "unknown operation \"jump\""},
        {"call 0 scan base 3 stride 1 size 2 chunk 0 chunks 1 width 1 root 0", "ranks are not among"},
        {"call 0 scan base 0 stride 1 size 2 chunk 0 chunks 3 width 1 root 0", "chunks are not among"},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++) {
        struct tutti_schedule *schedule = NULL;
        char text[512];
        snprintf(text, sizeof(text), "%s%s\nend\n", head, bad[i].line);
        assert_int_equal(tutti_schedule_parse(text, strlen(text), &schedule), TUTTI_ERR_ARGUMENT);
        if (!strstr(tutti_last_error()->text, bad[i].reason)) fail_msg("%s", tutti_last_error()->text);
        assert_non_null(strstr(tutti_last_error()->text, "line 5"));
    }
}

static void test_out_of_memory_is_an_error(void **state)
{
    struct tutti_schedule *schedule, *again = NULL;
    char *text = NULL;

    (void)state;
    seed = test_seed() + 9;
    schedule = seal_any(0);
    tutti_alloc_fail_at(1);
    assert_int_equal(tutti_schedule_print(schedule, &text), TUTTI_ERR_MEMORY);
    tutti_alloc_fail_at(0);
    assert_int_equal(tutti_schedule_print(schedule, &text), TUTTI_OK);
    tutti_alloc_fail_at(0);
    assert_int_equal(tutti_schedule_parse(text, strlen(text), &again), TUTTI_OK);
    uint64_t n = tutti_alloc_fail_at(0);
    tutti_schedule_destroy(again);
    for (uint64_t i = 1; i <= n; i++) {
        tutti_alloc_fail_at(i);
        enum tutti_status status = tutti_schedule_parse(text, strlen(text), &again);
        tutti_alloc_fail_at(0);
        assert_int_equal(status, TUTTI_ERR_MEMORY);
    }
    tutti_free(text);
    tutti_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_round_trip),
        cmocka_unit_test(test_bad_levels_are_sentences),
        cmocka_unit_test(test_level_find),
        cmocka_unit_test(test_schedules_round_trip),
        cmocka_unit_test(test_defects_round_trip),
        cmocka_unit_test(test_truncated_text_is_refused),
        cmocka_unit_test(test_damaged_text_is_refused_or_sound),
        cmocka_unit_test(test_refusals_name_the_line),
        cmocka_unit_test(test_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
