/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_MAPPED_H
#define TUTTI_DEVICE_KERNELS_MAPPED_H

/* Straight between ordinary buffers where all ranks have mapped what the call needs, else by tiles, in one launch.
 *
 * The agreement. The first block of each rank posts to each rank, its own included, where that one has its buffers, or
 * that it does not. A post goes to all or to nobody, so all blocks of all ranks, which each wait for all posts of the
 * call, find the same; and who has posted has come to the call in its stream. Words of a post carry the call's number
 * in their upper halves, so they need no fence. There are two slots, since a rank may be one call ahead: it has posted
 * the next one, which it can not end before all others have posted theirs, behind this one. A call that leaves the SMs
 * to computation beside it posts and waits in a launch of one warp before (`mapped_arrive_16`); for its peers that is
 * the same.
 *
 * Straight: what is loaded and stored is ordered before the end of the call on all ranks by the meeting of each block
 * at its end (direct.h): so a buffer is its owner's again when the kernel is over.
 *
 * By tiles, twice in a reduction that spreads: tile j of a shard is the same block's in both exchanges, on all ranks,
 * so a block that has ended the first one may begin the second one, whatever other blocks do. */

#include "device/kernels/direct_move.h"
#include "device/kernels/tiles.h"

constexpr uint32_t gpu_mapped_units = 4; /* a thread's, in a piece: registers are those of tiles */

/* What all have posted: places, and how many blocks the fewest are. */
struct gpu_posts {
    uint64_t at[GPU_PLACES + 1][GPU_MAX_RANKS];
    uint32_t blocks;
};

GPU_DEVICE char *gpu_post_at(const struct gpu_call &call, uint32_t at_rank, uint32_t of_rank, uint32_t count)
{
    const uint32_t row = count % 2 * call.n + of_rank;
    return call.base[at_rank] + call.layout.posts + row * (uint64_t)GPU_POST_BYTES;
}

GPU_DEVICE char *gpu_agreements(const struct gpu_call &call)
{
    return call.base[call.me] + call.layout.agreements + gpu_block() * sizeof(uint32_t);
}

/* Where the lane's peer has the buffer, 0 if not all have it. By one warp. */
GPU_DEVICE uint64_t gpu_place_there(const struct gpu_place &place, uint32_t n)
{
    const uint32_t q = gpu_lane();
    if (!place.known) return q < n ? place.there[q] : 0;
    uint64_t there = 0;
    bool is_it = true;
    if (q < n) {
        is_it = gpu_acquire_u64(&place.known->number) == place.number;
        there = gpu_load_u64(&place.known->there[q]) + place.at;
    }
    return gpu_all(is_it) ? there : 0;
}

/* By the first warp of the first block, a lane a peer. */
GPU_DEVICE void gpu_post(const struct gpu_mapped &x, uint32_t count)
{
    const struct gpu_call &call = x.exchange.call;
    const uint64_t number = (uint64_t)(count + 1) << 32;
    for (uint32_t p = 0; p <= GPU_PLACES; p++) {
        const uint64_t there = p < GPU_PLACES ? gpu_place_there(x.places[p], call.n) : x.blocks;
        if (gpu_lane() >= call.n) continue;
        gpu_store_pair(gpu_post_at(call, gpu_lane(), call.me, count) + p * sizeof(gpu_pair),
                       gpu_pair{number | (uint32_t)there, number | there >> 32});
    }
}

/* The least of a warp's lanes. */
GPU_DEVICE uint32_t gpu_fewest(uint32_t n)
{
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const uint32_t other = gpu_shuffle_xor(n, mask);
        n = other < n ? other : n;
    }
    return n;
}

/* By the first warp of each block. *straight: everything that is needed is known to all. False: leave. */
GPU_DEVICE bool gpu_posts_wait(const struct gpu_mapped &x, uint32_t count, struct gpu_posts *posts, bool *straight)
{
    const struct gpu_call &call = x.exchange.call;
    const uint32_t q = gpu_lane(), number = count + 1;
    struct gpu_waiter waiter = {};
    bool on = true, known = true;
    for (uint32_t p = 0; p <= GPU_PLACES && q < call.n && on; p++) {
        const char *at = gpu_post_at(call, call.me, q, count) + p * sizeof(gpu_pair);
        gpu_pair post = gpu_load_pair(at);
        while (on && ((uint32_t)(post.x >> 32) != number || (uint32_t)(post.y >> 32) != number)) {
            on = gpu_go_on(&waiter, call, q);
            post = gpu_load_pair(at);
        }
        posts->at[p][q] = (uint32_t)post.x | post.y << 32;
        known = known && ((x.needs >> p & 1) == 0 || posts->at[p][q] != 0);
    }
    posts->blocks = gpu_fewest(q < call.n ? (uint32_t)posts->at[GPU_PLACES][q] : GPU_MAX_BLOCKS);
    gpu_fence_system(); /* what peers did before they posted, and before this launch, comes before what follows */
    *straight = gpu_all(known);
    return gpu_all(on);
}

