/* SPDX-License-Identifier: BSD-3-Clause */

/* Options: precedence, ranges, sentences, the agreed hash; and the parsers. */

#include "test.h"

#include "base/config.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64], secret_path[64];

static void file_write(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(name, 0600), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/tutti-config-%d", (int)getpid());
    snprintf(secret_path, sizeof secret_path, "/tmp/tutti-secret-%d", (int)getpid());
    unsetenv("TUTTI_CONFIG");
    for (int id = 0; id < TUTTI_N_OPTIONS; id++) {
        char name[64];
        snprintf(name, sizeof name, "TUTTI_%s", tutti_option_info((enum tutti_option_id)id)->name);
        for (char *p = name; *p; p++) *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p);
        unsetenv(name);
    }
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    unlink(secret_path);
    return setup(state);
}

static void test_table(void **state)
{
    (void)state;
    for (int id = 0; id < TUTTI_N_OPTIONS; id++) {
        const struct tutti_option_info *info = tutti_option_info((enum tutti_option_id)id);
        assert_true(info->name[0] != '\0' && info->help[0] != '\0');
    }
    assert_null(tutti_option_info(TUTTI_N_OPTIONS));
    assert_null(tutti_option_info((enum tutti_option_id) - 1));
    /* Every default passes its own check. */
    struct tutti_config config;
    assert_int_equal(tutti_config_init(&config, NULL, 0), TUTTI_OK);
    for (int id = 0; id < TUTTI_N_OPTIONS; id++) {
        assert_int_equal(config.origin[id], TUTTI_FROM_DEFAULT);
        assert_string_equal(config.text[id], tutti_option_info((enum tutti_option_id)id)->fallback);
    }
    assert_true(config.number[TUTTI_OPT_slice] == 128 << 10);
    assert_true(config.number[TUTTI_OPT_timeout] == 1800 * TUTTI_NS_PER_S);
    assert_true(config.number[TUTTI_OPT_spin] == 20000);
    tutti_config_fini(&config);
    tutti_config_fini(&config); /* twice does no harm */
}

static void test_precedence(void **state)
{
    struct tutti_config config;
    const struct tutti_option options[] = {{"SLICE", "64K"}, {"timeout", "3s"}};
    (void)state;
    file_write(path, "# a comment\n\n  slice = 8K  \neager=1K\nTimeout = 1s\nalgorithm = all_reduce=ring");
    setenv("TUTTI_CONFIG", path, 1);
    setenv("TUTTI_EAGER", "4K", 1);
    setenv("TUTTI_TIMEOUT", "2s", 1);
    assert_int_equal(tutti_config_init(&config, options, 2), TUTTI_OK);
    assert_true(config.number[TUTTI_OPT_slice] == 64 << 10);
    assert_int_equal(config.origin[TUTTI_OPT_slice], TUTTI_FROM_CALL);
    assert_true(config.number[TUTTI_OPT_eager] == 4096);
    assert_int_equal(config.origin[TUTTI_OPT_eager], TUTTI_FROM_ENVIRONMENT);
    assert_true(config.number[TUTTI_OPT_timeout] == 3 * TUTTI_NS_PER_S);
    assert_string_equal(config.text[TUTTI_OPT_algorithm], "all_reduce=ring");
    assert_int_equal(config.origin[TUTTI_OPT_algorithm], TUTTI_FROM_FILE);
    assert_int_equal(config.origin[TUTTI_OPT_heap], TUTTI_FROM_DEFAULT);
    tutti_config_fini(&config);
    /* Empty: a number keeps what the file says, a text without default is taken away. */
    setenv("TUTTI_EAGER", "", 1);
    setenv("TUTTI_ALGORITHM", "", 1);
    assert_int_equal(tutti_config_init(&config, NULL, 0), TUTTI_OK);
    assert_true(config.number[TUTTI_OPT_eager] == 1024);
    assert_string_equal(config.text[TUTTI_OPT_algorithm], "");
    tutti_config_fini(&config);
}

