/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CUDA_MACHINE_H
#define TUTTI_STANDIN_CUDA_MACHINE_H

/* What kernels ask of the machine (device/kernels/machine.h includes this, and cuda.h and says what each promises), for
 * a host compiler: threads are fibers, memory operations are C++'s atomics, of the same strength. Every load that a
 * loop could wait with counts, and now and then lets others run. */

#include "standin/cuda/grid.h"

#include <cmath>
#include <cstring>
#include <ctime>

#define __host__
#define __device__
#define __forceinline__ inline

#define GPU_WARPS 1
#define GPU_DEVICE static inline
#define GPU_COLD __attribute__((noinline, unused)) static
#define GPU_UNROLL
#define GPU_UNROLL_BY(n)
#define GPU_CONSTANT static const
#define GPU_KERNEL(name, type, parameter, ...) GPU_STANDIN_KERNEL(name, type, parameter, __VA_ARGS__)
#define GPU_STANDIN_KERNEL(name, type, parameter, ...)                                                                 \
    static void name(const type &parameter);                                                                           \
    static void name##_run(const void *parameter)                                                                      \
    {                                                                                                                  \
        name(*static_cast<const type *>(parameter));                                                                   \
    }                                                                                                                  \
    static cuda_standin_kernel name##_kernel(#name, name##_run, sizeof(type), {__VA_ARGS__});                          \
    static void name(const type &parameter)
#define GPU_SHARED(type, name)                                                                                         \
    using name##_shared = type;                                                                                        \
    static const char name##_tag = 0;                                                                                  \
    name##_shared &name = *static_cast<name##_shared *>(cuda_standin_shared(&name##_tag, sizeof(name##_shared)))
#define GPU_SPINS 4

template <typename T> GPU_DEVICE void gpu_settle(T *) {}
GPU_IS(uint32_t, gpu_thread, (), cuda_standin_current->thread)
GPU_IS(uint32_t, gpu_threads, (), cuda_standin_current->threads)
GPU_IS(uint32_t, gpu_block, (), cuda_standin_current->block)
GPU_IS(uint32_t, gpu_blocks, (), cuda_standin_current->blocks)
GPU_IS(uint32_t, gpu_lane, (), gpu_thread() % GPU_WARP)
GPU_IS(uint32_t, gpu_warp, (), gpu_thread() / GPU_WARP)
GPU_DEVICE uint64_t gpu_clock_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
GPU_IS(void, gpu_spin, (), cuda_standin_yield())
GPU_IS(void, gpu_nap, (uint32_t), cuda_standin_yield())

/* ---- memory ---- */
/* The thread sanitizer knows no fences: under it a load of a word acquires, a store after a fence releases, and fences
 * synchronize with one another. */
#if defined(__SANITIZE_THREAD__)
#define GPU_STANDIN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GPU_STANDIN_TSAN 1
#endif
#endif
#ifdef GPU_STANDIN_TSAN
const bool cuda_standin_tsan = true;
#else
const bool cuda_standin_tsan = false;
#endif
inline uint32_t cuda_standin_fences;

