/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_TILES_CUH
#define TUTTI_DEVICE_CUDA_TILES_CUH

/* Exchanges by tiles: any size, any pattern of parts, through bounded rings.
 *
 * Block b of a sender and block b of a receiver share a ring in the receiver's scratch. Of a block's 17 warps 16 move:
 * each moves its own 512 bytes of every 8 KiB of every tile, and for itself decides what comes next. The last one
 * signals: when all movers are through with a tile that leaves, it fences and raises `arrived` at the receiver; with a
 * tile that came, `returned` at its sender. The fence's latency so holds up nobody.
 *
 * A warp's lanes are its clerks: lane p keeps the stream of tiles to rank p, lane 16 + q that from rank q, lane `me`
 * the copy of the own part. All lanes look at their flags at once; of the streams that may go on (a free slot, an
 * arrived tile) one that leaves and all that came are served, and the input of the next one to leave is on its way
 * meanwhile.
 *
 * Order. What movers store to a slot is ordered before `arrived` by: their warp's barrier, release at block scope by a
 * clerk, load and system fence by the signalling clerk, relaxed store. The receiver's clerk acquires at system scope,
 * then its warp's barrier. Likewise reads of a slot come before `returned`, and that before stores of the next tile.
 *
 * Nothing can deadlock. In a move no stream waits for another: where any tile can go on, it does, so a block waits only
 * for peers that have not yet come as far, whatever the others do. (A stream that stores where another one of the same
 * length reads, to and from the same peer, waits for that: tile k is received after tile k has been sent.) In a
 * reduction tile k is folded when it came from all and has been sent to all; it is sent when tile k - n_tiles was
 * folded by the receiver: so the least k that any block waits for has nothing to wait for. The grids of all ranks have
 * to be resident. The signalling warp waits for movers alone.
 *
 * Of each call's tiles the last one of a stream is given back when the receiver's next call begins, so that no call
 * ends with a store to a peer; n_tiles of at least 2 leave the sender one. Counts wrap: only differences are compared.
 */

#include "fold.cuh"
#include "units.cuh"
#include "wait.cuh"

constexpr uint32_t cuda_movers = CUDA_TILE_THREADS / CUDA_WARP - 1; /* warps */
constexpr uint32_t cuda_pass = cuda_movers * CUDA_WARP * 16;        /* bytes that they move at once */
constexpr uint32_t cuda_held = 2;                                   /* units that a thread has on their way */
constexpr uint32_t cuda_from = CUDA_MAX_RANKS;                      /* lanes from here on receive */
constexpr uint32_t cuda_no_stream = CUDA_WARP;
static_assert(cuda_pass == CUDA_LEAST_TILE && 2 * CUDA_MAX_RANKS == CUDA_WARP, "a lane a stream");

/* What a lane knows of its stream. Tiles are counted from the call's first, of this block. */
struct cuda_stream {
    uint32_t next, total; /* the warp's next tile, and how many there are */
    uint32_t allowed;     /* tiles before this one may be moved, as far as known */
    uint32_t origin;      /* what the flag is for tile 0 */
    uint32_t slot;        /* of the next tile */
    uint32_t tile_bytes, blocks;
    const char *flag;
    bool tied; /* receives where the same peer's part is sent from */
};

/* A tile as all lanes see it. */
struct cuda_tile {
    uint64_t at; /* in the part */
    uint32_t bytes, slot;
};

CUDA_DEVICE uint64_t cuda_cell(const struct cuda_layout &layout, uint32_t rank)
{
    return (uint64_t)rank * layout.n_blocks + cuda_block();
}

/* The own count of a lane's stream, and its next slot. */
CUDA_DEVICE char *cuda_count_at(const struct cuda_call &call, uint32_t lane)
{
    const struct cuda_layout &layout = call.layout;
    return call.base[call.me] + (lane < cuda_from ? layout.sent : layout.received) +
           cuda_cell(layout, lane % cuda_from) * sizeof(uint64_t);
}

/* The ranks that contribute to a reduction's result here, a bit each. */
CUDA_DEVICE uint32_t cuda_contributors(const struct cuda_exchange &x)
{
    return cuda_ballot(cuda_lane() < x.call.n && x.recv[cuda_lane() % cuda_from].bytes > 0);
}

