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
 * starve the loads of the one that lags.
 *
 * A warp's lanes are its clerks: lane p keeps the stream of tiles to rank p, lane 16 + q that from rank q, lane `me`
 * the copy of the own part. Of the streams that may go on (a free slot, an arrived tile) a mover serves one that leaves
 * and all that came; the input of the tile that leaves next is on its way while it looks.
 *
 * Order. What movers store to a slot is ordered before `arrived` by: their warp's barrier, release at block scope by a
 * clerk, load and system fence by the signalling clerk, relaxed store. At the receiver the watching clerk acquires at
 * system scope and releases to the block, a mover's clerk acquires, its warp's barrier follows. Likewise reads of a
 * slot come before `returned`, and that before stores of the next tile.
 *
 * Nothing can deadlock. In a move no stream waits for another: where any tile can go on, it does, so a block waits only
 * for peers that have not yet come as far, whatever the others do. (A stream that stores where another one of the same
 * length reads, to and from the same peer, waits for that: tile k is received after tile k has been sent.) In a
 * reduction tile k is folded when it came from all and has been sent to all; it is sent when tile k - n_tiles was
 * folded by the receiver: so the least k that any block waits for has nothing to wait for. The grids of all ranks have
 * to be resident, so a launch does not invite the next one of its stream to take their places. The signalling warp
 * waits for movers alone.
 *
 * Of each call's tiles the last one of a stream is given back when the receiver's next call begins, so that no call
 * ends with a store to a peer; n_tiles of at least 2 leave the sender one. Counts wrap: only differences are compared.
 */

#include "fold.cuh"
#include "units.cuh"
#include "wait.cuh"

constexpr uint32_t cuda_movers = CUDA_TILE_THREADS / CUDA_WARP - 2; /* warps; then the signalling, the watching one */
constexpr uint32_t cuda_pass = cuda_movers * CUDA_WARP * 16;        /* bytes that they move at once */
constexpr uint32_t cuda_held = 2;                                   /* units that a thread has on their way */
constexpr uint32_t cuda_from = CUDA_MAX_RANKS;                      /* lanes from here on receive */
constexpr uint32_t cuda_lag = 2; /* tiles by which the copy of the own part stays behind what leaves */
static_assert(cuda_pass == CUDA_LEAST_TILE && 2 * CUDA_MAX_RANKS == CUDA_WARP, "a lane a stream");

/* What the warps of a block tell one another; streams are the lanes that keep them. */
struct cuda_board {
    uint32_t done[cuda_movers][CUDA_WARP]; /* tiles that the mover is through with */
    uint32_t allowed[CUDA_WARP];           /* tiles that have room, or have come */
    uint32_t halted;                       /* the exchange has failed: leave */
};

/* What a lane knows of its stream. Tiles are counted from the call's first, of this block. */
struct cuda_stream {
    uint32_t next, total; /* the warp's next tile, and how many there are */
    uint32_t allowed;     /* tiles before this one may be moved, as far as known */
    uint32_t slot;        /* of the next tile */
    uint32_t shape;       /* of the tiling: tile_bytes / CUDA_LEAST_TILE and, in the lower half, blocks */
    bool tied;            /* receives where the same peer's part is sent from */
};

/* A tile as all lanes see it. */
struct cuda_tile {
    uint64_t at; /* in the part */
    uint32_t bytes;
};

CUDA_DEVICE uint64_t cuda_cell(const struct cuda_layout &layout, uint32_t rank)
{
    return (uint64_t)rank * layout.n_blocks + cuda_block();
}

/* The own count of a lane's stream, with its next slot. Lanes without a peer look at this rank's. */
CUDA_DEVICE char *cuda_count_at(const struct cuda_call &call, uint32_t lane)
{
    const struct cuda_layout &layout = call.layout;
    const uint32_t peer = lane % cuda_from < call.n ? lane % cuda_from : call.me;
    return call.base[call.me] + (lane < cuda_from ? layout.sent : layout.received) +
           cuda_cell(layout, peer) * sizeof(uint64_t);
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
    s.shape = tiling.tile_bytes / CUDA_LEAST_TILE << 16 | tiling.blocks;
    s.allowed = peer == x.call.me ? UINT32_MAX : 0;
    s.tied = R::moves && lane >= cuda_from && x.in + x.send[peer].at == x.out + x.recv[peer].at &&
             x.send[peer].bytes == bytes;
    return s;
}

