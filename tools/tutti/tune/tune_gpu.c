/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures the methods of the back end cuda, in turns, as `tutti bench --explain` does: in ordinary memory and in
 * windows, by graphs, from small calls to large ones for as long as there is time; then large calls by tiles with fewer
 * blocks. */
#include "tune_gpu.h"

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/cmd.h"
#include "tools/tutti/measure.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GRID_BYTES (64 * MIB)
static const size_t sizes[] = {KIB, 16 * KIB, 128 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
_Static_assert(TUNE_N_FORMS *TUTTI_ARRAY_LEN(sizes) <= TUNE_POINTS, "room for all");
static const char *const forms[TUNE_N_FORMS] = {[TUNE_FOLD] = "all_reduce", [TUNE_MOVE] = "all_gather"};
static const char *const methods[TUNE_N_METHODS] = {
    [TUNE_LINES] = "cuda:lines", [TUNE_SENTINEL] = "cuda:sentinel", [TUNE_SENTINEL2] = "cuda:sentinel2",
    [TUNE_TILES] = "cuda:tiles", [TUNE_DIRECT] = "cuda:direct",     [TUNE_ENGINES] = "cuda:engines"};
static const uint32_t grids[TUNE_N_GRIDS] = {16, 32, 64, 128};

struct measuring {
    struct tutti_comm *comm;
    struct bench_settings settings;
    struct tune_times times;
    uint64_t limit_ns, until; /* behind it no further size is begun */
    char device[64];
    uint32_t capability;
};

static struct bench_case case_of(const struct tutti_comm *comm, enum tune_form form, size_t bytes)
{
    struct bench_case c = {.dtype = TUTTI_BFLOAT16, .reduction = TUTTI_SUM, .op = bench_ops};
    while (strcmp(c.op->info->name, forms[form]) != 0) c.op++;
    c.rank = tutti_comm_rank(comm), c.n_ranks = tutti_comm_size(comm);
    bench_case_size(&c, bytes);
    return c;
}

/* What a rank sends to all others; bytes as nccl-tests counts them. */
static double pushed(const struct bench_case *c, enum tune_form form)
{
    const double others = c->n_ranks - 1, bytes = (double)c->bytes;
    return others * (form == TUNE_FOLD ? bytes : bytes / c->n_ranks);
}

static void point_add(struct tune_times *times, const struct bench_cell *cell, enum tune_form form, bool windows)
{
    for (size_t i = 0; i < cell->n_ways; i++) {
        for (enum tune_method m = 0; m < TUNE_N_METHODS; m++) {
            struct tune_points *points = &times->by[m][form];
            const bool is_it = strcmp(cell->ways[i].name, methods[m]) == 0 && windows == (m >= TUNE_DIRECT);
            if (!is_it || points->n == TUNE_POINTS) continue;
            points->bytes[points->n] = pushed(&cell->c, form);
            points->ns[points->n++] = cell->ways[i].measured_us * 1e3;
        }
    }
}

/* The first rank's clock decides for all. */
static enum tutti_status has_time(const struct measuring *m, uint8_t *out)
{
    *out = tutti_now_ns() < m->until;
    return tutti_broadcast(out, 1, TUTTI_UINT8, 0, m->comm, NULL, NULL);
}

static enum tutti_status sizes_measure(struct measuring *m, struct bench_run *run)
{
    static const char *const in_windows[] = {"cuda:direct", "cuda:engines"};
    struct bench_cell cell;
    uint8_t more = 1;
    for (size_t s = 0; s < TUTTI_ARRAY_LEN(sizes) && more; s++) {
        for (enum tune_form form = 0; form < TUNE_N_FORMS; form++) {
            const struct bench_case c = case_of(m->comm, form, sizes[s]);
            m->settings.mapped = false, m->settings.only = "cuda:";
            TUTTI_TRY(bench_explain(run, &c, &cell));
            point_add(&m->times, &cell, form, false);
            for (size_t i = 0; i < TUTTI_ARRAY_LEN(in_windows) && form == TUNE_MOVE; i++) {
                m->settings.mapped = true, m->settings.only = in_windows[i];
                TUTTI_TRY(bench_explain(run, &c, &cell));
                point_add(&m->times, &cell, form, true);
            }
        }
        TUTTI_TRY(has_time(m, &more));
    }
    return TUTTI_OK;
}

/* A number of blocks is a communicator's. */
static enum tutti_status grid_measure(struct measuring *m, uint32_t g)
{
    struct bench_run *run = NULL;
    struct bench_point point;
    char text[16];
    snprintf(text, sizeof text, "%u", grids[g]);
    setenv("TUTTI_GPU_BLOCKS", text, 1);
    enum tutti_status status = bench_run_open(m->comm, &m->settings, &run);
    unsetenv("TUTTI_GPU_BLOCKS");
    for (enum tune_form form = 0; form < TUNE_N_FORMS && status >= 0; form++) {
        const struct bench_case c = case_of(m->comm, form, GRID_BYTES);
        status = bench_measure(run, &c, &point);
        m->times.grid_ns[g][form] = point.time[0].median_us * 1e3;
    }
    if (status >= 0) m->times.grids[g] = grids[g];
    if (run) bench_run_close(run);
    return status;
}

static enum tutti_status grids_measure(struct measuring *m)
{
    uint8_t more;
    m->settings.mapped = m->settings.explain = false, m->settings.only = NULL;
    m->settings.out_of_place_only = true, m->settings.algorithm = methods[TUNE_TILES];
    m->until += m->limit_ns / 4;
    TUTTI_TRY(has_time(m, &more));
    for (uint32_t g = 0; g < TUNE_N_GRIDS && more; g++) {
        TUTTI_TRY(grid_measure(m, g));
        TUTTI_TRY(has_time(m, &more));
    }
    if (!more) memset(m->times.grids, 0, sizeof m->times.grids); /* not all can be compared */
    return TUTTI_OK;
}

static enum tutti_status measure(struct measuring *m)
{
    struct bench_run *run = NULL;
    enum tutti_status status = bench_run_open(m->comm, &m->settings, &run);
    if (status >= 0) snprintf(m->device, sizeof m->device, "%s", run->device->name);
    if (status >= 0) m->capability = run->device->capability;
    if (status >= 0) status = sizes_measure(m, run);
    struct tutti_error why = *tutti_last_error();
    if (run) bench_run_close(run);
    if (status < 0) return tutti_fail_record(&why);
    return grids_measure(m);
}

/* ---- what was found ---- */

/* Into the row that is known, what can be; and shows all. */
static void show(const struct gpu_speed *found, struct gpu_speed *speed, const char *device, uint32_t n)
{
    printf("# %u x %s\n# %-15s %12s  %s\n", n, device, "constant", "value", "what it is");
    for (size_t i = 0; i < gpu_speed_constants.n; i++) {
        const struct tutti_constant *row = &gpu_speed_constants.rows[i];
        struct gpu_speed copy = *found;
        const float value = *tutti_constant_at(&gpu_speed_constants, &copy, i);
        float *at = tutti_constant_at(&gpu_speed_constants, speed, i);
        const bool can_be = value >= row->minimum && value <= row->maximum; /* not a NaN */
        const char *note = can_be ? "" : isnan(value) ? " (not measured)" : " (disturbed: left as it was)";
        if (can_be) *at = value;
        printf("  %-15s %12.2f  %s%s\n", row->name, (double)*at, row->help, note);
    }
}

static enum tutti_status keep(const struct gpu_speed *speed, const char *device, uint32_t n, const char *output)
{
    char own[PATH_MAX], about[192], date[32] = "";
    time_t now = time(NULL);
    struct tm local;
    const char *path = output ? output : tutti_constants_path(device, n, own, sizeof own) ? own : NULL;
    if (!path)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "neither XDG_CACHE_HOME nor HOME names a directory: say --output FILE");
    if (localtime_r(&now, &local)) strftime(date, sizeof date, "%F %R", &local);
    snprintf(about, sizeof about, "tutti %s, %s, %u x %s; TUTTI_GPU_TUNING=FILE uses it", TUTTI_VERSION_TEXT, date, n,
             device);
    TUTTI_TRY(tutti_constants_write(&gpu_speed_constants, path, speed, about));
    printf("# written to %s%s\n", path, path == own ? ", which is used from now on" : "");
    return TUTTI_OK;
}

