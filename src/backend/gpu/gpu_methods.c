/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of methods and the choice among them: the cheapest, or the one that is forced where it fits. */

#include "backend/backend.h"
#include "backend/gpu/gpu_plan.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct gpu_method *const gpu_methods[] = {&gpu_alone,          &gpu_lines,  &gpu_sentinel, &gpu_sentinel2,
                                                &gpu_sentinels,      &gpu_tiles,  &gpu_tiles2,   &gpu_relay,
                                                &gpu_sentinel_relay, &gpu_direct, &gpu_mapped,   &gpu_engines};
const size_t gpu_n_methods = TUTTI_ARRAY_LEN(gpu_methods);

/* "batch": calls of a group as one, wherever that can be done. */
static enum tutti_status method_check(const char *method)
{
    char names[200] = "batch";
    size_t at = strlen(names);
    if (!method[0] || strcmp(method, names) == 0) return TUTTI_OK;
    for (size_t i = 0; i < gpu_n_methods; i++) {
        if (strcmp(method, gpu_methods[i]->name) == 0) return TUTTI_OK;
        at += (size_t)snprintf(names + at, sizeof names - at, ", %s", gpu_methods[i]->name);
    }
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option gpu_method is \"%s\" but can be %s", method, names);
}

enum tutti_status gpu_options_check(const struct tutti_config *options)
{
    TUTTI_TRY(method_check(options->text[TUTTI_OPT_gpu_method]));
    return gpu_tuning_check(options->text[TUTTI_OPT_gpu_tuning]);
}

/* User-defined operations run on hosts; a barrier moves nothing and is the engine's. */
static bool serves(const struct tutti_backend_call *call)
{
    return call->info.kind != TUTTI_BARRIER && !call->bind.user && call->info.op < TUTTI_N_OPS;
}

const struct gpu_method *gpu_choose(const struct gpu_site *site, const struct tutti_backend_call *call,
                                    const char *wanted, double *ns)
{
    const struct gpu_method *best = NULL;
    double least = HUGE_VAL;
    for (size_t i = 0; i < gpu_n_methods && serves(call); i++) {
        const struct gpu_method *m = gpu_methods[i];
        if (!m->fits(site, call)) continue;
        bool forced = wanted[0] && strcmp(m->name, wanted) == 0;
        double cost = forced ? 0 : m->cost_ns(site, call);
        if (best && cost >= least) continue;
        best = m, least = cost;
    }
    if (ns) *ns = best && least == 0 ? best->cost_ns(site, call) : least;
    return best;
}

/* A block takes an SM; copies take none. Of mapped ones most go straight, by fewer blocks than are launched. */
static uint32_t sms_of(const struct gpu_method *method, const struct gpu_site *site,
                       const struct tutti_backend_call *call)
{
    struct gpu_step step = {.act = GPU_LAUNCH};
    uint32_t most = 0;
    for (uint32_t i = 0; method->step(site, call, i, &step); i++) {
        const uint32_t launched = step.protocol == GPU_MAPPED ? step.straight : step.blocks;
        const uint32_t blocks = step.act == GPU_LAUNCH ? launched : step.act == GPU_MEET;
        if (blocks > most) most = blocks;
    }
    return most;
}

size_t gpu_candidates(const struct gpu_site *site, const struct tutti_backend_call *call, const char *wanted,
                      struct tutti_backend_candidate *out, size_t capacity)
{
    const struct gpu_method *chosen = gpu_choose(site, call, wanted, NULL);
    size_t n = 0;
    for (size_t i = 0; i < gpu_n_methods && n < capacity && chosen; i++) {
        const struct gpu_method *m = gpu_methods[i];
        if (!m->fits(site, call)) continue;
        out[n++] =
            (struct tutti_backend_candidate){m->name, m->cost_ns(site, call), m == chosen, sms_of(m, site, call)};
    }
    return n;
}

/* What is known of GPUs. A new one gets a row: bench/gpu_scale.sh measures it and writes the file whose values stand
 * here. */

