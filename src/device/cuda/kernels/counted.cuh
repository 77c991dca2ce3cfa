/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_COUNTED_CUH
#define TUTTI_DEVICE_CUDA_COUNTED_CUH

/* An exchange by tiles whose parts are computed on the device, from rows that were gathered there (device/counted.h):
 * each block makes the exchange for itself, in shared memory. Both ends of a part read the same count, so they cut it
 * alike. Where something does not fit, nothing is moved, on no rank. */

#include "tiles.cuh"

#include "device/counted.h"

/* The verdict on all ranks, a rank a lane of the first warp. */
CUDA_DEVICE bool counted_all_fit(const struct gpu_counted &x)
{
    const uint32_t r = cuda_thread();
    return !cuda_sync_block_any(r < x.exchange.call.n && !counted_fits(x.rows, x.exchange.call.n, r));
}

/* What rank q gets from here, and what comes from it. */
CUDA_DEVICE void counted_parts(const struct gpu_counted &x, uint32_t q, struct gpu_exchange *out)
{
    const uint32_t n = x.exchange.call.n, me = x.exchange.call.me;
    uint64_t sent = 0, packed = 0;
    for (uint32_t p = 0; p < q; p++) {
        sent += counted_count(x.rows, n, me, p);
        packed += counted_count(x.rows, n, p, me);
    }
    if (x.send_displs) sent = x.send_displs[q];
    out->send[q] = {sent * x.element, counted_count(x.rows, n, me, q) * x.element};
    out->recv[q] = {counted_begin(x.rows, n, me, q, packed) * x.element, counted_count(x.rows, n, q, me) * x.element};
}

CUDA_DEVICE void counted_tiles(const struct gpu_counted &x)
{
    CUDA_SHARED(struct gpu_exchange, exchange);
    const uint32_t q = cuda_thread(), n = x.exchange.call.n;
    cuda_wait_for_launch();
    const bool fit = counted_all_fit(x);
    for (uint32_t k = q; k < sizeof(exchange) / sizeof(uint32_t); k += cuda_threads())
        reinterpret_cast<uint32_t *>(&exchange)[k] = reinterpret_cast<const uint32_t *>(&x.exchange)[k];
    cuda_sync_block();
    if (q < n && fit) counted_parts(x, q, &exchange);
    if (q < n && cuda_block() == 0) x.recv_counts[q] = counted_count(x.rows, n, q, x.exchange.call.me);
    if (q == 0 && cuda_block() == 0 && x.status) *x.status = fit ? 0 : x.truncated;
    cuda_sync_block();
    cuda_tiles<cuda_move, 16>(exchange);
}

#endif
