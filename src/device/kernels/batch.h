/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_BATCH_CUH
#define TUTTI_DEVICE_CUDA_BATCH_CUH

/* Batches: an exchange in whose units several collectives lie one behind the other (struct gpu_batch). What happens to
 * a unit is what happens to it in any exchange by lines or sentinels (oneshot.h), between its own segment's buffers;
 * slots, turns and waits are those of one call. */

#include "device/kernels/oneshot.h"

static_assert(sizeof(struct gpu_batch) <= 4096, "what a kernel's parameters may take");

/* Where a unit lies: in the parts of its segment, from `at` on. No bytes: this launch is not for it. */
struct gpu_batch_unit {
    const char *in;
    char *out;
    uint64_t bytes, at;
};

/* The last segment that begins at the unit or before it. */
GPU_DEVICE uint32_t gpu_segment_of(const struct gpu_batch &batch, uint32_t unit)
{
    uint32_t found = 0;
    GPU_UNROLL
    for (uint32_t step = GPU_SEGMENTS / 2; step > 0; step /= 2)
        if (batch.first[found + step] <= unit) found += step;
    return found;
}

/* For this thread's unit u. */
GPU_DEVICE struct gpu_batch_unit gpu_find_unit(const struct gpu_batch &batch, uint32_t u)
{
    const uint32_t unit = (gpu_block() * batch.units + u) * gpu_threads() + gpu_thread();
    if (unit < batch.begin || unit >= batch.end) return gpu_batch_unit{nullptr, nullptr, 0, 0};
    const uint32_t s = gpu_segment_of(batch, unit);
    const struct gpu_segment &segment = batch.segments[s];
    return gpu_batch_unit{segment.in, segment.out, segment.bytes, (uint64_t)16 * (unit - batch.first[s])};
}

/* A segment's parts, as those of an exchange of which one unit is looked at. */
struct gpu_segment_parts {
    const struct gpu_call &call;
    const struct gpu_batch &batch;
    const char *in;
    char *out;
    uint64_t bytes, unit_at;

    __device__ __forceinline__ struct gpu_part to(uint32_t q) const
    {
        return gpu_part{batch.sends_each ? q * bytes : 0, batch.sends >> q & 1 ? bytes : 0};
    }
    __device__ __forceinline__ struct gpu_part from(uint32_t q) const
    {
        return gpu_part{batch.receives_each ? q * bytes : 0, batch.receives >> q & 1 ? bytes : 0};
    }
    __device__ __forceinline__ uint64_t at(uint32_t) const { return unit_at; }
    __device__ __forceinline__ uint64_t result_bytes() const { return bytes; }
};

/* For one unit by itself: `slot` alone is counted over the whole batch. */
template <typename Wire, typename R, uint32_t MOST>
GPU_DEVICE struct gpu_ways<struct gpu_segment_parts, MOST> gpu_batch_ways(const struct gpu_batch &batch, uint32_t u) {
    const struct gpu_batch_unit unit = gpu_find_unit(batch, u);
    const struct gpu_segment_parts parts = {batch.call, batch, unit.in, unit.out, unit.bytes, unit.at};
    return gpu_ways_find<Wire, R, 0, MOST>(parts, u);
}

/* The body of the kernels. Parameters are there before what is ahead in the stream is over: the only unit, as a rule,
 * is found meanwhile. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK>
GPU_DEVICE void gpu_run_batch(const struct gpu_batch &batch)
{
    const bool alike = !batch.sends_each && batch.sends == (1u << batch.call.n) - 1;
    const struct gpu_segment_parts block = {batch.call, batch, nullptr, nullptr, 1, 0}; /* none is without a unit */
    auto first = gpu_batch_ways<Wire, R, MOST>(batch, 0);
    struct gpu_audience audience = gpu_audience_of<MOST>(block, 0);
    gpu_words own = {0, 0, 0, 0};
    gpu_ways_settle<R>(&first);
    struct gpu_turn turn = gpu_turn_begin(batch.call, &audience);
    for (uint32_t u = 0; u < batch.units; u++) {
        const auto ways = u == 0 ? first : gpu_batch_ways<Wire, R, MOST>(batch, u);
        gpu_send_unit<Wire, R, MOST, CHUNK, false>(batch.call, ways, alike, &turn, 0, &own);
    }
    gpu_turn_tell(turn, audience);
    if (turn.failed) return;
    for (uint32_t u = 0; u < batch.units; u++) {
        const auto ways = u == 0 ? first : gpu_batch_ways<Wire, R, MOST>(batch, u);
        if (!gpu_receive_unit<Wire, R, MOST, CHUNK, false>(batch.call, ways, batch.units, &turn, 0, own)) return;
    }
    if (batch.end < batch.first[GPU_SEGMENTS]) return;
    gpu_turn_count(batch.call, turn, audience);
    gpu_turn_end(batch.call, turn);
}

#define GPU_BATCH(wire, Wire, name, reducer, most, chunk)                                                              \
    GPU_KERNEL(batch_##wire##_##name##_##most, struct gpu_batch, x, GPU_LINE_THREADS)                                  \
    {                                                                                                                  \
        gpu_run_batch<Wire, reducer, most, chunk>(x);                                                                  \
    }

#define GPU_BATCH_LINES_FAST(name, R)                                                                                  \
    GPU_BATCH(lines, gpu_lines, name, R, 4, 4)                                                                         \
    GPU_BATCH(lines, gpu_lines, name, R, 16, 4)
#define GPU_BATCH_LINES_ANY(name, R) GPU_BATCH(lines, gpu_lines, name, R, 16, 2)
#define GPU_BATCH_SENTINEL_FAST(name, R)                                                                               \
    GPU_BATCH(sentinel, gpu_sentinel<R::type::word>, name, R, 4, 4)                                                    \
    GPU_BATCH(sentinel, gpu_sentinel<R::type::word>, name, R, 16, 4)
#define GPU_BATCH_SENTINEL_ANY(name, R) GPU_BATCH(sentinel, gpu_sentinel<R::type::word>, name, R, 16, 2)

#endif
