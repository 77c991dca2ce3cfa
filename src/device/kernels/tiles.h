/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_TILES_CUH
#define TUTTI_DEVICE_CUDA_TILES_CUH

/* Exchanges by tiles: any size, any pattern of parts, through bounded rings.
 *
 * Block b of a sender and block b of a receiver share a ring in the receiver's scratch. Of a block's 18 warps 16 move:
 * each moves its own 512 bytes of every 8 KiB of every tile, and for itself decides what comes next. One signals: when
 * all movers are through with a tile that leaves, it fences and raises `arrived` at the receiver; with a tile that
 * came, `returned` at its sender. The fence's latency so holds up nobody. One watches what peers raise here, and posts
 * it in shared memory, where movers look: many warps that poll by acquire would empty the L1 cache all the time, and
 * starve the loads of the one that lags. Two such blocks fit on an SM, so a thread has 56 registers: loads
 * on their way must not be spilled, or they are waited for at once.
 *
 * A warp's lanes are its clerks: lane p keeps the stream of tiles to rank p, lane 16 + q that from rank q, lane `me`
 * the copy of the own part. Of the streams that may go on (a free slot, an arrived tile) a mover serves one that leaves
 * and all that came; the input of the tile that leaves next is on its way while it looks. The own part stays some tiles
 * behind what leaves.
 *
 * Order. What movers store to a slot is ordered before `arrived` by: their warp's barrier, release at block scope by a
 * clerk, load and system fence by the signalling clerk, relaxed store. At the receiver the watching clerk acquires at
 * system scope and releases to the block, a mover's clerk acquires, its warp's barrier follows. Likewise reads of a
 * slot come before `returned`, and that before stores of the next tile.
 *
 * Nothing can deadlock. In a move no stream waits for another but the own one, for which none waits: where any tile can
 * go on, it does, so a block waits only for peers that have not yet come as far, whatever the others do. (A stream that
 * stores where another one of the same length reads, to and from the same peer, waits for that: tile k is received
 * after tile k has been sent. And what is relayed waits for what comes, which waits for nothing here: tile k leaves
 * when it has been stored, its room comes back when the next rank has stored tile k - n_tiles, and so on from rank to
 * rank, none of them twice, back to the one that has it all.) In a reduction tile k is folded when it came from all and
 * has been sent to all; it is sent when tile k - n_tiles was folded by the receiver: so the least k that any block
 * waits for has nothing to wait for. The grids of all ranks have to be resident, so a launch does not invite the next
 * one of its stream to take their places. The signalling warp waits for movers alone.
 *
 * Of each call's tiles the last one of a stream is given back when the receiver's next call begins, so that no call
 * ends with a store to a peer; n_tiles of at least 2 leave the sender one. Counts wrap: only differences are compared.
 */

#include "device/kernels/direct.h"
#include "device/kernels/fold.h"
#include "device/kernels/streams.h"
#include "device/kernels/units.h"

/* ---- units of a tile ---- */
/* Whether all of a tile's units are whole at this place: 16 bytes at multiples of 16. */
GPU_DEVICE bool gpu_is_whole(const char *p, uint32_t bytes)
{
    return ((reinterpret_cast<uintptr_t>(p) | bytes) & 15) == 0;
}

/* What is not whole goes unit by unit, and out of the way: calls within a loop would cost it registers. In slots there
 * is room for whole units. What leaves for a slot is scaled. */
template <class R>
GPU_COLD void gpu_move_ragged(const struct gpu_call &call, const char *from, char *to, uint32_t bytes, bool from_slot,
                              bool to_slot)
{
    const uint32_t room = (bytes + 15) & ~15u;
    for (uint32_t at = gpu_thread() * 16; at < bytes; at += gpu_pass) {
        gpu_words unit = gpu_take_unit<false>(from + at, (from_slot ? room : bytes) - at);
        if constexpr (!R::moves) {
            if (to_slot && call.scales) unit = R::scale(unit, call.factor);
        }
        gpu_give_unit<false>(to + at, unit, (to_slot ? room : bytes) - at);
    }
}

