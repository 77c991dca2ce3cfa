/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_BLOCK_TILES_H
#define TUTTI_DEVICE_KERNELS_BLOCK_TILES_H

/* Exchanges by tiles: any size, any pattern of parts, through bounded rings. Block b of a sender and block b of a
 * receiver share a ring in the receiver's scratch. What travels, in which tiles, slots and counts, is as in
 * tiles.h, and so is why nothing can deadlock; who does it is not: a block does all together, in turns.
 *
 * The first 32 threads are clerks: clerk p keeps the stream of tiles to rank p, clerk 16 + q that from rank q, clerk
 * `me` the copy of the own part, or clerk 16 + me the result of a reduction. In a turn each says whether its stream may
 * go on (a free slot, a tile that has come); all threads then move the tiles of all those streams, fence, and meet; the
 * clerks tell the peers. So a turn costs one fence, however many peers there are.
 *
 * Order. What threads store to a slot is ordered before `arrived` by each one's fence at the scope of all devices, the
 * block's barrier, and the clerk's release. At the receiver the clerk acquires, and the barrier before tiles are moved
 * passes that on. Likewise reads of a slot come before `returned`, and that before stores of the next tile.
 *
 * Of each call's tiles the last one of a stream is given back when the receiver's next call begins, so that no call
 * ends with a store to a peer; n_tiles of at least 2 leave the sender one. Counts wrap: only differences are compared.
 */

#include "device/kernels/block_fold.h"
#include "device/kernels/block_units.h"
#include "device/kernels/block_wait.h"

enum { STREAMS = 2 * GPU_MAX_RANKS, FROM = GPU_MAX_RANKS, OWN_LAG = 2 };
#define SENDING ((1u << FROM) - 1)

/* What a clerk keeps for itself. */
struct clerk {
    bool remote, tied; /* its peer is another rank; it receives where the same peer's part is sent from */
    uint32_t count, seen;
    uint64_t flag, raises, keeps; /* the word that it watches, the peer's word that it raises, where its count is */
};

/* What clerks tell all threads, by stream; and what they keep there for themselves, since registers are all threads'.
 */
struct tiles_board {
    struct votes votes;
    uint32_t ready[3];                        /* streams that may go on, as votes.bits */
    uint32_t next[STREAMS], total[STREAMS];   /* the next tile, and how many there are, of this block */
    uint32_t slot[STREAMS];                   /* the next tile's */
    uint32_t blocks[STREAMS], bytes[STREAMS]; /* the tiling's */
    uint32_t ranks;                           /* those that contribute to a reduction, a bit each */
    struct clerk clerks[STREAMS];
    uint64_t from[GPU_MAX_RANKS]; /* the contributions to the tile that is folded */
};

/* A tile as all threads see it. */
struct tile {
    uint64_t at; /* in the part */
    uint32_t bytes;
};

GPU_IS(uint64_t, tiles_cell, (__local const struct gpu_layout *layout, uint32_t rank),
       (uint64_t)rank * layout->n_blocks + gpu_block())

/* The part of a stream, 0 bytes if there is none. */
GPU_DEVICE uint64_t stream_bytes(__local const struct gpu_exchange *x, uint32_t stream, bool reduces)
{
    const uint32_t peer = stream % FROM;
    if (peer >= x->call.n) return 0;
    if (peer != x->call.me) return stream < FROM ? x->send[peer].bytes : x->recv[peer].bytes;
    if (reduces) return stream < FROM ? 0 : x->result_bytes;
    const bool there = (uint64_t)x->in + x->send[peer].at == (uint64_t)x->out + x->recv[peer].at;
    return stream < FROM && !there ? x->recv[peer].bytes : 0;
}

/* A clerk's words in scratch memory. */
GPU_DEVICE void clerk_init(__local struct clerk *clerk, __local const struct gpu_call *call, uint32_t stream)
{
    __local const struct gpu_layout *layout = &call->layout;
    const uint32_t peer = stream % FROM < call->n ? stream % FROM : call->me;
    const bool sends = stream < FROM;
    const uint64_t own = (uint64_t)call->base[call->me], other = (uint64_t)call->base[peer];
    clerk->remote = peer != call->me, clerk->tied = false;
    clerk->flag = own + (sends ? layout->returned : layout->arrived) + tiles_cell(layout, peer) * sizeof(uint32_t);
    clerk->raises =
        other + (sends ? layout->arrived : layout->returned) + tiles_cell(layout, call->me) * sizeof(uint32_t);
    clerk->keeps = own + (sends ? layout->sent : layout->received) + tiles_cell(layout, peer) * sizeof(uint64_t);
}