static enum tutti_status tell(const struct measuring *m, const char *output, bool dry_run)
{
    const uint32_t n = m->times.n_ranks;
    struct gpu_speed speed, found;
    gpu_speed_guess(m->device, m->capability, n, &speed);
    tune_fit(&m->times, (double)speed.meet_ns, &found);
    show(&found, &speed, m->device, n);
    return dry_run ? TUTTI_OK : keep(&speed, m->device, n, output);
}

enum tutti_status tune_gpu(const char *device, const char *output, uint64_t limit_ns, bool dry_run)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct measuring m = {.limit_ns = limit_ns, .until = tutti_now_ns() + limit_ns};
    m.settings = (struct bench_settings){.iterations = 20, .warmup = 2, .rounds = 5, .group = 1, .explain = true};
    m.settings.device = device;
    config.device = TUTTI_DEVICE_NONE;
    setenv("TUTTI_GPU_TUNING", "off", 1); /* whatever file there is now must not matter */
    TUTTI_TRY(tutti_comm_create(NULL, &config, &m.comm));
    m.times.n_ranks = (uint32_t)tutti_comm_size(m.comm);
    enum tutti_status status = measure(&m);
    if (status >= 0 && tutti_comm_rank(m.comm) == 0) status = tell(&m, output, dry_run);
    struct tutti_error why = *tutti_last_error();
    tutti_comm_destroy(m.comm);
    return status < 0 ? tutti_fail_record(&why) : status;
}
