/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_BLOCK_WINDOW_H
#define TUTTI_DEVICE_KERNELS_BLOCK_WINDOW_H

/* One-sided calls of the host on windows: `window_access` stores some bytes and changes a word, `window_await` waits
 * for a word of this rank. */

#include "device/accesses.h"
#include "device/kernels/block_units.h"
#include "device/kernels/block_wait.h"

/* What comes behind a call that failed begins nothing. */
GPU_KERNEL(window_access, struct gpu_one_access, x, GPU_ACCESS_THREADS)
{
    GPU_SHARED(struct votes, votes);
    wait_clear(&votes);
    if (gpu_thread() == 0 && gpu_load_u32((uint64_t)x.alarm.stopped)) gpu_local_or(&votes.bits[0], WAIT_LEAVE);
    gpu_sync();
    if (votes.bits[0]) return;
    for (uint64_t at = 16 * gpu_thread(); at < x.bytes; at += 16 * gpu_threads())
        unit_give((uint64_t)x.to + at, unit_take((uint64_t)x.from + at, x.bytes - at), x.bytes - at);
    gpu_fence();
    gpu_sync_all();
    if (gpu_thread() != 0) return;
    uint64_t before = 0;
    gpu_fence();
    if (x.change == GPU_CHANGE_SET)
        gpu_store_u64((uint64_t)x.word, x.value);
    else if (x.change == GPU_CHANGE_ADD)
        before = gpu_add_u64((uint64_t)x.word, x.value);
    else
        before = gpu_exchange_if_u64((uint64_t)x.word, x.expected, x.value);
    if (x.before) gpu_host_store_u64((uint64_t)x.before, before);
    if (x.before && x.there) gpu_host_store_u32((uint64_t)x.there, 1);
}

/* ---- waits, by one thread ---- */
GPU_DEVICE bool is_so(uint64_t seen, uint32_t compare, uint64_t value)
{
    if (compare == GPU_COMPARE_EQ) return seen == value;
    if (compare == GPU_COMPARE_NE) return seen != value;
    if (compare == GPU_COMPARE_LT) return seen < value;
    if (compare == GPU_COMPARE_LE) return seen <= value;
    return compare == GPU_COMPARE_GT ? seen > value : seen >= value;
}

/* The stop word comes last. */
GPU_DEVICE void await_tell(const struct gpu_one_await *x, uint64_t seen)
{
    __global struct tutti_device_late *late = (__global struct tutti_device_late *)(uint64_t)x->alarm.late;
    gpu_store_u32((uint64_t)x->alarm.stopped, 1);
    gpu_host_store_u64((uint64_t)&late->value, x->value);
    gpu_host_store_u64((uint64_t)&late->seen, seen);
    gpu_host_store_u64((uint64_t)&late->timeout_ns, x->timeout_ns);
    gpu_host_store_u32((uint64_t)&late->index, x->index);
    gpu_host_store_u32((uint64_t)&late->compare, x->compare);
    gpu_host_store_u64((uint64_t)x->alarm.report,
                       x->alarm.code | (x->from < 0 ? (uint32_t)GPU_ANY_PEER : (uint32_t)x->from));
    gpu_host_store_u32((uint64_t)x->alarm.stop, GPU_TIMEOUT);
}

/* False: leave. */
GPU_DEVICE bool await_look(const struct gpu_one_await *x, uint64_t seen, uint64_t *since)
{
    /* the report is in struct gpu_control, as the clock is */
    __global struct gpu_control *control = (__global struct gpu_control *)(uint64_t)x->alarm.report;
    if (gpu_load_u32((uint64_t)x->alarm.stopped)) return false;
    if (gpu_host_load_u32((uint64_t)x->alarm.stop)) {
        gpu_store_u32((uint64_t)x->alarm.stopped, 1);
        return false;
    }
    const uint64_t now = x->timeout_ns ? gpu_host_load_u64((uint64_t)&control->now_ns) : 0;
    if (now == 0) return true;
    if (*since == 0) *since = now;
    if (now - *since < x->timeout_ns) return true;
    await_tell(x, seen);
    return false;
}

GPU_KERNEL(window_await, struct gpu_one_await, x, 32)
{
    uint64_t since = 0;
    if (gpu_thread() != 0 || gpu_load_u32((uint64_t)x.alarm.stopped)) return;
    for (uint32_t turn = 1;; turn++) {
        const uint64_t seen = gpu_load_u64((uint64_t)x.word);
        if (is_so(seen, x.compare, x.value)) break;
        gpu_spin();
        if (turn % GPU_SPINS == 0 && !await_look(&x, seen, &since)) return;
    }
    gpu_fence();
}

#endif