/* Whole units, and those of slots. */
GPU_DEVICE void gpu_units_load(gpu_words *units, const char *from, uint32_t begin, uint32_t bytes)
{
    GPU_UNROLL for (uint32_t u = 0; u < gpu_held; u++)
    {
        const uint32_t at = begin + u * gpu_pass + gpu_thread() * 16;
        if (at < bytes) units[u] = gpu_read_words(from + at);
    }
}

GPU_DEVICE void gpu_units_store(const gpu_words *units, char *to, uint32_t begin, uint32_t bytes)
{
    GPU_UNROLL for (uint32_t u = 0; u < gpu_held; u++)
    {
        const uint32_t at = begin + u * gpu_pass + gpu_thread() * 16;
        if (at < bytes) gpu_write_words(to + at, units[u]);
    }
}

/* ---- what leaves ---- */
/* The first units of the tile that leaves next, which are on their way if it is whole. */
struct gpu_leaving {
    gpu_words units[gpu_held];
};

struct gpu_route {
    const char *from;
    char *to; /* on this rank; NULL: a slot of a peer's */
    uint32_t bytes;
    bool whole;
};

GPU_DEVICE gpu_route gpu_leaving_route(const struct gpu_exchange &x, const gpu_stream &s, uint32_t stream)
{
    const gpu_tile tile = gpu_tile_next(s, stream, x.send[stream].bytes);
    const char *from = x.in + x.send[stream].at + tile.at;
    char *to = stream == x.call.me ? x.out + x.recv[stream].at + tile.at : nullptr;
    return gpu_route{from, to, tile.bytes, gpu_is_whole(from, tile.bytes) && gpu_is_whole(to, 0)};
}

template <class X, class S> GPU_DEVICE void gpu_leaving_load(const X &x, const S &s, uint32_t stream, gpu_leaving *l)
{
    const gpu_route route = gpu_leaving_route(x, s, stream);
    if (route.whole) gpu_units_load(l->units, route.from, 0, route.bytes);
}

template <class R>
GPU_DEVICE void gpu_leaving_store(const struct gpu_call &call, gpu_leaving *l, char *to, uint32_t begin, uint32_t bytes)
{
    if constexpr (!R::moves) {
        GPU_UNROLL for (uint32_t u = 0; u < gpu_held; u++)
        {
            if (call.scales) l->units[u] = R::scale(l->units[u], call.factor);
        }
    }
    gpu_units_store(l->units, to, begin, bytes);
}

template <class R, class X, class S> GPU_DEVICE void gpu_leave(const X &x, const S &s, uint32_t stream, gpu_leaving *l)
{
    const uint32_t slot = gpu_shuffle(s.slot, stream);
    const gpu_route route = gpu_leaving_route(x, s, stream);
    char *to = route.to ? route.to : gpu_ring(x.call, stream, x.call.me, slot);
    if (!route.whole) return gpu_move_ragged<R>(x.call, route.from, to, route.bytes, false, !route.to);
    gpu_leaving_store<R>(x.call, l, to, 0, route.bytes);
    for (uint32_t begin = gpu_held * gpu_pass; begin < route.bytes; begin += gpu_held * gpu_pass) {
        gpu_units_load(l->units, route.from, begin, route.bytes);
        gpu_leaving_store<R>(x.call, l, to, begin, route.bytes);
    }
}

/* ---- what came ---- */
GPU_DEVICE gpu_route gpu_coming_route(const struct gpu_exchange &x, const gpu_stream &s, uint32_t stream,
                                      uint32_t source)
{
    const gpu_tile tile = gpu_tile_next(s, stream, x.recv[source].bytes);
    const char *from = gpu_ring(x.call, x.call.me, source, gpu_shuffle(s.slot, stream));
    char *to = x.out + x.recv[source].at + tile.at;
    return gpu_route{from, to, tile.bytes, gpu_is_whole(to, tile.bytes)};
}

