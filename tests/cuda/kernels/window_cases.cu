/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of a user of tutti/device.cuh: what the tests of it launch. */
#include "device/kernels/machine.h"

#include "window_cases.h"

GPU_DEVICE tutti::scope scope_of(const window_case &x)
{
    return (tutti::scope)x.scope;
}
GPU_DEVICE uint32_t caller_of(const window_case &x)
{
    return x.scope == WINDOW_BLOCK ? gpu_block() : x.scope == WINDOW_WARP ? gpu_warp() : gpu_thread();
}
/* This thread of the caller, and how many it has. */
GPU_DEVICE uint32_t place_of(const window_case &x)
{
    return x.scope == WINDOW_BLOCK ? gpu_thread() : x.scope == WINDOW_WARP ? gpu_lane() : 0;
}
GPU_DEVICE uint32_t places_of(const window_case &x)
{
    return x.scope == WINDOW_BLOCK ? gpu_threads() : x.scope == WINDOW_WARP ? GPU_WARP : 1;
}

GPU_DEVICE void delay(uint32_t *seed)
{
    if (*seed == 0) return;
    *seed = *seed * 1664525 + 1013904223;
    for (uint32_t i = 0; i < *seed >> 28; i++) gpu_nap(200);
}

GPU_DEVICE void fill(const window_case &x, char *at, uint32_t caller, uint32_t round)
{
    for (uint64_t i = place_of(x); i < x.bytes; i += places_of(x))
        at[i] = (char)window_byte((uint32_t)x.w.rank(), caller, round, i);
}

GPU_DEVICE uint32_t differ(const window_case &x, const char *at, uint32_t rank, uint32_t caller, uint32_t round)
{
    uint32_t n = 0;
    for (uint64_t i = place_of(x); i < x.bytes; i += places_of(x))
        n += (unsigned char)at[i] != window_byte(rank, caller, round, i);
    return n;
}

GPU_DEVICE void add_wrong(uint32_t *wrong, uint32_t n)
{
    if (n == 0) return;
    for (uint32_t seen = gpu_load_u32(wrong), before;
         (before = tutti::machine::swap_if_here(wrong, seen, seen + n)) != seen;)
        seen = before;
}

/* Each puts to the right with a signal, and checks what came from the left; a barrier before the next round. */
GPU_KERNEL(case_ring, struct window_case, x, 256)
{
    const tutti::scope s = scope_of(x);
    const uint32_t caller = caller_of(x);
    if (caller >= x.callers) return;
    const int32_t n = x.w.num_ranks(), right = (x.w.rank() + 1) % n, left = (x.w.rank() + n - 1) % n;
    const uint64_t at = x.offset + caller * x.stride;
    uint32_t wrong = 0, seed = x.seed ? x.seed + caller + 97 * (uint32_t)x.w.rank() : 0;
    char *source = x.source + caller * x.stride;
    for (uint32_t round = 1; round <= x.rounds; round++) {
        fill(x, source, caller, round);
        tutti::inside::sync(s);
        delay(&seed);
        if (round % 2)
            wrong += x.w.put_signal(at, source, right, x.bytes, caller, TUTTI_SIGNAL_ADD, 1, s) != 0;
        else
            wrong += x.w.put(at, source, right, x.bytes, s) != 0 ||
                     x.w.signal(right, caller, TUTTI_SIGNAL_SET, round, s) != 0;
        delay(&seed);
        if (x.w.wait_signal_from(left, caller, TUTTI_COMPARE_GE, round, s)) {
            add_wrong(&x.wrong[caller], 1000000);
            return;
        }
        wrong += differ(x, x.w.base() + at, (uint32_t)left, caller, round);
        wrong += x.w.read_signal(caller) != round;
        if (x.w.barrier(caller, s)) {
            add_wrong(&x.wrong[caller], 1000000);
            return;
        }
    }
    add_wrong(&x.wrong[caller], wrong);
}

