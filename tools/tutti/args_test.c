/* SPDX-License-Identifier: BSD-3-Clause */
/* The option parser: every form of an option, every type of value, positional arguments, and what is refused. */

#include "cmd.h"

#include "base/base.h"

#include "test.h"

#include <string.h>

enum { MAX_ARGV = 16 };

static struct {
    bool flag;
    const char *text;
    uint32_t number;
    uint64_t size, time_ns;
    struct tutti_arg_list list;
} got;

static const struct tutti_arg args[] = {
    {"flag", 'f', TUTTI_ARG_FLAG, &got.flag, NULL, "a flag"},
    {"text", 't', TUTTI_ARG_TEXT, &got.text, "TEXT", "a text"},
    {"number", 'n', TUTTI_ARG_U32, &got.number, "N", "a number"},
    {"size", 0, TUTTI_ARG_SIZE, &got.size, "BYTES", "a size"},
    {"timeout", 0, TUTTI_ARG_TIME, &got.time_ns, "S", "a time"},
    {"list", 'l', TUTTI_ARG_LIST, &got.list, "X", "values"},
};

/* Parses a line of words parted by blanks; what is left is joined into `rest` by blanks. */
static enum tutti_args_result parse(const char *line, bool stop_at_first, char *rest, size_t capacity)
{
    const struct tutti_args spec = {.command = "test",
                                    .usage = "[options]",
                                    .args = args,
                                    .n_args = TUTTI_ARRAY_LEN(args),
                                    .stop_at_first = stop_at_first};
    static char words[256];
    char *argv[MAX_ARGV] = {(char *)(uintptr_t) "test"};
    int argc = 1, n = 0;
    memset(&got, 0, sizeof got);
    assert_true(strlen(line) < sizeof words);
    strcpy(words, line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        assert_true(argc < MAX_ARGV - 1);
        argv[argc++] = word;
    }
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    rest[0] = '\0';
    if (result != TUTTI_ARGS_OK) return result;
    for (int i = argc - n; i < argc; i++) {
        if (i > argc - n) strncat(rest, " ", capacity - strlen(rest) - 1);
        strncat(rest, argv[i], capacity - strlen(rest) - 1);
    }
    assert_null(argv[argc]);
    return result;
}

static void test_forms(void **unused)
{
    char rest[128];
    (void)unused;
    assert_int_equal(parse("--text a --number=7 -f", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(got.text, "a");
    assert_int_equal(got.number, 7);
    assert_true(got.flag);
    assert_int_equal(parse("-n9 -t b", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_int_equal(got.number, 9);
    assert_string_equal(got.text, "b");
    assert_false(got.flag);
    assert_int_equal(parse("--text=a=b", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(got.text, "a=b");
    assert_int_equal(parse("-l 1 --list 2 --list=3", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_int_equal(got.list.n, 3);
    assert_string_equal(got.list.values[2], "3");
}

static void test_values(void **unused)
{
    static const struct {
        const char *line;
        uint64_t size, time_ns;
    } good[] = {
        {"--size 8", 8, 0},
        {"--size 64K", 65536, 0},
        {"--size 1G", 1 << 30, 0},
        {"--timeout 5", 0, UINT64_C(5000000000)},
        {"--timeout 20ms", 0, UINT64_C(20000000)},
        {"--timeout 30m", 0, UINT64_C(1800000000000)},
    };
    static const char *const bad[] = {
        "--number -1",       "--number 4294967296", "--number 1.5", "--number x", "--number=", "--size 8Q", "--size -8",
        "--timeout 5parsec", "--timeout -5",        "--number",     "-n",         "--flag=1",  "--nothing", "-z",
    };
    char rest[128];
    (void)unused;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(good); i++) {
        assert_int_equal(parse(good[i].line, false, rest, sizeof rest), TUTTI_ARGS_OK);
        assert_int_equal(got.size, good[i].size);
        assert_int_equal(got.time_ns, good[i].time_ns);
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++) {
        if (parse(bad[i], false, rest, sizeof rest) != TUTTI_ARGS_WRONG) fail_msg("'%s' was accepted", bad[i]);
    }
    assert_int_equal(parse("--help", false, rest, sizeof rest), TUTTI_ARGS_HELP);
    assert_int_equal(parse("a -h", false, rest, sizeof rest), TUTTI_ARGS_HELP);
}

static void test_positional(void **unused)
{
    char rest[128];
    (void)unused;
    assert_int_equal(parse("a -f b --number 3 c", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(rest, "a b c");
    assert_true(got.flag);
    assert_int_equal(parse("-f -- -n --flag", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(rest, "-n --flag");
    assert_int_equal(parse("-f program -n 3 -- x", true, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(rest, "program -n 3 -- x");
    assert_int_equal(got.number, 0);
    assert_int_equal(parse("-n 3 -- program -f", true, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(rest, "program -f");
    assert_int_equal(parse("- a", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(rest, "- a");
    assert_int_equal(parse("", false, rest, sizeof rest), TUTTI_ARGS_OK);
    assert_string_equal(rest, "");
}

/* What cannot be done ends with the status of wrong usage. */
static void test_fail(void **unused)
{
    (void)unused;
    const struct tutti_args spec = {.command = "test", .usage = "", .args = args, .n_args = TUTTI_ARRAY_LEN(args)};
    assert_int_equal(tutti_args_fail(&spec, "%s is %d.", "this", 1), TUTTI_EXIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_positional), cmocka_unit_test(test_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