template <class R> GPU_DEVICE void gpu_take_tile(const struct gpu_call &call, const gpu_route &route)
{
    if (!route.whole) return gpu_move_ragged<R>(call, route.from, route.to, route.bytes, true, false);
    for (uint32_t begin = 0; begin < route.bytes; begin += gpu_held * gpu_pass) {
        gpu_words units[gpu_held];
        gpu_units_load(units, route.from, begin, route.bytes);
        gpu_units_store(units, route.to, begin, route.bytes);
    }
}

/* Where the contributions to a unit are. */
template <bool WHOLE> struct gpu_tile_sources {
    const struct gpu_exchange *x;
    uint32_t slots;        /* the lane's stream's */
    uint32_t within, left; /* where the unit is in its tile, and how much is left of that */
    uint64_t at;           /* the tile's: in the part */

    GPU_DEVICE gpu_words unit(const gpu_tile_sources &s, uint32_t q, bool wanted)
    {
        const uint32_t slot = gpu_shuffle(s.slots, gpu_from + q), me = s.x->call.me;
        if (!wanted) return gpu_words{};
        if (q == me) return gpu_take_unit<WHOLE>(s.x->in + s.x->send[me].at + s.at + s.within, s.left);
        return gpu_read_words(gpu_ring(s.x->call, me, q, slot) + s.within);
    }
};

/* What was folded, to all others. */
template <uint32_t HELD, bool WHOLE>
GPU_DEVICE void gpu_spread_units(const gpu_tile_sources<WHOLE> *sources, const gpu_words *units)
{
    const struct gpu_exchange &x = *sources[0].x;
    for (uint32_t k = 1; k < x.call.n; k++) {
        const uint32_t q = x.call.me + k < x.call.n ? x.call.me + k : x.call.me + k - x.call.n;
        char *to = x.spread[q] + sources[0].at;
        GPU_UNROLL for (uint32_t u = 0; u < HELD; u++)
        {
            if (sources[u].left > 0) gpu_give_unit<WHOLE>(to + sources[u].within, units[u], sources[u].left);
        }
    }
}

template <class R, uint32_t N, uint32_t HELD, bool WHOLE>
GPU_DEVICE void gpu_fold_units(const struct gpu_exchange &x, uint32_t slots, uint64_t tile_at, uint32_t bytes,
                               uint32_t ranks)
{
    char *to = x.out + x.recv[x.call.me].at + tile_at;
    for (uint32_t begin = 0; begin < bytes; begin += HELD * gpu_pass) {
        gpu_tile_sources<WHOLE> sources[HELD];
        gpu_words units[HELD];
        GPU_UNROLL for (uint32_t u = 0; u < HELD; u++)
        {
            const uint32_t at = begin + u * gpu_pass + gpu_thread() * 16;
            sources[u] = {&x, slots, at, at < bytes ? bytes - at : 0, tile_at};
        }
        gpu_fold_ranks<R, N, HELD>(sources, ranks, x.call, units);
        GPU_UNROLL for (uint32_t u = 0; u < HELD; u++)
        {
            if (sources[u].left > 0) gpu_give_unit<WHOLE>(to + sources[u].within, units[u], sources[u].left);
        }
        if (x.spreads) gpu_spread_units<HELD, WHOLE>(sources, units);
    }
}

template <class R, uint32_t N>
GPU_COLD void gpu_fold_ragged(const struct gpu_exchange &x, uint32_t slots, uint64_t tile_at, uint32_t bytes,
                              uint32_t ranks)
{
    gpu_fold_units<R, N, 1, false>(x, slots, tile_at, bytes, ranks);
}

