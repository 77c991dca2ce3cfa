/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_SENTINEL2_H
#define TUTTI_DEVICE_KERNELS_SENTINEL2_H

/* all_reduce by sentinels in two exchanges of one launch (struct gpu_two_shot): phase 0 brings every rank the others'
 * inputs of its own shard, phase 1 everyone the results. The same units of all shards belong to one thread, which goes
 * through them three times: it pushes inputs, folds and pushes results, takes results. It waits for nobody but its
 * peers' threads of the same number, who do the same in the same order, so all get through; and what it overwrites, it
 * alone has read, so in and out may be one. Soundness: wires.h and turn.h; both phases belong to one call. */

#include "device/kernels/oneshot.h"

GPU_DEVICE struct gpu_part gpu_shard(const struct gpu_two_shot &shot, uint32_t q)
{
    const uint64_t at = q * shot.shard_bytes, left = at < shot.bytes ? shot.bytes - at : 0;
    return gpu_part{at, left < shot.shard_bytes ? left : shot.shard_bytes};
}

/* Phase 0: everyone's contribution to the own shard. Phase 1: every shard from the rank that folded it. */
template <uint32_t PHASE> struct gpu_shard_parts {
    const struct gpu_call &call;
    const struct gpu_two_shot &shot;
    const char *in;
    char *out;
    uint32_t units;

    __device__ __forceinline__ struct gpu_part to(uint32_t q) const { return gpu_shard(shot, q); }
    __device__ __forceinline__ struct gpu_part from(uint32_t q) const
    {
        return gpu_shard(shot, PHASE == 0 ? call.me : q);
    }
    __device__ __forceinline__ uint64_t at(uint32_t u) const { return gpu_unit_at(units, u); }
    __device__ __forceinline__ uint64_t result_bytes() const { return gpu_shard(shot, call.me).bytes; }
};

/* Unit u of the own shard: folded, pushed to all, stored. `phase`: from slots of the first one to those of the next. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE bool gpu_settle_unit(const struct gpu_two_shot &shot, const Ways &ways, uint64_t phase,
                                struct gpu_turn *turn, uint32_t u, gpu_words kept)
{
    const uint32_t on = gpu_unit_on(u);
    const gpu_words own = gpu_own_unit<WHOLE>(ways, shot.units, u, kept);
    gpu_words result;
    bool any;
    if (!gpu_fold_arrivals<Wire, R, MOST, CHUNK>(shot.call, ways, turn, u, own, &any, &result)) return false;
    if (!any) return true;
    const uint64_t slot = gpu_slot_on<Wire>(ways, *turn, u) + phase;
    GPU_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t i = 0; i + 1 < MOST && gpu_is_way<MOST>(shot.call, i + 1); i++)
        if (i + 1 < shot.call.n) Wire::put(ways.peers.to(i).slot + slot, Wire::proper(result), 0);
    gpu_give_unit<WHOLE>(ways.result + on, result, ways.left - on);
    return true;
}

/* After the first unit has left: settling stays behind sending, and moving behind settling. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE bool gpu_finish_shots(const struct gpu_two_shot &shot, const Ways &ways, struct gpu_turn *turn,
                                 gpu_words own)
{
    const struct gpu_call &call = shot.call;
    const struct gpu_shard_parts<1> results = {
        call, shot, shot.in, shot.out, shot.units
    };
    const auto spread = gpu_ways_find<Wire, R, 1, MOST>(results, 0);
    const uint64_t phase = Wire::slot(call, 1, 0) - Wire::slot(call, 0, 0);
    const uint32_t units = shot.units, lag = gpu_lag(units);
    for (uint32_t u = 0; u < units + 2 * lag; u++) {
        if (u > 0 && u < units) gpu_send_unit<Wire, R, MOST, CHUNK, WHOLE>(call, ways, false, turn, u, nullptr);
        if (u >= lag && u - lag < units &&
            !gpu_settle_unit<Wire, R, MOST, CHUNK, WHOLE>(shot, ways, phase, turn, u - lag, own))
            return false;
        if (u >= 2 * lag && !gpu_move_unit<Wire, MOST, CHUNK, WHOLE>(call, spread, turn, u - 2 * lag)) return false;
    }
    return true;
}

template <typename R, uint32_t MOST, uint32_t CHUNK, bool FAST>
GPU_DEVICE void gpu_two_shots(const struct gpu_two_shot &shot)
{
    using Wire = gpu_sentinel<R::type::word>;
    const struct gpu_shard_parts<0> inputs = {
        shot.call, shot, shot.in, shot.out, shot.units
    };
    const bool whole = FAST && gpu_is_whole(shot.units, shot.whole);
    auto ways = gpu_ways_find<Wire, R, 0, MOST>(inputs, 0);
    struct gpu_audience audience = gpu_audience_of<MOST>(inputs, gpu_unit_at(shot.units, 0) - 16 * gpu_thread());
    gpu_words own = {0, 0, 0, 0};
    gpu_ways_settle<R>(&ways);
    struct gpu_turn turn = gpu_turn_begin(shot.call, &audience);
    if (whole)
        gpu_send_unit<Wire, R, MOST, CHUNK, FAST>(shot.call, ways, false, &turn, 0, &own);
    else
        gpu_send_unit<Wire, R, MOST, 2, false>(shot.call, ways, false, &turn, 0, &own);
    gpu_turn_tell(turn, audience);
    if (turn.failed) return;
    if (!(whole ? gpu_finish_shots<Wire, R, MOST, CHUNK, FAST>(shot, ways, &turn, own)
                : gpu_finish_shots<Wire, R, MOST, 2, false>(shot, ways, &turn, own)))
        return;
    gpu_turn_count(shot.call, turn, audience);
    gpu_turn_end(shot.call, turn);
}

#define SENTINEL2(name, reducer, most, chunk, fast)                                                                    \
    GPU_KERNEL(sentinel2_##name##_##most, struct gpu_two_shot, x, GPU_LINE_THREADS)                                    \
    {                                                                                                                  \
        gpu_two_shots<reducer, most, chunk, fast>(x);                                                                  \
    }
#define SENTINEL2_FAST(name, reducer)                                                                                  \
    SENTINEL2(name, reducer, 2, 2, true)                                                                               \
    SENTINEL2(name, reducer, 4, 4, true)                                                                               \
    SENTINEL2(name, reducer, 8, 8, true)                                                                               \
    SENTINEL2(name, reducer, 16, 4, true)
#define SENTINEL2_ANY(name, reducer) SENTINEL2(name, reducer, 16, 2, false)

GPU_FAST_REDUCERS(SENTINEL2_FAST)
GPU_FLOAT_REDUCERS(SENTINEL2_ANY)
GPU_FLOAT64_REDUCERS(SENTINEL2_ANY)

#endif
