/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank tells the others before an exchange whose counts are on the device, and that exchange: each block makes
 * it for itself from the rows of all (device/counted.h). Both ends of a part read the same count, so they cut it alike.
 * Where something does not fit, nothing is moved, on no rank. */
#include "tiles.clh"

#include "device/counted.h"

XPU_KERNEL(counted_row, struct tutti_counted_row, x, 64)
{
    for (uint32_t k = xpu_thread(); k < counted_words(x.n); k += xpu_threads())
        xpu_write_u64((uint64_t)x.row + k * sizeof(uint64_t), counted_word(&x, k));
}

/* What rank q gets from here, and what comes from it. */
XPU_DEVICE void counted_parts(__local struct gpu_counted *x, uint32_t q)
{
    COUNTED_WORDS rows = (COUNTED_WORDS)x->rows;
    COUNTED_WORDS displs = (COUNTED_WORDS)x->send_displs;
    const uint32_t n = x->exchange.call.n, me = x->exchange.call.me;
    uint64_t sent = 0, packed = 0;
    for (uint32_t p = 0; p < q; p++) {
        sent += counted_count(rows, n, me, p);
        packed += counted_count(rows, n, p, me);
    }
    x->exchange.send[q].at = (displs ? displs[q] : sent) * x->element;
    x->exchange.send[q].bytes = counted_count(rows, n, me, q) * x->element;
    x->exchange.recv[q].at = counted_begin(rows, n, me, q, packed) * x->element;
    x->exchange.recv[q].bytes = counted_count(rows, n, q, me) * x->element;
}

XPU_KERNEL(tiles_counted_16, struct gpu_counted, parameter, GPU_TILE_THREADS)
{
    XPU_LOCAL(struct gpu_counted, x);
    XPU_LOCAL(struct tiles_board, board);
    XPU_SHARE(x, parameter);
    const uint32_t q = xpu_thread(), n = x.exchange.call.n;
    COUNTED_WORDS rows = (COUNTED_WORDS)x.rows;
    if (q == 0) board.ranks = 0;
    xpu_sync();
    if (q < n && !counted_fits(rows, n, q)) xpu_local_or(&board.ranks, 1);
    xpu_sync();
    const bool fit = board.ranks == 0;
    if (q < n && fit) counted_parts(&x, q);
    if (q < n && xpu_block() == 0)
        xpu_write_u64((uint64_t)x.recv_counts + q * sizeof(uint64_t), counted_count(rows, n, q, x.exchange.call.me));
    if (q == 0 && xpu_block() == 0 && x.status) xpu_write_u32((uint64_t)x.status, fit ? 0 : (uint32_t)x.truncated);
    xpu_sync();
    tiles_move(&x.exchange, &board);
}