/* Two units at once where registers have room for them. */
template <class R, uint32_t N>
GPU_DEVICE void gpu_fold_tile(const struct gpu_exchange &x, const gpu_stream &s, const gpu_tile &tile, uint32_t ranks)
{
    const uint32_t me = x.call.me;
    const bool whole = gpu_is_whole(x.out + x.recv[me].at + tile.at, tile.bytes) &&
                       ((ranks >> me & 1) == 0 || gpu_is_whole(x.in + x.send[me].at + tile.at, 0));
    if (whole) return gpu_fold_units < R, N, N == 2 ? gpu_held : 1, true > (x, s.slot, tile.at, tile.bytes, ranks);
    gpu_fold_ragged<R, N>(x, s.slot, tile.at, tile.bytes, ranks);
}

/* Those of the ready streams that may be served: what came is folded when it came from all and was sent to all. */
GPU_DEVICE uint32_t gpu_foldable(const gpu_stream &s, uint32_t ready, uint32_t result, uint32_t ranks)
{
    const uint32_t next = gpu_shuffle(s.next, result), sources = (ranks << gpu_from) | (1u << result);
    const bool held_up = gpu_any(gpu_lane() < gpu_from && gpu_stream_left(s) && s.next <= next);
    return (ready & ((1u << gpu_from) - 1)) | (!held_up && (ready & sources) == sources ? 1u << result : 0);
}

/* ---- the warps. What holds the parts is X: an exchange, or lists (messages.h), whose streams are S ---- */
GPU_DEVICE uint32_t gpu_due(const struct gpu_exchange &x, const gpu_stream &s, uint32_t left)
{
    return gpu_streams_due(s, left, x.call.me, x.relays);
}

/* What comes behind a part that is through: nothing. */
GPU_DEVICE void gpu_streams_renew(const struct gpu_exchange &, gpu_stream *) {}

template <class R, uint32_t N, class X, class S>
GPU_DEVICE void gpu_serve_arrivals(const X &x, S *s, uint32_t ready, uint32_t ranks, struct gpu_board *board)
{
    while (ready) {
        const uint32_t stream = gpu_lowest(ready), source = stream - gpu_from;
        ready &= ready - 1;
        if constexpr (R::moves) {
            gpu_take_tile<R>(x.call, gpu_coming_route(x, *s, stream, source));
            gpu_streams_advance(s, 1u << stream, x.call.layout.n_tiles, board);
            gpu_streams_renew(x, s);
        } else {
            gpu_fold_tile<R, N>(x, *s, gpu_tile_next(*s, stream, x.result_bytes), ranks);
            gpu_streams_advance(s, (ranks << gpu_from) | (1u << stream), x.call.layout.n_tiles, board);
        }
    }
}

/* A nap, and a look at what may have failed, for which the first mover asks the host. False: leave. */
GPU_DEVICE bool gpu_idle(const struct gpu_call &call, uint32_t waiting, struct gpu_board *board)
{
    gpu_nap(20);
    bool on = true;
    if (gpu_lane() == 0 && gpu_warp() == 0) {
        on = gpu_go_on(&board->waiter, call, gpu_lowest(waiting) % gpu_from);
        if (!on) gpu_release_block_u32(&board->halted, 1);
    } else if (gpu_lane() == 0) {
        on = gpu_load_block_u32(&board->halted) == 0;
    }
    return gpu_all(on);
}

/* Those of the due streams that can go on: one at least, or none after a failure. */
template <class R, class X, class S>
GPU_DEVICE uint32_t gpu_streams_wait(const X &x, const S &s, uint32_t due, uint32_t ranks, struct gpu_board *board)
{
    const uint32_t result = gpu_from + x.call.me;
    for (;;) {
        uint32_t ready = gpu_streams_ready(*board, s) & due;
        if constexpr (!R::moves) ready = gpu_foldable(s, ready, result, ranks);
        if (ready || !gpu_idle(x.call, due & ~(1u << result), board)) return ready;
    }
}

/* What came is moved while the input of what leaves is on its way. It is folded after that has left, since registers
 * do not suffice for both. */
