/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_CUDA_H
#define TUTTI_DEVICE_KERNELS_CUDA_H

/* NVIDIA's GPUs, by nvcc (machine.h): each function is one PTX instruction or CUDA intrinsic. Pointers are generic;
 * those of `load`, `store` and `read` lie in device memory of any device or in pinned host memory, never in shared
 * memory. Grids and blocks have one dimension.
 *
 * Memory model: "relaxed" accesses are single-copy atomic for each word of 4 or 8 bytes, at system scope, and promise
 * no order; "plain" ones promise nothing while another thread writes. */

#define GPU_WARPS 1
#define GPU_FULL_WARP 0xffffffffu

/* ---- declarations ---- */
#define GPU_DEVICE static __device__ __forceinline__
#define GPU_COLD static __device__ __noinline__ /* what rarely runs, out of the way */
#define GPU_UNROLL _Pragma("unroll")
#define GPU_PRAGMA(text) _Pragma(#text)
#define GPU_UNROLL_BY(n) GPU_PRAGMA(unroll n) /* 1: not at all */
#define GPU_CONSTANT static __device__ const
/* GPU_KERNEL(name, struct gpu_exchange, x, 512) { body }: a kernel found by name, its parameter x a constant struct,
 * its launches of at most 512 threads a block; GPU_KERNEL(name, struct gpu_exchange, x, 512, 2): and registers for
 * two such blocks at once. `name` may be made by a macro. */
#define GPU_KERNEL(name, type, parameter, ...)                                                                         \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ type parameter)
/* GPU_SHARED(uint32_t[4], flags); within a function: memory of the block, not initialized. */
#define GPU_SHARED(type, name)                                                                                         \
    using name##_shared = type;                                                                                        \
    __shared__ name##_shared name
/* One instruction on a word of global memory, whose name says what it promises. */
#define GPU_LOADS(name, type, constraint, instruction)                                                                 \
    GPU_DEVICE type name(const void *p)                                                                                \
    {                                                                                                                  \
        type v;                                                                                                        \
        asm volatile(instruction " %0, [%1];" : "=" constraint(v) : "l"(__cvta_generic_to_global(p)) : "memory");      \
        return v;                                                                                                      \
    }
#define GPU_STORES(name, type, constraint, instruction)                                                                \
    GPU_DEVICE void name(void *p, type v)                                                                              \
    {                                                                                                                  \
        asm volatile(instruction " [%0], %1;" ::"l"(__cvta_generic_to_global(p)), constraint(v) : "memory");           \
    }
#define GPU_SPINS 1024 /* turns of a waiting loop between two looks at the stop word and the clock */

/* ---- where ---- */
GPU_IS(uint32_t, gpu_thread, (), threadIdx.x) /* in the block */
GPU_IS(uint32_t, gpu_threads, (), blockDim.x)
GPU_IS(uint32_t, gpu_block, (), blockIdx.x) /* in the grid */
GPU_IS(uint32_t, gpu_blocks, (), gridDim.x)
GPU_IS(uint32_t, gpu_lane, (), threadIdx.x % GPU_WARP)
GPU_IS(uint32_t, gpu_warp, (), threadIdx.x / GPU_WARP) /* in the block */

/* %globaltimer: nanoseconds since some time; the same clock for all devices of a host within about a microsecond. Its
 * steps may be as long as a microsecond. */
GPU_DEVICE uint64_t gpu_clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* ---- order of what has no effects ---- */
/* What a value is made of is looked up here, and not where the value is used. */
GPU_DEVICE void gpu_settle(uint32_t *v)
{
    asm volatile("" : "+r"(*v));
}
GPU_DEVICE void gpu_settle(uint64_t *v)
{
    asm volatile("" : "+l"(*v));
}
template <typename T> GPU_DEVICE void gpu_settle(T **v)
{
    asm volatile("" : "+l"(*v));
}

