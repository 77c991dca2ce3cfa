/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_STREAMS_CUH
#define TUTTI_DEVICE_CUDA_STREAMS_CUH

/* The streams of tiles between this block and those of its peers, as the warps of the block know them (tiles.h): what
 * they tell one another, which tile of a stream comes next, where it lies in a ring, and whether it may be moved. */

#include "device/kernels/wait.h"

constexpr uint32_t gpu_movers = GPU_TILE_THREADS / GPU_WARP - 2; /* warps; then the signalling, the watching one */
constexpr uint32_t gpu_pass = gpu_movers * GPU_WARP * 16;        /* bytes that they move at once */
constexpr uint32_t gpu_held = 2;                                 /* units that a thread has on their way */
constexpr uint32_t gpu_from = GPU_MAX_RANKS;                     /* lanes from here on receive */
constexpr uint32_t gpu_lag = 2; /* tiles by which the copy of the own part stays behind what leaves */
static_assert(gpu_pass == GPU_LEAST_TILE && 2 * GPU_MAX_RANKS == GPU_WARP, "a lane a stream");

/* What the warps of a block tell one another; streams are the lanes that keep them. */
struct gpu_board {
    uint32_t done[gpu_movers][GPU_WARP]; /* tiles that the mover is through with */
    uint32_t allowed[GPU_WARP];          /* tiles that have room, or have come */
    uint32_t halted;                     /* the exchange has failed: leave */
    struct gpu_waiter waiter;            /* the one lane's that asks whether it has; no register can be spared */
};

/* What a lane knows of its stream. Tiles are counted from the call's first, of this block. */
struct gpu_stream {
    uint32_t next, total; /* the warp's next tile, and how many there are */
    uint32_t slot;        /* the next tile's */
    uint32_t shape;       /* the tiling's: tile_bytes / GPU_LEAST_TILE and, in the lower half, blocks */
    bool tied;            /* receives where the same peer's part is sent from */
};

/* A tile as all lanes see it. */
struct gpu_tile {
    uint64_t at; /* in the part */
    uint32_t bytes;
};

GPU_DEVICE uint64_t gpu_cell(const struct gpu_layout &layout, uint32_t rank)
{
    return (uint64_t)rank * layout.n_blocks + gpu_block();
}

/* The own count of a lane's stream, with its next slot. Lanes without a peer look at this rank's. */
GPU_DEVICE char *gpu_count_at(const struct gpu_call &call, uint32_t lane)
{
    const struct gpu_layout &layout = call.layout;
    const uint32_t peer = lane % gpu_from < call.n ? lane % gpu_from : call.me;
    return call.base[call.me] + (lane < gpu_from ? layout.sent : layout.received) +
           gpu_cell(layout, peer) * sizeof(uint64_t);
}

/* The ranks that contribute to a reduction's result here, a bit each. */
GPU_DEVICE uint32_t gpu_contributors(const struct gpu_exchange &x)
{
    return gpu_ballot(gpu_lane() < x.call.n && x.recv[gpu_lane() % gpu_from].bytes > 0);
}

/* The part of a lane's stream, 0 bytes if there is none. Lane `me` copies the own part of a move, lane from + me keeps
 * the result of a reduction. */
template <class R> GPU_DEVICE uint64_t gpu_stream_bytes(const struct gpu_exchange &x, uint32_t lane)
{
    const uint32_t peer = lane % gpu_from;
    if (peer >= x.call.n) return 0;
    if (peer != x.call.me) return lane < gpu_from ? x.send[peer].bytes : x.recv[peer].bytes;
    if (!R::moves) return lane < gpu_from ? 0 : x.result_bytes;
    const bool there = x.in + x.send[peer].at == x.out + x.recv[peer].at;
    return lane < gpu_from && !there ? x.recv[peer].bytes : 0;
}

/* How many tiles of a part are this block's, which is one of those that it is for; and what a lane keeps of the rest.
 */
GPU_DEVICE uint32_t gpu_tiles_here(const struct gpu_tiling &tiling)
{
    return ((uint32_t)tiling.tiles - gpu_block() + tiling.blocks - 1) / tiling.blocks;
}

GPU_DEVICE uint32_t gpu_shape_of(const struct gpu_tiling &tiling)
{
    return tiling.tile_bytes / GPU_LEAST_TILE << 16 | tiling.blocks;
}