/* What comes of a part of so many bytes for this block, behind what there is of the stream. */
GPU_DEVICE void stream_add(__local struct tiles_board *board, uint32_t stream, struct gpu_tiling tiling)
{
    if (gpu_block() >= tiling.blocks) return;
    board->total[stream] += ((uint32_t)tiling.tiles - gpu_block() + tiling.blocks - 1) / tiling.blocks;
    board->blocks[stream] = tiling.blocks;
    board->bytes[stream] = tiling.tile_bytes;
}

/* All threads come to it. False: the rank has left a call before. */
GPU_DEVICE bool tiles_begin(__local const struct gpu_exchange *x, __local struct tiles_board *board, bool reduces)
{
    __local const struct gpu_call *call = &x->call;
    const uint32_t stream = gpu_thread(), peer = stream % FROM;
    if (stream < 3) board->ready[stream] = 0;
    if (stream == 0) board->ranks = has_stopped(call) ? UINT32_MAX : 0;
    wait_clear(&board->votes);
    const bool stopped = board->ranks != 0;
    gpu_sync();
    if (stopped) return false;
    if (stream < STREAMS) {
        const uint64_t bytes = stream_bytes(x, stream, reduces);
        const uint32_t most = stream == call->me ? gpu_blocks() : call->layout.n_blocks; /* nobody else has that part */
        __local struct clerk *clerk = &board->clerks[stream];
        clerk_init(clerk, call, stream);
        const uint64_t kept = gpu_read_u64(clerk->keeps);
        board->next[stream] = board->total[stream] = 0;
        board->slot[stream] = (uint32_t)(kept >> 32);
        stream_add(board, stream, gpu_tiling_of(bytes, call->layout.tile_bytes, most));
        clerk->count = (uint32_t)kept;
        clerk->seen = clerk->count - (stream < FROM ? call->layout.n_tiles : 0);
        if (!reduces && stream >= FROM && clerk->remote)
            clerk->tied = (uint64_t)x->in + x->send[peer].at == (uint64_t)x->out + x->recv[peer].at &&
                          x->send[peer].bytes == bytes;
        if (clerk->remote && stream >= FROM) gpu_release_u32(clerk->raises, clerk->count); /* the last tile before */
        if (reduces && stream < call->n && x->recv[stream].bytes > 0) gpu_local_or(&board->ranks, 1u << stream);
    }
    gpu_sync();
    return true;
}

/* Whether there is a slot, or a tile, for the stream's next tile; looks at the peer's word if not so by what is known.
 */
GPU_DEVICE bool clerk_may(__local const struct gpu_call *call, __local const struct tiles_board *board,
                          __local struct clerk *clerk, uint32_t stream)
{
    if (!clerk->remote) return true;
    const uint32_t origin = clerk->count - (stream < FROM ? call->layout.n_tiles : 0), next = board->next[stream];
    if (clerk->seen - origin == next) clerk->seen = gpu_acquire_u32(clerk->flag);
    return clerk->seen - origin != next;
}

/* Whether the copy of the own part is to wait: others wait for what leaves; but not so late that it is left over. */
GPU_DEVICE bool own_is_early(__local const struct tiles_board *board, uint32_t me)
{
    for (uint32_t p = 0; p < FROM; p++)
        if (p != me && board->next[p] < board->total[p] && board->next[p] < board->next[me] + OWN_LAG) return true;
    return false;
}

/* Whether a tile of the result may not be folded yet, since it has not left for all who get what lies there. */
GPU_DEVICE bool result_is_held(__local const struct tiles_board *board, uint32_t result)
{
    for (uint32_t p = 0; p < FROM; p++)
        if (board->next[p] < board->total[p] && board->next[p] <= board->next[result]) return true;
    return false;
}

GPU_DEVICE bool stream_is_due(__local const struct gpu_exchange *x, __local const struct tiles_board *board,
                              __local const struct clerk *clerk, uint32_t stream, bool reduces)
{
    const uint32_t me = x->call.me, next = board->next[stream];
    if (reduces) return stream != FROM + me || !result_is_held(board, stream);
    if (clerk->tied && board->next[stream - FROM] <= next) return false;
    if (x->relays && stream < FROM && next >= board->next[FROM + x->relays - 1]) return false;
    return stream != me || !own_is_early(board, me);
}

/* Until some streams may go on: *ready, a bit each; what was acquired is there for all threads. False: it is all over,
 * or has failed (*ready is then UINT32_MAX). */
