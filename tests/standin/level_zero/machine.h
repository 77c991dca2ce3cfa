/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_LEVEL_ZERO_MACHINE_H
#define TUTTI_STANDIN_LEVEL_ZERO_MACHINE_H

/* What kernels ask of the machine (src/device/kernels/machine.h includes this, and opencl.h and says what each
 * promises), for a host compiler: threads are fibers, words that others write are C++'s atomics. */

#include "standin/cuda/grid.h"

#include <cstring>

#define __global
#define __local
#define GPU_DEVICE [[maybe_unused]] static inline
#define GPU_COLD GPU_DEVICE
#define GPU_UNROLL
#define GPU_NO_UNROLL
#define GPU_KERNEL(name, type, parameter, ...) XPU_STANDIN_KERNEL(name, type, parameter, __VA_ARGS__)
#define XPU_STANDIN_KERNEL(name, type, parameter, ...)                                                                 \
    static void name(const type &parameter);                                                                           \
    static void name##_run(const void *argument)                                                                       \
    {                                                                                                                  \
        name(*static_cast<const type *>(argument));                                                                    \
    }                                                                                                                  \
    static cuda_standin_kernel name##_kernel(#name, name##_run, sizeof(type), {__VA_ARGS__});                          \
    static void name(const type &parameter)
