/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods whose parts fit into the slots that a block of a launch has for each peer: lines and sentinels. */
#include "backend/gpu/gpu_plan.h"

/* ---- one exchange ---- */

static bool slot_fits(const struct gpu_site *site, const struct tutti_backend_call *call, enum gpu_protocol protocol,
                      uint32_t slot_bytes)
{
    bool known;
    size_t bytes = gpu_block_bytes(site, call, &known);
    return site->n > 1 && known && gpu_has(site, call, protocol) && gpu_step_grid(site, bytes, slot_bytes, NULL);
}

static bool slot_step(const struct gpu_site *site, const struct tutti_backend_call *call, enum gpu_protocol protocol,
                      uint32_t slot_bytes, struct gpu_step *out)
{
    bool known;
    gpu_step_form(site, call, protocol, out);
    return gpu_step_grid(site, gpu_block_bytes(site, call, &known), slot_bytes, out);
}

static bool lines_fit(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return slot_fits(site, call, GPU_LINES, site->layout.line_bytes);
}

static bool lines_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                       struct gpu_step *out)
{
    return i == 0 && slot_step(site, call, GPU_LINES, site->layout.line_bytes, out);
}

static bool sentinel_fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return slot_fits(site, call, GPU_SENTINEL, site->layout.sentinel_bytes);
}

static bool sentinel_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                          struct gpu_step *out)
{
    return i == 0 && slot_step(site, call, GPU_SENTINEL, site->layout.sentinel_bytes, out);
}

/* ---- two exchanges: in one launch, then in two ---- */

static bool sentinel2_fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    size_t shard = gpu_shard(gpu_call_bytes(call), site->n, 0).bytes;
    return site->n > 2 && call->info.kind == TUTTI_ALL_REDUCE && gpu_has(site, call, GPU_SENTINEL2) &&
           gpu_step_grid(site, shard, gpu_phase_bytes(&site->layout), NULL);
}

static bool sentinel2_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                           struct gpu_step *out)
{
    size_t bytes = gpu_call_bytes(call);
    if (i > 0) return false;
    gpu_step_begin(out, GPU_SENTINEL2, call->bind.input, call->bind.output);
    gpu_step_fold(call, out);
    out->exchange.result_bytes = bytes;
    /* Also where the one shard is short: shard_bytes is a multiple of 16. */
    out->exchange.send[0].bytes = (gpu_shard(bytes, site->n, 0).bytes + 15) / 16 * 16;
    return gpu_step_grid(site, out->exchange.send[0].bytes, gpu_phase_bytes(&site->layout), out);
}

/* The same as two launches, whose slots hold twice what sentinel2 puts into them. Only the kernels of sums are fast
 * enough for it to pay: int32 of 8 MiB took 66 us on four H200. */
static bool sentinels_fit(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const enum tutti_dtype dtype = call->info.dtype;
    size_t shard = gpu_shard(gpu_call_bytes(call), site->n, 0).bytes;
    if (dtype != TUTTI_FLOAT32 && dtype != TUTTI_FLOAT16 && dtype != TUTTI_BFLOAT16) return false;
    return site->n > 2 && gpu_sums(call) && call->info.kind == TUTTI_ALL_REDUCE && gpu_has(site, call, GPU_SENTINEL) &&
           site->has[GPU_SENTINEL][TUTTI_N_DTYPES] && gpu_step_grid(site, shard, site->layout.sentinel_bytes, NULL);
}

static bool sentinels_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                           struct gpu_step *out)
{
    size_t shard = gpu_shard(gpu_call_bytes(call), site->n, 0).bytes;
    if (!gpu_two_shots_step(site, call, i, out)) return false;
    out->protocol = GPU_SENTINEL;
    return gpu_step_grid(site, shard, site->layout.sentinel_bytes, out);
}

/* ---- what they cost ---- */

static double lines_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->speed->lines_ns + 2 * gpu_pushed_bytes(site, call) / site->speed->store_gbs;
}

/* A launch, and what exceptions cost that. */
static double sentinel_launch(const struct gpu_site *site, bool folds, const struct tutti_backend_call *call)
{
    bool is_float = folds && call->info.dtype >= TUTTI_FLOAT8_E4M3FN;
    return site->speed->sentinel_ns + (is_float ? 0 : site->speed->exceptions_ns);
}

static double sentinel_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return sentinel_launch(site, tutti_kinds[call->info.kind].reduces, call) +
           gpu_pushed_bytes(site, call) / site->speed->store_gbs;
}

static double sentinels_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return sentinel_launch(site, true, call) + sentinel_launch(site, false, call) +
           2 * gpu_pushed_bytes(site, call) / site->n / site->speed->store_gbs;
}

static double sentinel2_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->speed->sentinel2_ns + 2 * gpu_pushed_bytes(site, call) / site->n / site->speed->store_gbs;
}

const struct gpu_method gpu_lines = {"lines", false, lines_fit, lines_cost, lines_step};
const struct gpu_method gpu_sentinel = {"sentinel", false, sentinel_fits, sentinel_cost, sentinel_step};
const struct gpu_method gpu_sentinel2 = {"sentinel2", false, sentinel2_fits, sentinel2_cost, sentinel2_step};
const struct gpu_method gpu_sentinels = {"sentinels", false, sentinels_fit, sentinels_cost, sentinels_step};
