/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CMOCKA_H
#define TUTTI_STANDIN_CMOCKA_H

/* A stand-in for cmocka (https://cmocka.org) on machines without it: the part of its interface that the tests use, with
 * the same names, the same closing lines and the same exit status, in one header. State that several files of one
 * program must share is weak, so that the linker keeps one of each. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*CMFixtureFunction)(void **state);
typedef void (*CMUnitTestFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func;
    CMFixtureFunction teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(f)                                                                                            \
    {                                                                                                                  \
#f, f, NULL, NULL, NULL                                                                                        \
    }
#define cmocka_unit_test_setup(f, setup)                                                                               \
    {                                                                                                                  \
#f, f, setup, NULL, NULL                                                                                       \
    }
#define cmocka_unit_test_teardown(f, teardown)                                                                         \
    {                                                                                                                  \
#f, f, NULL, teardown, NULL                                                                                    \
    }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                                            \
    {                                                                                                                  \
#f, f, setup, teardown, NULL                                                                                   \
    }
#define cmocka_unit_test_prestate(f, state)                                                                            \
    {                                                                                                                  \
#f, f, NULL, NULL, state                                                                                       \
    }
#define cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, state)                                            \
    {                                                                                                                  \
#f, f, setup, teardown, state                                                                                  \
    }
#define cmocka_run_group_tests(tests, setup, teardown)                                                                 \
    _cmocka_run_group_tests(#tests, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                                      \
    _cmocka_run_group_tests(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

/* ---- running ---- */
enum standin_result { STANDIN_PASSED, STANDIN_FAILED, STANDIN_SKIPPED };

__attribute__((weak)) sigjmp_buf standin_jump;
__attribute__((weak)) const char *standin_filter;

__attribute__((unused)) static void cmocka_set_test_filter(const char *pattern)
{
    standin_filter = pattern;
}

#define STANDIN_PRINT(name, stream)                                                                                    \
    __attribute__((unused, format(printf, 1, 2))) static void name(const char *format, ...)                            \
    {                                                                                                                  \
        va_list args;                                                                                                  \
        va_start(args, format);                                                                                        \
        vfprintf(stream, format, args);                                                                                \
        va_end(args);                                                                                                  \
        fflush(stream);                                                                                                \
    }
STANDIN_PRINT(print_message, stdout)
STANDIN_PRINT(print_error, stderr)
#undef STANDIN_PRINT

/* * and ? as in a shell. */
__attribute__((unused)) static bool standin_matches(const char *pattern, const char *text)
{
    if (*pattern == '\0') return *text == '\0';
    if (*pattern == '*') return standin_matches(pattern + 1, text) || (*text && standin_matches(pattern, text + 1));
    return *text && (*pattern == '?' || *pattern == *text) && standin_matches(pattern + 1, text + 1);
}

__attribute__((unused)) static enum standin_result standin_call(CMFixtureFunction fixture, CMUnitTestFunction test,
                                                                void **state)
{
    int why = sigsetjmp(standin_jump, 1); /* the failing assertion comes back here */
    if (why == 0) {
        if (fixture && fixture(state) != 0) return STANDIN_FAILED;
        if (test) test(state);
        return STANDIN_PASSED;
    }
    return (enum standin_result)why;
}

__attribute__((unused)) static enum standin_result standin_run(const struct CMUnitTest *test, void *group_state)
{
    void *state = test->initial_state ? test->initial_state : group_state;
    enum standin_result result = standin_call(test->setup_func, NULL, &state);
    if (result == STANDIN_PASSED) {
        result = standin_call(NULL, test->test_func, &state);
        if (standin_call(test->teardown_func, NULL, &state) != STANDIN_PASSED) result = STANDIN_FAILED;
    }
    return result;
}

