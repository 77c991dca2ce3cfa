/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_INTRINSICS_CUH
#define TUTTI_DEVICE_CUDA_INTRINSICS_CUH

/* Everything that kernels ask of the machine beyond C++: each function is one PTX instruction or CUDA intrinsic.
 * Kernels use these alone, so that a host compiler can take them too: then the same names come from the header that it
 * defines as CUDA_INTRINSICS (tests/standin/cuda, where a thread is a fiber). Pointers are generic; those of `load`,
 * `store` and `read` lie in device memory of any device or in pinned host memory, never in shared memory. Grids and
 * blocks have one dimension.
 *
 * Memory model: "relaxed" accesses are single-copy atomic for each word of 4 or 8 bytes, at system scope, and promise
 * no order; "plain" ones promise nothing while another thread writes. */

#include <cstddef>
#include <cstdint>

struct alignas(16) cuda_words { /* 16 bytes as four words */
    uint32_t x, y, z, w;
};
struct alignas(16) cuda_pair { /* 16 bytes as two words */
    uint64_t x, y;
};

#define CUDA_WARP 32
#define CUDA_FULL_WARP 0xffffffffu
/* CUDA_IS(type, name, (parameters), value): a function that is one expression. */
#define CUDA_IS(type, name, parameters, value)                                                                         \
    CUDA_DEVICE type name parameters                                                                                   \
    {                                                                                                                  \
        return value;                                                                                                  \
    }

#ifndef __CUDACC__
#include CUDA_INTRINSICS
#else

/* ---- declarations ---- */
#define CUDA_DEVICE static __device__ __forceinline__
#define CUDA_COLD static __device__ __noinline__ /* what rarely runs, out of the way */
#define CUDA_UNROLL _Pragma("unroll")
#define CUDA_PRAGMA(text) _Pragma(#text)
#define CUDA_UNROLL_BY(n) CUDA_PRAGMA(unroll n) /* 1: not at all */
#define CUDA_CONSTANT static __device__ const
/* CUDA_KERNEL(name, struct gpu_exchange, x, 512) { body }: a kernel found by name, its parameter x a constant struct,
 * its launches of at most 512 threads a block; CUDA_KERNEL(name, struct gpu_exchange, x, 512, 2): and registers for
 * two such blocks at once. `name` may be made by a macro. */
#define CUDA_KERNEL(name, type, parameter, ...)                                                                        \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ type parameter)
/* CUDA_SHARED(uint32_t[4], flags); within a function: memory of the block, not initialized. */
#define CUDA_SHARED(type, name)                                                                                        \
    using name##_shared = type;                                                                                        \
    __shared__ name##_shared name
/* One instruction on a word of global memory, whose name says what it promises. */
#define CUDA_LOADS(name, type, constraint, instruction)                                                                \
    CUDA_DEVICE type name(const void *p)                                                                               \
    {                                                                                                                  \
        type v;                                                                                                        \
        asm volatile(instruction " %0, [%1];" : "=" constraint(v) : "l"(__cvta_generic_to_global(p)) : "memory");      \
        return v;                                                                                                      \
    }
#define CUDA_STORES(name, type, constraint, instruction)                                                               \
    CUDA_DEVICE void name(void *p, type v)                                                                             \
    {                                                                                                                  \
        asm volatile(instruction " [%0], %1;" ::"l"(__cvta_generic_to_global(p)), constraint(v) : "memory");           \
    }
#define CUDA_SPINS 1024 /* turns of a waiting loop between two looks at the stop word and the clock */

/* ---- where ---- */
CUDA_IS(uint32_t, cuda_thread, (), threadIdx.x) /* in the block */
CUDA_IS(uint32_t, cuda_threads, (), blockDim.x)
CUDA_IS(uint32_t, cuda_block, (), blockIdx.x) /* in the grid */
CUDA_IS(uint32_t, cuda_blocks, (), gridDim.x)
CUDA_IS(uint32_t, cuda_lane, (), threadIdx.x % CUDA_WARP)
CUDA_IS(uint32_t, cuda_warp, (), threadIdx.x / CUDA_WARP) /* in the block */

/* %globaltimer: nanoseconds since some time; the same clock for all devices of a host within about a microsecond. Its
 * steps may be as long as a microsecond. */
