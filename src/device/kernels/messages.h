/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_MESSAGES_CUH
#define TUTTI_DEVICE_CUDA_MESSAGES_CUH

/* Several parts for each peer in one launch: tiles (tiles.h) whose streams go through lists (struct gpu_lists). Each
 * part is cut by gpu_tiling_of for itself; of a stream, block b has its tiles of the first part, then those of the
 * second, and so on, in the slots of its ring one behind the other, just as launches by `tiles_move_16` that follow one
 * another would have them. So peers agree whatever part is in which launch.
 *
 * A mover's clerk knows of the part that its stream has come to, and opens the next one that has tiles of this block
 * when that is through; the other two warps count all tiles when they begin. No stream waits for another, so what is
 * said in tiles.h of moves holds: there is no own part, nothing is relayed, and none is stored where another reads.
 */

#include "device/kernels/tiles.h"

static_assert(sizeof(struct gpu_lists) <= 4096, "what a kernel's parameters may take");

/* Its total is that of the tiles up to the end of this part. */
struct gpu_listed : gpu_stream {
    uint32_t part;   /* 0: there is none left */
    uint32_t before; /* tiles of the stream before it */
};

/* Opens this part, or the first one behind it that has tiles of this block. */
GPU_DEVICE void gpu_listed_open(const struct gpu_lists &x, gpu_listed *s, uint32_t part)
{
    s->before = s->total;
    for (; part != 0; part = x.next[part]) {
        const struct gpu_layout &layout = x.call.layout;
        const gpu_tiling tiling = gpu_tiling_of(x.parts[part].bytes, layout.tile_bytes, layout.n_blocks);
        if (gpu_block() >= tiling.blocks) continue;
        s->total += gpu_tiles_here(tiling);
        s->shape = gpu_shape_of(tiling);
        break;
    }
    s->part = part;
}

template <class R> GPU_DEVICE gpu_listed gpu_stream_begin(const struct gpu_lists &x, uint32_t lane)
{
    gpu_listed s = {};
    gpu_listed_open(x, &s, x.first[lane]);
    return s;
}

template <class R> GPU_DEVICE uint32_t gpu_stream_total(const struct gpu_lists &x, uint32_t lane)
{
    gpu_listed s = gpu_stream_begin<R>(x, lane);
    while (s.part != 0) gpu_listed_open(x, &s, x.next[s.part]);
    return s.total;
}

GPU_DEVICE void gpu_streams_renew(const struct gpu_lists &x, gpu_listed *s)
{
    if (s->part != 0 && s->next == s->total) gpu_listed_open(x, s, x.next[s->part]);
}

GPU_DEVICE uint32_t gpu_due(const struct gpu_lists &, const gpu_listed &, uint32_t left)
{
    return left;
}

/* The next tile of the stream, and where the part that it is of begins. */
GPU_DEVICE gpu_tile gpu_listed_next(const struct gpu_lists &x, const gpu_listed &s, uint32_t stream, char **begin)
{
    const struct gpu_part &part = x.parts[gpu_shuffle(s.part, stream)];
    *begin = reinterpret_cast<char *>(part.at);
    return gpu_tile_of(s.shape, s.next - s.before, stream, part.bytes);
}

GPU_DEVICE gpu_route gpu_leaving_route(const struct gpu_lists &x, const gpu_listed &s, uint32_t stream)
{
    char *begin;
    const gpu_tile tile = gpu_listed_next(x, s, stream, &begin);
    return gpu_route{begin + tile.at, nullptr, tile.bytes, gpu_is_whole(begin + tile.at, tile.bytes)};
}

GPU_DEVICE gpu_route gpu_coming_route(const struct gpu_lists &x, const gpu_listed &s, uint32_t stream, uint32_t source)
{
    char *begin;
    const gpu_tile tile = gpu_listed_next(x, s, stream, &begin);
    const char *from = gpu_ring(x.call, x.call.me, source, gpu_shuffle(s.slot, stream));
    return gpu_route{from, begin + tile.at, tile.bytes, gpu_is_whole(begin + tile.at, tile.bytes)};
}

#endif