__attribute__((unused)) static void standin_list(const struct CMUnitTest *tests, const enum standin_result *results,
                                                 size_t n, enum standin_result which, const char *label)
{
    size_t n_such = 0;
    for (size_t i = 0; i < n; i++) n_such += results[i] == which && tests[i].name;
    if (n_such == 0) return;
    print_error("[  %-7s ] %zu test(s), listed below:\n", label, n_such);
    for (size_t i = 0; i < n; i++)
        if (results[i] == which) print_error("[  %-7s ] %s\n", label, tests[i].name);
    print_error("\n %zu %s TEST(S)\n", n_such, label);
}

__attribute__((unused)) static int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                                           CMFixtureFunction setup, CMFixtureFunction teardown)
{
    static const char *const labels[] = {"[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"};
    struct CMUnitTest *chosen = calloc(n + 1, sizeof *chosen);
    enum standin_result *results = calloc(n + 1, sizeof *results);
    size_t n_chosen = 0, n_of[3] = {0};
    void *state = NULL;
    if (!chosen || !results) abort();
    for (size_t i = 0; i < n; i++)
        if (!standin_filter || standin_matches(standin_filter, tests[i].name)) chosen[n_chosen++] = tests[i];
    print_message("[==========] Running %zu test(s).\n", n_chosen);
    bool ready = standin_call(setup, NULL, &state) == STANDIN_PASSED;
    if (!ready) print_error("[  FAILED  ] GROUP SETUP %s\n", name);
    for (size_t i = 0; ready && i < n_chosen; i++) {
        print_message("[ RUN      ] %s\n", chosen[i].name);
        results[i] = standin_run(&chosen[i], state);
        n_of[results[i]]++;
        print_message("%s %s\n", labels[results[i]], chosen[i].name);
    }
    if (standin_call(teardown, NULL, &state) != STANDIN_PASSED) {
        print_error("[  FAILED  ] GROUP TEARDOWN %s\n", name);
        ready = false;
    }
    print_message("[==========] %zu test(s) run.\n", n_of[0] + n_of[1] + n_of[2]);
    print_error("[  PASSED  ] %zu test(s).\n", n_of[STANDIN_PASSED]);
    standin_list(chosen, results, n_chosen, STANDIN_SKIPPED, "SKIPPED");
    standin_list(chosen, results, n_chosen, STANDIN_FAILED, "FAILED");
    free(chosen);
    free(results);
    return (int)n_of[STANDIN_FAILED] + !ready;
}

/* ---- ending a test ---- */
__attribute__((unused, noreturn, format(printf, 3, 4))) static void standin_fail(const char *file, int line,
                                                                                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    print_error("\n[   LINE   ] --- %s:%d: error: Failure!\n", file, line);
    siglongjmp(standin_jump, STANDIN_FAILED);
}

__attribute__((unused, noreturn)) static void standin_skip(const char *file, int line)
{
    print_error("%s:%d: skipped\n", file, line);
    siglongjmp(standin_jump, STANDIN_SKIPPED);
}

#define fail() standin_fail(__FILE__, __LINE__, "fail()")
#define fail_msg(...) standin_fail(__FILE__, __LINE__, "ERROR: " __VA_ARGS__)
#define skip() standin_skip(__FILE__, __LINE__)

/* ---- assertions ---- */
#define LargestIntegralType uintmax_t
#define cast_to_largest_integral_type(value) ((uintmax_t)(value))

__attribute__((unused)) static void standin_compare(uintmax_t a, uintmax_t b, bool equal, const char *file, int line)
{
    if ((a == b) != equal)
        standin_fail(file, line, "%#jx %s %#jx (%jd, %jd)", a, equal ? "!=" : "==", b, (intmax_t)a, (intmax_t)b);
}

__attribute__((unused)) static void standin_text(const char *a, const char *b, bool equal, const char *file, int line)
{
    if ((strcmp(a, b) == 0) != equal) standin_fail(file, line, "\"%s\" %s \"%s\"", a, equal ? "!=" : "==", b);
}