static const struct tutti_constant rows[] = {
#define GPU_SPEED_ROW(name, minimum, maximum, help)                                                                    \
    {#name, help, (float)(minimum), (float)(maximum), offsetof(struct gpu_speed, name)},
    GPU_SPEED(GPU_SPEED_ROW)
#undef GPU_SPEED_ROW
};
const struct tutti_constants gpu_speed_constants = {rows, TUTTI_ARRAY_LEN(rows), sizeof(struct gpu_speed), "a GPU"};
_Static_assert(sizeof(struct gpu_speed) <= TUTTI_CONSTANTS_MOST_BYTES && TUTTI_ARRAY_LEN(rows) <= 32,
               "they fit in a table");

static const struct known {
    const char *device;
    uint32_t n;
    struct gpu_speed speed;
} known[] = {
    /* SXM, NVLink of 18 links. Two ranks have no hop: it is that of four, for three. */
    {"NVIDIA H200",
     2,
     {.lines_ns = 1950,
      .sentinel_ns = 1950,
      .exceptions_ns = 150,
      .sentinel2_ns = 3400,
      .tiles_ns = 8000,
      .store_gbs = 310,
      .tile_gbs = 340,
      .direct_ns = 5300,
      .direct_gbs = 348,
      .hop_ns = 13000,
      .chain_gbs = 356,
      .copy_gbs = 2000,
      .engine_ns = 9000,
      .engine_gbs = 392,
      .meet_ns = 4500,
      .blocks = 128}},
    {"NVIDIA H200",
     4,
     {.lines_ns = 2200,
      .sentinel_ns = 2200,
      .exceptions_ns = 200,
      .sentinel2_ns = 3500,
      .tiles_ns = 8500,
      .store_gbs = 314,
      .tile_gbs = 318,
      .direct_ns = 5900,
      .direct_gbs = 348,
      .hop_ns = 13000,
      .chain_gbs = 356,
      .copy_gbs = 2000,
      .engine_ns = 6600,
      .engine_gbs = 378,
      .meet_ns = 2500,
      .blocks = 128}},
};

static uint32_t apart(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

const struct gpu_speed *gpu_speed_known(const char *device, uint32_t n)
{
    const struct known *best = NULL;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(known); i++) {
        if (strcmp(known[i].device, device) != 0) continue;
        if (!best || apart(known[i].n, n) < apart(best->n, n)) best = &known[i];
    }
    return best ? &best->speed : &known[0].speed;
}

/* By what makers say of the links of devices that were never measured, beside H200's: from this capability of CUDA on.
 */
static const struct generation {
    uint32_t capability;
    float rates, times;
} generations[] = {
    {80, 0.65f, 1.2f},  /* A100: third NVLink */
    {86, 0.07f, 1.5f},  /* PCIe 4 */
    {90, 1, 1},         /* H100, H200: fourth NVLink */
    {100, 1.9f, 1},     /* B200, B300: fifth NVLink */
    {120, 0.14f, 1.2f}, /* PCIe 5 */
};

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

void gpu_speed_guess(const char *device, uint32_t capability, uint32_t n, struct gpu_speed *out)
{
    const struct generation *found = NULL;
    *out = *gpu_speed_known(device, n);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(known); i++)
        if (strcmp(known[i].device, device) == 0) return;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(generations); i++)
        if (capability >= generations[i].capability) found = &generations[i];
    for (size_t i = 0; i < gpu_speed_constants.n && found; i++) {
        float *value = tutti_constant_at(&gpu_speed_constants, out, i);
        if (ends_with(rows[i].name, "_gbs")) *value *= found->rates;
        if (ends_with(rows[i].name, "_ns")) *value *= found->times;
    }
}

enum tutti_status gpu_speed_load(const char *tuning, const char *device, uint32_t capability, uint32_t n,
                                 struct gpu_speed *out)
{
    char path[PATH_MAX];
    gpu_speed_guess(device, capability, n, out);
    if (strcmp(tuning, "off") == 0) return TUTTI_OK;
    if (strcmp(tuning, "auto") != 0) return tutti_constants_read(&gpu_speed_constants, tuning, out);
    if (!tutti_constants_path(device, n, path, sizeof(path)) || access(path, F_OK) != 0) return TUTTI_OK;
    if (tutti_constants_read(&gpu_speed_constants, path, out) < 0)
        tutti_log(TUTTI_LOG_WARN, "%s; going on without", tutti_last_error()->text);
    return TUTTI_OK;
}

enum tutti_status gpu_tuning_check(const char *tuning)
{
    struct gpu_speed speed = known[0].speed;
    if (strcmp(tuning, "auto") == 0 || strcmp(tuning, "off") == 0) return TUTTI_OK;
    return tutti_constants_read(&gpu_speed_constants, tuning, &speed);
}