/* The part of a lane's stream, 0 bytes if there is none. Lane `me` copies the own part of a move, lane from + me keeps
 * the result of a reduction. */
template <class R> CUDA_DEVICE uint64_t cuda_stream_bytes(const struct cuda_exchange &x, uint32_t lane)
{
    const uint32_t peer = lane % cuda_from;
    if (peer >= x.call.n) return 0;
    if (peer != x.call.me) return lane < cuda_from ? x.send[peer].bytes : x.recv[peer].bytes;
    if (!R::moves) return lane < cuda_from ? 0 : x.result_bytes;
    const bool there = x.in + x.send[peer].at == x.out + x.recv[peer].at;
    return lane < cuda_from && !there ? x.recv[peer].bytes : 0;
}

template <class R> CUDA_DEVICE cuda_stream cuda_stream_begin(const struct cuda_exchange &x, uint32_t lane)
{
    const struct cuda_layout &layout = x.call.layout;
    const uint32_t peer = lane % cuda_from;
    const uint64_t bytes = cuda_stream_bytes<R>(x, lane);
    const struct cuda_tiling tiling = cuda_tiling_of(bytes, layout.tile_bytes, layout.n_blocks);
    cuda_stream s = {};
    if (cuda_block() >= tiling.blocks) return s;
    s.total = ((uint32_t)tiling.tiles - cuda_block() + tiling.blocks - 1) / tiling.blocks;
    s.tile_bytes = tiling.tile_bytes;
    s.blocks = tiling.blocks;
    s.allowed = UINT32_MAX;
    if (peer == x.call.me) return s;
    const bool sends = lane < cuda_from;
    const char *base = x.call.base[x.call.me];
    const uint64_t own = cuda_load_u64(cuda_count_at(x.call, lane));
    s.flag = base + (sends ? layout.returned : layout.arrived) + cuda_cell(layout, peer) * sizeof(uint32_t);
    s.origin = (uint32_t)own - (sends ? layout.n_tiles : 0);
    s.allowed = 0;
    s.slot = (uint32_t)(own >> 32);
    s.tied = R::moves && !sends && x.in + x.send[peer].at == x.out + x.recv[peer].at && x.send[peer].bytes == bytes;
    return s;
}

CUDA_DEVICE bool cuda_stream_left(const cuda_stream &s)
{
    return s.next < s.total;
}

/* The streams whose next tile may be moved, a bit each. */
CUDA_DEVICE uint32_t cuda_streams_ready(cuda_stream *s)
{
    if (cuda_stream_left(*s) && s->next == s->allowed) s->allowed = cuda_acquire_u32(s->flag) - s->origin;
    const uint32_t sent = cuda_shuffle_xor(s->next, cuda_from); /* by the lane of the same peer */
    const uint32_t ready = cuda_ballot(cuda_stream_left(*s) && s->next != s->allowed && !(s->tied && sent <= s->next));
    cuda_sync_warp();
    return ready;
}

CUDA_DEVICE cuda_tile cuda_tile_next(const cuda_stream &s, uint32_t stream, uint64_t part_bytes)
{
    const uint32_t bytes = cuda_shuffle(s.tile_bytes, stream), blocks = cuda_shuffle(s.blocks, stream);
    const uint32_t index = cuda_shuffle(s.next, stream) * blocks + cuda_block();
    const uint64_t at = (uint64_t)index * bytes, left = part_bytes - at;
    return cuda_tile{at, left < bytes ? (uint32_t)left : bytes, cuda_shuffle(s.slot, stream)};
}

/* The ring that `source` writes in the scratch of `target`. */
CUDA_DEVICE char *cuda_ring(const struct cuda_call &call, uint32_t target, uint32_t source, uint32_t slot)
{
    const struct cuda_layout &layout = call.layout;
    const uint64_t tile = cuda_cell(layout, source) * layout.n_tiles + slot;
    return call.base[target] + layout.tiles + tile * layout.tile_bytes;
}