/* ---- loops that wait ---- */
/* Call once a turn in each loop that waits for memory: nothing on a device, where every thread advances by itself. */
GPU_DEVICE void gpu_spin(void) {}
/* nanosleep.u32: at most about twice ns, perhaps not at all. Only where latency does not matter. */
GPU_IS(void, gpu_nap, (uint32_t ns), __nanosleep(ns))

/* ---- words that other threads, devices or the host write: relaxed, system scope ---- */
GPU_LOADS(gpu_load_u32, uint32_t, "r", "ld.relaxed.sys.global.u32")
GPU_LOADS(gpu_load_u64, uint64_t, "l", "ld.relaxed.sys.global.u64")
/* ld.relaxed.sys.global.v2.u64: each of the two words is whole, in no order. p is 16-byte aligned. */
GPU_DEVICE gpu_pair gpu_load_pair(const void *p)
{
    gpu_pair v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}
GPU_STORES(gpu_store_u32, uint32_t, "r", "st.relaxed.sys.global.u32")
GPU_STORES(gpu_store_u64, uint64_t, "l", "st.relaxed.sys.global.u64")
/* st.relaxed.sys.global.v2.u64: each of the two words arrives whole, in no order. p is 16-byte aligned. */
GPU_DEVICE void gpu_store_pair(void *p, gpu_pair v)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "l"(v.x), "l"(v.y)
                 : "memory");
}

/* ---- order ---- */
/* ld.acquire.sys.global.u32: what came before the release that wrote the value is visible to this thread; to its block
 * after a barrier. */
GPU_LOADS(gpu_acquire_u32, uint32_t, "r", "ld.acquire.sys.global.u32")
GPU_LOADS(gpu_acquire_u64, uint64_t, "l", "ld.acquire.sys.global.u64")
/* st.release.sys.global.u32: after everything that this thread did, and others before a barrier with it. */
GPU_STORES(gpu_release_u32, uint32_t, "r", "st.release.sys.global.u32")
/* st.relaxed.sys.global.u32: after everything that came before this launch in its stream, since between the two lies
 * what is at least a fence; not after what this launch did. */
GPU_IS(void, gpu_release_before_u32, (void *p, uint32_t v), gpu_store_u32(p, v))
/* fence.acq_rel.sys: one fence may serve several relaxed stores after it, or loads before it. */
GPU_DEVICE void gpu_fence_system(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* ---- read, modify, write ---- */
/* atom.relaxed.gpu.global.cas.b64, on memory of this device: the value before; it was `expected` if `desired` was
 * written. */
GPU_DEVICE uint64_t gpu_exchange_if(void *p, uint64_t expected, uint64_t desired)
{
    uint64_t v;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(v)
                 : "l"(__cvta_generic_to_global(p)), "l"(expected), "l"(desired)
                 : "memory");
    return v;
}

/* ---- data that nobody else writes meanwhile: plain ---- */
/* ld.global.L1::no_allocate.v4.u32: read once. p is 16-byte aligned. */
GPU_DEVICE gpu_words gpu_read_words(const void *p)
{
    gpu_words v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}
