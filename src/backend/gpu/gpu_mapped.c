/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of one launch for large calls between ordinary buffers, in no window: straight where all ranks have mapped what
 * the call needs, which is known when it runs, else by tiles (device/exchange.h, struct gpu_mapped). Moves are stored
 * to peers' outputs, as `direct` does in windows; reductions are loaded from peers' inputs. */
#include "backend/gpu/gpu_plan.h"

#define REDUCE_BLOCKS 64 /* that go straight: 132 load from three H200 at 325 GB/s, 64 at 332 */
#define MOST_PIECE 2048  /* bytes that a warp moves at once: a half of what `direct` does, since registers are fewer */
#define AGREE_NS 1500    /* that posts add to the meeting of `direct` */
#define LOAD_SHARE 0.95  /* of the rate of stores: at which peers' memory is loaded */

#define BIT(place) (1u << (place))
static const uint32_t needs[TUTTI_N_KINDS] = {[TUTTI_ALL_REDUCE] = BIT(GPU_INPUT) | BIT(GPU_OUTPUT),
                                              [TUTTI_REDUCE_SCATTER] = BIT(GPU_INPUT),
                                              [TUTTI_ALL_GATHER] = BIT(GPU_OUTPUT),
                                              [TUTTI_ALL_TO_ALL] = BIT(GPU_OUTPUT),
                                              [TUTTI_BROADCAST] = BIT(GPU_OUTPUT)};

static bool has_blocks(enum tutti_kind kind)
{
    return kind != TUTTI_ALL_REDUCE && kind != TUTTI_BROADCAST;
}

/* Each rank has its own factor of a premul_sum, which others do not know. */
static bool fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const enum tutti_kind kind = call->info.kind;
    const size_t bytes = gpu_call_bytes(call);
    if (!site->maps || site->n < 2 || call->bind.v || !needs[kind] || bytes == 0) return false;
    if (has_blocks(kind) && bytes % 16) return false;
    if (!gpu_has(site, call, GPU_MAPPED)) return false;
    return !tutti_kinds[kind].reduces || (gpu_sums(call) && call->info.op != TUTTI_PREMUL_SUM);
}

/* As if the others had their outputs at GPU_APART from this one. */
static void go_straight(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_step *out)
{
    struct gpu_site there = *site;
    there.own = call->bind.output;
    for (uint32_t q = 0; q < site->n; q++)
        there.peers[q] = q == site->me ? there.own : (char *)((uintptr_t)there.own + GPU_APART);
    gpu_direct_step(&there, call, out);
    if (out->direct.piece_bytes > MOST_PIECE) out->direct.piece_bytes = MOST_PIECE;
    out->straight = out->blocks;
}

/* What each rank alone reads of its own output, and writes of its own input, may be one; peers have no order. */
static bool is_in_the_way(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const char *in = call->bind.input, *out = call->bind.output;
    if (call->info.kind == TUTTI_ALL_TO_ALL) return in == out;
    if (call->info.kind != TUTTI_REDUCE_SCATTER || !gpu_call_in_place(site, call)) return false;
    return out != in + site->me * gpu_call_bytes(call);
}

static bool step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i, struct gpu_step *out)
{
    const enum tutti_kind kind = call->info.kind;
    const size_t bytes = gpu_call_bytes(call);
    if (i > call->overlaps) return false;
    out->straight = site->layout.n_blocks < REDUCE_BLOCKS ? site->layout.n_blocks : REDUCE_BLOCKS;
    if (!tutti_kinds[kind].reduces) go_straight(site, call, out);
    if (kind == TUTTI_ALL_REDUCE)
        gpu_step_fold_shards(site, call, 0, bytes, (char *)call->bind.output + gpu_shard(bytes, site->n, site->me).at,
                             out);
    else if (kind == TUTTI_BROADCAST && site->n > 2)
        gpu_relay.step(site, call, 0, out);
    else
        gpu_step_form(site, call, GPU_TILES, out);
    out->act = i < call->overlaps ? GPU_ARRIVE : GPU_LAUNCH;
    out->protocol = GPU_MAPPED;
    out->needs = needs[kind];
    out->spreads = kind == TUTTI_ALL_REDUCE;
    out->in_the_way = is_in_the_way(site, call);
    out->threads = site->tile_threads;
    out->blocks = site->layout.n_blocks;
    return true;
}

static double cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const struct gpu_speed *s = site->speed;
    const double bytes = (double)gpu_call_bytes(call), others = site->n - 1;
    const double begin = s->direct_ns + AGREE_NS, stored = bytes / s->direct_gbs, loaded = stored / LOAD_SHARE;
    switch (call->info.kind) {
    case TUTTI_ALL_REDUCE:
        return begin + others * (loaded + stored) / site->n;
    case TUTTI_REDUCE_SCATTER:
        return begin + others * loaded;
    case TUTTI_BROADCAST:
        return begin + (site->n - 2) * (double)s->hop_ns + bytes / s->chain_gbs;
    default:
        return begin + others * stored;
    }
}

const struct gpu_method gpu_mapped = {"mapped", false, fits, cost, step};