CUDA_DEVICE bool cuda_stream_left(const cuda_stream &s)
{
    return s.next < s.total;
}

/* The streams whose next tile may be moved, a bit each. */
CUDA_DEVICE uint32_t cuda_streams_ready(const struct cuda_board &board, cuda_stream *s)
{
    if (cuda_stream_left(*s) && s->next == s->allowed) s->allowed = cuda_acquire_block_u32(&board.allowed[cuda_lane()]);
    const uint32_t sent = cuda_shuffle_xor(s->next, cuda_from); /* by the lane of the same peer */
    const uint32_t ready = cuda_ballot(cuda_stream_left(*s) && s->next != s->allowed && !(s->tied && sent <= s->next));
    cuda_sync_warp();
    return ready;
}

/* Of these streams those that may go on now. The own part is copied behind what leaves for others, who wait for that,
 * but not so late that it is left over. */
CUDA_DEVICE uint32_t cuda_streams_due(const cuda_stream &s, uint32_t streams, uint32_t me)
{
    const uint32_t own = cuda_shuffle(s.next, me), lane = cuda_lane();
    const bool early = cuda_any(lane < cuda_from && lane != me && cuda_stream_left(s) && s.next < own + cuda_lag);
    return early ? streams & ~(1u << me) : streams;
}

CUDA_DEVICE cuda_tile cuda_tile_next(const cuda_stream &s, uint32_t stream, uint64_t part_bytes)
{
    const uint32_t shape = cuda_shuffle(s.shape, stream), bytes = (shape >> 16) * CUDA_LEAST_TILE;
    const uint32_t index = cuda_shuffle(s.next, stream) * (shape & 0xffff) + cuda_block();
    const uint64_t at = (uint64_t)index * bytes, left = part_bytes - at;
    return cuda_tile{at, left < bytes ? (uint32_t)left : bytes};
}

/* The ring that `source` writes in the scratch of `target`. */
CUDA_DEVICE char *cuda_ring(const struct cuda_call &call, uint32_t target, uint32_t source, uint32_t slot)
{
    const struct cuda_layout &layout = call.layout;
    const uint64_t tile = cuda_cell(layout, source) * layout.n_tiles + slot;
    return call.base[target] + layout.tiles + tile * layout.tile_bytes;
}

/* The warp is through with the next tile of these streams: their clerks tell the signalling warp. */
CUDA_DEVICE void cuda_streams_advance(cuda_stream *s, uint32_t streams, uint32_t n_tiles, struct cuda_board *board)
{
    cuda_sync_warp();
    if ((streams >> cuda_lane() & 1) == 0) return;
    s->next++;
    s->slot = s->slot + 1 == n_tiles ? 0 : s->slot + 1;
    cuda_release_block_u32(&board->done[cuda_warp()][cuda_lane()], s->next);
}

/* The next set bit above `last`, else the lowest: streams take turns. */
CUDA_DEVICE uint32_t cuda_turn(uint32_t streams, uint32_t last)
{
    const uint32_t above = streams & ~((2u << last) - 1);
    return cuda_lowest(above ? above : streams);
}