template <class T> static inline T *cuda_standin_at(const void *p, size_t alignment)
{
    if (__builtin_expect((uintptr_t)p % alignment != 0, 0)) cuda_standin_fatal("misaligned address %p", p);
    return static_cast<T *>(const_cast<void *>(p));
}
static inline void cuda_standin_look() /* one more load that may be of a loop that waits */
{
    if (++cuda_standin_current->n_loads >= 256) cuda_standin_yield();
}
template <class T> static inline T cuda_standin_load(const void *p)
{
    cuda_standin_look();
    T *at = cuda_standin_at<T>(p, sizeof(T));
    return cuda_standin_tsan ? __atomic_load_n(at, __ATOMIC_ACQUIRE) : __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <class T> static inline void cuda_standin_store(void *p, T v)
{
    T *at = cuda_standin_at<T>(p, sizeof(T));
    if (cuda_standin_tsan && cuda_standin_current->fenced) {
        __atomic_store_n(at, v, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(at, v, __ATOMIC_RELAXED);
    }
}

GPU_IS(uint32_t, gpu_load_u32, (const void *p), cuda_standin_load<uint32_t>(p))
GPU_IS(uint64_t, gpu_load_u64, (const void *p), cuda_standin_load<uint64_t>(p))
GPU_DEVICE gpu_pair gpu_load_pair(const void *p)
{
    cuda_standin_look();
    uint64_t *at = cuda_standin_at<uint64_t>(p, 16);
    return gpu_pair{__atomic_load_n(at, __ATOMIC_RELAXED), __atomic_load_n(at + 1, __ATOMIC_RELAXED)};
}
GPU_IS(void, gpu_store_u32, (void *p, uint32_t v), cuda_standin_store(p, v))
GPU_IS(void, gpu_store_u64, (void *p, uint64_t v), cuda_standin_store(p, v))
/* Words of one store arrive in no order: here the last one first, which is not what anybody expects. */
GPU_DEVICE void gpu_store_pair(void *p, gpu_pair v)
{
    uint64_t *at = cuda_standin_at<uint64_t>(p, 16);
    __atomic_store_n(at + 1, v.y, __ATOMIC_RELAXED);
    __atomic_store_n(at, v.x, __ATOMIC_RELAXED);
}
GPU_DEVICE uint32_t gpu_acquire_u32(const void *p)
{
    cuda_standin_look();
    return __atomic_load_n(cuda_standin_at<uint32_t>(p, 4), __ATOMIC_ACQUIRE);
}
GPU_DEVICE uint64_t gpu_acquire_u64(const void *p)
{
    cuda_standin_look();
    return __atomic_load_n(cuda_standin_at<uint64_t>(p, 8), __ATOMIC_ACQUIRE);
}
GPU_IS(void, gpu_release_u32, (void *p, uint32_t v),
       __atomic_store_n(cuda_standin_at<uint32_t>(p, 4), v, __ATOMIC_RELEASE))
GPU_IS(void, gpu_release_before_u32, (void *p, uint32_t v), gpu_release_u32(p, v))
GPU_DEVICE void gpu_fence_system()
{
    if (cuda_standin_tsan) {
        __atomic_fetch_add(&cuda_standin_fences, 1, __ATOMIC_ACQ_REL);
        cuda_standin_current->fenced = true;
    } else {
        __atomic_thread_fence(__ATOMIC_ACQ_REL);
    }
}
GPU_DEVICE uint64_t gpu_exchange_if(void *p, uint64_t expected, uint64_t desired)
{
    uint64_t before = expected;
    __atomic_compare_exchange_n(cuda_standin_at<uint64_t>(p, 8), &before, desired, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return before;
}
GPU_IS(gpu_words, gpu_read_words, (const void *p), *cuda_standin_at<gpu_words>(p, 16))
GPU_DEVICE void gpu_write_words(void *p, gpu_words v)
{
    *cuda_standin_at<gpu_words>(p, 16) = v;
}

/* ---- the block and the warp ---- */
GPU_IS(void, gpu_sync, (), cuda_standin_sync_block())
GPU_IS(bool, gpu_any_of_block, (bool flag), cuda_standin_vote_block(flag).n_true > 0)
GPU_IS(uint32_t, gpu_acquire_block_u32, (const void *p), gpu_acquire_u32(p))
GPU_IS(uint32_t, gpu_load_block_u32, (const void *p), gpu_load_u32(p))
GPU_IS(void, gpu_release_block_u32, (void *p, uint32_t v), gpu_release_u32(p, v))
GPU_IS(void, gpu_sync_warp, (), cuda_standin_sync_warp())
GPU_IS(uint32_t, gpu_shuffle, (uint32_t v, uint32_t lane), cuda_standin_shuffle(v, lane % GPU_WARP))
GPU_IS(uint32_t, gpu_shuffle_xor, (uint32_t v, uint32_t mask), cuda_standin_shuffle(v, (gpu_lane() ^ mask) % GPU_WARP))
GPU_IS(uint32_t, gpu_ballot, (bool flag), cuda_standin_vote_warp(flag).mask)
GPU_DEVICE bool gpu_all(bool flag)
{
    const cuda_standin_votes votes = cuda_standin_vote_warp(flag);
    return votes.n_true == votes.n;
}
GPU_IS(bool, gpu_any, (bool flag), cuda_standin_vote_warp(flag).n_true > 0)
GPU_DEVICE void gpu_wait_for_launch() {}
GPU_DEVICE void gpu_launch_next() {}

/* ---- numbers ---- */
GPU_IS(uint32_t, gpu_greatest, (uint32_t a, uint32_t b), a > b ? a : b)
GPU_IS(uint32_t, gpu_lowest, (uint32_t bits), (uint32_t)__builtin_ctz(bits))
template <class T, class F> static inline T cuda_standin_cast(F from)
{
    T to;
    static_assert(sizeof to == sizeof from, "bits of one size");
    memcpy(&to, &from, sizeof to);
    return to;
}
GPU_IS(uint32_t, gpu_bits, (float v), cuda_standin_cast<uint32_t>(v))
GPU_IS(float, gpu_float, (uint32_t bits), cuda_standin_cast<float>(bits))
GPU_IS(uint64_t, gpu_bits64, (double v), cuda_standin_cast<uint64_t>(v))
GPU_IS(double, gpu_double, (uint64_t bits), cuda_standin_cast<double>(bits))
uint32_t cuda_standin_bfloat16(float v);
uint32_t cuda_standin_float16(float v);
GPU_IS(uint32_t, gpu_pack_bfloat16, (float low, float high),
       cuda_standin_bfloat16(low) | cuda_standin_bfloat16(high) << 16)
GPU_IS(uint32_t, gpu_pack_float16, (float low, float high),
       cuda_standin_float16(low) | cuda_standin_float16(high) << 16)
float cuda_standin_from_float16(uint32_t bits);
GPU_IS(float, gpu_unpack_float16, (uint32_t bits), cuda_standin_from_float16(bits & 0xffff))
GPU_IS(float, gpu_add, (float a, float b), a + b)
GPU_IS(float, gpu_multiply, (float a, float b), (a * b))
GPU_IS(float, gpu_divide, (float a, float b), a / b)
GPU_IS(double, gpu_add, (double a, double b), a + b)
GPU_IS(double, gpu_multiply, (double a, double b), (a * b))
GPU_IS(double, gpu_divide, (double a, double b), a / b)

#endif
