/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_MACHINE_H
#define TUTTI_DEVICE_KERNELS_MACHINE_H

/* Everything that kernels ask of the machine beyond C++17. Each architecture has one header with these names: cuda.h
 * for nvcc, opencl.h for clang's C++ for OpenCL. Kernels use these alone, so that a host compiler can take them too:
 * then the names come from the header that it defines as GPU_MACHINE (tests/standin), where a thread is a fiber.
 *
 * There are two kinds of architectures. Where threads advance each by itself (GPU_WARPS), protocols are carried out by
 * warps of 32 threads: wait.h, oneshot.h, tiles.h. Where nothing may rest on how threads of a block advance, a block
 * does all together: block_wait.h, block_oneshot.h, block_tiles.h. Numbers, reductions, recoding, sparse blocks, counts
 * on the device and the lists of kernels are one text for both; an architecture's header names the protocols
 * (GPU_TILES_HEADER and so on), which define the same macros for kernels.
 *
 * What the shared text asks of an architecture:
 *   GPU_DEVICE, GPU_COLD, GPU_UNROLL   functions that are inlined; out of the way; loops that are written out
 *   GPU_KERNEL(name, type, x, ...)     a kernel found by name, its parameter x a struct by value
 *   GPU_SHARED(type, name)             memory of the block; at the beginning of a kernel
 *   GPU_LOCAL                          the address space of that, in pointers
 *   GPU_SHARE(to, from)                copies a part of the parameter there; all threads come to it
 *   gpu_thread, gpu_threads, gpu_block, gpu_blocks, gpu_sync, and GPU_ANY(flag, name): a vote of the block,
 *   for which a kernel has GPU_VOTE(name)
 *   gpu_address, GPU_AT(pointer)       memory of any device as something to compute with; plain accesses to it:
 *   gpu_read_u8 to gpu_read_u64, gpu_write_u8 ..., gpu_read_words, gpu_write_words (16 bytes at a multiple of 16)
 *   gpu_bits, gpu_float, gpu_add, gpu_multiply, gpu_divide: numbers, each operation rounded once, never fused */

#ifdef __OPENCL_CPP_VERSION__
#include <stdbool.h>
#include <stdint.h>
#undef bool /* is a type of C++, and part of names here */
#else
#include <cstddef>
#include <cstdint>
#endif

struct alignas(16) gpu_words { /* 16 bytes as four words */
    uint32_t x, y, z, w;
};
struct alignas(16) gpu_pair { /* 16 bytes as two words */
    uint64_t x, y;
};
#define GPU_WARP 32 /* threads */
/* GPU_IS(type, name, (parameters), value): a function that is one expression. */
#define GPU_IS(type, name, parameters, value)                                                                          \
    GPU_DEVICE type name parameters                                                                                    \
    {                                                                                                                  \
        return value;                                                                                                  \
    }

#if defined(__CUDACC__)
#include "device/kernels/cuda.h"
#elif defined(__OPENCL_CPP_VERSION__)
#include "device/kernels/opencl.h"
#else
#include GPU_MACHINE
#endif

/* ---- what all architectures of a kind have alike ---- */
#ifdef GPU_WARPS
#define GPU_FOLD_HEADER "device/kernels/fold_kernels.h"
#define GPU_ONESHOT_HEADER "device/kernels/oneshot.h"
#define GPU_TILES_HEADER "device/kernels/tiles.h"
#define GPU_MEET_HEADER "device/kernels/meet.h"
#define GPU_WINDOW_HEADER "device/kernels/window.h"
/* One address space, of pointers. */
#define GPU_LOCAL
#define GPU_SHARE(to, from)                                                                                            \
    do {                                                                                                               \
        for (uint32_t k = gpu_thread(); k < sizeof(to) / sizeof(uint32_t); k += gpu_threads())                         \
            reinterpret_cast<uint32_t *>(&(to))[k] = reinterpret_cast<const uint32_t *>(&(from))[k];                   \
        gpu_sync();                                                                                                    \
    } while (0)
#define GPU_VOTE(name) (void)0
#define GPU_ANY(flag, name) gpu_any_of_block(flag)
typedef char *gpu_address;
#define GPU_AT(pointer) ((gpu_address)(uintptr_t)(pointer))
#define GPU_PLAIN(bits)                                                                                                \
    GPU_IS(uint##bits##_t, gpu_read_u##bits, (const char *p), *reinterpret_cast<const uint##bits##_t *>(p))            \
    GPU_IS(void, gpu_write_u##bits, (char *p, uint##bits##_t v), (void)(*reinterpret_cast<uint##bits##_t *>(p) = v))
GPU_PLAIN(8)
GPU_PLAIN(16)
GPU_PLAIN(32)
GPU_PLAIN(64)
/* Two floats rounded to nearest even, `low` in the low half; NaN is the quiet one without payload. */
GPU_DEVICE uint32_t gpu_code_bfloat16(float low, float high)
{
    uint32_t pair = gpu_pack_bfloat16(low, high);
    if (low != low) pair = (pair & 0xffff0000u) | 0x7fc0u;
    if (high != high) pair = (pair & 0xffffu) | 0x7fc00000u;
    return pair;
}
GPU_DEVICE uint32_t gpu_code_float16(float low, float high)
{
    uint32_t pair = gpu_pack_float16(low, high);
    if (low != low) pair = (pair & 0xffff0000u) | 0x7e00u;
    if (high != high) pair = (pair & 0xffffu) | 0x7e000000u;
    return pair;
}
#else
#define GPU_FOLD_HEADER "device/kernels/block_fold.h"
#define GPU_ONESHOT_HEADER "device/kernels/block_oneshot.h"
#define GPU_TILES_HEADER "device/kernels/block_tiles.h"
#define GPU_MEET_HEADER "device/kernels/block_meet.h"
#define GPU_WINDOW_HEADER "device/kernels/block_window.h"
#define GPU_LOCAL __local
/* What is looked up by an index that is not a constant would make each thread a copy of its own. */
#define GPU_SHARE(to, from)                                                                                            \
    do {                                                                                                               \
        if (gpu_thread() == 0) {                                                                                       \
            GPU_UNROLL                                                                                                 \
            for (uint32_t k = 0; k < sizeof(to) / 8; k++)                                                              \
                ((__local uint64_t *)&(to))[k] = ((const uint64_t *)&(from))[k];                                       \
        }                                                                                                              \
        gpu_sync();                                                                                                    \
    } while (0)
GPU_DEVICE bool gpu_any_of_block(bool flag, __local uint32_t *word)
{
    if (gpu_thread() == 0) *word = 0;
    gpu_sync();
    if (flag) gpu_local_or(word, 1);
    gpu_sync();
    return *word != 0;
}
#define GPU_VOTE(name) GPU_SHARED(uint32_t, name)
#define GPU_ANY(flag, name) gpu_any_of_block(flag, &(name))
typedef uint64_t gpu_address;
#define GPU_AT(pointer) ((uint64_t)(pointer))
GPU_IS(void, gpu_wait_for_launch, (), (void)0) /* launches do not overlap */
#include "device/recode_math.h"
GPU_IS(uint32_t, gpu_code_bfloat16, (float low, float high),
       recode_to_bfloat16(low, false, 0) | recode_to_bfloat16(high, false, 0) << 16)
GPU_IS(uint32_t, gpu_code_float16, (float low, float high), recode_to_float16(low) | recode_to_float16(high) << 16)
GPU_IS(float, gpu_unpack_float16, (uint32_t bits), recode_from_float16(bits))
#endif

#endif
