/* SPDX-License-Identifier: BSD-3-Clause */
/* The checker as its callers see it: verdicts, errors, memory that runs out; and the shapes of a sweep. */

#include "algo/algo.h"
#include "verify/sweep.h"

#include "test.h"

#include <string.h>

static const struct tutti_algorithm *find(const char *name)
{
    uint32_t radix;
    const struct tutti_algorithm *algorithm = tutti_algorithm_find(name, &radix);
    assert_non_null(algorithm);
    return algorithm;
}

static void test_errors(void **unused)
{
    struct tutti_verdict verdict;
    const struct tutti_shape flat = {.size = 4}, bad_root = {.size = 4, .root = 4};
    (void)unused;
    assert_int_equal(tutti_verify(find("hierarchical"), TUTTI_ALL_REDUCE, &flat, &verdict), TUTTI_ERR_UNSUPPORTED);
    assert_false(verdict.ok);
    assert_int_equal(tutti_verify(find("bruck"), TUTTI_SCAN, &flat, &verdict), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_verify(find("tree"), TUTTI_REDUCE, &bad_root, &verdict), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_verify_bundle(NULL, 0, &verdict), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_verify(find("ring"), TUTTI_ALL_REDUCE, &flat, &verdict), TUTTI_OK);
    assert_true(verdict.ok);
}

/* Every allocation fails in turn: MEMORY each time, nothing is leaked (under ASan), until there are no more. */
static void test_memory(void **unused)
{
    static const struct {
        const char *name;
        enum tutti_kind kind;
    } cases[] = {{"ring", TUTTI_ALL_REDUCE}, {"direct", TUTTI_SCAN}, {"dissemination", TUTTI_BARRIER}};
    (void)unused;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        const struct tutti_shape shape = {.size = 5};
        struct tutti_verdict verdict;
        enum tutti_status status = TUTTI_ERR_MEMORY;
        uint64_t n_failed = 0;
        for (uint64_t n = 1; status == TUTTI_ERR_MEMORY && n < 10000; n++) {
            tutti_alloc_fail_at(n);
            status = tutti_verify(find(cases[i].name), cases[i].kind, &shape, &verdict);
            tutti_alloc_fail_at(0);
            n_failed += status == TUTTI_ERR_MEMORY;
            assert_int_equal(verdict.ok && status < 0, 0);
        }
        assert_int_equal(status, TUTTI_OK);
        assert_true(verdict.ok);
        assert_true(n_failed > 10);
    }
}

static uint64_t units_of(const struct tutti_level *level)
{
    uint64_t units = 0;
    for (uint32_t r = 0; r < level->n_runs; r++) units += (uint64_t)level->runs[r].size * level->runs[r].repeat;
    return units;
}

/* Shapes are whole: levels add up, roots are ranks; and there are as many as the size calls for. */
static void test_shapes(void **unused)
{
    static struct tutti_shape shapes[TUTTI_SWEEP_SHAPES];
    uint32_t n_ragged = 0, n_deep = 0;
    (void)unused;
    for (uint32_t size = 1; size <= 300; size++) {
        const size_t n =
            tutti_sweep_shapes(find("hierarchical"), TUTTI_BROADCAST, size, shapes, TUTTI_ARRAY_LEN(shapes));
        bool roots[300] = {false};
        assert_true(n > 0 && n < TUTTI_ARRAY_LEN(shapes));
        for (size_t i = 0; i < n; i++) {
            uint64_t units = size;
            assert_int_equal(shapes[i].size, size);
            assert_true(shapes[i].root < size && shapes[i].n_levels >= 1);
            roots[shapes[i].root] = true;
            for (uint32_t l = 0; l < shapes[i].n_levels; l++) {
                assert_int_equal(units_of(&shapes[i].levels[l]), units);
                units = tutti_level_groups(&shapes[i].levels[l]);
                n_ragged += shapes[i].levels[l].n_runs > 1;
            }
            n_deep += shapes[i].n_levels == 3;
        }
        for (uint32_t root = 0; root < size && size <= 12; root++) assert_true(roots[root]);
    }
    assert_true(n_ragged > 1000 && n_deep > 300);
}

/* A small place is not overrun. */
static void test_capacity(void **unused)
{
    struct tutti_shape shapes[4] = {0};
    (void)unused;
    shapes[3].size = 77;
    assert_int_equal(tutti_sweep_shapes(find("tree"), TUTTI_BROADCAST, 12, shapes, 3), 3);
    assert_int_equal(shapes[3].size, 77);
    assert_int_equal(tutti_sweep_shapes(find("tree"), TUTTI_SCAN, 12, shapes, 3), 0);
    assert_int_equal(tutti_sweep_shapes(find("tree"), TUTTI_BROADCAST, 0, shapes, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_shapes), cmocka_unit_test(test_capacity)};
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