/* Stores to all peers through their pointers, a barrier, and a look at what all stored here; get reads it, too. */
GPU_KERNEL(case_pointers, struct window_case, x, 256)
{
    const tutti::scope s = scope_of(x);
    const uint32_t caller = caller_of(x), n = (uint32_t)x.w.num_ranks(), me = (uint32_t)x.w.rank();
    if (caller >= x.callers) return;
    const uint64_t own = x.offset + caller * x.stride;
    uint32_t wrong = 0, seed = x.seed ? x.seed + caller + 97 * me : 0;
    for (uint32_t round = 1; round <= x.rounds; round++) {
        for (uint32_t q = 0; q < n; q++) fill(x, x.w.peer((int32_t)q) + own + me * x.callers * x.stride, caller, round);
        delay(&seed);
        x.w.flush(s);
        if (x.w.barrier(caller, s)) wrong += 1000000;
        for (uint32_t q = 0; q < n; q++) {
            const uint64_t at = own + q * x.callers * x.stride;
            wrong += differ(x, x.w.base() + at, q, caller, round);
            wrong += x.w.get(x.source + caller * x.stride, (int32_t)((me + 1) % n), at, x.bytes, s) != 0;
            tutti::inside::sync(s);
            wrong += differ(x, x.source + caller * x.stride, q, caller, round);
            tutti::inside::sync(s);
        }
        if (x.w.barrier(caller, s)) wrong += 1000000;
        if (wrong >= 1000000) break;
    }
    add_wrong(&x.wrong[caller], wrong);
}

/* Words of rank 0 that all threads of all ranks change: one by addition, one under a lock made of compare_swap. */
GPU_KERNEL(case_words, struct window_case, x, 256)
{
    const uint64_t sum = 0, lock = 8, guarded = 16;
    for (uint32_t round = 1; round <= x.rounds; round++) x.w.fetch_add(round, 0, sum);
    if (gpu_lane() != 0) return;
    for (uint32_t round = 1; round <= x.rounds; round++) {
        while (x.w.compare_swap(0, 1, 0, lock) != 0) gpu_spin();
        uint64_t *word = reinterpret_cast<uint64_t *>(x.w.peer(0) + guarded);
        gpu_store_u64(word, gpu_load_u64(word) + round);
        x.w.fence();
        if (x.w.compare_swap(1, 0, 0, lock) != 1) add_wrong(&x.wrong[0], 1);
    }
}

/* What is refused, and touches nothing; a reset. */
GPU_KERNEL(case_refused, struct window_case, x, 32)
{
    const int32_t me = x.w.rank(), none = x.w.num_ranks();
    const size_t size = x.w.size();
    uint32_t wrong = 0;
    wrong += x.w.put(size, x.source, me, 1) == 0;
    wrong += x.w.put(size - 1, x.source, me, 2) == 0;
    wrong += x.w.put(0, x.source, none, 1) == 0;
    wrong += x.w.put(0, x.source, -1, 1) == 0;
    wrong += x.w.put(size, x.source, me, 0) != 0;
    wrong += x.w.get(x.source, none, 0, 1) == 0;
    wrong += x.w.put_signal(0, x.source, me, 1, x.w.n_signals) == 0;
    wrong += x.w.signal(none, 0) == 0;
    wrong += x.w.signal(me, x.w.n_signals) == 0;
    wrong += x.w.wait_signal(x.w.n_signals, TUTTI_COMPARE_EQ, 0) == 0;
    wrong += x.w.barrier(TUTTI_DEVICE_BARRIERS) == 0;
    wrong += x.w.peer(none) != nullptr;
    wrong += x.w.fetch_add(1, none, 0) != ~UINT64_C(0) || x.w.fetch_add(1, me, size - 4) != ~UINT64_C(0);
    wrong += x.w.compare_swap(0, 1, -1, 0) != ~UINT64_C(0) || x.w.compare_swap(0, 1, me, 4) != ~UINT64_C(0);
    wrong += x.w.read_signal(x.w.n_signals) != ~UINT64_C(0) || x.w.reset_signal(x.w.n_signals) != -1;
    if (gpu_thread() != 0) return;
    for (uint32_t compare = TUTTI_COMPARE_EQ; compare <= TUTTI_COMPARE_GE; compare++) { /* against a signal that is 5 */
        const uint64_t values[] = {5, 4, 6, 5, 4, 5};
        x.w.signal(me, 1, TUTTI_SIGNAL_SET, 5);
        wrong += x.w.wait_signal(1, (tutti_compare)compare, values[compare]) != 0;
    }
    x.w.reset_signal(1);
    wrong += x.w.read_signal(1) != 0;
    add_wrong(&x.wrong[0], wrong);
}

/* A signal that never comes: all leave, and all that come after. */
GPU_KERNEL(case_lost, struct window_case, x, 256)
{
    const uint32_t caller = caller_of(x);
    if (caller >= x.callers) return;
    const int32_t left = (x.w.rank() + x.w.num_ranks() - 1) % x.w.num_ranks();
    uint32_t wrong = x.w.wait_signal_from(left, 0, TUTTI_COMPARE_GT, 1000, scope_of(x)) == 0;
    wrong += x.w.wait_signal(1, TUTTI_COMPARE_NE, 0, scope_of(x)) == 0;
    add_wrong(&x.wrong[caller], wrong);
}
