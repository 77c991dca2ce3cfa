/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CUDA_INTRINSICS_H
#define TUTTI_STANDIN_CUDA_INTRINSICS_H

/* What kernels ask of the machine (device/cuda/kernels/intrinsics.cuh includes this and says what each promises), for a
 * host compiler: threads are fibers, memory operations are C++'s atomics, of the same strength. Every load that a loop
 * could wait with counts, and now and then lets others run. */

#include "standin/cuda/grid.h"

#include <cmath>
#include <cstring>
#include <ctime>

#define __host__
#define __device__
#define __forceinline__ inline

#define CUDA_DEVICE static inline
#define CUDA_COLD __attribute__((noinline, unused)) static
#define CUDA_UNROLL
#define CUDA_UNROLL_BY(n)
#define CUDA_CONSTANT static const
#define CUDA_KERNEL(name, type, parameter, ...) CUDA_STANDIN_KERNEL(name, type, parameter, __VA_ARGS__)
#define CUDA_STANDIN_KERNEL(name, type, parameter, ...)                                                                \
    static void name(const type &parameter);                                                                           \
    static void name##_run(const void *parameter)                                                                      \
    {                                                                                                                  \
        name(*static_cast<const type *>(parameter));                                                                   \
    }                                                                                                                  \
    static cuda_standin_kernel name##_kernel(#name, name##_run, sizeof(type), {__VA_ARGS__});                          \
    static void name(const type &parameter)
#define CUDA_SHARED(type, name)                                                                                        \
    using name##_shared = type;                                                                                        \
    static const char name##_tag = 0;                                                                                  \
    name##_shared &name = *static_cast<name##_shared *>(cuda_standin_shared(&name##_tag, sizeof(name##_shared)))
#define CUDA_SPINS 4

template <typename T> CUDA_DEVICE void cuda_settle(T *) {}
CUDA_IS(uint32_t, cuda_thread, (), cuda_standin_current->thread)
CUDA_IS(uint32_t, cuda_threads, (), cuda_standin_current->threads)
CUDA_IS(uint32_t, cuda_block, (), cuda_standin_current->block)
CUDA_IS(uint32_t, cuda_blocks, (), cuda_standin_current->blocks)
CUDA_IS(uint32_t, cuda_lane, (), cuda_thread() % CUDA_WARP)
CUDA_IS(uint32_t, cuda_warp, (), cuda_thread() / CUDA_WARP)
CUDA_DEVICE uint64_t cuda_clock_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
CUDA_IS(void, cuda_spin, (), cuda_standin_yield())
CUDA_IS(void, cuda_nap, (uint32_t), cuda_standin_yield())

/* ---- memory ---- */
/* The thread sanitizer knows no fences: under it a load of a word acquires, a store after a fence releases, and fences
 * synchronize with one another. */
#if defined(__SANITIZE_THREAD__)
#define CUDA_STANDIN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUDA_STANDIN_TSAN 1
#endif
#endif
#ifdef CUDA_STANDIN_TSAN
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

CUDA_IS(uint32_t, cuda_load_u32, (const void *p), cuda_standin_load<uint32_t>(p))
CUDA_IS(uint64_t, cuda_load_u64, (const void *p), cuda_standin_load<uint64_t>(p))
CUDA_DEVICE cuda_pair cuda_load_pair(const void *p)
{
    cuda_standin_look();
    uint64_t *at = cuda_standin_at<uint64_t>(p, 16);
    return cuda_pair{__atomic_load_n(at, __ATOMIC_RELAXED), __atomic_load_n(at + 1, __ATOMIC_RELAXED)};
}
CUDA_IS(void, cuda_store_u32, (void *p, uint32_t v), cuda_standin_store(p, v))
CUDA_IS(void, cuda_store_u64, (void *p, uint64_t v), cuda_standin_store(p, v))
/* Words of one store arrive in no order: here the last one first, which is not what anybody expects. */
CUDA_DEVICE void cuda_store_pair(void *p, cuda_pair v)
{
    uint64_t *at = cuda_standin_at<uint64_t>(p, 16);
    __atomic_store_n(at + 1, v.y, __ATOMIC_RELAXED);
    __atomic_store_n(at, v.x, __ATOMIC_RELAXED);
}
CUDA_DEVICE uint32_t cuda_acquire_u32(const void *p)
{
    cuda_standin_look();
    return __atomic_load_n(cuda_standin_at<uint32_t>(p, 4), __ATOMIC_ACQUIRE);
}
CUDA_DEVICE uint64_t cuda_acquire_u64(const void *p)
{
    cuda_standin_look();
    return __atomic_load_n(cuda_standin_at<uint64_t>(p, 8), __ATOMIC_ACQUIRE);
}
CUDA_IS(void, cuda_release_u32, (void *p, uint32_t v),
        __atomic_store_n(cuda_standin_at<uint32_t>(p, 4), v, __ATOMIC_RELEASE))