__attribute__((unused)) static void standin_memory(const void *a, const void *b, size_t n, bool equal, const char *file,
                                                   int line)
{
    const unsigned char *left = a, *right = b;
    size_t at = 0;
    while (at < n && left[at] == right[at]) at++;
    if ((at == n) == equal) return;
    if (at == n) standin_fail(file, line, "%zu bytes are the same", n);
    standin_fail(file, line, "bytes differ at offset %zu of %zu: 0x%02x != 0x%02x", at, n, left[at], right[at]);
}

__attribute__((unused)) static void standin_range(uintmax_t value, uintmax_t low, uintmax_t high, bool inside,
                                                  const char *file, int line)
{
    if ((value >= low && value <= high) != inside)
        standin_fail(file, line, "%ju is %s the range %ju-%ju", value, inside ? "not within" : "within", low, high);
}

__attribute__((unused)) static void standin_near(double a, double b, double epsilon, bool equal, const char *file,
                                                 int line)
{
    double distance = a > b ? a - b : b - a; /* NaN is near nothing */
    if ((a == b || distance <= epsilon) != equal)
        standin_fail(file, line, "%.17g %s %.17g within %g", a, equal ? "!=" : "==", b, epsilon);
}

#define assert_true(c)                                                                                                 \
    do {                                                                                                               \
        if (!(c)) standin_fail(__FILE__, __LINE__, "%s is false", #c);                                                 \
    } while (0)
#define assert_false(c)                                                                                                \
    do {                                                                                                               \
        if (c) standin_fail(__FILE__, __LINE__, "%s is true", #c);                                                     \
    } while (0)
#define assert_null(p)                                                                                                 \
    do {                                                                                                               \
        if ((p) != NULL) standin_fail(__FILE__, __LINE__, "%s is not null", #p);                                       \
    } while (0)
#define assert_non_null(p)                                                                                             \
    do {                                                                                                               \
        if ((p) == NULL) standin_fail(__FILE__, __LINE__, "%s is null", #p);                                           \
    } while (0)
#define assert_int_equal(a, b) standin_compare((uintmax_t)(a), (uintmax_t)(b), true, __FILE__, __LINE__)
#define assert_int_not_equal(a, b) standin_compare((uintmax_t)(a), (uintmax_t)(b), false, __FILE__, __LINE__)
#define assert_ptr_equal(a, b) standin_compare((uintptr_t)(a), (uintptr_t)(b), true, __FILE__, __LINE__)
#define assert_ptr_not_equal(a, b) standin_compare((uintptr_t)(a), (uintptr_t)(b), false, __FILE__, __LINE__)
#define assert_string_equal(a, b) standin_text((a), (b), true, __FILE__, __LINE__)
#define assert_string_not_equal(a, b) standin_text((a), (b), false, __FILE__, __LINE__)
#define assert_memory_equal(a, b, n) standin_memory((a), (b), (n), true, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, n) standin_memory((a), (b), (n), false, __FILE__, __LINE__)
#define assert_in_range(v, low, high)                                                                                  \
    standin_range((uintmax_t)(v), (uintmax_t)(low), (uintmax_t)(high), true, __FILE__, __LINE__)
#define assert_not_in_range(v, low, high)                                                                              \
    standin_range((uintmax_t)(v), (uintmax_t)(low), (uintmax_t)(high), false, __FILE__, __LINE__)
#define assert_float_equal(a, b, epsilon)                                                                              \
    standin_near((double)(a), (double)(b), (double)(epsilon), true, __FILE__, __LINE__)
#define assert_float_not_equal(a, b, epsilon)                                                                          \
    standin_near((double)(a), (double)(b), (double)(epsilon), false, __FILE__, __LINE__)
#define assert_return_code(rc, error)                                                                                  \
    do {                                                                                                               \
        if ((rc) < 0) standin_fail(__FILE__, __LINE__, "%s failed: %s", #rc, strerror(error));                         \
    } while (0)

#endif
