/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of one launch for calls whose outputs lie in windows, so that this rank knows where they are on the others:
 * kernels store to them, without rings, and nobody moves what has come once more.
 *
 * Moves are `direct`. A broadcast goes as a chain, all of it from each rank to the next, piece by piece: links carry
 * more of what goes to one rank alone, but each rank between is a hop, so it takes a large one.
 *
 * all_reduce folds shards by tiles, as tiles2 does, and what is folded goes to all at once: that a tile has come from
 * everybody says that everybody has begun, and has no more use for what is written there. */
#include "backend/gpu/gpu_plan.h"

#define MOST_BLOCKS 64   /* for moves: more store hardly faster, and take SMs from others, */
#define CHAIN_BLOCKS 128 /* but where all go to one rank */
#define LEAST_PIECE 512  /* that a warp moves: a unit for each thread */
/* The bytes of a chain that all warps have under way together. Links serve all warps alike: the first piece has come
 * only when all have, and the next rank begins so much later. More would make that delay longer; with less, the links
 * would wait for the fence behind each piece. Pieces of LEAST_PIECE may be more. */
#define MOST_AT_ONCE (4 << 20)

/* ---- moves ---- */

static void begin(struct gpu_step *out, const char *in)
{
    struct gpu_direct *d = &out->direct;
    gpu_step_begin(out, GPU_DIRECT, NULL, NULL);
    d->in = in;
    for (uint32_t q = 0; q < GPU_MAX_RANKS; q++) d->to[q] = NULL, d->send[q] = (struct gpu_part){0, 0};
    d->alike = d->relays = d->relayed = 0;
}

static void send(struct gpu_step *out, uint32_t q, struct gpu_part part, char *to)
{
    if (out->direct.in + part.at == to) return; /* the own part, which is there */
    out->direct.send[q] = part;
    out->direct.to[q] = to;
}

static void end_with(struct gpu_direct_grid grid, struct gpu_step *out)
{
    out->direct.piece_bytes = grid.piece_bytes;
    out->blocks = grid.blocks;
    out->threads = GPU_DIRECT_THREADS;
}

static uint32_t blocks_of(const struct gpu_site *site, uint32_t most)
{
    return site->layout.n_blocks < most ? site->layout.n_blocks : most;
}

static bool move(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_step *out)
{
    begin(out, call->bind.input);
    out->direct.alike = call->info.kind == TUTTI_ALL_GATHER;
    for (uint32_t q = 0; q < site->n; q++) {
        const struct gpu_push push = gpu_push_to(site, call, q);
        send(out, q, (struct gpu_part){(size_t)(push.from - out->direct.in), push.bytes}, push.to);
    }
    end_with(gpu_direct_grid_of(gpu_call_bytes(call), blocks_of(site, MOST_BLOCKS)), out);
    return true;
}

/* ---- broadcast ---- */

/* The part of their rate at which links carry outputs that do not begin at multiples of 16, which are stored to in
 * smaller pieces. All ranks know where all of them are. */
static double aligned(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const bool whole = call->info.kind == TUTTI_ALL_REDUCE || call->info.kind == TUTTI_BROADCAST;
    uintptr_t places = 16 | (whole ? 0 : gpu_call_bytes(call));
    for (uint32_t q = 0; q < site->n; q++) places |= (uintptr_t)gpu_site_there(site, call, q, 0);
    return (double)(places & (0 - places)) / 16;
}

static double chain_ns(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const struct gpu_speed *s = site->speed;
    const double gbs = s->chain_gbs * aligned(site, call);
    return s->direct_ns + (site->n - 2) * (double)s->hop_ns + (double)gpu_call_bytes(call) / gbs;
}

static struct gpu_direct_grid chain_grid(const struct gpu_site *site, size_t bytes)
{
    const uint32_t blocks = blocks_of(site, CHAIN_BLOCKS), at_once = blocks * (GPU_DIRECT_THREADS / 32);
    struct gpu_direct_grid grid = gpu_direct_grid_of(bytes, blocks);
    uint32_t most = GPU_PIECE;
    while (most > LEAST_PIECE && at_once * most > MOST_AT_ONCE) most /= 2;
    if (site->n > 2 && grid.piece_bytes > most) grid = (struct gpu_direct_grid){most, blocks};
    return grid; /* all warps have something of what is longer */
}

/* The last rank sends nothing, so nobody tells it what has come before the end. */
static bool broadcast(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_step *out)
{
    const uint32_t n = site->n, me = site->me, hop = (me + n - (uint32_t)call->info.root) % n;
    const size_t bytes = gpu_call_bytes(call);
    begin(out, call->bind.output);
    out->direct.alike = 1;
    if (hop + 1 < n) {
        const uint32_t next = (me + 1) % n;
        out->direct.relays = hop > 0 ? 1 + (me + n - 1) % n : 0;
        out->direct.relayed = hop + 2 < n;
        send(out, next, (struct gpu_part){0, bytes}, gpu_site_there(site, call, next, 0));
    }
    end_with(chain_grid(site, bytes), out);
    return true;
}

/* ---- all_reduce ---- */

static bool all_reduce(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_step *out)
{
    const size_t bytes = gpu_call_bytes(call), mine = gpu_shard(bytes, site->n, site->me).at;
    gpu_step_fold_shards(site, call, 0, bytes, (char *)call->bind.output + mine, out);
    out->exchange.spreads = 1;
    for (uint32_t q = 0; q < site->n; q++) out->exchange.spread[q] = gpu_site_there(site, call, q, mine);
    return true;
}

/* Windows lie at the same places modulo 16: all ranks see all of them. */
static bool are_aligned(const struct gpu_site *site)
{
    for (uint32_t q = 0; q < site->n; q++)
        if (((uintptr_t)site->peers[q] ^ (uintptr_t)site->own) % 16) return false;
    return true;
}

/* ---- the method ---- */

typedef bool (*one_step)(const struct gpu_site *, const struct tutti_backend_call *, struct gpu_step *);
static const one_step step_of[TUTTI_N_KINDS] = {[TUTTI_ALL_GATHER] = move,
                                                [TUTTI_ALL_TO_ALL] = move,
                                                [TUTTI_BROADCAST] = broadcast,
                                                [TUTTI_ALL_REDUCE] = all_reduce};

static bool fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const enum tutti_kind kind = call->info.kind;
    if (site->n < 2 || !site->own || call->bind.v || !step_of[kind]) return false;
    if (!site->has[GPU_DIRECT][TUTTI_N_DTYPES])
        return false; /* a device that has them stores to windows by tiles, too */
    if (kind == TUTTI_ALL_REDUCE) return gpu_has(site, call, GPU_TILES) && are_aligned(site);
    return kind != TUTTI_ALL_TO_ALL || call->bind.input != call->bind.output;
}

static bool step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i, struct gpu_step *out)
{
    return i == 0 && step_of[call->info.kind](site, call, out);
}

bool gpu_direct_step(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_step *out)
{
    return step_of[call->info.kind](site, call, out);
}

static double cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const struct gpu_speed *s = site->speed;
    const double bytes = (double)gpu_call_bytes(call), others = site->n - 1, gbs = s->direct_gbs * aligned(site, call);
    switch (call->info.kind) {
    case TUTTI_ALL_REDUCE: /* what goes by tiles has links that what is spread leaves free */
        return s->tiles_ns + 2 * others * bytes / site->n / gbs;
    case TUTTI_BROADCAST:
        return chain_ns(site, call);
    default:
        return s->direct_ns + others * bytes / gbs;
    }
}

const struct gpu_method gpu_direct = {"direct", true, fits, cost, step};