template <class R> GPU_DEVICE gpu_stream gpu_stream_begin(const struct gpu_exchange &x, uint32_t lane)
{
    const struct gpu_layout &layout = x.call.layout;
    const uint32_t peer = lane % gpu_from;
    const uint64_t bytes = gpu_stream_bytes<R>(x, lane);
    const uint32_t most = lane == x.call.me ? gpu_blocks() : layout.n_blocks; /* nobody else has the own part */
    const struct gpu_tiling tiling = gpu_tiling_of(bytes, layout.tile_bytes, most);
    gpu_stream s = {};
    if (gpu_block() >= tiling.blocks) return s;
    s.total = gpu_tiles_here(tiling);
    s.shape = gpu_shape_of(tiling);
    s.tied = R::moves && lane >= gpu_from && x.in + x.send[peer].at == x.out + x.recv[peer].at &&
             x.send[peer].bytes == bytes;
    return s;
}

template <class R> GPU_DEVICE uint32_t gpu_stream_total(const struct gpu_exchange &x, uint32_t lane)
{
    return gpu_stream_begin<R>(x, lane).total;
}

GPU_DEVICE bool gpu_stream_left(const gpu_stream &s)
{
    return s.next < s.total;
}

/* The streams whose next tile may be moved, a bit each. */
GPU_DEVICE uint32_t gpu_streams_ready(const struct gpu_board &board, const gpu_stream &s)
{
    const uint32_t allowed = gpu_acquire_block_u32(&board.allowed[gpu_lane()]);
    const uint32_t sent = gpu_shuffle_xor(s.next, gpu_from); /* by the lane of the same peer */
    const uint32_t ready = gpu_ballot(gpu_stream_left(s) && s.next != allowed && !(s.tied && sent <= s.next));
    gpu_sync_warp();
    return ready;
}

/* Those of these streams that may go on now. The own part is copied behind what leaves for others, who wait for that,
 * but not so late that it is left over. What is relayed leaves, and is read, when this warp has stored it. */
GPU_DEVICE uint32_t gpu_streams_due(const gpu_stream &s, uint32_t streams, uint32_t me, uint32_t relays)
{
    const uint32_t own = gpu_shuffle(s.next, me), lane = gpu_lane();
    const bool early = gpu_any(lane < gpu_from && lane != me && gpu_stream_left(s) && s.next < own + gpu_lag);
    if (relays) {
        const uint32_t stored = gpu_shuffle(s.next, gpu_from + relays - 1);
        streams &= ~gpu_ballot(lane < gpu_from && s.next >= stored);
    }
    return early ? streams & ~(1u << me) : streams;
}

/* For a lane's stream, of which it knows the shape and the number of the tile among those that are this block's. */
GPU_DEVICE gpu_tile gpu_tile_of(uint32_t shapes, uint32_t numbers, uint32_t stream, uint64_t part_bytes)
{
    const uint32_t shape = gpu_shuffle(shapes, stream), bytes = (shape >> 16) * GPU_LEAST_TILE;
    const uint32_t index = gpu_shuffle(numbers, stream) * (shape & 0xffff) + gpu_block();
    const uint64_t at = (uint64_t)index * bytes, left = part_bytes - at;
    return gpu_tile{at, left < bytes ? (uint32_t)left : bytes};
}

GPU_DEVICE gpu_tile gpu_tile_next(const gpu_stream &s, uint32_t stream, uint64_t part_bytes)
{
    return gpu_tile_of(s.shape, s.next, stream, part_bytes);
}

/* The ring that `source` writes in the scratch of `target`. */
GPU_DEVICE char *gpu_ring(const struct gpu_call &call, uint32_t target, uint32_t source, uint32_t slot)
{
    const struct gpu_layout &layout = call.layout;
    const uint64_t tile = gpu_cell(layout, gpu_row(target, source)) * layout.n_tiles + slot;
    return call.base[target] + layout.tiles + tile * layout.tile_bytes;
}

/* The warp is through with the next tile of these streams: their clerks tell the signalling warp. */
GPU_DEVICE void gpu_streams_advance(gpu_stream *s, uint32_t streams, uint32_t n_tiles, struct gpu_board *board)
{
    gpu_sync_warp();
    if ((streams >> gpu_lane() & 1) == 0) return;
    s->next++;
    s->slot = s->slot + 1 == n_tiles ? 0 : s->slot + 1;
    gpu_release_block_u32(&board->done[gpu_warp()][gpu_lane()], s->next);
}

/* The next set bit above `last`, else the lowest: streams take turns. */
GPU_DEVICE uint32_t gpu_turn(uint32_t streams, uint32_t last)
{
    const uint32_t above = streams & ~((2u << last) - 1);
    return gpu_lowest(above ? above : streams);
}

#endif
