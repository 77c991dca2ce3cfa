/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_DIRECT_MOVE_H
#define TUTTI_DEVICE_KERNELS_DIRECT_MOVE_H

/* direct_move_16: each warp by itself moves pieces of parts to where peers want them, of all parts at once, beginning
 * with another peer than its neighbours, so that no peer is stored to by all at a time. It waits for nothing but the
 * peers' coming, and for what it relays: from the same warp of the rank before, and so on back to one that relays
 * nothing, so nobody waits for ever. */

#include "device/kernels/direct.h"
#include "device/kernels/units.h"

/* What a thread has of a piece of at most UNITS * 512 bytes, where units are whole. */
template <uint32_t UNITS> struct gpu_piece {
    gpu_words units[UNITS];
};

GPU_DEVICE uint32_t gpu_unit_in_piece(uint32_t u)
{
    return (u * GPU_WARP + gpu_lane()) * 16;
}

GPU_DEVICE bool gpu_is_whole(const char *from, const char *to, uint32_t bytes)
{
    return ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | bytes) & 15) == 0;
}

GPU_COLD void gpu_piece_ragged(const char *from, char *to, uint32_t bytes)
{
    for (uint32_t at = gpu_lane() * 16; at < bytes; at += GPU_WARP * 16)
        gpu_give_unit<false>(to + at, gpu_take_unit<false>(from + at, bytes - at), bytes - at);
}

template <uint32_t UNITS> GPU_DEVICE void gpu_piece_load(gpu_piece<UNITS> *piece, const char *from, uint32_t bytes)
{
    if (!gpu_is_whole(from, nullptr, bytes)) return;
    GPU_UNROLL for (uint32_t u = 0; u < UNITS; u++)
    {
        if (gpu_unit_in_piece(u) < bytes) piece->units[u] = gpu_read_words(from + gpu_unit_in_piece(u));
    }
}

template <uint32_t UNITS>
GPU_DEVICE void gpu_piece_store(const gpu_piece<UNITS> &piece, const char *from, char *to, uint32_t bytes)
{
    if (!gpu_is_whole(from, to, bytes)) return gpu_piece_ragged(from, to, bytes);
    GPU_UNROLL for (uint32_t u = 0; u < UNITS; u++)
    {
        if (gpu_unit_in_piece(u) < bytes) gpu_write_words(to + gpu_unit_in_piece(u), piece.units[u]);
    }
}

GPU_DEVICE char *gpu_relayed(const struct gpu_call &call, uint32_t rank)
{
    const uint32_t warp = gpu_block() * (GPU_DIRECT_THREADS / GPU_WARP) + gpu_warp();
    return call.base[rank] + call.layout.relayed + 8 * warp;
}

/* What another call has left there is of another count, but for one that was exactly 2^32 calls ago, without a relay
 * since: hours. */
GPU_DEVICE bool gpu_have_come(uint64_t came, uint64_t pieces)
{
    return came >> 32 == pieces >> 32 && came >= pieces;
}

/* Until so many pieces have come. `late`: a rank that they may come from, for the report. All warps wait here for most
 * of the time, so they acquire once, at the end: see tiles.h. */
GPU_DEVICE bool gpu_relay_wait(const struct gpu_call &call, uint64_t pieces, uint32_t late)
{
    struct gpu_waiter waiter = {};
    bool on = true;
    if (gpu_lane() == 0) {
        const char *flag = gpu_relayed(call, call.me);
        while (on && !gpu_have_come(gpu_load_u64(flag), pieces)) on = gpu_go_on(&waiter, call, late);
        (void)gpu_acquire_u64(flag);
    }
    on = gpu_all(on);
    gpu_sync_warp();
    return on;
}

/* The block that relays what this warp has stored hears of it. */
GPU_DEVICE void gpu_relay_tell(const struct gpu_direct &x, uint64_t pieces)
{
    const uint32_t q = gpu_lane();
    gpu_sync_warp();
    if (q >= x.call.n || q == x.call.me || !x.to[q]) return;
    gpu_fence_system();
    gpu_store_u64(gpu_relayed(x.call, q), pieces);
}

/* The piece at `at` of each part. */
template <uint32_t UNITS> GPU_DEVICE void gpu_pieces_move(const struct gpu_direct &x, uint64_t at, uint32_t first)
{
    gpu_piece<UNITS> piece;
    bool loaded = false;
    for (uint32_t k = 0; k < x.call.n; k++) {
        const uint32_t q = first + k < x.call.n ? first + k : first + k - x.call.n;
        const struct gpu_part part = x.send[q];
        if (!x.to[q] || at >= part.bytes) continue;
        const uint32_t bytes = part.bytes - at < x.piece_bytes ? (uint32_t)(part.bytes - at) : x.piece_bytes;
        const char *from = x.in + part.at + at;
        if (!loaded || !x.alike) gpu_piece_load(&piece, from, bytes);
        loaded = true;
        gpu_piece_store(piece, from, x.to[q] + at, bytes);
    }
}

/* By the warps of the first `blocks` blocks, of which each has 16 at least. */
template <uint32_t UNITS> GPU_DEVICE bool gpu_direct_move(const struct gpu_direct &x, uint32_t count, uint32_t blocks)
{
    const uint32_t warps = GPU_DIRECT_THREADS / GPU_WARP, warp = gpu_block() * warps + gpu_warp();
    const uint32_t first = (x.call.me + 1 + warp) % x.call.n;
    const uint64_t step = (uint64_t)blocks * warps * x.piece_bytes;
    uint64_t longest = 0, pieces = (uint64_t)count << 32;
    for (uint32_t q = 0; q < x.call.n; q++)
        if (x.to[q] && x.send[q].bytes > longest) longest = x.send[q].bytes;
    for (uint64_t at = (uint64_t)warp * x.piece_bytes; at < longest; at += step) {
        pieces++;
        if (x.relays && !gpu_relay_wait(x.call, pieces, x.relays - 1)) return false;
        gpu_pieces_move<UNITS>(x, at, first);
        if (x.relayed) gpu_relay_tell(x, pieces);
    }
    return true;
}

#ifdef MODULE_direct
GPU_KERNEL(direct_move_16, struct gpu_direct, x, GPU_DIRECT_THREADS)
{
    gpu_wait_for_launch();
    const uint32_t count = gpu_load_u32(gpu_directs(x.call));
    bool on = gpu_warp() > 0 || (gpu_all(!gpu_has_stopped(x.call)) && gpu_direct_begin(x.call, count));
    if (gpu_any_of_block(!on)) return;
    on = gpu_direct_move<GPU_PIECE / 16 / GPU_WARP>(x, count, gpu_blocks());
    if (gpu_any_of_block(!on)) return; /* and nobody is told that all is there */
    if (gpu_warp() == 0) gpu_direct_end(x.call, count);
}
#endif

#endif