/* st.global.v4.u32. p is 16-byte aligned. */
GPU_DEVICE void gpu_write_words(void *p, gpu_words v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

/* ---- the block ---- */
/* barrier.sync 0: all threads of the block that have not returned; orders memory among them. */
GPU_IS(void, gpu_sync, (), __syncthreads())
/* barrier.red.or.pred: as sync; whether `flag` holds for any thread. */
GPU_IS(bool, gpu_any_of_block, (bool flag), __syncthreads_or(flag) != 0)
/* Words of shared or global memory by which warps of a block find together: atom.acquire.cta.or and atom.relaxed.cta.or
 * of nothing, atom.release.cta.exch. Loads and stores would do, and are not faster; but racecheck takes only these
 * for synchronization. */
GPU_DEVICE uint32_t gpu_acquire_block_u32(const void *p)
{
    uint32_t v;
    asm volatile("atom.acquire.cta.or.b32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GPU_DEVICE uint32_t gpu_load_block_u32(const void *p)
{
    uint32_t v;
    asm volatile("atom.relaxed.cta.or.b32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GPU_DEVICE void gpu_release_block_u32(void *p, uint32_t v)
{
    asm volatile("{.reg .b32 old;\natom.release.cta.exch.b32 old, [%0], %1;}" ::"l"(p), "r"(v) : "memory");
}

/* ---- the warp: all its threads that have not returned take part ---- */
/* bar.warp.sync: orders memory among them. */
GPU_IS(void, gpu_sync_warp, (), __syncwarp())
/* shfl.sync.idx, .bfly: the value of another lane. No order of memory. */
GPU_IS(uint32_t, gpu_shuffle, (uint32_t v, uint32_t lane), __shfl_sync(GPU_FULL_WARP, v, (int)lane))
GPU_IS(uint32_t, gpu_shuffle_xor, (uint32_t v, uint32_t mask), __shfl_xor_sync(GPU_FULL_WARP, v, (int)mask))
/* vote.sync.ballot, .all, .any. No order of memory. */
GPU_IS(uint32_t, gpu_ballot, (bool flag), __ballot_sync(GPU_FULL_WARP, flag))
GPU_IS(bool, gpu_all, (bool flag), __all_sync(GPU_FULL_WARP, flag) != 0)
GPU_IS(bool, gpu_any, (bool flag), __any_sync(GPU_FULL_WARP, flag) != 0)

/* ---- launches that follow one another ---- */
/* griddepcontrol.wait: all that came before this launch in its stream is over, and visible. Needed (and anything but a
 * no-op) only in launches with the programmatic attribute. Before sm_90 nothing. */
GPU_DEVICE void gpu_wait_for_launch(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* griddepcontrol.launch_dependents: the next launch of the stream may begin, up to its wait_for_launch, once all blocks
 * said this. */
GPU_DEVICE void gpu_launch_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- numbers ---- */
GPU_IS(uint32_t, gpu_greatest, (uint32_t a, uint32_t b), max(a, b))
/* The lowest bit that is set: one is. */
GPU_IS(uint32_t, gpu_lowest, (uint32_t bits), (uint32_t)__ffs((int)bits) - 1)
GPU_IS(uint32_t, gpu_bits, (float v), __float_as_uint(v))
GPU_IS(float, gpu_float, (uint32_t bits), __uint_as_float(bits))
GPU_IS(uint64_t, gpu_bits64, (double v), (uint64_t)__double_as_longlong(v))
GPU_IS(double, gpu_double, (uint64_t bits), __longlong_as_double((long long)bits))
/* cvt.rn.bf16x2.f32 and cvt.rn.f16x2.f32: two floats rounded to nearest even, `low` in the low half; NaN: 0x7fff. */
GPU_DEVICE uint32_t gpu_pack_bfloat16(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
GPU_DEVICE uint32_t gpu_pack_float16(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
/* cvt.f32.f16: exact, of the low 16 bits. */
GPU_DEVICE float gpu_unpack_float16(uint32_t bits)
{
    float v;
    asm("{ .reg .b16 h, n; mov.b32 {h, n}, %1; cvt.f32.f16 %0, h; }" : "=f"(v) : "r"(bits));
    return v;
}
/* add.rn, mul.rn, div.rn, fma.rn: IEEE, never contracted. */
GPU_IS(float, gpu_add, (float a, float b), __fadd_rn(a, b))
GPU_IS(float, gpu_multiply, (float a, float b), __fmul_rn(a, b))
GPU_IS(float, gpu_divide, (float a, float b), __fdiv_rn(a, b))
GPU_IS(double, gpu_add, (double a, double b), __dadd_rn(a, b))
GPU_IS(double, gpu_multiply, (double a, double b), __dmul_rn(a, b))
GPU_IS(double, gpu_divide, (double a, double b), __ddiv_rn(a, b))

#endif