#define GPU_SHARED(type, name)                                                                                         \
    static const char name##_tag = 0;                                                                                  \
    type &name = *static_cast<type *>(cuda_standin_shared(&name##_tag, sizeof(type)))
#define GPU_SPINS 4

GPU_IS(uint32_t, gpu_thread, (), cuda_standin_current->thread)
GPU_IS(uint32_t, gpu_threads, (), cuda_standin_current->threads)
GPU_IS(uint32_t, gpu_block, (), cuda_standin_current->block)
GPU_IS(uint32_t, gpu_blocks, (), cuda_standin_current->blocks)
GPU_IS(void, gpu_sync, (), cuda_standin_sync_block())
GPU_IS(void, gpu_sync_all, (), cuda_standin_sync_block())
GPU_IS(void, gpu_local_or, (uint32_t * p, uint32_t bits), (void)__atomic_fetch_or(p, bits, __ATOMIC_RELAXED))
GPU_IS(void, gpu_local_min, (uint32_t * p, uint32_t v), (void)(*p = v < *p ? v : *p))
GPU_IS(void, gpu_local_max, (uint32_t * p, uint32_t v), (void)(*p = v > *p ? v : *p)) /* fibers take turns */
GPU_IS(void, gpu_spin, (), cuda_standin_yield())

/* ---- memory ---- */
template <class T> static inline T *xpu_standin_at(uint64_t at)
{
    if (__builtin_expect(at % alignof(T) != 0, 0)) cuda_standin_fatal("misaligned address %p", (void *)at);
    return reinterpret_cast<T *>(at);
}
/* The thread sanitizer knows no fences: under it a load of a word acquires, a store after a fence releases, and fences
 * synchronize with one another. */
#if defined(__SANITIZE_THREAD__)
#define XPU_STANDIN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define XPU_STANDIN_TSAN 1
#endif
#endif
#ifdef XPU_STANDIN_TSAN
inline uint32_t xpu_standin_fences;
template <class T> static inline T xpu_standin_load(uint64_t at)
{
    return __atomic_load_n(xpu_standin_at<T>(at), __ATOMIC_ACQUIRE);
}
template <class T> static inline void xpu_standin_store(uint64_t at, T v)
{
    if (cuda_standin_current->fenced)
        __atomic_store_n(xpu_standin_at<T>(at), v, __ATOMIC_RELEASE);
    else
        __atomic_store_n(xpu_standin_at<T>(at), v, __ATOMIC_RELAXED);
}
static inline void gpu_fence()
{
    __atomic_fetch_add(&xpu_standin_fences, 1, __ATOMIC_ACQ_REL);
    cuda_standin_current->fenced = true;
}
#else
template <class T> static inline T xpu_standin_load(uint64_t at)
{
    return __atomic_load_n(xpu_standin_at<T>(at), __ATOMIC_RELAXED);
}
template <class T> static inline void xpu_standin_store(uint64_t at, T v)
{
    __atomic_store_n(xpu_standin_at<T>(at), v, __ATOMIC_RELAXED);
}
GPU_IS(void, gpu_fence, (), __atomic_thread_fence(__ATOMIC_ACQ_REL))
#endif
#define XPU_STANDIN_WORD(bits)                                                                                         \
    GPU_IS(uint##bits##_t, gpu_load_u##bits, (uint64_t at), xpu_standin_load<uint##bits##_t>(at))                      \
    GPU_IS(uint##bits##_t, gpu_host_load_u##bits, (uint64_t at),                                                       \
           __atomic_load_n(xpu_standin_at<uint##bits##_t>(at), __ATOMIC_ACQUIRE))                                      \
    GPU_IS(void, gpu_store_u##bits, (uint64_t at, uint##bits##_t v), xpu_standin_store<uint##bits##_t>(at, v))         \
    GPU_IS(void, gpu_host_store_u##bits, (uint64_t at, uint##bits##_t v),                                              \
           __atomic_store_n(xpu_standin_at<uint##bits##_t>(at), v, __ATOMIC_RELEASE))
XPU_STANDIN_WORD(32)
XPU_STANDIN_WORD(64)
GPU_IS(uint32_t, gpu_acquire_u32, (uint64_t at), __atomic_load_n(xpu_standin_at<uint32_t>(at), __ATOMIC_ACQUIRE))
GPU_IS(void, gpu_release_u32, (uint64_t at, uint32_t v),
       __atomic_store_n(xpu_standin_at<uint32_t>(at), v, __ATOMIC_RELEASE))
GPU_IS(uint64_t, gpu_add_u64, (uint64_t at, uint64_t v),
       __atomic_fetch_add(xpu_standin_at<uint64_t>(at), v, __ATOMIC_RELAXED))
GPU_DEVICE uint64_t gpu_exchange_if_u64(uint64_t at, uint64_t expected, uint64_t v)
{
    __atomic_compare_exchange_n(xpu_standin_at<uint64_t>(at), &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

GPU_IS(struct gpu_words, gpu_read_words, (uint64_t at), *xpu_standin_at<struct gpu_words>(at))
GPU_IS(void, gpu_write_words, (uint64_t at, struct gpu_words v), (void)(*xpu_standin_at<struct gpu_words>(at) = v))
#define XPU_STANDIN_PIECE(bits)                                                                                        \
    GPU_IS(uint##bits##_t, gpu_read_u##bits, (uint64_t at), *xpu_standin_at<uint##bits##_t>(at))                       \
    GPU_IS(void, gpu_write_u##bits, (uint64_t at, uint##bits##_t v), (void)(*xpu_standin_at<uint##bits##_t>(at) = v))
XPU_STANDIN_PIECE(8)
XPU_STANDIN_PIECE(16)
XPU_STANDIN_PIECE(32)
XPU_STANDIN_PIECE(64)

/* ---- numbers ---- */
template <class T, class F> static inline T xpu_standin_cast(F from)
{
    T to;
    static_assert(sizeof to == sizeof from, "bits of one size");
    memcpy(&to, &from, sizeof to);
    return to;
}
GPU_IS(uint32_t, gpu_lowest, (uint32_t bits), (uint32_t)__builtin_ctz(bits))
GPU_IS(uint32_t, gpu_bits, (float v), xpu_standin_cast<uint32_t>(v))
GPU_IS(float, gpu_float, (uint32_t bits), xpu_standin_cast<float>(bits))
GPU_IS(float, gpu_add, (float a, float b), a + b)
GPU_IS(float, gpu_multiply, (float a, float b), (a * b))
GPU_IS(float, gpu_divide, (float a, float b), a / b)
GPU_IS(uint64_t, gpu_bits64, (double v), xpu_standin_cast<uint64_t>(v))
GPU_IS(double, gpu_double, (uint64_t bits), xpu_standin_cast<double>(bits))
GPU_IS(double, gpu_add, (double a, double b), a + b)
GPU_IS(double, gpu_multiply, (double a, double b), (a * b))
GPU_IS(double, gpu_divide, (double a, double b), a / b)

#endif
