/* SPDX-License-Identifier: BSD-3-Clause */
/* direct_move_16: each warp by itself moves pieces of parts to where peers want them, of all parts at once, beginning
 * with another peer than its neighbours, so that no peer is stored to by all at a time. It waits for nothing but the
 * peers' coming, and for what it relays: from the same warp of the rank before, and so on back to one that relays
 * nothing, so nobody waits for ever. */
#include "direct.cuh"
#include "units.cuh"

constexpr uint32_t cuda_piece_units = GPU_PIECE / 16 / CUDA_WARP; /* of a thread */

/* What a thread has of a piece, where units are whole. */
struct cuda_piece {
    cuda_words units[cuda_piece_units];
};

CUDA_DEVICE uint32_t cuda_unit_in_piece(uint32_t u)
{
    return (u * CUDA_WARP + cuda_lane()) * 16;
}

CUDA_DEVICE bool cuda_is_whole(const char *from, const char *to, uint32_t bytes)
{
    return ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | bytes) & 15) == 0;
}

CUDA_COLD void cuda_piece_ragged(const char *from, char *to, uint32_t bytes)
{
    for (uint32_t at = cuda_lane() * 16; at < bytes; at += CUDA_WARP * 16)
        cuda_give_unit<false>(to + at, cuda_take_unit<false>(from + at, bytes - at), bytes - at);
}

CUDA_DEVICE void cuda_piece_load(cuda_piece *piece, const char *from, uint32_t bytes)
{
    if (!cuda_is_whole(from, nullptr, bytes)) return;
    CUDA_UNROLL for (uint32_t u = 0; u < cuda_piece_units; u++)
    {
        if (cuda_unit_in_piece(u) < bytes) piece->units[u] = cuda_read_words(from + cuda_unit_in_piece(u));
    }
}

CUDA_DEVICE void cuda_piece_store(const cuda_piece &piece, const char *from, char *to, uint32_t bytes)
{
    if (!cuda_is_whole(from, to, bytes)) return cuda_piece_ragged(from, to, bytes);
    CUDA_UNROLL for (uint32_t u = 0; u < cuda_piece_units; u++)
    {
        if (cuda_unit_in_piece(u) < bytes) cuda_write_words(to + cuda_unit_in_piece(u), piece.units[u]);
    }
}

CUDA_DEVICE char *cuda_relayed(const struct gpu_call &call, uint32_t rank)
{
    const uint32_t warp = cuda_block() * (GPU_DIRECT_THREADS / CUDA_WARP) + cuda_warp();
    return call.base[rank] + call.layout.relayed + 8 * warp;
}

/* What another call has left there is of another count, but for one that was exactly 2^32 calls ago, without a relay
 * since: hours. */
CUDA_DEVICE bool cuda_have_come(uint64_t came, uint64_t pieces)
{
    return came >> 32 == pieces >> 32 && came >= pieces;
}

/* Until so many pieces have come. `late`: a rank that they may come from, for the report. All warps wait here for most
 * of the time, so they acquire once, at the end: see tiles.cuh. */
CUDA_DEVICE bool cuda_relay_wait(const struct gpu_call &call, uint64_t pieces, uint32_t late)
{
    struct cuda_waiter waiter = {};
    bool on = true;
    if (cuda_lane() == 0) {
        const char *flag = cuda_relayed(call, call.me);
        while (on && !cuda_have_come(cuda_load_u64(flag), pieces)) on = cuda_go_on(&waiter, call, late);
        (void)cuda_acquire_u64(flag);
    }
    on = cuda_all(on);
    cuda_sync_warp();
    return on;
}

/* Who relays what this warp has stored hears of it. */
CUDA_DEVICE void cuda_relay_tell(const struct gpu_direct &x, uint64_t pieces)
{
    const uint32_t q = cuda_lane();
    cuda_sync_warp();
    if (q >= x.call.n || q == x.call.me || !x.to[q]) return;
    cuda_fence_system();
    cuda_store_u64(cuda_relayed(x.call, q), pieces);
}

/* The piece at `at` of each part. */
CUDA_DEVICE void cuda_pieces_move(const struct gpu_direct &x, uint64_t at, uint32_t first)
{
    cuda_piece piece;
    bool loaded = false;
    for (uint32_t k = 0; k < x.call.n; k++) {
        const uint32_t q = first + k < x.call.n ? first + k : first + k - x.call.n;
        const struct gpu_part part = x.send[q];
        if (!x.to[q] || at >= part.bytes) continue;
        const uint32_t bytes = part.bytes - at < x.piece_bytes ? (uint32_t)(part.bytes - at) : x.piece_bytes;
        const char *from = x.in + part.at + at;
        if (!loaded || !x.alike) cuda_piece_load(&piece, from, bytes);
        loaded = true;
        cuda_piece_store(piece, from, x.to[q] + at, bytes);
    }
}

CUDA_DEVICE bool cuda_direct_move(const struct gpu_direct &x, uint32_t count)
{
    const uint32_t warps = GPU_DIRECT_THREADS / CUDA_WARP, warp = cuda_block() * warps + cuda_warp();
    const uint32_t first = (x.call.me + 1 + warp) % x.call.n;
    const uint64_t step = (uint64_t)cuda_blocks() * warps * x.piece_bytes;
    uint64_t longest = 0, pieces = (uint64_t)count << 32;
    for (uint32_t q = 0; q < x.call.n; q++)
        if (x.to[q] && x.send[q].bytes > longest) longest = x.send[q].bytes;
    for (uint64_t at = (uint64_t)warp * x.piece_bytes; at < longest; at += step) {
        pieces++;
        if (x.relays && !cuda_relay_wait(x.call, pieces, x.relays - 1)) return false;
        cuda_pieces_move(x, at, first);
        if (x.relayed) cuda_relay_tell(x, pieces);
    }
    return true;
}

CUDA_KERNEL(direct_move_16, struct gpu_direct, x, GPU_DIRECT_THREADS)
{
    cuda_wait_for_launch();
    const uint32_t count = cuda_load_u32(cuda_directs(x.call));
    bool on = cuda_warp() > 0 || (cuda_all(!cuda_has_stopped(x.call)) && cuda_direct_begin(x.call, count));
    if (cuda_sync_block_any(!on)) return;
    on = cuda_direct_move(x, count);
    if (cuda_sync_block_any(!on)) return; /* and nobody is told that all is there */
    if (cuda_warp() == 0) cuda_direct_end(x.call, count);
}
