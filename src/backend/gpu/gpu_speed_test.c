/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of GPUs: which row or file stands for a device, and that the choice of methods follows it. */
#include "backend/gpu/gpu_plan.h"

#include "test.h"

#include "backend/backend.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/gpu_speed_XXXXXX";

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? setenv("XDG_CACHE_HOME", folder, 1) : -1;
}

static const char *in_folder(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int folder_remove(void **state)
{
    static const char *const names[] = {"named", "wrong", "tutti/nvidia-h200-4.tune", "tutti", ""};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(names); i++)
        if (remove(in_folder(names[i])) != 0) return -1;
    return 0;
}

static void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void rows_are_in_range(void **state)
{
    (void)state;
    struct gpu_speed speed = *gpu_speed_known("NVIDIA H200", 2);
    for (size_t i = 0; i < gpu_speed_constants.n; i++) {
        const struct tutti_constant *row = &gpu_speed_constants.rows[i];
        float value = *tutti_constant_at(&gpu_speed_constants, &speed, i);
        assert_true(value >= row->minimum && value <= row->maximum);
    }
    assert_true(gpu_speed_known("a GPU of next year", 5) == gpu_speed_known("NVIDIA H200", 2));
}

/* Links of the next generation carry more, those of the one before less; latencies, blocks and choices stay sane. */
static void unknown_devices_by_their_links(void **state)
{
    (void)state;
    static const uint32_t capabilities[] = {86, 120, 80, 90, 100};
    const struct gpu_speed known = *gpu_speed_known("NVIDIA H200", 2);
    struct gpu_speed speed, before = {0};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(capabilities); i++) {
        gpu_speed_guess("a GPU of next year", capabilities[i], 2, &speed);
        assert_true(speed.store_gbs > before.store_gbs && speed.tile_gbs > before.tile_gbs && speed.blocks == 128);
        assert_true(speed.lines_ns >= known.lines_ns * 0.99f);
        for (size_t k = 0; k < gpu_speed_constants.n; k++) {
            const float value = *tutti_constant_at(&gpu_speed_constants, &speed, k);
            assert_true(value >= gpu_speed_constants.rows[k].minimum && value <= gpu_speed_constants.rows[k].maximum);
        }
        before = speed;
        gpu_speed_guess("NVIDIA H200", capabilities[i], 2, &speed);
        assert_memory_equal(&speed, &known, sizeof speed); /* it was measured */
    }
    gpu_speed_guess("no GPU of CUDA", 0, 2, &speed);
    assert_memory_equal(&speed, gpu_speed_known("NVIDIA H200", 2), sizeof speed);
}

static void a_named_file_counts(void **state)
{
    (void)state;
    struct gpu_speed speed, known = *gpu_speed_known("NVIDIA H200", 4);
    const char *path = in_folder("named");
    file_write(path, "# measured\ntiles_ns 4321.5\nblocks 64\n");
    assert_int_equal(gpu_speed_load(path, "NVIDIA H200", 90, 4, &speed), TUTTI_OK);
    assert_true(speed.tiles_ns == 4321.5f && speed.blocks == 64 && speed.lines_ns == known.lines_ns);
    assert_true(speed.hop_ns == known.hop_ns && speed.chain_gbs == known.chain_gbs); /* which no file has */
    assert_int_equal(gpu_tuning_check(path), TUTTI_OK);
    assert_int_equal(gpu_tuning_check("auto"), TUTTI_OK);
    assert_int_equal(gpu_tuning_check("off"), TUTTI_OK);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct gpu_speed speed;
    static const struct {
        const char *text, *said;
    } cases[] = {{"blocks 129\n", "blocks is \"129\""}, {"tile_ns 5\n", "did you mean tiles_ns"}, {"blocks\n", "form"}};
    const char *path = in_folder("wrong");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        file_write(path, cases[i].text);
        assert_int_equal(gpu_speed_load(path, "NVIDIA H200", 90, 2, &speed), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error()->text, cases[i].said));
        assert_int_equal(gpu_tuning_check(path), TUTTI_ERR_ARGUMENT);
    }
    assert_int_equal(gpu_tuning_check(in_folder("missing")), TUTTI_ERR_SYSTEM);
}

/* By the device's name and the number of ranks; `tutti tune` writes files of these names. */
static void own_files_are_found(void **state)
{
    (void)state;
    struct gpu_speed speed, known = *gpu_speed_known("NVIDIA H200", 4);
    assert_int_equal(mkdir(in_folder("tutti"), 0755), 0);
    file_write(in_folder("tutti/nvidia-h200-4.tune"), "tiles_ns 1234\n");
    assert_int_equal(gpu_speed_load("auto", "NVIDIA H200", 90, 4, &speed), TUTTI_OK);
    assert_true(speed.tiles_ns == 1234);
    assert_int_equal(gpu_speed_load("off", "NVIDIA H200", 90, 4, &speed), TUTTI_OK);
    assert_memory_equal(&speed, &known, sizeof(speed));
    assert_int_equal(gpu_speed_load("auto", "NVIDIA H200", 90, 2, &speed), TUTTI_OK);
    assert_true(speed.tiles_ns == gpu_speed_known("NVIDIA H200", 2)->tiles_ns);
    file_write(in_folder("tutti/nvidia-h200-4.tune"), "tiles_ns nothing\n"); /* told, and done without */
    assert_int_equal(gpu_speed_load("auto", "NVIDIA H200", 90, 4, &speed), TUTTI_OK);
    assert_memory_equal(&speed, &known, sizeof(speed));
}

static void the_choice_follows(void **state)
{
    (void)state;
    struct gpu_speed speed = *gpu_speed_known("", 2);
    struct gpu_site site = {.n = 2, .speed = &speed};
    struct tutti_backend_call call = {.bind = {.dtype = TUTTI_FLOAT32, .count = 16384},
                                      .info = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM}};
    memset(site.has, true, sizeof(site.has));
    assert_true(gpu_layout(2, GPU_SCRATCH_DEFAULT, 128, &site.layout, &site.bounce_bytes));
    assert_string_equal(gpu_choose(&site, &call, "", NULL)->name, "sentinel");
    speed.sentinel_ns = 1e6f;
    assert_string_equal(gpu_choose(&site, &call, "", NULL)->name, "lines");
    speed.lines_ns = 1e6f;
    assert_string_equal(gpu_choose(&site, &call, "", NULL)->name, "tiles");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_in_range),   cmocka_unit_test(unknown_devices_by_their_links),
        cmocka_unit_test(a_named_file_counts), cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(own_files_are_found), cmocka_unit_test(the_choice_follows)};
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
