/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_COUNTED_H
#define TUTTI_DEVICE_KERNELS_COUNTED_H

/* What a rank tells the others before an exchange whose counts are on the device, and that exchange, by tiles: each
 * block makes it for itself, in its own memory, from the rows of all (device/counted.h). Both ends of a part read the
 * same count, so they cut it alike. Where something does not fit, nothing is moved, on no rank. */

#include "device/counted.h"
#include "device/kernels/machine.h"

#include GPU_TILES_HEADER

GPU_KERNEL(counted_row, struct tutti_counted_row, x, 64)
{
    gpu_wait_for_launch();
    for (uint32_t k = gpu_thread(); k < counted_words(x.n); k += gpu_threads())
        gpu_write_u64(GPU_AT(x.row) + k * sizeof(uint64_t), counted_word(&x, k));
}

/* What rank q gets from here, and what comes from it. */
GPU_DEVICE void counted_parts(const struct gpu_counted &x, uint32_t n, uint32_t me, uint32_t q,
                              GPU_LOCAL struct gpu_exchange *out)
{
    COUNTED_WORDS rows = (COUNTED_WORDS)x.rows;
    COUNTED_WORDS displs = (COUNTED_WORDS)x.send_displs;
    uint64_t sent = 0, packed = 0;
    for (uint32_t p = 0; p < q; p++) {
        sent += counted_count(rows, n, me, p);
        packed += counted_count(rows, n, p, me);
    }
    out->send[q].at = (displs ? displs[q] : sent) * x.element;
    out->send[q].bytes = counted_count(rows, n, me, q) * x.element;
    out->recv[q].at = counted_begin(rows, n, me, q, packed) * x.element;
    out->recv[q].bytes = counted_count(rows, n, q, me) * x.element;
}

GPU_KERNEL(tiles_counted_16, struct gpu_counted, x, GPU_TILE_THREADS, 2)
{
    GPU_SHARED(struct gpu_exchange, exchange);
    GPU_VOTE(vote);
    const uint32_t q = gpu_thread(), n = x.exchange.call.n, me = x.exchange.call.me;
    COUNTED_WORDS rows = (COUNTED_WORDS)x.rows;
    gpu_wait_for_launch();
    const bool fit = !GPU_ANY(q < n && !counted_fits(rows, n, q), vote);
    GPU_SHARE(exchange, x.exchange);
    if (q < n && fit) counted_parts(x, n, me, q, &exchange);
    if (q < n && gpu_block() == 0)
        gpu_write_u64(GPU_AT(x.recv_counts) + q * sizeof(uint64_t), counted_count(rows, n, q, me));
    if (q == 0 && gpu_block() == 0 && x.status) gpu_write_u32(GPU_AT(x.status), fit ? 0 : (uint32_t)x.truncated);
    gpu_sync();
    GPU_TILES_OF(exchange);
}

#endif
