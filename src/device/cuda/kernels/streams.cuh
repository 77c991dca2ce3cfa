/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_STREAMS_CUH
#define TUTTI_DEVICE_CUDA_STREAMS_CUH

/* The streams of tiles between this block and those of its peers, as the warps of the block know them (tiles.cuh): what
 * they tell one another, which tile of a stream comes next, where it lies in a ring, and whether it may be moved. */

#include "wait.cuh"

constexpr uint32_t cuda_movers = GPU_TILE_THREADS / CUDA_WARP - 2; /* warps; then the signalling, the watching one */
constexpr uint32_t cuda_pass = cuda_movers * CUDA_WARP * 16;        /* bytes that they move at once */
constexpr uint32_t cuda_held = 2;                                   /* units that a thread has on their way */
constexpr uint32_t cuda_from = GPU_MAX_RANKS;                      /* lanes from here on receive */
constexpr uint32_t cuda_lag = 2; /* tiles by which the copy of the own part stays behind what leaves */
static_assert(cuda_pass == GPU_LEAST_TILE && 2 * GPU_MAX_RANKS == CUDA_WARP, "a lane a stream");

/* What the warps of a block tell one another; streams are the lanes that keep them. */
struct cuda_board {
    uint32_t done[cuda_movers][CUDA_WARP]; /* tiles that the mover is through with */
    uint32_t allowed[CUDA_WARP];           /* tiles that have room, or have come */
    uint32_t halted;                       /* the exchange has failed: leave */
    struct cuda_waiter waiter;             /* of the one lane that asks whether it has; no register can be spared */
};

/* What a lane knows of its stream. Tiles are counted from the call's first, of this block. */
struct cuda_stream {
    uint32_t next, total; /* the warp's next tile, and how many there are */
    uint32_t slot;        /* of the next tile */
    uint32_t shape;       /* of the tiling: tile_bytes / GPU_LEAST_TILE and, in the lower half, blocks */
    bool tied;            /* receives where the same peer's part is sent from */
};

/* A tile as all lanes see it. */
struct cuda_tile {
    uint64_t at; /* in the part */
    uint32_t bytes;
};

CUDA_DEVICE uint64_t cuda_cell(const struct gpu_layout &layout, uint32_t rank)
{
    return (uint64_t)rank * layout.n_blocks + cuda_block();
}

/* The own count of a lane's stream, with its next slot. Lanes without a peer look at this rank's. */
CUDA_DEVICE char *cuda_count_at(const struct gpu_call &call, uint32_t lane)
{
    const struct gpu_layout &layout = call.layout;
    const uint32_t peer = lane % cuda_from < call.n ? lane % cuda_from : call.me;
    return call.base[call.me] + (lane < cuda_from ? layout.sent : layout.received) +
           cuda_cell(layout, peer) * sizeof(uint64_t);
}

/* The ranks that contribute to a reduction's result here, a bit each. */
CUDA_DEVICE uint32_t cuda_contributors(const struct gpu_exchange &x)
{
    return cuda_ballot(cuda_lane() < x.call.n && x.recv[cuda_lane() % cuda_from].bytes > 0);
}

/* The part of a lane's stream, 0 bytes if there is none. Lane `me` copies the own part of a move, lane from + me keeps
 * the result of a reduction. */
template <class R> CUDA_DEVICE uint64_t cuda_stream_bytes(const struct gpu_exchange &x, uint32_t lane)
{
    const uint32_t peer = lane % cuda_from;
    if (peer >= x.call.n) return 0;
    if (peer != x.call.me) return lane < cuda_from ? x.send[peer].bytes : x.recv[peer].bytes;
    if (!R::moves) return lane < cuda_from ? 0 : x.result_bytes;
    const bool there = x.in + x.send[peer].at == x.out + x.recv[peer].at;
    return lane < cuda_from && !there ? x.recv[peer].bytes : 0;
}

/* How many tiles of a part are this block's, which is one of those that it is for; and what a lane keeps of the rest.
 */
CUDA_DEVICE uint32_t cuda_tiles_here(const struct gpu_tiling &tiling)
{
    return ((uint32_t)tiling.tiles - cuda_block() + tiling.blocks - 1) / tiling.blocks;
}