CUDA_DEVICE uint64_t cuda_clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* ---- order of what has no effects ---- */
/* What a value is made of is looked up here, and not where the value is used. */
CUDA_DEVICE void cuda_settle(uint32_t *v)
{
    asm volatile("" : "+r"(*v));
}
CUDA_DEVICE void cuda_settle(uint64_t *v)
{
    asm volatile("" : "+l"(*v));
}
template <typename T> CUDA_DEVICE void cuda_settle(T **v)
{
    asm volatile("" : "+l"(*v));
}

/* ---- loops that wait ---- */
/* Call once a turn in each loop that waits for memory: nothing on a device, where every thread advances by itself. */
CUDA_DEVICE void cuda_spin(void) {}
/* nanosleep.u32: at most about twice ns, perhaps not at all. Only where latency does not matter. */
CUDA_IS(void, cuda_nap, (uint32_t ns), __nanosleep(ns))

/* ---- words that other threads, devices or the host write: relaxed, system scope ---- */
CUDA_LOADS(cuda_load_u32, uint32_t, "r", "ld.relaxed.sys.global.u32")
CUDA_LOADS(cuda_load_u64, uint64_t, "l", "ld.relaxed.sys.global.u64")
/* ld.relaxed.sys.global.v2.u64: each of the two words is whole, in no order. p is 16-byte aligned. */
CUDA_DEVICE cuda_pair cuda_load_pair(const void *p)
{
    cuda_pair v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}
CUDA_STORES(cuda_store_u32, uint32_t, "r", "st.relaxed.sys.global.u32")
CUDA_STORES(cuda_store_u64, uint64_t, "l", "st.relaxed.sys.global.u64")
/* st.relaxed.sys.global.v2.u64: each of the two words arrives whole, in no order. p is 16-byte aligned. */
CUDA_DEVICE void cuda_store_pair(void *p, cuda_pair v)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "l"(v.x), "l"(v.y)
                 : "memory");
}

/* ---- order ---- */
/* ld.acquire.sys.global.u32: what came before the release that wrote the value is visible to this thread; to its block
 * after a barrier. */
CUDA_LOADS(cuda_acquire_u32, uint32_t, "r", "ld.acquire.sys.global.u32")
CUDA_LOADS(cuda_acquire_u64, uint64_t, "l", "ld.acquire.sys.global.u64")
/* st.release.sys.global.u32: after everything that this thread did, and others before a barrier with it. */
CUDA_STORES(cuda_release_u32, uint32_t, "r", "st.release.sys.global.u32")
/* st.relaxed.sys.global.u32: after everything that came before this launch in its stream, since between the two lies
 * what is at least a fence; not after what this launch did. */
