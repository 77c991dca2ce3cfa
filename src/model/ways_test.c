/* SPDX-License-Identifier: BSD-3-Clause */
/* What was found of ways comes back as it was written, beside constants that stay; a wrong line is refused with its
 * number; between sizes times are interpolated. */
#include "model/machine.h"
#include "model/ways.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static int file_make(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/tutti-ways-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) < 0 || tutti_machine_write(path, &tutti_machine_default, "a test") < 0;
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path);
}

struct taken {
    struct tutti_way_times ways[4];
    size_t n;
};

static void take(void *to, const struct tutti_way_times *way)
{
    struct taken *taken = to;
    assert_true(taken->n < TUTTI_ARRAY_LEN(taken->ways));
    taken->ways[taken->n++] = *way;
}

static enum tutti_status load(struct tutti_machine *out)
{
    const struct tutti_option option = {"tuning", path};
    struct tutti_config config;
    assert_int_equal(tutti_config_init(&config, &option, 1), TUTTI_OK);
    enum tutti_status status = tutti_machine_load(&config, out);
    tutti_config_fini(&config);
    return status;
}

static const struct tutti_way_times written[] = {
    {2, TUTTI_WAY_4K, TUTTI_ALL_REDUCE, "stage", {0.5f, 1, 1.25f, 0, 2, 12.5f}},
    {4, TUTTI_WAY_MAPPED, TUTTI_GATHER, "attach_staged", {0, 0, 0.25f, 0, 0, 0}},
};

static void written_is_read(void **state)
{
    (void)state;
    struct taken taken = {.n = 0};
    struct tutti_machine machine;
    assert_int_equal(tutti_ways_append(path, written, 1), TUTTI_OK);
    assert_int_equal(tutti_ways_append(path, written + 1, 1), TUTTI_OK);
    assert_int_equal(tutti_ways_read(path, take, &taken), TUTTI_OK);
    assert_int_equal(taken.n, 2);
    for (size_t i = 0; i < taken.n; i++) {
        assert_int_equal(taken.ways[i].ranks, written[i].ranks);
        assert_int_equal(taken.ways[i].memory, written[i].memory);
        assert_int_equal(taken.ways[i].kind, written[i].kind);
        assert_string_equal(taken.ways[i].name, written[i].name);
        assert_memory_equal(taken.ways[i].times, written[i].times, sizeof written[i].times);
    }
    assert_int_equal(load(&machine), TUTTI_OK);
    assert_true(machine.links[0].line_ns == tutti_machine_default.links[0].line_ns);
}

static void none_is_read(void **state)
{
    (void)state;
    assert_int_equal(tutti_ways_read("/tmp/there/is/none", NULL, NULL), TUTTI_ERR_SYSTEM);
}

static void wrong_lines_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "way",
        "way 0 4k gather stage 1 1 1 1 1 1",
        "way two 4k gather stage 1 1 1 1 1 1",
        "way 2 5k gather stage 1 1 1 1 1 1",
        "way 2 4k gathers stage 1 1 1 1 1 1",
        "way 2 4k gather a_name_that_is_longer_than_any 1 1 1 1 1 1",
        "way 2 4k gather stage 1 1 1 1 1",
        "way 2 4k gather stage 1 1 1 1 1 1 1",
        "way 2 4k gather stage 1 1 1 1 1 0",
        "way 2 4k gather stage 1 1 1 1 1 1000",
        "way 2 4k gather stage 1 1 1 1 1 nan",
    };
    struct tutti_machine machine;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "line_ns 5\n%s\n", wrong[i]);
        fclose(file);
        assert_int_equal(load(&machine), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error()->text, ":2: not of the form `way RANKS MEMORY KIND NAME TIMES...`"));
        assert_true(machine.links[0].line_ns == tutti_machine_default.links[0].line_ns);
    }
}

static void expect_at(const float times[TUTTI_WAY_SIZES], uint64_t bytes, double expected)
{
    const double at = tutti_way_at(times, bytes);
    if (at - expected > 1e-6 || expected - at > 1e-6) fail_msg("%g at %llu", at, (unsigned long long)bytes);
}

static void sizes_between(void **state)
{
    (void)state;
    static const float all[] = {1, 2, 3, 4, 5, 6}, some[] = {0, 2, 0, 4, 0, 0}, none[TUTTI_WAY_SIZES];
    expect_at(all, 0, 1);
    expect_at(all, 256, 1);
    expect_at(all, 512, 1 + 1.0 / 3);
    expect_at(all, 768, 1 + 1.5 / 3);
    expect_at(all, 2048, 2);
    expect_at(all, 16 << 10, 3);
    expect_at(all, 8 << 20, 6);
    expect_at(all, UINT64_C(1) << 40, 6);
    expect_at(some, 256, 2);
    expect_at(some, 2048, 2);
    expect_at(some, 16 << 10, 3);
    expect_at(some, 8 << 20, 4);
    expect_at(none, 4096, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(written_is_read, file_make, file_remove),
        cmocka_unit_test(none_is_read),
        cmocka_unit_test_setup_teardown(wrong_lines_are_refused, file_make, file_remove),
        cmocka_unit_test(sizes_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
