/* SPDX-License-Identifier: BSD-3-Clause */
/* From times of methods to constants: a method's time is a latency, and a rate for what it pushes. Lines store twice
 * the bytes, sentinels in two shots two shards of n. */
#include "tune_gpu.h"

#include <math.h>

#define NEARLY 1.01 /* so little is not worth more blocks */

/* Sums of a line's points, each weighed by its time to the power of minus two. */
struct sums {
    double one, x, xx, t, xt;
};

static struct sums sums_of(const struct tune_points *points, double times)
{
    struct sums s = {0};
    for (uint32_t i = 0; i < points->n; i++) {
        const double x = times * points->bytes[i], t = points->ns[i], w = 1 / (t * t);
        s.one += w, s.x += w * x, s.xx += w * x * x, s.t += w * t, s.xt += w * x * t;
    }
    return s;
}

/* Nanoseconds a byte; 0: the points do not tell. */
static double slope_of(const struct tune_points *points, double times)
{
    const struct sums s = sums_of(points, times);
    const double apart = s.one * s.xx - s.x * s.x;
    return points->n > 1 && apart > 0 ? fmax(0, (s.one * s.xt - s.x * s.t) / apart) : 0;
}

static double latency_of(const struct tune_points *points, double times, double slope)
{
    const struct sums s = sums_of(points, times);
    return points->n > 0 ? (s.t - slope * s.x) / s.one : NAN;
}

static double rate_of(double slope)
{
    return slope > 0 ? 1 / slope : NAN;
}

static void fit_slots(const struct tune_times *times, struct gpu_speed *out)
{
    const struct tune_points *lines = &times->by[TUNE_LINES][TUNE_FOLD], *moved = &times->by[TUNE_LINES][TUNE_MOVE];
    const struct tune_points *folds = &times->by[TUNE_SENTINEL][TUNE_FOLD];
    const struct tune_points *moves = &times->by[TUNE_SENTINEL][TUNE_MOVE];
    double slope = slope_of(folds, 1);
    if (!(slope > 0)) slope = slope_of(moves, 1);
    out->store_gbs = (float)rate_of(slope);
    if (!(slope > 0)) return;
    out->lines_ns = (float)latency_of(lines->n > 0 ? lines : moved, 2, slope);
    out->sentinel_ns = (float)latency_of(folds, 1, slope);
    out->exceptions_ns = (float)(latency_of(moves, 1, slope) - (double)out->sentinel_ns);
    out->sentinel2_ns = (float)latency_of(&times->by[TUNE_SENTINEL2][TUNE_FOLD], 2.0 / times->n_ranks, slope);
}

/* Folds and moves are one line. */
static struct tune_points both(const struct tune_points by[TUNE_N_FORMS])
{
    struct tune_points all = by[TUNE_FOLD];
    for (uint32_t i = 0; i < by[TUNE_MOVE].n && all.n < TUNE_POINTS; i++)
        all.bytes[all.n] = by[TUNE_MOVE].bytes[i], all.ns[all.n++] = by[TUNE_MOVE].ns[i];
    return all;
}

static void fit_line(const struct tune_points *points, float *ns, float *gbs)
{
    const double slope = slope_of(points, 1);
    *gbs = (float)rate_of(slope);
    *ns = slope > 0 ? (float)latency_of(points, 1, slope) : NAN;
}

/* The fewest blocks that are nearly as fast as the fastest, in both forms. */
static float fewest_blocks(const struct tune_times *times)
{
    double best[TUNE_N_FORMS] = {HUGE_VAL, HUGE_VAL};
    uint32_t fewest = 0;
    for (uint32_t g = 0; g < TUNE_N_GRIDS; g++)
        for (uint32_t form = 0; form < TUNE_N_FORMS && times->grids[g]; form++)
            best[form] = fmin(best[form], times->grid_ns[g][form]);
    for (uint32_t g = 0; g < TUNE_N_GRIDS; g++) {
        bool near = times->grids[g] > 0;
        for (uint32_t form = 0; form < TUNE_N_FORMS; form++)
            near = near && times->grid_ns[g][form] <= NEARLY * best[form];
        if (near && (fewest == 0 || times->grids[g] < fewest)) fewest = times->grids[g];
    }
    return fewest ? (float)fewest : NAN;
}

void tune_fit(const struct tune_times *times, double meet_ns, struct gpu_speed *out)
{
    for (size_t i = 0; i < gpu_speed_constants.n; i++) *tutti_constant_at(&gpu_speed_constants, out, i) = NAN;
    fit_slots(times, out);
    const struct tune_points tiles = both(times->by[TUNE_TILES]);
    fit_line(&tiles, &out->tiles_ns, &out->tile_gbs);
    fit_line(&times->by[TUNE_DIRECT][TUNE_MOVE], &out->direct_ns, &out->direct_gbs);
    fit_line(&times->by[TUNE_ENGINES][TUNE_MOVE], &out->engine_ns, &out->engine_gbs);
    if (times->n_ranks > 1) out->engine_ns = (float)(((double)out->engine_ns - 2 * meet_ns) / (times->n_ranks - 1));
    out->blocks = fewest_blocks(times);
}