/* The warp is through with the next tile of these streams: their clerks tell the signalling warp. */
CUDA_DEVICE void cuda_streams_advance(cuda_stream *s, uint32_t streams, uint32_t n_tiles, uint32_t *done)
{
    cuda_sync_warp();
    if ((streams >> cuda_lane() & 1) == 0) return;
    s->next++;
    s->slot = s->slot + 1 == n_tiles ? 0 : s->slot + 1;
    cuda_release_block_u32(done + cuda_lane(), s->next);
}

/* The next set bit above `last`, else the lowest: streams take turns. */
CUDA_DEVICE uint32_t cuda_turn(uint32_t streams, uint32_t last)
{
    const uint32_t above = streams & ~((2u << last) - 1);
    return cuda_lowest(above ? above : streams);
}

/* ---- what leaves ---- */
/* The tile that leaves next: its first units are on their way. */
struct cuda_leaving {
    uint32_t stream; /* cuda_no_stream: none */
    cuda_tile tile;
    cuda_words units[cuda_held];
};

CUDA_DEVICE const char *cuda_leaving_from(const struct cuda_exchange &x, const cuda_leaving &l)
{
    return x.in + x.send[l.stream].at + l.tile.at;
}

CUDA_DEVICE void cuda_leaving_load(const struct cuda_exchange &x, cuda_leaving *l, uint32_t begin)
{
    CUDA_UNROLL for (uint32_t u = 0; u < cuda_held; u++)
    {
        const uint32_t at = begin + u * cuda_pass + cuda_thread() * 16;
        if (at < l->tile.bytes) l->units[u] = cuda_take_unit<false>(cuda_leaving_from(x, *l) + at, l->tile.bytes - at);
    }
}

CUDA_DEVICE void cuda_leaving_choose(const struct cuda_exchange &x, const cuda_stream &s, uint32_t stream,
                                     cuda_leaving *l)
{
    l->stream = stream;
    l->tile = cuda_tile_next(s, stream, x.send[stream].bytes);
    cuda_leaving_load(x, l, 0);
}

template <class R>
CUDA_DEVICE void cuda_leaving_store(const struct cuda_exchange &x, cuda_leaving *l, char *to, uint32_t begin)
{
    const bool own = l->stream == x.call.me;
    CUDA_UNROLL for (uint32_t u = 0; u < cuda_held; u++)
    {
        const uint32_t at = begin + u * cuda_pass + cuda_thread() * 16;
        if (at >= l->tile.bytes) continue;
        if constexpr (!R::moves) {
            if (x.call.scales) l->units[u] = R::scale(l->units[u], x.call.factor);
        }
        if (own) {
            cuda_give_unit<false>(to + at, l->units[u], l->tile.bytes - at);
        } else {
            cuda_write_words(to + at, l->units[u]); /* slots have room for a whole unit */
        }
    }
}

/* Moves the chosen tile. */
template <class R> CUDA_DEVICE void cuda_leave(const struct cuda_exchange &x, cuda_leaving *l)
{
    char *to = l->stream == x.call.me ? x.out + x.recv[x.call.me].at + l->tile.at
                                      : cuda_ring(x.call, l->stream, x.call.me, l->tile.slot);
    cuda_leaving_store<R>(x, l, to, 0);
    for (uint32_t begin = cuda_held * cuda_pass; begin < l->tile.bytes; begin += cuda_held * cuda_pass) {
        cuda_leaving_load(x, l, begin);
        cuda_leaving_store<R>(x, l, to, begin);
    }
}

/* ---- what came ---- */
CUDA_DEVICE void cuda_take_tile(const struct cuda_exchange &x, const cuda_tile &tile, uint32_t source)
{
    const char *from = cuda_ring(x.call, x.call.me, source, tile.slot);
    char *to = x.out + x.recv[source].at + tile.at;
    for (uint32_t begin = 0; begin < tile.bytes; begin += cuda_held * cuda_pass) {
        cuda_words units[cuda_held];
        CUDA_UNROLL for (uint32_t u = 0; u < cuda_held; u++)
        {
            const uint32_t at = begin + u * cuda_pass + cuda_thread() * 16;
            if (at < tile.bytes) units[u] = cuda_read_words(from + at);
        }
        CUDA_UNROLL for (uint32_t u = 0; u < cuda_held; u++)
        {
            const uint32_t at = begin + u * cuda_pass + cuda_thread() * 16;
            if (at < tile.bytes) cuda_give_unit<false>(to + at, units[u], tile.bytes - at);
        }
    }
}

