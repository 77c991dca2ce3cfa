/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_BATCH_CUH
#define TUTTI_DEVICE_CUDA_BATCH_CUH

/* Batches: an exchange in whose units several collectives lie one behind the other (struct gpu_batch). What happens to
 * a unit is what happens to it in any exchange by lines or sentinels (oneshot.cuh), between its own segment's buffers;
 * slots, turns and waits are those of one call. */

#include "oneshot.cuh"

static_assert(sizeof(struct gpu_batch) <= 4096, "what a kernel's parameters may take");

/* Where a unit lies: in the parts of its segment, from `at` on. No bytes: this launch is not for it. */
struct cuda_batch_unit {
    const char *in;
    char *out;
    uint64_t bytes, at;
};

/* The last segment that begins at the unit or before it. */
CUDA_DEVICE uint32_t cuda_segment_of(const struct gpu_batch &batch, uint32_t unit)
{
    uint32_t found = 0;
    CUDA_UNROLL
    for (uint32_t step = GPU_SEGMENTS / 2; step > 0; step /= 2)
        if (batch.first[found + step] <= unit) found += step;
    return found;
}

/* Of this thread's unit u. */
CUDA_DEVICE struct cuda_batch_unit cuda_find_unit(const struct gpu_batch &batch, uint32_t u)
{
    const uint32_t unit = (cuda_block() * batch.units + u) * cuda_threads() + cuda_thread();
    if (unit < batch.begin || unit >= batch.end) return cuda_batch_unit{nullptr, nullptr, 0, 0};
    const uint32_t s = cuda_segment_of(batch, unit);
    const struct gpu_segment &segment = batch.segments[s];
    return cuda_batch_unit{segment.in, segment.out, segment.bytes, (uint64_t)16 * (unit - batch.first[s])};
}

/* A segment's parts, as those of an exchange of which one unit is looked at. */
struct cuda_segment_parts {
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

/* Of a unit, by itself: `slot` alone is counted over the whole batch. */
template <typename Wire, typename R, uint32_t MOST>
CUDA_DEVICE struct cuda_ways<struct cuda_segment_parts, MOST> cuda_batch_ways(const struct gpu_batch &batch,
                                                                              uint32_t u) {
    const struct cuda_batch_unit unit = cuda_find_unit(batch, u);
    const struct cuda_segment_parts parts = {batch.call, batch, unit.in, unit.out, unit.bytes, unit.at};
    return cuda_ways_find<Wire, R, 0, MOST>(parts, u);
}

/* The body of the kernels. Parameters are there before what is ahead in the stream is over: the only unit, as a rule,
 * is found meanwhile. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK>
CUDA_DEVICE void cuda_run_batch(const struct gpu_batch &batch)
{
    const bool alike = !batch.sends_each && batch.sends == (1u << batch.call.n) - 1;
    const struct cuda_segment_parts block = {batch.call, batch, nullptr, nullptr, 1, 0}; /* none is without a unit */
    auto first = cuda_batch_ways<Wire, R, MOST>(batch, 0);
    struct cuda_audience audience = cuda_audience_of<MOST>(block, 0);
    cuda_words own = {0, 0, 0, 0};
    cuda_ways_settle<R>(&first);
    struct cuda_turn turn = cuda_turn_begin(batch.call, &audience);
    for (uint32_t u = 0; u < batch.units; u++) {
        const auto ways = u == 0 ? first : cuda_batch_ways<Wire, R, MOST>(batch, u);
        cuda_send_unit<Wire, R, MOST, CHUNK, false>(batch.call, ways, alike, &turn, 0, &own);
    }
    cuda_turn_tell(turn, audience);
    if (turn.failed) return;
    for (uint32_t u = 0; u < batch.units; u++) {
        const auto ways = u == 0 ? first : cuda_batch_ways<Wire, R, MOST>(batch, u);
        if (!cuda_receive_unit<Wire, R, MOST, CHUNK, false>(batch.call, ways, batch.units, &turn, 0, own)) return;
    }
    if (batch.end < batch.first[GPU_SEGMENTS]) return;
    cuda_turn_count(batch.call, turn, audience);
    cuda_turn_end(batch.call, turn);
}

#define CUDA_BATCH(wire, Wire, name, reducer, most, chunk)                                                             \
    CUDA_KERNEL(batch_##wire##_##name##_##most, struct gpu_batch, x, GPU_LINE_THREADS)                               \
    {                                                                                                                  \
        cuda_run_batch<Wire, reducer, most, chunk>(x);                                                                 \
    }

#endif
