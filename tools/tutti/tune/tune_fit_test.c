/* SPDX-License-Identifier: BSD-3-Clause */
/* Times as the back end's costs have them: the constants are found again; and what times do not tell is not found. */
#include "tune_gpu.h"

#include "test.h"

#include <math.h>

#define KIB 1024.0
#define MIB (KIB * KIB)

static const struct gpu_speed speed = {.lines_ns = 2300,
                                       .sentinel_ns = 2100,
                                       .exceptions_ns = 150,
                                       .sentinel2_ns = 3500,
                                       .tiles_ns = 5000,
                                       .store_gbs = 340,
                                       .tile_gbs = 320,
                                       .direct_ns = 4700,
                                       .direct_gbs = 345,
                                       .engine_ns = 6500,
                                       .engine_gbs = 380,
                                       .blocks = 64};
static const double meet_ns = 2700;

static void add(struct tune_points *points, double bytes, double ns)
{
    points->bytes[points->n] = bytes, points->ns[points->n++] = ns;
}

static void times_make(uint32_t n, struct tune_times *out)
{
    static const double sizes[] = {KIB, 16 * KIB, 128 * KIB, MIB, 4 * MIB, 64 * MIB};
    *out = (struct tune_times){.n_ranks = n};
    for (size_t s = 0; s < TUTTI_ARRAY_LEN(sizes); s++) {
        for (enum tune_form form = 0; form < TUNE_N_FORMS; form++) {
            const double block = form == TUNE_FOLD ? sizes[s] : sizes[s] / n, push = (n - 1) * block;
            const double extra = form == TUNE_MOVE ? speed.exceptions_ns : 0;
            add(&out->by[TUNE_TILES][form], push, speed.tiles_ns + push / speed.tile_gbs);
            if (sizes[s] <= MIB) add(&out->by[TUNE_LINES][form], push, speed.lines_ns + 2 * push / speed.store_gbs);
            if (sizes[s] <= 4 * MIB)
                add(&out->by[TUNE_SENTINEL][form], push, speed.sentinel_ns + extra + push / speed.store_gbs);
            if (form == TUNE_FOLD) {
                add(&out->by[TUNE_SENTINEL2][form], push, speed.sentinel2_ns + 2 * push / n / speed.store_gbs);
                continue;
            }
            add(&out->by[TUNE_DIRECT][form], push, speed.direct_ns + push / speed.direct_gbs);
            add(&out->by[TUNE_ENGINES][form], push,
                (n - 1) * (speed.engine_ns + block / speed.engine_gbs) + 2 * meet_ns);
        }
    }
    for (uint32_t g = 0; g < TUNE_N_GRIDS; g++) {
        out->grids[g] = 16u << g;
        for (enum tune_form form = 0; form < TUNE_N_FORMS; form++)
            out->grid_ns[g][form] = g < 2 ? 1100 : 1000 + 3 * g; /* 64 are as fast as 128 */
    }
}

static void test_found_again(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 8; n++) {
        struct tune_times times;
        struct gpu_speed found, expected = speed;
        times_make(n, &times);
        tune_fit(&times, meet_ns, &found);
        for (size_t i = 0; i < gpu_speed_constants.n; i++) {
            const double value = (double)*tutti_constant_at(&gpu_speed_constants, &found, i);
            const double wanted = (double)*tutti_constant_at(&gpu_speed_constants, &expected, i);
            if (wanted == 0 ? !isnan(value) : !(fabs(value / wanted - 1) < 2e-3))
                fail_msg("%s of %u ranks is %g, not %g", gpu_speed_constants.rows[i].name, n, value, wanted);
        }
    }
}

static void test_what_times_do_not_tell(void **state)
{
    (void)state;
    struct tune_times times = {.n_ranks = 2};
    struct gpu_speed found;
    for (int some = 0; some < 2; some++) {
        tune_fit(&times, meet_ns, &found);
        for (size_t i = 0; i < gpu_speed_constants.n; i++)
            assert_true(isnan(*tutti_constant_at(&gpu_speed_constants, &found, i)));
        add(&times.by[TUNE_TILES][TUNE_FOLD], KIB, 5000); /* one point is no line, */
        add(&times.by[TUNE_DIRECT][TUNE_MOVE], KIB, 5000);
        add(&times.by[TUNE_DIRECT][TUNE_MOVE], MIB, 4000); /* and more bytes do not take less time */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_again),
        cmocka_unit_test(test_what_times_do_not_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
