/* SPDX-License-Identifier: BSD-3-Clause */

/* The stand-in for cmocka must fail where cmocka fails: each test below is wrong in one way, is run in a child, and
 * the child's exit status and closing lines are compared with what they must be. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "cmocka.h"

#include <sys/wait.h>
#include <unistd.h>

#define WRONG(name, statement)                                                                                         \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        statement;                                                                                                     \
    }
WRONG(wrong_true, assert_true(1 == 2))
WRONG(wrong_false, assert_false(1 == 1))
WRONG(wrong_null, assert_null("x"))
WRONG(wrong_non_null, assert_non_null(NULL))
WRONG(wrong_int, assert_int_equal(-1, 1))
WRONG(wrong_int_not, assert_int_not_equal(3, 3))
WRONG(wrong_ptr, assert_ptr_equal(NULL, "x"))
WRONG(wrong_ptr_not, assert_ptr_not_equal(NULL, NULL))
WRONG(wrong_string, assert_string_equal("a", "b"))
WRONG(wrong_string_not, assert_string_not_equal("a", "a"))
WRONG(wrong_memory, assert_memory_equal("abc", "abd", 3))
WRONG(wrong_memory_not, assert_memory_not_equal("abc", "abd", 2))
WRONG(wrong_range, assert_in_range(5, 6, 7))
WRONG(wrong_range_not, assert_not_in_range(6, 6, 7))
WRONG(wrong_float, assert_float_equal(1.0, 1.5, 0.25))
WRONG(wrong_float_nan, assert_float_equal(__builtin_nan(""), 1.0, 0.25))
WRONG(wrong_float_not, assert_float_not_equal(1.0, 1.125, 0.25))
WRONG(wrong_return_code, assert_return_code(-1, 2))
WRONG(wrong_fail, fail())
WRONG(wrong_fail_msg, fail_msg("%d", 7))

static int bad_fixture(void **state)
{
    (void)state;
    return -1;
}
static int bad_fixture_asserts(void **state)
{
    (void)state;
    assert_true(0);
    return 0;
}
WRONG(right, assert_int_equal(3, 3))
WRONG(skipped, skip())

static const struct CMUnitTest wrong[] = {
    cmocka_unit_test(wrong_true),
    cmocka_unit_test(wrong_false),
    cmocka_unit_test(wrong_null),
    cmocka_unit_test(wrong_non_null),
    cmocka_unit_test(wrong_int),
    cmocka_unit_test(wrong_int_not),
    cmocka_unit_test(wrong_ptr),
    cmocka_unit_test(wrong_ptr_not),
    cmocka_unit_test(wrong_string),
    cmocka_unit_test(wrong_string_not),
    cmocka_unit_test(wrong_memory),
    cmocka_unit_test(wrong_memory_not),
    cmocka_unit_test(wrong_range),
    cmocka_unit_test(wrong_range_not),
    cmocka_unit_test(wrong_float),
    cmocka_unit_test(wrong_float_nan),
    cmocka_unit_test(wrong_float_not),
    cmocka_unit_test(wrong_return_code),
    cmocka_unit_test(wrong_fail),
    cmocka_unit_test(wrong_fail_msg),
    cmocka_unit_test_setup(right, bad_fixture),
    cmocka_unit_test_teardown(right, bad_fixture_asserts),
};

/* Runs a group in a child; returns its exit status, its output (both streams) in `out`. */
static int run_child(const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup, char *out, size_t capacity)
{
    int fds[2], status = 0;
    size_t used = 0;
    assert_return_code(pipe(fds), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], 1);
        dup2(fds[1], 2);
        close(fds[0]);
        close(fds[1]);
        _exit(_cmocka_run_group_tests("group", tests, n, setup, NULL));
    }
    close(fds[1]);
    for (ssize_t got; (got = read(fds[0], out + used, capacity - 1 - used)) > 0;) used += (size_t)got;
    out[used] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_every_wrong_test_fails(void **state)
{
    (void)state;
    static char out[65536];
    const size_t n = sizeof wrong / sizeof wrong[0];
    for (size_t i = 0; i < n; i++)
        if (run_child(&wrong[i], 1, NULL, out, sizeof out) != 1) fail_msg("%s did not fail: %s", wrong[i].name, out);
    assert_int_equal(run_child(wrong, n, NULL, out, sizeof out), n);
    assert_non_null(strstr(out, "[  PASSED  ] 0 test(s)."));
    assert_non_null(strstr(out, "[  FAILED  ] 22 test(s), listed below:"));
    assert_non_null(strstr(out, "standin_test.c:"));
}

static void test_closing_lines(void **state)
{
    (void)state;
    static char out[65536];
    const struct CMUnitTest mixed[] = {cmocka_unit_test(right), cmocka_unit_test(skipped), cmocka_unit_test(right)};
    assert_int_equal(run_child(mixed, 3, NULL, out, sizeof out), 0);
    assert_non_null(strstr(out, "[==========] Running 3 test(s)."));
    assert_non_null(strstr(out, "[==========] 3 test(s) run."));
    assert_non_null(strstr(out, "[  PASSED  ] 2 test(s)."));
    assert_non_null(strstr(out, "[  SKIPPED ] 1 test(s), listed below:"));
    assert_int_equal(run_child(mixed, 3, bad_fixture, out, sizeof out), 1);
    assert_non_null(strstr(out, "GROUP SETUP"));
}

static int n_setups;
static int count_setup(void **state)
{
    *state = &n_setups;
    n_setups++;
    return 0;
}
static void test_state_is_passed(void **state)
{
    assert_ptr_equal(*state, &n_setups);
    assert_int_equal(n_setups, 1);
}
static void test_prestate(void **state)
{
    assert_string_equal(*state, "given");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_wrong_test_fails),
        cmocka_unit_test(test_closing_lines),
        cmocka_unit_test_setup(test_state_is_passed, count_setup),
        cmocka_unit_test_prestate(test_prestate, (void *)"given"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