/* All threads come to it. False: leave. */
GPU_DEVICE bool gpu_agree(const struct gpu_mapped &x, struct gpu_posts *posts, bool *straight)
{
    const struct gpu_call &call = x.exchange.call;
    const uint32_t count = gpu_load_u32(gpu_agreements(call));
    bool on = true, all = true;
    if (gpu_warp() == 0) {
        on = gpu_all(!gpu_has_stopped(call));
        if (on && gpu_block() == 0 && !x.posted) gpu_post(x, count);
        on = on && gpu_posts_wait(x, count, posts, &all);
    }
    on = !gpu_any_of_block(!on);
    *straight = !gpu_any_of_block(!all);
    if (on && gpu_thread() == 0) gpu_store_u32(gpu_agreements(call), count + 1);
    return on;
}

/* By one warp, which posts for the launch behind. */
GPU_DEVICE void gpu_arrive(const struct gpu_mapped &x)
{
    GPU_SHARED(struct gpu_posts, posts);
    const struct gpu_call &call = x.exchange.call;
    const uint32_t count = gpu_load_u32(gpu_agreements(call));
    bool straight;
    if (!gpu_all(!gpu_has_stopped(call))) return;
    gpu_post(x, count);
    gpu_posts_wait(x, count, &posts, &straight);
}

/* The first block tells the host which way the call went. */
GPU_DEVICE void gpu_tell_way(const struct gpu_call &call, bool straight)
{
    if (gpu_block() > 0 || gpu_thread() > 0) return;
    char *own = call.base[call.me] + call.layout.ways + straight * sizeof(uint64_t);
    const uint64_t n = gpu_load_u64(own) + 1;
    gpu_store_u64(own, n);
    gpu_store_u64(straight ? &call.control->straight : &call.control->by_tiles, n);
}

/* What is at `here` in this rank's buffer, as rank q has it in its own. */
GPU_DEVICE char *gpu_there(const struct gpu_posts &posts, uint32_t place, const char *here, uint32_t me, uint32_t q)
{
    return const_cast<char *>(here) + (posts.at[place][q] - posts.at[place][me]);
}

/* After all that the block has loaded and stored. */
GPU_DEVICE void gpu_mapped_end(const struct gpu_call &call, uint32_t count)
{
    gpu_sync();
    if (gpu_warp() == 0 && gpu_direct_end(call, count)) gpu_tell_way(call, true);
}

/* ---- moves ---- */

GPU_DEVICE void gpu_mapped_move(const struct gpu_mapped &x)
{
    GPU_SHARED(struct gpu_posts, posts);
    GPU_SHARED(struct gpu_direct, direct);
    const uint32_t me = x.exchange.call.me, q = gpu_thread();
    bool straight;
    if (!gpu_agree(x, &posts, &straight)) return;
    if (!straight) {
        gpu_tiles<gpu_move, 16>(x.exchange);
        return gpu_tell_way(x.exchange.call, false);
    }
    if (gpu_block() >= posts.blocks) return;
    const uint32_t count = gpu_load_u32(gpu_directs(x.exchange.call));
    GPU_SHARE(direct, x.direct);
    if (q < x.exchange.call.n && q != me && direct.to[q])
        direct.to[q] = gpu_there(posts, GPU_OUTPUT, direct.to[q] - GPU_APART, me, q);
    gpu_sync();
    const bool on =
        gpu_warp() >= GPU_DIRECT_THREADS / GPU_WARP || gpu_direct_move<gpu_mapped_units>(direct, count, posts.blocks);
    if (gpu_any_of_block(!on)) return; /* and nobody is told that all is there */
    gpu_mapped_end(x.exchange.call, count);
}

/* ---- reductions ---- */

struct gpu_mapped_sources {
    const struct gpu_posts *posts;
    const char *own; /* the unit of this rank's input */
    uint32_t me;
    uint64_t left;

    GPU_DEVICE gpu_words unit(const gpu_mapped_sources &s, uint32_t q, bool wanted)
    {
        if (!wanted) return gpu_words{};
        return gpu_take_unit<false>(gpu_there(*s.posts, GPU_INPUT, s.own, s.me, q), s.left);
    }
};

/* The result's unit at `to` on this rank, here or in all outputs, the next rank's first. */
GPU_DEVICE void gpu_mapped_give(const struct gpu_mapped &x, const struct gpu_posts &posts, char *to, gpu_words unit,
                                uint64_t left)
{
    const uint32_t n = x.exchange.call.n, me = x.exchange.call.me;
    for (uint32_t k = 1; k < n && x.spreads; k++) {
        const uint32_t q = me + k < n ? me + k : me + k - n;
        gpu_give_unit<false>(gpu_there(posts, GPU_OUTPUT, to, me, q), unit, left);
    }
    gpu_give_unit<false>(to, unit, left);
}

