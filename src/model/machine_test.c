/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of constants come back as they were written, whatever the locale; each kind of nonsense is refused with its
 * line, and leaves what was there; the option finds the right file. */
#include "model/machine.h"
#include "test.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];

static int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tutti-machine-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/some/where/x.tune", folder);
    /* Writing makes the directories. */
    return tutti_machine_write(path, &tutti_machine_default, "a test") < 0;
}

static int folder_remove(void **state)
{
    (void)state;
    for (size_t n = strlen(path); n > strlen(folder); n = (size_t)(strrchr(path, '/') - path)) {
        path[n] = '\0';
        remove(path);
    }
    return rmdir(folder);
}

static void text_put(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect_equal(const struct tutti_machine *a, const struct tutti_machine *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

static enum tutti_status load(const char *tuning, struct tutti_machine *out)
{
    const struct tutti_option option = {"tuning", tuning};
    struct tutti_config config;
    assert_int_equal(tutti_config_init(&config, &option, 1), TUTTI_OK);
    enum tutti_status status = tutti_machine_load(&config, out);
    tutti_config_fini(&config);
    return status;
}

static void defaults_are_in_range(void **state)
{
    (void)state;
    struct tutti_machine machine = tutti_machine_default;
    for (size_t i = 0; i < tutti_machine_n(); i++) {
        const struct tutti_constant *info = tutti_machine_info(i);
        assert_true(*tutti_machine_at(&machine, i) >= info->minimum && *tutti_machine_at(&machine, i) <= info->maximum);
        assert_true(strlen(info->help) > 0);
    }
    assert_null(tutti_machine_info(tutti_machine_n()));
    assert_true(tutti_machine_pull(&machine, 1) == (double)machine.pull_gbs);
    assert_true(tutti_machine_pull(&machine, 1000) == (double)machine.pull_all_gbs / 1000);
    assert_true(tutti_machine_memory(&machine, 1000) == (double)machine.memory_all_gbs / 1000);
}

/* Values of thousandths, so that text holds them; a comma for the point must not matter. */
static void written_is_read(void **state)
{
    (void)state;
    uint64_t seed = 7;
    static const char *const locales[] = {"C", "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    for (size_t l = 0; l < TUTTI_ARRAY_LEN(locales); l++) {
        if (!setlocale(LC_NUMERIC, locales[l])) continue;
        for (int round = 0; round < 20; round++) {
            struct tutti_machine machine, read = tutti_machine_default;
            for (size_t i = 0; i < tutti_machine_n(); i++) {
                const struct tutti_constant *info = tutti_machine_info(i);
                double span = (double)info->maximum < 8000 ? (double)info->maximum : 8000;
                double value = (double)info->minimum + (double)(tutti_random64(&seed) % 7000000) / 7e6 * (span / 2);
                *tutti_machine_at(&machine, i) = (float)((double)(uint64_t)(value * 1000 + 1) / 1000);
            }
            assert_int_equal(tutti_machine_write(path, &machine, "a test"), TUTTI_OK);
            assert_int_equal(load(path, &read), TUTTI_OK);
            expect_equal(&machine, &read);
        }
    }
    setlocale(LC_NUMERIC, "C");
}

static void some_lines_suffice(void **state)
{
    (void)state;
    struct tutti_machine machine, wanted;
    assert_int_equal(load("off", &wanted), TUTTI_OK);
    text_put("# by hand\n\n  line_ns\t52.5  \npull_gbs 7\n");
    wanted.links[TUTTI_LINK_HOST].line_ns = 52.5f;
    wanted.pull_gbs = 7;
    assert_int_equal(load(path, &machine), TUTTI_OK);
    expect_equal(&machine, &wanted);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } wrong[] = {
        {"line_ns 50\nlime_ns 50\n", ":2: \"lime_ns\" is no constant of a machine; did you mean line_ns?"},
        {"zzzzzzzzzzzzzzzzz 50\n", ":1: \"zzzzzzzzzzzzzzzzz\" is no constant of a machine"},
        {"line_ns 50\nline_ns 50\n", ":2: line_ns is given twice"},
        {"line_ns\n", ":1: not of the form `name value`"},
        {"line_ns 50 ns\n", ":1: not of the form `name value`"},
        {"line_ns fast\n", ":1: line_ns is \"fast\": write a number from 1 to 100000"},
        {"line_ns 1.2.3\n", "is \"1.2.3\""},
        {"line_ns -5\n", "is \"-5\""},
        {"line_ns 1e3\n", "is \"1e3\""},
        {"line_ns nan\n", "is \"nan\""},
        {"line_ns .\n", "is \".\""},
        {"line_ns 0\n", "is \"0\""},
        {"line_ns 100001\n", "is \"100001\""},
        {"line_ns 99999999999999999999999999\n", "is \"9999"},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        struct tutti_machine machine, plain;
        assert_int_equal(load("off", &plain), TUTTI_OK);
        text_put(wrong[i].text);
        assert_int_equal(load(path, &machine), TUTTI_ERR_ARGUMENT);
        const char *said = tutti_last_error()->text;
        if (!strstr(said, wrong[i].part) || !strstr(said, path)) fail_msg("\"%s\" lacks \"%s\"", said, wrong[i].part);
        expect_equal(&machine, &plain);
    }
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct tutti_machine machine = tutti_machine_default;
    text_put(text);
    assert_int_equal(load(path, &machine), TUTTI_ERR_ARGUMENT);
    unlink(path);
    assert_int_equal(load(path, &machine), TUTTI_ERR_SYSTEM);
    assert_int_equal(tutti_last_error()->os_errno, ENOENT);
    assert_int_equal(tutti_machine_write(folder, &machine, "a folder"), TUTTI_ERR_SYSTEM);
}

static void the_option_chooses(void **state)
{
    (void)state;
    struct tutti_machine machine, plain;
    char own[256], cache[128];
    assert_int_equal(load("off", &plain), TUTTI_OK);
    assert_true(plain.links[TUTTI_LINK_HOST].line_ns == tutti_machine_default.links[TUTTI_LINK_HOST].line_ns);

    text_put("line_ns 33\n");
    assert_int_equal(load(path, &machine), TUTTI_OK);
    assert_true(machine.links[TUTTI_LINK_HOST].line_ns == 33);
    assert_true(machine.cache_kib == plain.cache_kib);
    text_put("line_ns\n");
    assert_int_equal(load(path, &machine), TUTTI_ERR_ARGUMENT);
    unlink(path);
    assert_int_equal(load(path, &machine), TUTTI_ERR_SYSTEM);

    snprintf(cache, sizeof cache, "%s/some/where", folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_true(tutti_machine_path(own, sizeof own));
    assert_int_equal(strncmp(own, cache, strlen(cache)), 0);
    assert_false(tutti_machine_path(own, 20));
    assert_true(tutti_machine_path(own, sizeof own));
    assert_int_equal(load("auto", &machine), TUTTI_OK); /* there is none: silent */
    expect_equal(&machine, &plain);
    machine.links[TUTTI_LINK_HOST].line_ns = 44;
    assert_int_equal(tutti_machine_write(own, &machine, "a test"), TUTTI_OK);
    assert_int_equal(load("auto", &machine), TUTTI_OK);
    assert_true(machine.links[TUTTI_LINK_HOST].line_ns == 44);
    assert_int_equal(load("off", &machine), TUTTI_OK);
    expect_equal(&machine, &plain);
    FILE *f = fopen(own, "a");
    assert_non_null(f);
    fputs("nonsense 1\n", f);
    fclose(f);
    assert_int_equal(load("auto", &machine), TUTTI_OK); /* one that can not be used is not the program's fault */
    expect_equal(&machine, &plain);
    remove(own);
    *strrchr(own, '/') = '\0';
    remove(own);
}

/* Where neither a file nor the option says something else; a second time finds the same. */
static void a_probe_is_for_hosts_without_a_file(void **state)
{
    (void)state;
    static const char *const tunings[] = {"off", "auto", "auto"};
    struct tutti_machine machines[3], plain = tutti_machine_default;
    setenv("XDG_CACHE_HOME", folder, 1);
    for (int i = 0; i < 3; i++) {
        const struct tutti_option option = {"tuning", tunings[i]};
        struct tutti_config config;
        machines[i] = plain;
        assert_int_equal(tutti_config_init(&config, &option, 1), TUTTI_OK);
        tutti_machine_probe(&config, &machines[i]);
        tutti_config_fini(&config);
        for (size_t c = 0; c < tutti_machine_n(); c++) {
            const float value = *tutti_machine_at(&machines[i], c);
            assert_true(value >= tutti_machine_info(c)->minimum && value <= tutti_machine_info(c)->maximum);
        }
    }
    expect_equal(&machines[0], &plain);
    expect_equal(&machines[1], &machines[2]);
    assert_memory_not_equal(&machines[1], &plain, sizeof plain);
}

static void the_path_follows_the_environment(void **state)
{
    (void)state;
    char own[256];
    setenv("XDG_CACHE_HOME", "relative", 1); /* ignored */
    setenv("HOME", folder, 1);
    assert_true(tutti_machine_path(own, sizeof own));
    assert_int_equal(strncmp(own, folder, strlen(folder)), 0);
    assert_non_null(strstr(own, "/.cache/tutti/"));
    unsetenv("HOME");
    assert_false(tutti_machine_path(own, sizeof own));
    unsetenv("XDG_CACHE_HOME");
    assert_false(tutti_machine_path(own, sizeof own));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_in_range),
        cmocka_unit_test_setup_teardown(written_is_read, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(some_lines_suffice, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(the_option_chooses, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(a_probe_is_for_hosts_without_a_file, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(the_path_follows_the_environment, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
