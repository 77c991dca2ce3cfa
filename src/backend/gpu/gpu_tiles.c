/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that move tiles, which serve any size; and a rank alone. */

#include "backend/gpu/gpu_plan.h"

#include <math.h>

/* A method that was not yet measured takes the place of others only where it is predicted to take clearly less. */
#define UNMEASURED 1.1

/* ---- one exchange ---- */

static bool tiles_fit(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->n > 1 && gpu_has(site, call, GPU_TILES);
}

static bool tiles_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                       struct gpu_step *out)
{
    if (i > 0) return false;
    gpu_step_form(site, call, GPU_TILES, out);
    gpu_step_tiles(site, out);
    return true;
}

/* ---- two exchanges ---- */

void gpu_step_fold_shards(const struct gpu_site *site, const struct tutti_backend_call *call, size_t at, size_t bytes,
                          char *to, struct gpu_step *out)
{
    struct gpu_exchange *x = &out->exchange;
    struct gpu_part mine = gpu_shard(bytes, site->n, site->me);
    gpu_step_begin(out, GPU_TILES, (const char *)call->bind.input + at, to);
    gpu_step_fold(call, out);
    for (uint32_t q = 0; q < site->n; q++) {
        x->send[q] = gpu_shard(bytes, site->n, q);
        x->recv[q] = (struct gpu_part){0, mine.bytes};
    }
    x->result_bytes = mine.bytes;
    gpu_step_tiles(site, out);
}

/* Shards of the buffer go from those who have them to all others. */
static void spread_shards(const struct gpu_site *site, char *buffer, size_t bytes, struct gpu_step *out)
{
    struct gpu_exchange *x = &out->exchange;
    gpu_step_begin(out, GPU_TILES, buffer, buffer);
    for (uint32_t q = 0; q < site->n; q++) {
        if (q == site->me) continue;
        x->send[q] = gpu_shard(bytes, site->n, site->me);
        x->recv[q] = gpu_shard(bytes, site->n, q);
    }
    gpu_step_tiles(site, out);
}

bool gpu_two_shots_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                        struct gpu_step *out)
{
    size_t bytes = gpu_call_bytes(call);
    char *to = call->bind.output;
    if (i == 0) gpu_step_fold_shards(site, call, 0, bytes, to + gpu_shard(bytes, site->n, site->me).at, out);
    if (i == 1) spread_shards(site, to, bytes, out);
    return i < 2;
}

/* Members have no place of their own for what they fold but the bounce buffer, so it goes piece by piece. */
static bool reduce_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                        struct gpu_step *out)
{
    size_t bytes = gpu_call_bytes(call);
    size_t most = site->bounce_bytes / GPU_SHARD_UNIT * GPU_SHARD_UNIT * site->n, at = i / 2 * most;
    if (at >= bytes) return false;
    size_t piece = bytes - at < most ? bytes - at : most;
    if (i % 2 == 0) {
        gpu_step_fold_shards(site, call, at, piece, site->bounce, out);
        return true;
    }
    uint32_t root = (uint32_t)call->info.root;
    char *to = site->me == root ? (char *)call->bind.output + at : NULL;
    struct gpu_part mine = gpu_shard(piece, site->n, site->me);
    gpu_step_begin(out, GPU_TILES, site->bounce, to);
    out->exchange.send[root] = (struct gpu_part){0, mine.bytes};
    for (uint32_t q = 0; q < site->n && to; q++) out->exchange.recv[q] = gpu_shard(piece, site->n, q);
    gpu_step_tiles(site, out);
    return true;
}

/* Between two ranks it would send as much, in two launches. */
static bool tiles2_fit(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    enum tutti_kind kind = call->info.kind;
    return (kind == TUTTI_ALL_REDUCE || kind == TUTTI_REDUCE) && site->n > 2 && gpu_has(site, call, GPU_TILES) &&
           site->has[GPU_TILES][TUTTI_N_DTYPES];
}

static bool tiles2_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                        struct gpu_step *out)
{
    if (call->info.kind == TUTTI_ALL_REDUCE) return gpu_two_shots_step(site, call, i, out);
    return reduce_step(site, call, i, out);
}

/* ---- one exchange, in which what comes goes on ---- */

/* Between two ranks it is what `tiles` is. */
static bool relay_fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->n > 2 && call->info.kind == TUTTI_BROADCAST && gpu_has(site, call, GPU_TILES);
}

/* What rank q, another than the root, has from that, and sends on. */
static struct gpu_part share(size_t bytes, uint32_t n, uint32_t root, uint32_t q)
{
    return gpu_shard(bytes, n - 1, gpu_row(root, q));
}

/* The root sends each other rank its share of [at, +bytes), which that one sends on to the rest as it comes. */
static void relay(const struct gpu_site *site, const struct tutti_backend_call *call, enum gpu_protocol protocol,
                  size_t at, size_t bytes, struct gpu_step *out)
{
    const uint32_t n = site->n, me = site->me, root = (uint32_t)call->info.root;
    struct gpu_exchange *x = &out->exchange;
    char *buffer = (char *)call->bind.output + at;
    gpu_step_begin(out, protocol, buffer, buffer);
    for (uint32_t q = 0; q < n; q++) {
        if (q == me) continue;
        if (q != root) x->send[q] = share(bytes, n, root, me == root ? q : me);
        if (me != root) x->recv[q] = share(bytes, n, root, q == root ? me : q);
    }
    if (me != root) x->relays = 1 + root;
}

