/* SPDX-License-Identifier: BSD-3-Clause */

/* Levels: read and printed, what is refused, and where a unit is. */

#include "sched/sched.h"

#include <string.h>

#include "test.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels_round_trip),
                                       cmocka_unit_test(test_bad_levels_are_sentences),
                                       cmocka_unit_test(test_level_find)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