/* Between two ranks each unit has one load that takes its time, so there are two units on their way. By whole warps. */
template <class R, uint32_t N>
GPU_DEVICE void gpu_mapped_reduce(const struct gpu_mapped &x, const struct gpu_posts &posts)
{
    constexpr uint32_t held = N == 2 ? gpu_held : 1;
    const struct gpu_exchange &e = x.exchange;
    const char *in = e.in + e.send[e.call.me].at;
    char *out = e.out + e.recv[e.call.me].at;
    const uint32_t ranks = (1u << e.call.n) - 1;
    const uint64_t turn = (uint64_t)gpu_threads() * posts.blocks * 16, bytes = e.result_bytes;
    for (uint64_t first = (gpu_block() * gpu_threads() + gpu_warp() * GPU_WARP) * (uint64_t)16; first < bytes;
         first += held * turn) {
        gpu_mapped_sources sources[held];
        gpu_words units[held];
        GPU_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            const uint64_t at = first + u * turn + gpu_lane() * 16;
            sources[u] = {&posts, in + at, e.call.me, at < bytes ? bytes - at : 0};
        }
        gpu_fold_ranks<R, N, held>(sources, ranks, e.call, units);
        GPU_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            const uint64_t at = first + u * turn + gpu_lane() * 16;
            if (sources[u].left > 0) gpu_mapped_give(x, posts, out + at, units[u], sources[u].left);
        }
    }
}

/* By tiles, as the second of two exchanges: what each has folded, to all others. A block that has no tile of the
 * longest shard, which is the first one, has none in either, and its movers have not waited for the others. */
GPU_DEVICE void gpu_mapped_spread(const struct gpu_exchange &first)
{
    GPU_SHARED(struct gpu_exchange, second);
    const uint32_t me = first.call.me, q = gpu_thread();
    const struct gpu_layout &layout = first.call.layout;
    if (gpu_block() >= gpu_tile_blocks(first.send[0].bytes, layout.tile_bytes, layout.n_blocks)) return;
    gpu_sync();
    gpu_fence_system(); /* tiles of the first one that this one gives back have been read */
    GPU_SHARE(second, first);
    char *out = first.out - first.send[me].at;
    if (q < first.call.n) {
        second.send[q] = q == me ? gpu_part{0, 0} : first.send[me];
        second.recv[q] = q == me ? gpu_part{0, 0} : first.send[q];
    }
    if (q == 0) second.in = second.out = out, second.result_bytes = 0, second.call.scales = 0;
    gpu_sync();
    gpu_tiles<gpu_move, 16>(second);
}

template <class R, uint32_t N> GPU_DEVICE void gpu_mapped_fold(const struct gpu_mapped &x)
{
    GPU_SHARED(struct gpu_posts, posts);
    bool straight;
    if (!gpu_agree(x, &posts, &straight)) return;
    if (!straight) {
        gpu_tiles<R, N>(x.exchange);
        if (x.spreads) gpu_mapped_spread(x.exchange);
        return gpu_tell_way(x.exchange.call, false);
    }
    if (gpu_block() >= posts.blocks) return;
    const uint32_t count = gpu_load_u32(gpu_directs(x.exchange.call));
    gpu_mapped_reduce<R, N>(x, posts);
    gpu_mapped_end(x.exchange.call, count);
}

#define GPU_MAPPED_ARRIVE                                                                                              \
    GPU_KERNEL(mapped_arrive_16, struct gpu_mapped, x, GPU_WARP)                                                       \
    {                                                                                                                  \
        gpu_wait_for_launch();                                                                                         \
        gpu_arrive(x);                                                                                                 \
    }
#define GPU_MAPPED_MOVE                                                                                                \
    GPU_KERNEL(mapped_move_16, struct gpu_mapped, x, GPU_TILE_THREADS, 2)                                              \
    {                                                                                                                  \
        gpu_wait_for_launch();                                                                                         \
        gpu_mapped_move(x);                                                                                            \
    }
#define GPU_MAPPED(name, reducer, ranks)                                                                               \
    GPU_KERNEL(mapped_##name##_##ranks, struct gpu_mapped, x, GPU_TILE_THREADS, 2)                                     \
    {                                                                                                                  \
        gpu_wait_for_launch();                                                                                         \
        gpu_mapped_fold<reducer, ranks>(x);                                                                            \
    }
#define GPU_MAPPED_FAST(name, R) GPU_MAPPED(name, R, 2) GPU_MAPPED(name, R, 4) GPU_MAPPED(name, R, 16)

#endif
