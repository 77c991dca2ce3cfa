/* SPDX-License-Identifier: BSD-3-Clause */

/* Every algorithm is right, for every kind, size, root and radix, flat and over levels; and together they offer what a
 * communicator may ask for. */

#include "algo/interpreter_test.h"

#include <string.h>

/* ---- all of them ---- */

static void run_radices(const struct tutti_algorithm *algorithm, enum tutti_kind kind, struct tutti_shape shape)
{
    const uint32_t radices[] = {0, 3, 5};
    size_t n = algorithm->kinds[kind]->default_radix > 1 && shape.size <= 33 ? TUTTI_ARRAY_LEN(radices) : 1;

    for (size_t r = 0; r < n; r++) {
        shape.radix = radices[r];
        run(algorithm, kind, &shape);
    }
}

static void run_all(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t last)
{
    for (uint32_t size = 1; size <= last; size++) {
        const uint32_t roots[] = {0, size - 1, size / 3};
        uint32_t n = tutti_kind_info(kind)->rooted ? 3 : 1;
        for (uint32_t r = 0; r < n; r++) {
            struct tutti_shape shape = {.size = size, .root = roots[r]};
            run_radices(algorithm, kind, shape);
        }
    }
}

static void test_every_algorithm_is_right(void **state)
{
    (void)state;
    for (size_t a = 0; a < tutti_n_algorithms; a++)
        for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
            if (tutti_algorithms[a]->kinds[kind] && !(tutti_algorithms[a]->kinds[kind]->needs & TUTTI_NEEDS_LEVELS))
                run_all(tutti_algorithms[a], (enum tutti_kind)kind, 64);
}

static void test_ragged_levels_are_right(void **state)
{
    const struct {
        uint32_t size;
        const char *levels;
    } worlds[] = {{31, "8,8,7,8"},     {31, "8,8,7,8;2,2"},
                  {24, "4x6;2x3"},     {24, "4x6;3,2,1;2,1"},
                  {13, "1,5,1,1,5"},   {17, "16,1"},
                  {9, "1x9"},          {9, "9"},
                  {40, "8,4,8,4,8,8"}, {12, "3x4;1,3;1,1"},
                  {45, "5x9;3x3;2,1"}, {22, "2,3,2,3,2,3,2,5;3,5"},
                  {2, "1,1"},          {1, "1"}};

    (void)state;
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
            if (!tutti_algorithm_hierarchical.kinds[k]) continue;
            struct tutti_shape shape = {.size = worlds[w].size};
            assert_int_equal(tutti_shape_parse_levels(&shape, worlds[w].levels), TUTTI_OK);
            uint32_t last = tutti_kind_info((enum tutti_kind)k)->rooted ? shape.size : 1;
            for (shape.root = 0; shape.root < last; shape.root++)
                run(&tutti_algorithm_hierarchical, (enum tutti_kind)k, &shape);
            shape.root = 0;
            for (shape.radix = 1; shape.radix < 5 && (k == TUTTI_ALL_REDUCE || k == TUTTI_ALL_GATHER); shape.radix++)
                run(&tutti_algorithm_hierarchical, (enum tutti_kind)k, &shape);
        }
    }
}

/* ---- what all of them offer together ---- */

static bool offered(enum tutti_kind kind, uint32_t with, uint32_t without)
{
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        const struct tutti_schedule_ops *ops = tutti_algorithms[a]->kinds[kind];
        uint32_t restrictions = TUTTI_NEEDS_LEVELS | TUTTI_NEEDS_POWER_OF_TWO | without;
        if (ops && (ops->needs & with) == with && !(ops->needs & restrictions)) return true;
    }
    return false;
}

static void test_every_kind_is_offered(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
        enum tutti_kind kind = (enum tutti_kind)k;
        assert_true(offered(kind, 0, TUTTI_NEEDS_EQUAL_BLOCKS | TUTTI_NEEDS_COMMUTATIVE));
        if (tutti_kind_info(kind)->reduces) assert_true(offered(kind, TUTTI_KEEPS_RANK_ORDER, 0));
        if (kind == TUTTI_GATHER || kind == TUTTI_SCATTER || kind == TUTTI_ALL_TO_ALL)
            assert_true(offered(kind, TUTTI_OWN_COUNTS_ONLY, TUTTI_NEEDS_EQUAL_BLOCKS));
    }
}

/* OWN_COUNTS_ONLY: a message between a and b is block a or b, a copy is the own block. */
static void test_own_counts_are_enough(void **state)
{
    (void)state;
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
            const struct tutti_schedule_ops *ops = tutti_algorithms[a]->kinds[k];
            if (!ops || !(ops->needs & TUTTI_OWN_COUNTS_ONLY)) continue;
            for (uint32_t slot = 0; slot < 11; slot++) {
                struct tutti_shape shape = {.slot = slot, .size = 11, .root = k == TUTTI_ALL_TO_ALL ? 0 : 4};
                struct tutti_schedule *schedule = NULL;
                assert_int_equal(tutti_schedule_seal(tutti_algorithms[a], (enum tutti_kind)k, &shape, true, &schedule),
                                 TUTTI_OK);
                for (uint32_t i = 0; i < schedule->n_steps; i++) {
                    const struct tutti_step *step = &schedule->steps[i];
                    uint32_t block = step->op == TUTTI_STEP_SEND ? step->src : step->dst;
                    assert_true(step->op == TUTTI_STEP_COPY ||
                                (step->n == 1 && (block == slot || block == step->peer)));
                    assert_int_not_equal(step->src_buffer, TUTTI_SCRATCH);
                }
                tutti_schedule_destroy(schedule);
            }
        }
    }
}

/* ---- look-up ---- */

static void test_find(void **state)
{
    uint32_t radix = 77;

    (void)state;
    assert_ptr_equal(tutti_algorithm_find("ring", &radix), &tutti_algorithm_ring);
    assert_int_equal(radix, 0);
    assert_ptr_equal(tutti_algorithm_find("tree:4", &radix), &tutti_algorithm_tree);
    assert_int_equal(radix, 4);
    assert_ptr_equal(tutti_algorithm_find("direct_two_shot", NULL), &tutti_algorithm_direct_two_shot);
    const char *const unknown[] = {"",  "rin", "ringo", "tree:", "tree:0", "tree:x", "tree:4x", "tree:99999999999",
                                   ":4"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(unknown); i++) assert_null(tutti_algorithm_find(unknown[i], &radix));
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        assert_ptr_equal(tutti_algorithm_find(tutti_algorithms[a]->name, NULL), tutti_algorithms[a]);
        assert_true(strlen(tutti_algorithms[a]->help) > 10 && strlen(tutti_algorithms[a]->source) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_algorithm_is_right),
        cmocka_unit_test(test_ragged_levels_are_right),
        cmocka_unit_test(test_every_kind_is_offered),
        cmocka_unit_test(test_own_counts_are_enough),
        cmocka_unit_test(test_find),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