/* The sentence of an error holds all of the words. */
static void expect_refused(const char *name, const char *value, const char *const *words)
{
    struct tutti_config config;
    const struct tutti_option option = {name, value};
    assert_int_equal(tutti_config_init(&config, &option, 1), TUTTI_ERR_ARGUMENT);
    for (; *words; words++)
        if (!strstr(tutti_last_error()->text, *words))
            fail_msg("\"%s\" lacks \"%s\"", tutti_last_error()->text, *words);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_refusals(void **state)
{
    struct tutti_config config;
    (void)state;
    expect_refused("slcie", "1K", WORDS("slcie", "did you mean slice?"));
    expect_refused("Tiemout", "1s", WORDS("did you mean timeout?"));
    expect_refused("qqqqqqqq", "1", WORDS("qqqqqqqq", "tutti info"));
    expect_refused("slice", "12X", WORDS("slice", "12X", "64K"));
    expect_refused("slice", "", WORDS("slice", "64K"));
    expect_refused("slice", "1K", WORDS("slice", "out of range", "4096"));
    expect_refused("slice", "2G", WORDS("out of range", "1073741824"));
    expect_refused("slice", "99999999999999999999", WORDS("slice"));
    expect_refused("timeout", "soon", WORDS("timeout", "30m"));
    expect_refused("timeout", "0", WORDS("out of range"));
    expect_refused("reproducible", "maybe", WORDS("0, 1, off or on"));
    expect_refused("simd", "abacus", WORDS("auto, scalar, avx2, avx512 or neon"));
    expect_refused("log", "loud", WORDS("error, warn, info, debug or trace"));
    expect_refused("secret_file", "/nonexistent/secret", WORDS("/nonexistent/secret", "No such file"));
    expect_refused(NULL, "1", WORDS("NULL"));
    expect_refused("slice", NULL, WORDS("NULL"));
    assert_int_equal(tutti_config_init(&config, NULL, 1), TUTTI_ERR_ARGUMENT);

    setenv("TUTTI_SLICE", "7Q", 1);
    expect_refused("eager", "1K", WORDS("TUTTI_SLICE", "7Q"));
    unsetenv("TUTTI_SLICE");

    static const char *const files[][2] = {
        {"slice = 64K\nnonsense\n", ":2: "},
        {"\n\nslise = 64K\n", ":3: option slise is not known; did you mean slice?"},
        {"slice = 1\n", ":1: option slice"},
    };
    setenv("TUTTI_CONFIG", path, 1);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(files); i++) {
        file_write(path, files[i][0]);
        expect_refused("eager", "1K", WORDS(path, files[i][1]));
    }
    char *longest = malloc(10000);
    assert_non_null(longest);
    memset(longest, 'x', 9999);
    longest[9999] = '\0';
    file_write(path, longest);
    expect_refused("eager", "1K", WORDS(":1: the line is longer"));
    free(longest);
    setenv("TUTTI_CONFIG", "/nonexistent/config", 1);
    expect_refused("eager", "1K", WORDS("TUTTI_CONFIG", "/nonexistent/config"));
    setenv("TUTTI_CONFIG", "", 1); /* empty is not set */
    assert_int_equal(tutti_config_init(&config, NULL, 0), TUTTI_OK);
    tutti_config_fini(&config);
}

static void test_secret(void **state)
{
    struct tutti_config config;
    const struct tutti_option file[] = {{"secret_file", secret_path}};
    const struct tutti_option both[] = {{"secret_file", secret_path}, {"secret", "given"}};
    (void)state;
    file_write(secret_path, "open sesame\n");
    assert_int_equal(tutti_config_init(&config, file, 1), TUTTI_OK);
    assert_string_equal(config.text[TUTTI_OPT_secret], "open sesame");
    char text[256];
    tutti_config_agreed_text(&config, text, sizeof text);
    assert_null(strstr(text, "sesame"));
    tutti_config_fini(&config);
    assert_int_equal(tutti_config_init(&config, both, 2), TUTTI_OK);
    assert_string_equal(config.text[TUTTI_OPT_secret], "given");
    tutti_config_fini(&config);
    setenv("TUTTI_SECRET", "weaker", 1); /* the file was named by the call */
    assert_int_equal(tutti_config_init(&config, file, 1), TUTTI_OK);
    assert_string_equal(config.text[TUTTI_OPT_secret], "open sesame");
    tutti_config_fini(&config);
    file_write(secret_path, "\n");
    assert_int_equal(tutti_config_init(&config, file, 1), TUTTI_ERR_ARGUMENT);
}

static void test_one_option(void **state)
{
    char text[16];
    uint64_t number;

    (void)state;
    setenv("TUTTI_FT_TIMEOUT", "2m", 1);
    assert_int_equal(tutti_option_get("ft_timeout", text, sizeof text, &number), TUTTI_OK);
    assert_string_equal(text, "2m");
    assert_int_equal(number, 120 * TUTTI_NS_PER_S);
    unsetenv("TUTTI_FT_TIMEOUT");
    file_write(secret_path, "open sesame\n");
    setenv("TUTTI_SECRET", "", 1);
    setenv("TUTTI_SECRET_FILE", secret_path, 1);
    assert_int_equal(tutti_option_get("SECRET", text, sizeof text, &number), TUTTI_OK);
    assert_string_equal(text, "open sesame");
    assert_int_equal(tutti_option_get("secret", text, 11, &number), TUTTI_ERR_TRUNCATED);
    assert_int_equal(tutti_option_get("secrte", text, sizeof text, &number), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "did you mean secret"));
    unsetenv("TUTTI_SECRET_FILE");
}

static void init_with(struct tutti_config *config, const char *name, const char *value)
{
    const struct tutti_option option = {name, value};
    assert_int_equal(tutti_config_init(config, &option, 1), TUTTI_OK);
}