template <class R, uint32_t N, class X> GPU_DEVICE void gpu_move_tiles(const X &x, struct gpu_board *board)
{
    constexpr uint32_t leaves = (1u << gpu_from) - 1;
    const bool stopped = gpu_has_stopped(x.call);
    const uint64_t own = gpu_load_u64(gpu_count_at(x.call, gpu_lane()));
    uint32_t ranks = 0;
    if constexpr (!R::moves) ranks = gpu_contributors(x);
    const uint32_t n_tiles = x.call.layout.n_tiles;
    auto s = gpu_stream_begin<R>(x, gpu_lane());
    uint32_t left = gpu_ballot(gpu_stream_left(s)), stream = x.call.me;
    bool begun = false;
    board->done[gpu_warp()][gpu_lane()] = 0;
    while (left) {
        const uint32_t due = R::moves ? gpu_due(x, s, left) : left;
        gpu_leaving l = {};
        if (due & leaves) {
            stream = gpu_turn(due & leaves, stream);
            gpu_leaving_load(x, s, stream, &l);
        }
        if (!begun) { /* looked at here, when input is on its way */
            if (gpu_any_of_block(stopped)) return;
            s.slot = (uint32_t)(own >> 32);
            begun = true;
        }
        const uint32_t ready = gpu_streams_wait<R>(x, s, due, ranks, board);
        if (ready == 0) return;
        if constexpr (R::moves) gpu_serve_arrivals<R, N>(x, &s, ready & ~leaves, ranks, board);
        if (ready & leaves) {
            if ((ready >> stream & 1) == 0) {
                stream = gpu_turn(ready & leaves, stream);
                gpu_leaving_load(x, s, stream, &l);
            }
            gpu_leave<R>(x, s, stream, &l);
            gpu_streams_advance(&s, 1u << stream, n_tiles, board);
            gpu_streams_renew(x, &s);
        }
        if constexpr (!R::moves) gpu_serve_arrivals<R, N>(x, &s, ready & ~leaves, ranks, board);
        left = gpu_ballot(gpu_stream_left(s));
    }
}

/* How many tiles of the lane's stream all movers are through with. */
GPU_DEVICE uint32_t gpu_all_done(const struct gpu_board &board, uint32_t total)
{
    uint32_t least = total;
    GPU_UNROLL for (uint32_t w = 0; w < gpu_movers; w++)
    {
        const uint32_t d = gpu_load_block_u32(&board.done[w][gpu_lane()]);
        least = d < least ? d : least;
    }
    return least;
}

/* Where this rank raises what a peer watches. */
GPU_DEVICE char *gpu_raised_at(const struct gpu_call &call, uint32_t peer, uint64_t flags)
{
    return call.base[peer] + flags + gpu_cell(call.layout, call.me) * sizeof(uint32_t);
}

/* All movers are through with the result: it is where others want it, and ends when theirs is here. Each clerk sees
 * for itself, so that its fence comes after what movers did. */
template <class R> GPU_DEVICE void gpu_end_spread(const struct gpu_exchange &x, const struct gpu_board &board)
{
    const uint32_t result = gpu_from + x.call.me, total = gpu_stream_begin<R>(x, result).total;
    for (uint32_t w = 0; w < gpu_movers; w++) {
        while (gpu_any(gpu_load_block_u32(&board.done[w][result]) != total)) {
            gpu_spin();
            if (gpu_any(gpu_load_block_u32(&board.halted))) return;
        }
    }
    gpu_direct_end(x.call, gpu_load_u32(gpu_directs(x.call)));
}