CUDA_IS(void, cuda_release_before_u32, (void *p, uint32_t v), cuda_release_u32(p, v))
CUDA_DEVICE void cuda_fence_system()
{
    if (cuda_standin_tsan) {
        __atomic_fetch_add(&cuda_standin_fences, 1, __ATOMIC_ACQ_REL);
        cuda_standin_current->fenced = true;
    } else {
        __atomic_thread_fence(__ATOMIC_ACQ_REL);
    }
}
CUDA_DEVICE uint64_t cuda_exchange_if(void *p, uint64_t expected, uint64_t desired)
{
    uint64_t before = expected;
    __atomic_compare_exchange_n(cuda_standin_at<uint64_t>(p, 8), &before, desired, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return before;
}
CUDA_IS(cuda_words, cuda_read_words, (const void *p), *cuda_standin_at<cuda_words>(p, 16))
CUDA_DEVICE void cuda_write_words(void *p, cuda_words v)
{
    *cuda_standin_at<cuda_words>(p, 16) = v;
}

/* ---- the block and the warp ---- */
CUDA_IS(void, cuda_sync_block, (), cuda_standin_sync_block())
CUDA_IS(bool, cuda_sync_block_any, (bool flag), cuda_standin_vote_block(flag).n_true > 0)
CUDA_IS(uint32_t, cuda_acquire_block_u32, (const void *p), cuda_acquire_u32(p))
CUDA_IS(uint32_t, cuda_load_block_u32, (const void *p), cuda_load_u32(p))
CUDA_IS(void, cuda_release_block_u32, (void *p, uint32_t v), cuda_release_u32(p, v))
CUDA_IS(void, cuda_sync_warp, (), cuda_standin_sync_warp())
CUDA_IS(uint32_t, cuda_shuffle, (uint32_t v, uint32_t lane), cuda_standin_shuffle(v, lane % CUDA_WARP))
CUDA_IS(uint32_t, cuda_shuffle_xor, (uint32_t v, uint32_t mask),
        cuda_standin_shuffle(v, (cuda_lane() ^ mask) % CUDA_WARP))
CUDA_IS(uint32_t, cuda_ballot, (bool flag), cuda_standin_vote_warp(flag).mask)
CUDA_DEVICE bool cuda_all(bool flag)
{
    const cuda_standin_votes votes = cuda_standin_vote_warp(flag);
    return votes.n_true == votes.n;
}
CUDA_IS(bool, cuda_any, (bool flag), cuda_standin_vote_warp(flag).n_true > 0)
CUDA_DEVICE void cuda_wait_for_launch() {}
CUDA_DEVICE void cuda_launch_next() {}

/* ---- numbers ---- */
CUDA_IS(uint32_t, cuda_greatest, (uint32_t a, uint32_t b), a > b ? a : b)
CUDA_IS(uint32_t, cuda_lowest, (uint32_t bits), (uint32_t)__builtin_ctz(bits))
template <class T, class F> static inline T cuda_standin_cast(F from)
{
    T to;
    static_assert(sizeof to == sizeof from, "bits of one size");
    memcpy(&to, &from, sizeof to);
    return to;
}
CUDA_IS(uint32_t, cuda_bits, (float v), cuda_standin_cast<uint32_t>(v))
CUDA_IS(float, cuda_float, (uint32_t bits), cuda_standin_cast<float>(bits))
CUDA_IS(uint64_t, cuda_bits64, (double v), cuda_standin_cast<uint64_t>(v))
CUDA_IS(double, cuda_double, (uint64_t bits), cuda_standin_cast<double>(bits))
uint32_t cuda_standin_bfloat16(float v);
uint32_t cuda_standin_float16(float v);
CUDA_IS(uint32_t, cuda_pack_bfloat16, (float low, float high),
        cuda_standin_bfloat16(low) | cuda_standin_bfloat16(high) << 16)
CUDA_IS(uint32_t, cuda_pack_float16, (float low, float high),
        cuda_standin_float16(low) | cuda_standin_float16(high) << 16)
float cuda_standin_from_float16(uint32_t bits);
CUDA_IS(float, cuda_unpack_float16, (uint32_t bits), cuda_standin_from_float16(bits & 0xffff))
CUDA_IS(float, cuda_add, (float a, float b), a + b)
CUDA_IS(float, cuda_multiply, (float a, float b), (a * b))
CUDA_IS(float, cuda_divide, (float a, float b), a / b)
CUDA_IS(double, cuda_add, (double a, double b), a + b)
CUDA_IS(double, cuda_multiply, (double a, double b), (a * b))
CUDA_IS(double, cuda_divide, (double a, double b), a / b)

#endif