/* Where the contributions to a unit are. */
struct cuda_tile_sources {
    const struct cuda_exchange &x;
    const cuda_stream &streams;
    uint64_t at;           /* of the unit: in the part, */
    uint32_t within, left; /* in its tile, and up to the tile's end */

    CUDA_DEVICE cuda_words unit(const cuda_tile_sources &s, uint32_t q, bool wanted)
    {
        const uint32_t slot = cuda_shuffle(s.streams.slot, cuda_from + q), me = s.x.call.me;
        if (!wanted) return cuda_words{};
        if (q == me) return cuda_take_unit<false>(s.x.in + s.x.send[me].at + s.at, s.left);
        return cuda_read_words(cuda_ring(s.x.call, me, q, slot) + s.within);
    }
};

template <class R, uint32_t N>
CUDA_DEVICE void cuda_fold_tile(const struct cuda_exchange &x, const cuda_stream &s, const cuda_tile &tile,
                                uint32_t ranks)
{
    char *to = x.out + x.recv[x.call.me].at + tile.at;
    for (uint32_t begin = 0; begin < tile.bytes; begin += cuda_pass) {
        const uint32_t at = begin + cuda_thread() * 16, left = at < tile.bytes ? tile.bytes - at : 0;
        const cuda_tile_sources sources = {x, s, tile.at + at, at, left};
        const cuda_words unit = cuda_fold_ranks<R, N>(sources, ranks, x.call, left > 0);
        if (left > 0) cuda_give_unit<false>(to + at, unit, left);
    }
}

/* Of the ready streams those that may be served: what came is folded when it came from all and was sent to all. */
CUDA_DEVICE uint32_t cuda_foldable(const cuda_stream &s, uint32_t ready, uint32_t result, uint32_t ranks)
{
    const uint32_t next = cuda_shuffle(s.next, result), sources = (ranks << cuda_from) | (1u << result);
    const bool held_up = cuda_any(cuda_lane() < cuda_from && cuda_stream_left(s) && s.next <= next);
    return (ready & ((1u << cuda_from) - 1)) | (!held_up && (ready & sources) == sources ? 1u << result : 0);
}

/* ---- the warps ---- */
template <class R, uint32_t N>
CUDA_DEVICE void cuda_serve_arrivals(const struct cuda_exchange &x, cuda_stream *s, uint32_t ready, uint32_t ranks,
                                     uint32_t *done)
{
    while (ready) {
        const uint32_t stream = cuda_lowest(ready), source = stream - cuda_from;
        ready &= ready - 1;
        if constexpr (R::moves) {
            cuda_take_tile(x, cuda_tile_next(*s, stream, x.recv[source].bytes), source);
            cuda_streams_advance(s, 1u << stream, x.call.layout.n_tiles, done);
        } else {
            cuda_fold_tile<R, N>(x, *s, cuda_tile_next(*s, stream, x.result_bytes), ranks);
            cuda_streams_advance(s, (ranks << cuda_from) | (1u << stream), x.call.layout.n_tiles, done);
        }
    }
}

/* done: how many tiles of each stream this warp is through with. */
template <class R, uint32_t N> CUDA_DEVICE void cuda_move_tiles(const struct cuda_exchange &x, uint32_t *done)
{
    constexpr uint32_t leaves = (1u << cuda_from) - 1;
    const uint32_t me = x.call.me, result = cuda_from + me, ranks = R::moves ? 0 : cuda_contributors(x);
    struct cuda_waiter waiter = {};
    cuda_stream s = cuda_stream_begin<R>(x, cuda_lane());
    cuda_leaving l = {};
    uint32_t left = cuda_ballot(cuda_stream_left(s));
    if (left & leaves) cuda_leaving_choose(x, s, cuda_turn(left & leaves, me), &l);
    cuda_sync_block();
    while (left) {
        uint32_t ready = cuda_streams_ready(&s);
        if constexpr (!R::moves) ready = cuda_foldable(s, ready, result, ranks);
        if (ready & leaves) {
            if ((ready >> l.stream & 1) == 0) {
                cuda_leaving_choose(x, s, cuda_turn(ready & leaves, l.stream), &l);
            }
            cuda_leave<R>(x, &l);
            cuda_streams_advance(&s, 1u << l.stream, x.call.layout.n_tiles, done);
            left = cuda_ballot(cuda_stream_left(s));
            if (left & leaves) cuda_leaving_choose(x, s, cuda_turn(left & leaves, l.stream), &l);
        }
        cuda_serve_arrivals<R, N>(x, &s, ready & ~leaves, ranks, done);
        if (ready == 0) {
            const uint32_t peer = cuda_lowest(left & ~(1u << result)) % cuda_from;
            if (!cuda_all(cuda_lane() != 0 || cuda_go_on(&waiter, x.call, peer))) return;
        }
        left = cuda_ballot(cuda_stream_left(s));
    }
}