template <class R, class X> GPU_DEVICE void gpu_signal_tiles(const X &x, struct gpu_board *board)
{
    const struct gpu_layout &layout = x.call.layout;
    const uint32_t lane = gpu_lane(), peer = lane % gpu_from;
    const uint64_t own = gpu_load_u64(gpu_count_at(x.call, lane));
    const uint32_t total = gpu_stream_total<R>(x, lane), count = (uint32_t)own;
    const bool sends = lane < gpu_from, remote = peer < x.call.n && peer != x.call.me, mine = remote && total > 0;
    if (lane == 0) board->halted = 0, board->waiter = gpu_waiter{};
    if (gpu_any_of_block(gpu_has_stopped(x.call))) return;
    /* the last tiles of the calls before */
    if (remote && !sends) gpu_release_before_u32(gpu_raised_at(x.call, peer, layout.returned), count);
    uint32_t told = 0;
    while (gpu_any(mine && told < total)) {
        const uint32_t now = gpu_all_done(*board, total);
        if (mine && now > told && (sends || now < total)) {
            gpu_fence_system();
            gpu_store_u32(gpu_raised_at(x.call, peer, sends ? layout.arrived : layout.returned), count + now);
        }
        told = now;
        gpu_spin();
        if (gpu_any(gpu_load_block_u32(&board->halted))) return;
    }
    const uint64_t slot = ((own >> 32) + total) % layout.n_tiles;
    if (mine) gpu_store_u64(gpu_count_at(x.call, lane), slot << 32 | (count + total));
    if constexpr (!R::moves) {
        if (x.spreads) gpu_end_spread<R>(x, *board);
    }
}

/* One warp, and data do not stay in the L1 cache: it may poll by acquire, which saves a second load. */
template <class R, class X> GPU_DEVICE void gpu_watch_tiles(const X &x, struct gpu_board *board)
{
    const struct gpu_layout &layout = x.call.layout;
    const uint32_t lane = gpu_lane(), peer = lane % gpu_from;
    const uint64_t own = gpu_load_u64(gpu_count_at(x.call, lane));
    const uint32_t total = gpu_stream_total<R>(x, lane);
    const bool sends = lane < gpu_from, mine = peer != x.call.me && total > 0;
    const char *flag =
        x.call.base[x.call.me] + (sends ? layout.returned : layout.arrived) + gpu_cell(layout, peer) * sizeof(uint32_t);
    uint32_t seen = mine ? gpu_acquire_u32(flag) : 0;
    const uint32_t origin = (uint32_t)own - (sends ? layout.n_tiles : 0);
    board->allowed[lane] = peer == x.call.me ? UINT32_MAX : seen - origin;
    if (gpu_any_of_block(gpu_has_stopped(x.call))) return;
    while (gpu_any(mine && seen - origin < total)) {
        const uint32_t before = seen;
        if (mine && seen - origin < total) seen = gpu_acquire_u32(flag);
        if (seen != before) gpu_release_block_u32(&board->allowed[lane], seen - origin);
        gpu_spin();
        if (gpu_any(gpu_load_block_u32(&board->halted))) return;
    }
}

template <class R, uint32_t N, class X> GPU_DEVICE void gpu_tiles(const X &x)
{
    GPU_SHARED(struct gpu_board, board);
    gpu_wait_for_launch();
    if (gpu_warp() < gpu_movers) {
        gpu_move_tiles<R, N>(x, &board);
    } else if (gpu_warp() == gpu_movers) {
        gpu_signal_tiles<R>(x, &board);
    } else {
        gpu_watch_tiles<R>(x, &board);
    }
}

#define GPU_TILES(name, reducer, ranks)                                                                                \
    GPU_KERNEL(tiles_##name##_##ranks, struct gpu_exchange, x, GPU_TILE_THREADS, 2)                                    \
    {                                                                                                                  \
        gpu_tiles<reducer, ranks>(x);                                                                                  \
    }

#define GPU_TILES_FAST(name, R) GPU_TILES(name, R, 2) GPU_TILES(name, R, 4) GPU_TILES(name, R, 16)
/* What comes after an exchange was made in the block's own memory. */
#define GPU_TILES_OF(exchange) gpu_tiles<gpu_move, 16>(exchange)

#endif