CUDA_DEVICE uint32_t cuda_shape_of(const struct gpu_tiling &tiling)
{
    return tiling.tile_bytes / GPU_LEAST_TILE << 16 | tiling.blocks;
}

template <class R> CUDA_DEVICE cuda_stream cuda_stream_begin(const struct gpu_exchange &x, uint32_t lane)
{
    const struct gpu_layout &layout = x.call.layout;
    const uint32_t peer = lane % cuda_from;
    const uint64_t bytes = cuda_stream_bytes<R>(x, lane);
    const uint32_t most = lane == x.call.me ? cuda_blocks() : layout.n_blocks; /* nobody else has the own part */
    const struct gpu_tiling tiling = gpu_tiling_of(bytes, layout.tile_bytes, most);
    cuda_stream s = {};
    if (cuda_block() >= tiling.blocks) return s;
    s.total = cuda_tiles_here(tiling);
    s.shape = cuda_shape_of(tiling);
    s.tied = R::moves && lane >= cuda_from && x.in + x.send[peer].at == x.out + x.recv[peer].at &&
             x.send[peer].bytes == bytes;
    return s;
}

template <class R> CUDA_DEVICE uint32_t cuda_stream_total(const struct gpu_exchange &x, uint32_t lane)
{
    return cuda_stream_begin<R>(x, lane).total;
}

CUDA_DEVICE bool cuda_stream_left(const cuda_stream &s)
{
    return s.next < s.total;
}

/* The streams whose next tile may be moved, a bit each. */
CUDA_DEVICE uint32_t cuda_streams_ready(const struct cuda_board &board, const cuda_stream &s)
{
    const uint32_t allowed = cuda_acquire_block_u32(&board.allowed[cuda_lane()]);
    const uint32_t sent = cuda_shuffle_xor(s.next, cuda_from); /* by the lane of the same peer */
    const uint32_t ready = cuda_ballot(cuda_stream_left(s) && s.next != allowed && !(s.tied && sent <= s.next));
    cuda_sync_warp();
    return ready;
}

/* Of these streams those that may go on now. The own part is copied behind what leaves for others, who wait for that,
 * but not so late that it is left over. What is relayed leaves, and is read, when this warp has stored it. */
CUDA_DEVICE uint32_t cuda_streams_due(const cuda_stream &s, uint32_t streams, uint32_t me, uint32_t relays)
{
    const uint32_t own = cuda_shuffle(s.next, me), lane = cuda_lane();
    const bool early = cuda_any(lane < cuda_from && lane != me && cuda_stream_left(s) && s.next < own + cuda_lag);
    if (relays) {
        const uint32_t stored = cuda_shuffle(s.next, cuda_from + relays - 1);
        streams &= ~cuda_ballot(lane < cuda_from && s.next >= stored);
    }
    return early ? streams & ~(1u << me) : streams;
}

/* Of a lane's stream, of which it knows the shape and the number of the tile among those that are this block's. */
CUDA_DEVICE cuda_tile cuda_tile_of(uint32_t shapes, uint32_t numbers, uint32_t stream, uint64_t part_bytes)
{
    const uint32_t shape = cuda_shuffle(shapes, stream), bytes = (shape >> 16) * GPU_LEAST_TILE;
    const uint32_t index = cuda_shuffle(numbers, stream) * (shape & 0xffff) + cuda_block();
    const uint64_t at = (uint64_t)index * bytes, left = part_bytes - at;
    return cuda_tile{at, left < bytes ? (uint32_t)left : bytes};
}

CUDA_DEVICE cuda_tile cuda_tile_next(const cuda_stream &s, uint32_t stream, uint64_t part_bytes)
{
    return cuda_tile_of(s.shape, s.next, stream, part_bytes);
}

/* The ring that `source` writes in the scratch of `target`. */
CUDA_DEVICE char *cuda_ring(const struct gpu_call &call, uint32_t target, uint32_t source, uint32_t slot)
{
    const struct gpu_layout &layout = call.layout;
    const uint64_t tile = cuda_cell(layout, gpu_row(target, source)) * layout.n_tiles + slot;
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

#endif