static bool relay_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                       struct gpu_step *out)
{
    if (i > 0) return false;
    relay(site, call, GPU_TILES, 0, gpu_call_bytes(call), out);
    gpu_step_tiles(site, out);
    return true;
}

/* ---- one rank ---- */

static bool alone_fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->n == 1 && (call->info.op != TUTTI_PREMUL_SUM || gpu_has(site, call, GPU_TILES));
}

/* What is left is a copy; with a factor it is an exchange among one. */
static bool alone_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                       struct gpu_step *out)
{
    enum tutti_kind kind = call->info.kind;
    if (i > 0 || kind == TUTTI_BROADCAST || kind == TUTTI_EXSCAN) return false;
    struct gpu_part from = gpu_sent_to(site, call, 0), to = gpu_received_from(site, call, 0);
    if (call->info.op == TUTTI_PREMUL_SUM) return tiles_step(site, call, i, out);
    out->act = GPU_COPY;
    out->stream = GPU_CALLERS;
    out->src = (const char *)call->bind.input + from.at;
    out->dst = (char *)call->bind.output + to.at;
    out->bytes = out->src == out->dst ? 0 : to.bytes;
    return true;
}

/* ---- what they cost ---- */

static double tiles_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->speed->tiles_ns + gpu_pushed_bytes(site, call) / site->speed->tile_gbs;
}

static double tiles2_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    double pieces = 1;
    if (call->info.kind == TUTTI_REDUCE)
        pieces += gpu_pushed_bytes(site, call) / (double)(site->bounce_bytes + 1) / site->n;
    return 2 * pieces * site->speed->tiles_ns + 2 * gpu_pushed_bytes(site, call) / site->n / site->speed->tile_gbs;
}

/* The root sends all of it once, the others less. */
static double relay_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    bool known;
    return site->speed->tiles_ns + (double)gpu_block_bytes(site, call, &known) / site->speed->tile_gbs;
}

static double alone_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    bool known;
    return site->speed->sentinel_ns + (double)gpu_block_bytes(site, call, &known) / site->speed->copy_gbs;
}

const struct gpu_method gpu_alone = {"alone", false, alone_fits, alone_cost, alone_step};
const struct gpu_method gpu_tiles = {"tiles", false, tiles_fit, tiles_cost, tiles_step};
const struct gpu_method gpu_tiles2 = {"tiles2", false, tiles2_fit, tiles2_cost, tiles2_step};
const struct gpu_method gpu_relay = {"relay", false, relay_fits, relay_cost, relay_step};

/* Methods whose parts fit into the slots that a block of a launch has for each peer: lines and sentinels. */

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

/* ---- one exchange, in which what comes goes on: by as few launches as have room for it ---- */

static size_t relayed_at_once(const struct gpu_site *site)
{
    return (size_t)(site->n - 1) * site->layout.n_blocks * site->layout.sentinel_bytes;
}

static bool sentinel_relay_fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->n > 2 && call->info.kind == TUTTI_BROADCAST && gpu_has(site, call, GPU_SENTINEL_RELAY);
}

static bool sentinel_relay_step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                                struct gpu_step *out)
{
    const size_t bytes = gpu_call_bytes(call), most = relayed_at_once(site), at = i * most;
    if (at >= bytes) return false;
    const size_t piece = bytes - at < most ? bytes - at : most;
    relay(site, call, GPU_SENTINEL_RELAY, at, piece, out);
    return gpu_step_grid(site, gpu_shard(piece, site->n - 1, 0).bytes, site->layout.sentinel_bytes, out);
}

/* ---- what they cost ---- */

static double lines_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    return site->speed->lines_ns + 2 * gpu_pushed_bytes(site, call) / site->speed->store_gbs;
}

/* A launch, and what exceptions cost that. */
static double sentinel_launch(const struct gpu_site *site, bool folds, const struct tutti_backend_call *call)
{
    bool is_float = folds && tutti_dtypes[call->info.dtype].class >= TUTTI_SMALL_FLOAT;
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

/* The root sends all of it once, and the last unit goes on, as in sentinel2; a launch behind another one waits for
 * nobody but that. */
static double sentinel_relay_cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const struct gpu_speed *s = site->speed;
    const double bytes = (double)gpu_call_bytes(call), behind = floor(bytes / (double)relayed_at_once(site));
    const double ns = s->sentinel2_ns + s->exceptions_ns + behind * s->sentinel_ns + bytes / s->store_gbs;
    return ns * UNMEASURED;
}

const struct gpu_method gpu_lines = {"lines", false, lines_fit, lines_cost, lines_step};
const struct gpu_method gpu_sentinel = {"sentinel", false, sentinel_fits, sentinel_cost, sentinel_step};
const struct gpu_method gpu_sentinel2 = {"sentinel2", false, sentinel2_fits, sentinel2_cost, sentinel2_step};
const struct gpu_method gpu_sentinel_relay = {"sentinel_relay", false, sentinel_relay_fits, sentinel_relay_cost,
                                              sentinel_relay_step};
const struct gpu_method gpu_sentinels = {"sentinels", false, sentinels_fit, sentinels_cost, sentinels_step};