CUDA_IS(void, cuda_release_before_u32, (void *p, uint32_t v), cuda_store_u32(p, v))
/* fence.acq_rel.sys: one fence may serve several relaxed stores after it, or loads before it. */
CUDA_DEVICE void cuda_fence_system(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* ---- read, modify, write ---- */
/* atom.relaxed.gpu.global.cas.b64, on memory of this device: the value before; it was `expected` if `desired` was
 * written. */
CUDA_DEVICE uint64_t cuda_exchange_if(void *p, uint64_t expected, uint64_t desired)
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
CUDA_DEVICE cuda_words cuda_read_words(const void *p)
{
    cuda_words v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}
/* st.global.v4.u32. p is 16-byte aligned. */
CUDA_DEVICE void cuda_write_words(void *p, cuda_words v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

/* ---- the block ---- */
/* barrier.sync 0: all threads of the block that have not returned; orders memory among them. */
CUDA_IS(void, cuda_sync_block, (), __syncthreads())
/* barrier.red.or.pred: as sync_block; whether `flag` holds for any thread. */
CUDA_IS(bool, cuda_sync_block_any, (bool flag), __syncthreads_or(flag) != 0)
/* Words of shared or global memory by which warps of a block find together: atom.acquire.cta.or and atom.relaxed.cta.or
 * of nothing, atom.release.cta.exch. Loads and stores would do, and are not faster; but racecheck takes only these
 * for synchronization. */
CUDA_DEVICE uint32_t cuda_acquire_block_u32(const void *p)
{
    uint32_t v;
    asm volatile("atom.acquire.cta.or.b32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory");
    return v;
}
CUDA_DEVICE uint32_t cuda_load_block_u32(const void *p)
{
    uint32_t v;
    asm volatile("atom.relaxed.cta.or.b32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory");
    return v;
}
CUDA_DEVICE void cuda_release_block_u32(void *p, uint32_t v)
{
    asm volatile("{.reg .b32 old;\natom.release.cta.exch.b32 old, [%0], %1;}" ::"l"(p), "r"(v) : "memory");
}

/* ---- the warp: all its threads that have not returned take part ---- */
/* bar.warp.sync: orders memory among them. */
CUDA_IS(void, cuda_sync_warp, (), __syncwarp())
/* shfl.sync.idx, .bfly: the value of another lane. No order of memory. */
CUDA_IS(uint32_t, cuda_shuffle, (uint32_t v, uint32_t lane), __shfl_sync(CUDA_FULL_WARP, v, (int)lane))
CUDA_IS(uint32_t, cuda_shuffle_xor, (uint32_t v, uint32_t mask), __shfl_xor_sync(CUDA_FULL_WARP, v, (int)mask))
/* vote.sync.ballot, .all, .any. No order of memory. */
CUDA_IS(uint32_t, cuda_ballot, (bool flag), __ballot_sync(CUDA_FULL_WARP, flag))
CUDA_IS(bool, cuda_all, (bool flag), __all_sync(CUDA_FULL_WARP, flag) != 0)
CUDA_IS(bool, cuda_any, (bool flag), __any_sync(CUDA_FULL_WARP, flag) != 0)

/* ---- launches that follow one another ---- */
/* griddepcontrol.wait: all that came before this launch in its stream is over, and visible. Needed (and anything but a
 * no-op) only in launches with the programmatic attribute. Before sm_90 nothing. */
CUDA_DEVICE void cuda_wait_for_launch(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* griddepcontrol.launch_dependents: the next launch of the stream may begin, up to its wait_for_launch, once all blocks
 * said this. */
CUDA_DEVICE void cuda_launch_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- numbers ---- */
CUDA_IS(uint32_t, cuda_greatest, (uint32_t a, uint32_t b), max(a, b))
/* The lowest bit that is set: one is. */
CUDA_IS(uint32_t, cuda_lowest, (uint32_t bits), (uint32_t)__ffs((int)bits) - 1)
CUDA_IS(uint32_t, cuda_bits, (float v), __float_as_uint(v))
CUDA_IS(float, cuda_float, (uint32_t bits), __uint_as_float(bits))
CUDA_IS(uint64_t, cuda_bits64, (double v), (uint64_t)__double_as_longlong(v))
CUDA_IS(double, cuda_double, (uint64_t bits), __longlong_as_double((long long)bits))
/* cvt.rn.bf16x2.f32 and cvt.rn.f16x2.f32: two floats rounded to nearest even, `low` in the low half; NaN: 0x7fff. */
CUDA_DEVICE uint32_t cuda_pack_bfloat16(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
CUDA_DEVICE uint32_t cuda_pack_float16(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
/* cvt.f32.f16: exact, of the low 16 bits. */
CUDA_DEVICE float cuda_unpack_float16(uint32_t bits)
{
    float v;
    asm("{ .reg .b16 h, n; mov.b32 {h, n}, %1; cvt.f32.f16 %0, h; }" : "=f"(v) : "r"(bits));
    return v;
}
/* add.rn, mul.rn, div.rn, fma.rn: IEEE, never contracted. */
CUDA_IS(float, cuda_add, (float a, float b), __fadd_rn(a, b))
CUDA_IS(float, cuda_multiply, (float a, float b), __fmul_rn(a, b))
CUDA_IS(float, cuda_divide, (float a, float b), __fdiv_rn(a, b))
CUDA_IS(double, cuda_add, (double a, double b), __dadd_rn(a, b))
CUDA_IS(double, cuda_multiply, (double a, double b), __dmul_rn(a, b))
CUDA_IS(double, cuda_divide, (double a, double b), __ddiv_rn(a, b))

#endif
#endif
