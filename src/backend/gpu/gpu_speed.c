/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of GPUs. A new one gets a row: bench/gpu_scale.sh measures it and writes the file whose values stand
 * here. */
#include "backend/gpu/gpu_speed.h"
#include "backend/backend.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

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

enum tutti_status gpu_speed_load(const char *tuning, const char *device, uint32_t n, struct gpu_speed *out)
{
    char path[PATH_MAX];
    *out = *gpu_speed_known(device, n);
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