static void test_agreed(void **state)
{
    struct tutti_config base, other;
    char text[256], cut[12];
    (void)state;
    assert_int_equal(tutti_config_init(&base, NULL, 0), TUTTI_OK);
    uint64_t hash = tutti_config_hash(&base);
    tutti_config_agreed_text(&base, text, sizeof text);
    assert_string_equal(text, "");

    static const struct {
        const char *name, *value;
        bool differs;
        const char *text;
    } cases[] = {
        {"slice", "64K", true, "slice=64K"},
        {"slice", "131072", false, ""}, /* the default in other words */
        {"timeout", "1s", false, ""},   /* local */
        {"levels", "8,8", true, "levels=8,8"},
        {"reproducible", "on", true, "reproducible=on"},
        {"reproducible", "off", false, ""},
        {"transport", "shm", true, "transport=shm"},
        {"secret", "x", false, ""},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        init_with(&other, cases[i].name, cases[i].value);
        assert_int_equal(tutti_config_hash(&other) != hash, cases[i].differs);
        tutti_config_agreed_text(&other, text, sizeof text);
        assert_string_equal(text, cases[i].text);
        tutti_config_agreed_text(&other, cut, sizeof cut);
        assert_true(strlen(cut) < sizeof cut);
        tutti_config_fini(&other);
    }
    const struct tutti_option two[] = {{"levels", "2,2"}, {"slice", "64K"}};
    assert_int_equal(tutti_config_init(&other, two, 2), TUTTI_OK);
    tutti_config_agreed_text(&other, text, sizeof text);
    assert_string_equal(text, "levels=2,2 slice=64K");
    tutti_config_fini(&other);
    tutti_config_fini(&base);
}

/* Each allocation fails in turn: a sentence, and nothing is left behind (the sanitizers look). */
static void test_memory_fails(void **state)
{
    struct tutti_config config;
    const struct tutti_option option = {"slice", "64K"};
    uint64_t n = 0;
    enum tutti_status status;
    (void)state;
    do {
        tutti_alloc_fail_at(++n);
        status = tutti_config_init(&config, &option, 1);
        tutti_alloc_fail_at(0);
        if (status < 0) assert_int_equal(status, TUTTI_ERR_MEMORY);
    } while (status < 0);
    assert_int_equal(n, TUTTI_N_OPTIONS + 2); /* a text for each option, and the one given */
    tutti_config_fini(&config);
}

static void test_parse(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
        bool ok;
    } sizes[] =
        {
            {"0", 0, true},
            {"17", 17, true},
            {"4k", 4096, true},
            {"4KiB", 4096, true},
            {"3M", 3 << 20, true},
            {"2G", UINT64_C(2) << 30, true},
            {"1T", UINT64_C(1) << 40, true},
            {"5B", 5, true},
            {"18446744073709551615", UINT64_MAX, true},
            {"18446744073709551616", 0, false},
            {"16777216T", 0, false},
            {"", 0, false},
            {"K", 0, false},
            {"-1", 0, false},
            {"1 K", 0, false},
            {"1.5K", 0, false},
            {"0x10", 0, false},
            {" 1", 0, false},
            {"1KK", 0, false},
        },
      times[] = {
          {"0", 0, true},
          {"5s", 5 * TUTTI_NS_PER_S, true},
          {"20ms", 20 * TUTTI_NS_PER_MS, true},
          {"20us", 20000, true},
          {"7ns", 7, true},
          {"30m", 1800 * TUTTI_NS_PER_S, true},
          {"2h", 7200 * TUTTI_NS_PER_S, true},
          {"12", 12 * TUTTI_NS_PER_S, true},
          {"1.5s", 1500 * TUTTI_NS_PER_MS, true},
          {"0.000000001s", 1, true},
          {"0.5ns", 0, true},
          {"18446744073709551615ns", UINT64_MAX, true},
          {"18446744074s", UINT64_MAX, true}, /* centuries do not wrap */
          {"99999999999999h", UINT64_MAX, true},
          {"18446744073.999999999s", UINT64_MAX, true},
          {"", 0, false},
          {"s", 0, false},
          {"1.s", 0, false},
          {".5s", 0, false},
          {"1.0123456789s", 0, false},
          {"-1s", 0, false},
          {"1x", 0, false},
      };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
        uint64_t value = 42;
        assert_int_equal(tutti_parse_size(sizes[i].text, &value), sizes[i].ok);
        assert_true(value == (sizes[i].ok ? sizes[i].value : 42));
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(times); i++) {
        uint64_t value = 42;
        assert_int_equal(tutti_parse_time(times[i].text, &value), times[i].ok);
        assert_true(value == (times[i].ok ? times[i].value : 42));
    }
}

static void test_nearest(void **state)
{
    static const char *const names[] = {"ring", "tree", "bruck", "pairwise", "hierarchical"};
    size_t n = TUTTI_ARRAY_LEN(names);
    (void)state;
    assert_string_equal(tutti_nearest("rign", names, n), "ring");
    assert_string_equal(tutti_nearest("TREE", names, n), "tree");
    assert_string_equal(tutti_nearest("tre", names, n), "tree");
    assert_string_equal(tutti_nearest("hierarhical", names, n), "hierarchical");
    assert_null(tutti_nearest("zzz", names, n));
    assert_null(tutti_nearest("", names, n));
    assert_null(tutti_nearest("ring", names, 0));
    char longest[200];
    memset(longest, 'q', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    (void)tutti_nearest(longest, names, n); /* stays inside its table: the sanitizers look */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_table, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precedence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_secret, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_option, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agreed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_fails, setup, teardown),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