GPU_DEVICE bool tiles_wait(__local const struct gpu_exchange *x, __local struct tiles_board *board,
                           struct waiter *waiter, bool reduces, uint32_t *ready)
{
    const uint32_t stream = gpu_thread(), sources = reduces ? board->ranks & ~(1u << x->call.me) : 0;
    const uint32_t result = 1u << (FROM + x->call.me);
    for (;;) {
        const uint32_t now = waiter->turn % 3;
        const bool left = stream < STREAMS && board->next[stream] < board->total[stream];
        const bool due = left && stream_is_due(x, board, &board->clerks[stream], stream, reduces);
        const bool may = due && clerk_may(&x->call, board, &board->clerks[stream], stream);
        if (may) gpu_local_or(&board->ready[now], 1u << stream);
        if (stream == 0) board->ready[(waiter->turn + 1) % 3] = 0;
        const uint32_t turn = wait_turn(&board->votes, waiter, &x->call, left, due && !may ? stream % FROM : NO_PEER);
        *ready = turn & WAIT_LEAVE ? UINT32_MAX : board->ready[now];
        if (turn != WAIT_MISSING) return false;
        if (reduces && ((*ready & result) == 0 || (*ready >> FROM & sources) != sources)) *ready &= SENDING;
        if (*ready) break;
    }
    gpu_sync_all();
    return true;
}

/* All threads are through with the next tiles of these streams. */
GPU_DEVICE void tiles_done(__local const struct gpu_call *call, __local struct tiles_board *board, uint32_t streams)
{
    const uint32_t stream = gpu_thread();
    gpu_fence();
    gpu_sync_all();
    if (stream < STREAMS && (streams >> stream & 1)) {
        __local const struct clerk *clerk = &board->clerks[stream];
        const uint32_t next = ++board->next[stream], slot = board->slot[stream] + 1;
        board->slot[stream] = slot == call->layout.n_tiles ? 0 : slot;
        if (clerk->remote && (stream < FROM || next < board->total[stream]))
            gpu_release_u32(clerk->raises, clerk->count + next);
    }
    gpu_sync();
}

GPU_DEVICE void tiles_end(__local const struct tiles_board *board)
{
    const uint32_t stream = gpu_thread();
    if (stream >= STREAMS) return;
    __local const struct clerk *clerk = &board->clerks[stream];
    if (clerk->remote && board->total[stream] > 0)
        gpu_write_u64(clerk->keeps,
                      (uint64_t)board->slot[stream] << 32 | (uint32_t)(clerk->count + board->total[stream]));
}

/* ---- a tile ---- */
GPU_DEVICE struct tile tile_next(__local const struct tiles_board *board, uint32_t stream, uint64_t part_bytes)
{
    const uint64_t index = board->next[stream] * board->blocks[stream] + gpu_block();
    const uint64_t at = index * board->bytes[stream], left = part_bytes - at;
    const struct tile tile = {at, left < board->bytes[stream] ? (uint32_t)left : board->bytes[stream]};
    return tile;
}

/* The slot of the stream's next tile, in the ring that `source` writes in the scratch of `target`. */
GPU_DEVICE uint64_t tile_slot(__local const struct gpu_call *call, uint32_t target, uint32_t source, uint32_t slot)
{
    __local const struct gpu_layout *layout = &call->layout;
    const uint64_t tile = tiles_cell(layout, gpu_row(target, source)) * layout->n_tiles + slot;
    return (uint64_t)call->base[target] + layout->tiles + tile * layout->tile_bytes;
}

/* What is not whole goes unit by unit. In slots there is room for whole units. */
GPU_DEVICE void tile_move_ragged(uint64_t from, uint64_t to, uint32_t bytes, bool from_slot, bool to_slot)
{
    for (uint32_t at = 16 * gpu_thread(); at < bytes; at += 16 * gpu_threads()) {
        const gpu_words unit = unit_take(from + at, from_slot ? 16 : bytes - at);
        unit_give(to + at, unit, to_slot ? 16 : bytes - at);
    }
}

GPU_DEVICE void tile_move(uint64_t from, uint64_t to, uint32_t bytes, bool from_slot, bool to_slot)
{
    const uint32_t step = 16 * gpu_threads();
    if (!is_whole(from | to | bytes)) {
        tile_move_ragged(from, to, bytes, from_slot, to_slot);
        return;
    }
    for (uint32_t begin = 16 * gpu_thread(); begin < bytes; begin += 4 * step) {
        gpu_words units[4];
        GPU_UNROLL
        for (uint32_t u = 0; u < 4; u++)
            if (begin + u * step < bytes) units[u] = gpu_read_words(from + begin + u * step);
        GPU_UNROLL
        for (uint32_t u = 0; u < 4; u++)
            if (begin + u * step < bytes) gpu_write_words(to + begin + u * step, units[u]);
    }
}

/* The next tile that leaves for a peer, or of the own part. */
GPU_DEVICE void tile_leave(__local const struct gpu_exchange *x, __local const struct tiles_board *board,
                           uint32_t stream)
{
    const struct tile tile = tile_next(board, stream, x->send[stream].bytes);
    const uint64_t from = (uint64_t)x->in + x->send[stream].at + tile.at;
    const bool own = stream == x->call.me;
    const uint64_t to = own ? (uint64_t)x->out + x->recv[stream].at + tile.at
                            : tile_slot(&x->call, stream, x->call.me, board->slot[stream]);
    tile_move(from, to, tile.bytes, false, !own);
}