/* How many tiles of the lane's stream all movers are through with. */
CUDA_DEVICE uint32_t cuda_all_done(const uint32_t *done, uint32_t total)
{
    uint32_t least = total;
    CUDA_UNROLL for (uint32_t w = 0; w < cuda_movers; w++)
    {
        const uint32_t d = cuda_load_block_u32(done + w * CUDA_WARP + cuda_lane());
        least = d < least ? d : least;
    }
    return least;
}

/* Gives back the last tiles of the calls before. */
CUDA_DEVICE void cuda_give_back(const struct cuda_call &call)
{
    const uint32_t peer = cuda_lane() - cuda_from;
    if (cuda_lane() < cuda_from || peer >= call.n || peer == call.me) return;
    const uint32_t received = (uint32_t)cuda_load_u64(cuda_count_at(call, cuda_lane()));
    cuda_release_u32(call.base[peer] + call.layout.returned + cuda_cell(call.layout, call.me) * sizeof(uint32_t),
                     received);
}

template <class R> CUDA_DEVICE void cuda_signal_tiles(const struct cuda_exchange &x, const uint32_t *done)
{
    const struct cuda_layout &layout = x.call.layout;
    const uint32_t lane = cuda_lane(), peer = lane % cuda_from;
    const cuda_stream s = cuda_stream_begin<R>(x, lane);
    const bool sends = lane<cuda_from, mine = s.total> 0 && peer != x.call.me;
    const uint32_t count = s.origin + (sends ? layout.n_tiles : 0);
    char *flag = mine ? x.call.base[peer] + (sends ? layout.arrived : layout.returned) +
                            cuda_cell(layout, x.call.me) * sizeof(uint32_t)
                      : nullptr;
    cuda_sync_block();
    cuda_give_back(x.call);
    uint32_t told = 0;
    for (uint32_t turns = 1; cuda_any(mine && told < s.total); turns++) {
        const uint32_t now = cuda_all_done(done, s.total);
        if (mine && now > told) {
            cuda_fence_system();
            if (sends || now < s.total) cuda_store_u32(flag, count + now);
            told = now;
        }
        cuda_spin();
        if (turns % CUDA_SPINS == 0 && cuda_load_u32(&x.call.control->stop)) return;
    }
    if (!mine) return;
    const uint64_t slot = (s.slot + s.total) % layout.n_tiles;
    cuda_store_u64(cuda_count_at(x.call, lane), slot << 32 | (count + s.total));
}

template <class R, uint32_t N> CUDA_DEVICE void cuda_tiles(const struct cuda_exchange &x)
{
    CUDA_SHARED(uint32_t[cuda_movers * CUDA_WARP], done);
    if (cuda_warp() == cuda_movers) {
        cuda_signal_tiles<R>(x, done);
    } else {
        done[cuda_thread()] = 0;
        cuda_move_tiles<R, N>(x, done + cuda_warp() * CUDA_WARP);
    }
}

#define CUDA_TILES(name, reducer, ranks)                                                                               \
    CUDA_KERNEL(tiles_##name##_##ranks, struct cuda_exchange, x, CUDA_TILE_THREADS, 2)                                 \
    {                                                                                                                  \
        cuda_tiles<reducer, ranks>(x);                                                                                 \
    }

#endif
