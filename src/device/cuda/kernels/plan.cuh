/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_PLAN_CUH
#define TUTTI_DEVICE_CUDA_PLAN_CUH

/* The interpreter of programs: of a block's 9 warps 8 move data, job by job, and one schedules (plan_lanes.cuh). A job
 * copies a tile or folds it with what the destination held before; slots of rings are local memory or a peer's, users'
 * buffers are at any address. */

#include "plan_lanes.cuh"
#include "reduce.cuh"
#include "units.cuh"

constexpr uint32_t cuda_plan_pass = cuda_plan_movers * CUDA_WARP * 16;   /* bytes that movers move at once */
template <class R> constexpr uint32_t cuda_plan_held = R::moves ? 4 : 2; /* units that a thread has on their way */

template <class R> CUDA_DEVICE cuda_words cuda_plan_fold(const struct cuda_call &call, cuda_words old, cuda_words unit)
{
    typename R::total total;
    R::first(&total, old);
    R::next(&total, unit, call.op);
    return R::result(total, 0);
}

/* Everything that may be done to a unit. */
template <class R>
CUDA_DEVICE cuda_words cuda_plan_combine(const struct cuda_call &call, uint32_t flags, cuda_words unit, cuda_words old)
{
    if constexpr (!R::moves) {
        if (call.scales && (flags & CUDA_PLAN_SRC_INPUT)) unit = R::scale(unit, call.factor);
        if (call.scales && (flags & CUDA_PLAN_OLD_INPUT)) old = R::scale(old, call.factor);
        if (flags & CUDA_PLAN_FOLDS) return cuda_plan_fold<R>(call, old, unit);
        if (flags & CUDA_PLAN_DIVIDES) {
            typename R::total total;
            R::first(&total, unit);
            return R::result(total, call.divisor);
        }
    }
    return unit;
}

/* Units that are not whole, or to be scaled or divided, from `begin` on. */
template <class R>
CUDA_COLD void cuda_plan_do_rest(const struct cuda_call &call, const struct cuda_plan_job &job, uint32_t begin)
{
    for (uint32_t at = begin + cuda_thread() * 16; at < job.bytes; at += cuda_plan_pass) {
        const uint32_t left = job.bytes - at;
        const cuda_words unit = cuda_take_unit<false>(job.src + at, left);
        const cuda_words old = job.old ? cuda_take_unit<false>(job.old + at, left) : cuda_words{};
        cuda_give_unit<false>(job.dst + at, cuda_plan_combine<R>(call, job.flags, unit, old), left);
    }
}

/* Whole units, which are copied or folded. */
template <class R>
CUDA_DEVICE void cuda_plan_do_whole(const struct cuda_call &call, const struct cuda_plan_job &job, uint32_t bytes)
{
    constexpr uint32_t held = cuda_plan_held<R>;
    for (uint32_t begin = cuda_thread() * 16; begin < bytes; begin += held * cuda_plan_pass) {
        cuda_words units[held] = {}, olds[held] = {};
        CUDA_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            const uint32_t at = begin + u * cuda_plan_pass;
            if (at < bytes) units[u] = cuda_read_words(job.src + at);
            if (at < bytes && job.old) olds[u] = cuda_read_words(job.old + at);
        }
        CUDA_UNROLL for (uint32_t u = 0; u < held; u++)
        {
            const uint32_t at = begin + u * cuda_plan_pass;
            if constexpr (!R::moves) {
                if (job.old) units[u] = cuda_plan_fold<R>(call, olds[u], units[u]);
            }
            if (at < bytes) cuda_write_words(job.dst + at, units[u]);
        }
    }
}

template <class R> CUDA_DEVICE void cuda_plan_do(const struct cuda_call &call, const struct cuda_plan_job &job)
{
    const uintptr_t places = reinterpret_cast<uintptr_t>(job.src) | reinterpret_cast<uintptr_t>(job.old) |
                             reinterpret_cast<uintptr_t>(job.dst);
    const uint32_t inputs = call.scales ? CUDA_PLAN_SRC_INPUT | CUDA_PLAN_OLD_INPUT : 0;
    const bool plain = places % 16 == 0 && (job.flags & (CUDA_PLAN_DIVIDES | inputs)) == 0;
    const uint32_t whole = plain ? job.bytes & ~15u : 0;
    cuda_plan_do_whole<R>(call, job, whole);
    if (whole < job.bytes) cuda_plan_do_rest<R>(call, job, whole);
}

template <class R> CUDA_DEVICE void cuda_plan_work(const struct cuda_call &call, struct cuda_plan_board *board)
{
    for (uint32_t j = 0;; j++) {
        bool on = true;
        if (cuda_lane() == 0) {
            while (on && cuda_acquire_block_u32(&board->posted) == j) {
                cuda_spin();
                on = cuda_load_block_u32(&board->halted) == 0;
            }
        }
        if (!cuda_all(on)) return;
        cuda_sync_warp();
        const struct cuda_plan_job job = cuda_plan_job_read(*board, j % cuda_plan_jobs);
        cuda_plan_do<R>(call, job);
        cuda_sync_warp();
        if (cuda_lane() == 0) cuda_release_block_u32(&board->done[cuda_warp()], j + 1);
    }
}

/* The program comes over once; shared memory is much nearer than the host's. False: leave. */
CUDA_DEVICE bool cuda_plan_load(const struct cuda_plan &x, struct cuda_plan_board *board)
{
    const char *from = reinterpret_cast<const char *>(x.program->steps);
    cuda_words *to = reinterpret_cast<cuda_words *>(board->steps);
    for (uint32_t i = cuda_thread(); i < x.n_steps * 2; i += cuda_threads()) to[i] = cuda_read_words(from + 16 * i);
    if (cuda_thread() < cuda_plan_movers) board->done[cuda_thread()] = 0;
    if (cuda_thread() == 0) board->posted = board->halted = 0;
    return !cuda_sync_block_any(cuda_has_stopped(x.call));
}

template <class R> CUDA_DEVICE void cuda_plan_run(const struct cuda_plan &x)
{
    CUDA_SHARED(struct cuda_plan_board, board);
    cuda_wait_for_launch();
    if (!cuda_plan_load(x, &board)) return;
    if (cuda_warp() < cuda_plan_movers)
        cuda_plan_work<R>(x.call, &board);
    else
        cuda_plan_schedule(x, &board);
}

#define CUDA_PLAN(name, reducer)                                                                                       \
    CUDA_KERNEL(plan_##name##_16, struct cuda_plan, x, CUDA_PLAN_THREADS, 2)                                           \
    {                                                                                                                  \
        cuda_plan_run<reducer>(x);                                                                                     \
    }

#endif