/* The next tile that came from a rank, to its place. */
GPU_DEVICE void tile_come(__local const struct gpu_exchange *x, __local const struct tiles_board *board,
                          uint32_t stream)
{
    const uint32_t source = stream - FROM;
    const struct tile tile = tile_next(board, stream, x->recv[source].bytes);
    const uint64_t from = tile_slot(&x->call, x->call.me, source, board->slot[stream]);
    tile_move(from, (uint64_t)x->out + x->recv[source].at + tile.at, tile.bytes, true, false);
}

/* ---- an exchange that moves ---- */
GPU_DEVICE void tiles_move(__local const struct gpu_exchange *x, __local struct tiles_board *board)
{
    struct waiter waiter = {0};
    uint32_t ready;
    if (!tiles_begin(x, board, false)) return;
    while (tiles_wait(x, board, &waiter, false, &ready)) {
        for (uint32_t left = ready; left; left &= left - 1) {
            const uint32_t stream = gpu_lowest(left);
            if (stream < FROM)
                tile_leave(x, board, stream);
            else
                tile_come(x, board, stream);
        }
        tiles_done(&x->call, board, ready);
    }
    if (ready != UINT32_MAX) tiles_end(board);
}

/* ---- an exchange that folds ---- */
/* The next tile that leaves for a peer, scaled where premul_sum asks for it. */
template <class R>
GPU_DEVICE void tile_leave_scaled(__local const struct gpu_exchange *x, __local const struct tiles_board *board,
                                  uint32_t stream)
{
    if (!x->call.scales) {
        tile_leave(x, board, stream);
        return;
    }
    const gpu_words factor = R::factor((const unsigned char *)x->call.factor);
    const struct tile tile = tile_next(board, stream, x->send[stream].bytes);
    const uint64_t from = (uint64_t)x->in + x->send[stream].at + tile.at;
    const uint64_t to = tile_slot(&x->call, stream, x->call.me, board->slot[stream]);
    for (uint32_t at = 16 * gpu_thread(); at < tile.bytes; at += 16 * gpu_threads())
        gpu_write_words(to + at, R::scale_by(unit_take(from + at, tile.bytes - at), factor));
}

/* The next tile of the result. */
template <class R, uint32_t MOST>
GPU_DEVICE void tile_fold(__local const struct gpu_exchange *x, __local struct tiles_board *board)
{
    const uint32_t me = x->call.me, q = gpu_thread();
    const struct tile tile = tile_next(board, FROM + me, x->result_bytes);
    if (q == me)
        board->from[q] = (uint64_t)x->in + x->send[me].at + tile.at;
    else if (q < x->call.n)
        board->from[q] = tile_slot(&x->call, me, q, board->slot[FROM + q]);
    gpu_sync();
    const struct fold fold = fold_of<R>(&x->call, board->from, board->ranks);
    fold_span<R, MOST>(&fold, (uint64_t)x->out + x->recv[me].at + tile.at, tile.bytes, 16 * gpu_thread(),
                       16 * gpu_threads());
}

template <class R, uint32_t MOST>
GPU_DEVICE void tiles_reduce(__local const struct gpu_exchange *x, __local struct tiles_board *board)
{
    struct waiter waiter = {0};
    uint32_t ready;
    if (!tiles_begin(x, board, true)) return;
    while (tiles_wait(x, board, &waiter, true, &ready)) {
        for (uint32_t left = ready & SENDING; left; left &= left - 1) tile_leave_scaled<R>(x, board, gpu_lowest(left));
        if (ready >> FROM) tile_fold<R, MOST>(x, board);
        tiles_done(&x->call, board, ready);
    }
    if (ready != UINT32_MAX) tiles_end(board);
}

/* ---- kernels ---- */
#define GPU_TILES(name, R, most)                                                                                       \
    GPU_KERNEL(tiles_##name##_##most, struct gpu_exchange, parameter, GPU_TILE_THREADS)                                \
    {                                                                                                                  \
        GPU_SHARED(struct gpu_exchange, x);                                                                            \
        GPU_SHARED(struct tiles_board, board);                                                                         \
        GPU_SHARE(x, parameter);                                                                                       \
        if constexpr (R::moves)                                                                                        \
            tiles_move(&x, &board);                                                                                    \
        else                                                                                                           \
            tiles_reduce<R, most>(&x, &board);                                                                         \
    }
#define GPU_TILES_FAST(name, R) GPU_TILES(name, R, 2) GPU_TILES(name, R, 16)
/* What comes after an exchange was made in the block's own memory. */
#define GPU_TILES_OF(exchange)                                                                                         \
    GPU_SHARED(struct tiles_board, board);                                                                             \
    tiles_move(&(exchange), &board)

#endif