/* ---- what leaves ---- */
/* The tile that leaves next; its first units are on their way. */
struct cuda_leaving {
    uint32_t stream;
    bool chosen;
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
    l->chosen = true;
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
template <class R> CUDA_DEVICE void cuda_leave(const struct cuda_exchange &x, const cuda_stream &s, cuda_leaving *l)
{
    const uint32_t slot = cuda_shuffle(s.slot, l->stream);
    char *to = l->stream == x.call.me ? x.out + x.recv[x.call.me].at + l->tile.at
                                      : cuda_ring(x.call, l->stream, x.call.me, slot);
    cuda_leaving_store<R>(x, l, to, 0);
    for (uint32_t begin = cuda_held * cuda_pass; begin < l->tile.bytes; begin += cuda_held * cuda_pass) {
        cuda_leaving_load(x, l, begin);
        cuda_leaving_store<R>(x, l, to, begin);
    }
    l->chosen = false;
}

/* ---- what came ---- */
CUDA_DEVICE void cuda_take_tile(const struct cuda_exchange &x, const cuda_tile &tile, uint32_t source, uint32_t slot)
{
    const char *from = cuda_ring(x.call, x.call.me, source, slot);
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
                                     struct cuda_board *board)
{
    while (ready) {
        const uint32_t stream = cuda_lowest(ready), source = stream - cuda_from;
        ready &= ready - 1;
        if constexpr (R::moves) {
            cuda_take_tile(x, cuda_tile_next(*s, stream, x.recv[source].bytes), source, cuda_shuffle(s->slot, stream));
            cuda_streams_advance(s, 1u << stream, x.call.layout.n_tiles, board);
        } else {
            cuda_fold_tile<R, N>(x, *s, cuda_tile_next(*s, stream, x.result_bytes), ranks);
            cuda_streams_advance(s, (ranks << cuda_from) | (1u << stream), x.call.layout.n_tiles, board);
        }
    }
}

/* Nothing is ready: a nap, and a look at what may have failed, for which the first mover asks the host. False: leave.
 */
CUDA_DEVICE bool cuda_idle(const struct cuda_call &call, struct cuda_waiter *waiter, uint32_t waiting,
                           struct cuda_board *board)
{
    cuda_nap(20);
    bool on = true;
    if (cuda_lane() == 0 && cuda_warp() == 0) {
        on = cuda_go_on(waiter, call, cuda_lowest(waiting) % cuda_from);
        if (!on) cuda_release_block_u32(&board->halted, 1);
    } else if (cuda_lane() == 0) {
        on = cuda_load_block_u32(&board->halted) == 0;
    }
    return cuda_all(on);
}

template <class R, uint32_t N> CUDA_DEVICE void cuda_move_tiles(const struct cuda_exchange &x, struct cuda_board *board)
{
    constexpr uint32_t leaves = (1u << cuda_from) - 1;
    const uint64_t own = cuda_load_u64(cuda_count_at(x.call, cuda_lane()));
    const uint32_t result = cuda_from + x.call.me, ranks = R::moves ? 0 : cuda_contributors(x);
    struct cuda_waiter waiter = {};
    cuda_stream s = cuda_stream_begin<R>(x, cuda_lane());
    cuda_leaving l = {};
    uint32_t left = cuda_ballot(cuda_stream_left(s));
    if (left & leaves) cuda_leaving_choose(x, s, cuda_turn(left & leaves, x.call.me), &l);
    board->done[cuda_warp()][cuda_lane()] = 0;
    cuda_sync_block();
    s.slot = (uint32_t)(own >> 32); /* looked at here, when input is on its way */
    while (left) {
        const uint32_t due = R::moves ? cuda_streams_due(s, left, x.call.me) : left;
        if ((due & leaves) && !l.chosen) cuda_leaving_choose(x, s, cuda_turn(due & leaves, l.stream), &l);
        uint32_t ready = cuda_streams_ready(*board, &s) & due;
        if constexpr (!R::moves) ready = cuda_foldable(s, ready, result, ranks);
        if (ready & leaves) {
            if ((ready >> l.stream & 1) == 0) cuda_leaving_choose(x, s, cuda_turn(ready & leaves, l.stream), &l);
            cuda_leave<R>(x, s, &l);
            cuda_streams_advance(&s, 1u << l.stream, x.call.layout.n_tiles, board);
        }
        cuda_serve_arrivals<R, N>(x, &s, ready & ~leaves, ranks, board);
        if (ready == 0 && !cuda_idle(x.call, &waiter, due & ~(1u << result), board)) return;
        left = cuda_ballot(cuda_stream_left(s));
    }
}

/* How many tiles of the lane's stream all movers are through with. */
CUDA_DEVICE uint32_t cuda_all_done(const struct cuda_board &board, uint32_t total)
{
    uint32_t least = total;
    CUDA_UNROLL for (uint32_t w = 0; w < cuda_movers; w++)
    {
        const uint32_t d = cuda_load_block_u32(&board.done[w][cuda_lane()]);
        least = d < least ? d : least;
    }
    return least;
}

/* Where this rank raises what a peer watches. */
CUDA_DEVICE char *cuda_raised_at(const struct cuda_call &call, uint32_t peer, uint64_t flags)
{
    return call.base[peer] + flags + cuda_cell(call.layout, call.me) * sizeof(uint32_t);
}

template <class R> CUDA_DEVICE void cuda_signal_tiles(const struct cuda_exchange &x, struct cuda_board *board)
{
    const struct cuda_layout &layout = x.call.layout;
    const uint32_t lane = cuda_lane(), peer = lane % cuda_from;
    const uint64_t own = cuda_load_u64(cuda_count_at(x.call, lane));
    const uint32_t total = cuda_stream_begin<R>(x, lane).total, count = (uint32_t)own;
    const bool sends = lane < cuda_from, remote = peer < x.call.n && peer != x.call.me, mine = remote && total > 0;
    if (lane == 0) board->halted = 0;
    cuda_sync_block();
    /* The last tiles of the calls before; between them and this one lies what is at least a fence. */
    if (remote && !sends) cuda_store_u32(cuda_raised_at(x.call, peer, layout.returned), count);
    uint32_t told = 0;
    while (cuda_any(mine && told < total)) {
        const uint32_t now = cuda_all_done(*board, total);
        if (mine && now > told && (sends || now < total)) {
            cuda_fence_system();
            cuda_store_u32(cuda_raised_at(x.call, peer, sends ? layout.arrived : layout.returned), count + now);
        }
        told = now;
        cuda_spin();
        if (cuda_any(cuda_load_block_u32(&board->halted))) return;
    }
    if (!mine) return;
    const uint64_t slot = ((own >> 32) + total) % layout.n_tiles;
    cuda_store_u64(cuda_count_at(x.call, lane), slot << 32 | (count + total));
}

/* One warp, and data do not stay in the L1 cache: it may poll by acquire, which saves a second load. */
template <class R> CUDA_DEVICE void cuda_watch_tiles(const struct cuda_exchange &x, struct cuda_board *board)
{
    const struct cuda_layout &layout = x.call.layout;
    const uint32_t lane = cuda_lane(), peer = lane % cuda_from;
    const uint64_t own = cuda_load_u64(cuda_count_at(x.call, lane));
    const uint32_t total = cuda_stream_begin<R>(x, lane).total;
    const bool sends = lane < cuda_from, mine = peer != x.call.me && total > 0;
    const char *flag = x.call.base[x.call.me] + (sends ? layout.returned : layout.arrived) +
                       cuda_cell(layout, peer) * sizeof(uint32_t);
    uint32_t seen = mine ? cuda_acquire_u32(flag) : 0;
    const uint32_t origin = (uint32_t)own - (sends ? layout.n_tiles : 0);
    board->allowed[lane] = seen - origin;
    cuda_sync_block();
    while (cuda_any(mine && seen - origin < total)) {
        const uint32_t before = seen;
        if (mine && seen - origin < total) seen = cuda_acquire_u32(flag);
        if (seen != before) cuda_release_block_u32(&board->allowed[lane], seen - origin);
        cuda_spin();
        if (cuda_any(cuda_load_block_u32(&board->halted))) return;
    }
}

template <class R, uint32_t N> CUDA_DEVICE void cuda_tiles(const struct cuda_exchange &x)
{
    CUDA_SHARED(struct cuda_board, board);
    cuda_wait_for_launch();
    if (cuda_warp() < cuda_movers) {
        cuda_move_tiles<R, N>(x, &board);
    } else if (cuda_warp() == cuda_movers) {
        cuda_signal_tiles<R>(x, &board);
    } else {
        cuda_watch_tiles<R>(x, &board);
    }
}

#define CUDA_TILES(name, reducer, ranks)                                                                               \
    CUDA_KERNEL(tiles_##name##_##ranks, struct cuda_exchange, x, CUDA_TILE_THREADS, 2)                                 \
    {                                                                                                                  \
        cuda_tiles<reducer, ranks>(x);                                                                                 \
    }

#endif
