/* SPDX-License-Identifier: BSD-3-Clause */

/* all_reduce by sentinels in two exchanges of one launch (struct cuda_two_shot): phase 0 brings every rank the others'
 * inputs of its own shard, phase 1 everyone the results. The same units of all shards belong to one thread, which goes
 * through them three times: it pushes inputs, folds and pushes results, takes results. It waits for nobody but its
 * peers' threads of the same number, who do the same in the same order, so all get through; and what it overwrites, it
 * alone has read, so in and out may be one. Soundness: wires.cuh and turn.cuh; both phases belong to one call. */

#include "oneshot.cuh"

CUDA_DEVICE struct cuda_part cuda_shard(const struct cuda_two_shot &shot, uint32_t q)
{
    const uint64_t at = q * shot.shard_bytes, left = at < shot.bytes ? shot.bytes - at : 0;
    return cuda_part{at, left < shot.shard_bytes ? left : shot.shard_bytes};
}

/* Phase 0: everyone's contribution to the own shard. Phase 1: every shard from the rank that folded it. */
template <uint32_t PHASE> struct cuda_shard_parts {
    const struct cuda_call &call;
    const struct cuda_two_shot &shot;
    const char *in;
    char *out;
    uint32_t units;
    static constexpr bool alike = false;

    __device__ __forceinline__ struct cuda_part to(uint32_t q) const { return cuda_shard(shot, q); }
    __device__ __forceinline__ struct cuda_part from(uint32_t q) const
    {
        return cuda_shard(shot, PHASE == 0 ? call.me : q);
    }
    __device__ __forceinline__ uint64_t at(uint32_t u) const { return cuda_unit_at(units, u); }
};

/* Unit u of the own shard: folded, pushed to all, stored. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE bool cuda_settle_unit(const struct cuda_shard_parts<0> &x, struct cuda_turn *turn, uint32_t u,
                                  cuda_words own)
{
    const uint64_t at = x.at(u);
    const struct cuda_part part = x.from(x.call.me);
    cuda_words result;
    bool any;
    if (!cuda_fold_unit_of<Wire, R, MOST, CHUNK, WHOLE>(x, turn, u, own, &any, &result)) return false;
    if (!any) return true;
    const uint64_t slot = Wire::slot(x.call, 1, turn->count) + Wire::place(u), stride = cuda_stride<Wire>(x.call);
    CUDA_UNROLL
    for (uint32_t i = 0; i < MOST; i++) {
        const uint32_t q = cuda_nth<MOST>(x.call, i);
        if (i < x.call.n && q != x.call.me)
            Wire::put(x.call.base[q] + slot + cuda_row(q, x.call.me) * stride, Wire::proper(result), 0);
    }
    cuda_give_unit<WHOLE>(x.out + part.at + at, result, part.bytes - at);
    return true;
}

/* After the first unit has left: settling stays behind sending, and moving behind settling. */
template <typename Wire, typename R, uint32_t MOST, uint32_t CHUNK, bool WHOLE>
CUDA_DEVICE bool cuda_finish_shots(const struct cuda_two_shot &shot, struct cuda_turn *turn, cuda_words own)
{
    const struct cuda_shard_parts<0> inputs = {
        shot.call, shot, shot.in, shot.out, shot.units
    };
    const struct cuda_shard_parts<1> results = {
        shot.call, shot, shot.in, shot.out, shot.units
    };
    const uint32_t lag = cuda_lag(shot.units);
    for (uint32_t u = 0; u < shot.units + 2 * lag; u++) {
        if (u > 0 && u < shot.units) cuda_send_unit<Wire, R, MOST, CHUNK, WHOLE>(inputs, turn, u, &own);
        if (u >= lag && u - lag < shot.units &&
            !cuda_settle_unit<Wire, R, MOST, CHUNK, WHOLE>(inputs, turn, u - lag, own))
            return false;
        if (u >= 2 * lag && !cuda_move_unit<Wire, 1, MOST, CHUNK, WHOLE>(results, turn, u - 2 * lag)) return false;
    }
    return true;
}

template <typename R, uint32_t MOST, uint32_t CHUNK, bool FAST>
CUDA_DEVICE void cuda_two_shots(const struct cuda_two_shot &shot)
{
    using Wire = cuda_sentinel<R::type::word>;
    const struct cuda_shard_parts<0> inputs = {
        shot.call, shot, shot.in, shot.out, shot.units
    };
    cuda_words own = {0, 0, 0, 0};
    cuda_follow_launch();
    struct cuda_turn turn = cuda_turn_begin(shot.call);
    const bool whole = FAST && cuda_is_whole(shot.units, shot.whole);
    if (whole)
        cuda_send_unit<Wire, R, MOST, CHUNK, FAST>(inputs, &turn, 0, &own);
    else
        cuda_send_unit<Wire, R, MOST, 2, false>(inputs, &turn, 0, &own);
    const uint64_t block = cuda_unit_at(shot.units, 0) - 16 * cuda_thread();
    cuda_turn_tell(inputs, turn, block);
    if (turn.failed) return;
    if (!(whole ? cuda_finish_shots<Wire, R, MOST, CHUNK, FAST>(shot, &turn, own)
                : cuda_finish_shots<Wire, R, MOST, 2, false>(shot, &turn, own)))
        return;
    cuda_turn_count<MOST>(inputs, turn, block);
    cuda_turn_end(shot.call, turn);
}

#define SENTINEL2(name, reducer, most, chunk, fast)                                                                    \
    CUDA_KERNEL(sentinel2_##name##_##most, struct cuda_two_shot, x, CUDA_LINE_THREADS)                                 \
    {                                                                                                                  \
        cuda_two_shots<reducer, most, chunk, fast>(x);                                                                 \
    }
#define SENTINEL2_FAST(name, reducer)                                                                                  \
    SENTINEL2(name, reducer, 2, 2, true)                                                                               \
    SENTINEL2(name, reducer, 4, 4, true)                                                                               \
    SENTINEL2(name, reducer, 8, 8, true)                                                                               \
    SENTINEL2(name, reducer, 16, 4, true)
#define SENTINEL2_ANY(name, reducer) SENTINEL2(name, reducer, 16, 2, false)

CUDA_FAST_REDUCERS(SENTINEL2_FAST)
CUDA_FLOAT_REDUCERS(SENTINEL2_ANY)
