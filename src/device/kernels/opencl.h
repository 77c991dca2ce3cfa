/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_OPENCL_H
#define TUTTI_DEVICE_KERNELS_OPENCL_H

/* Intel's GPUs, by clang's C++ for OpenCL and atomics of SPIR-V (machine.h). Addresses are numbers (uint64_t): of
 * memory of any device, or of pinned memory of the host, but never of a block's own memory, which is __local. Blocks do
 * all together: a wait is a loop whose barriers all threads come to, and no thread waits for another one of its block
 * but there. So nothing rests on how threads of a block advance, nor on how many of them are a sub-group.
 *
 * Memory model: words that other threads, devices or the host write meanwhile are atomics at the scope of all devices;
 * "relaxed" ones promise no order. Everything else is plain, and ordered by fences and barriers. */

#pragma OPENCL FP_CONTRACT OFF

/* ---- declarations ---- */
#define GPU_DEVICE static inline __attribute__((always_inline))
#define GPU_COLD GPU_DEVICE
#define GPU_UNROLL _Pragma("unroll")
#define GPU_NO_UNROLL /* a hint would become a structure that validators refuse, where loops end together */
/* GPU_KERNEL(name, struct gpu_fold, x, 512) { body }: a kernel found by name, its parameter x a struct by value, its
 * launches of at most 512 threads a block. `name` may be made by a macro. */
#define GPU_KERNEL(name, type, parameter, ...)                                                                         \
    __kernel __attribute__((intel_reqd_sub_group_size(16))) void name(type parameter)
/* GPU_SHARED(struct board, board); at the beginning of a kernel: memory of the block, not initialized. */
#define GPU_SHARED(type, name) __local type name
#define GPU_SPINS 256 /* turns of a waiting loop between two looks at the host */

/* ---- where ---- */
GPU_IS(uint32_t, gpu_thread, (), (uint32_t)get_local_id(0)) /* in the block */
GPU_IS(uint32_t, gpu_threads, (), (uint32_t)get_local_size(0))
GPU_IS(uint32_t, gpu_block, (), (uint32_t)get_group_id(0)) /* in the grid */
GPU_IS(uint32_t, gpu_blocks, (), (uint32_t)get_num_groups(0))

/* ---- the block ---- */
/* All threads of the block come to it; orders the block's own memory, and of gpu_sync_all all memory, among them. */
GPU_IS(void, gpu_sync, (), barrier(CLK_LOCAL_MEM_FENCE))
GPU_IS(void, gpu_sync_all, (), barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE))
GPU_IS(void, gpu_local_or, (__local uint32_t * p, uint32_t bits), (void)atomic_or(p, bits))
GPU_IS(void, gpu_local_min, (__local uint32_t * p, uint32_t v), (void)atomic_min(p, v))
GPU_IS(void, gpu_local_max, (__local uint32_t * p, uint32_t v), (void)atomic_max(p, v))
/* Call once a turn in each loop that waits for memory: nothing on a device. */
GPU_IS(void, gpu_spin, (), (void)0)

/* ---- words that others write: CrossDevice (0), relaxed (0), acquire or release of global memory ---- */
#define GPU_ACQUIRE 0x202
#define GPU_RELEASE 0x204
#define GPU_ACQ_REL 0x208
uint __attribute__((overloadable)) __spirv_AtomicLoad(volatile __global uint *p, int scope, int semantics);
ulong __attribute__((overloadable)) __spirv_AtomicLoad(volatile __global ulong *p, int scope, int semantics);
void __attribute__((overloadable)) __spirv_AtomicStore(volatile __global uint *p, int scope, int semantics, uint v);
void __attribute__((overloadable)) __spirv_AtomicStore(volatile __global ulong *p, int scope, int semantics, ulong v);
void __spirv_MemoryBarrier(int scope, int semantics);

#define GPU_U32(at) ((volatile __global uint *)(at))
#define GPU_U64(at) ((volatile __global ulong *)(at))
GPU_IS(uint32_t, gpu_load_u32, (uint64_t at), __spirv_AtomicLoad(GPU_U32(at), 0, 0))
GPU_IS(uint64_t, gpu_load_u64, (uint64_t at), __spirv_AtomicLoad(GPU_U64(at), 0, 0))
GPU_IS(void, gpu_store_u32, (uint64_t at, uint32_t v), __spirv_AtomicStore(GPU_U32(at), 0, 0, v))
GPU_IS(void, gpu_store_u64, (uint64_t at, uint64_t v), __spirv_AtomicStore(GPU_U64(at), 0, 0, v))
GPU_IS(uint32_t, gpu_acquire_u32, (uint64_t at), __spirv_AtomicLoad(GPU_U32(at), 0, GPU_ACQUIRE))
/* After everything that this thread did, and others before an gpu_sync_all with it. */
GPU_IS(void, gpu_release_u32, (uint64_t at, uint32_t v), __spirv_AtomicStore(GPU_U32(at), 0, GPU_RELEASE, v))
GPU_IS(void, gpu_fence, (), __spirv_MemoryBarrier(0, GPU_ACQ_REL))
/* The value before; where the link has atomics, or on memory of this device. */
ulong __attribute__((overloadable)) __spirv_AtomicIAdd(volatile __global ulong *p, int scope, int semantics, ulong v);
ulong __attribute__((overloadable))
__spirv_AtomicCompareExchange(volatile __global ulong *p, int scope, int same, int other, ulong v, ulong expected);
GPU_IS(uint64_t, gpu_add_u64, (uint64_t at, uint64_t v), __spirv_AtomicIAdd(GPU_U64(at), 0, GPU_ACQ_REL, v))
GPU_IS(uint64_t, gpu_exchange_if_u64, (uint64_t at, uint64_t expected, uint64_t v),
       __spirv_AtomicCompareExchange(GPU_U64(at), 0, GPU_ACQ_REL, GPU_ACQUIRE, v, expected))

/* For pinned memory of the host. Atomics would be transactions that not every link has, so these are plain accesses
 * between fences, which empty what caches loads. */
GPU_DEVICE uint32_t gpu_host_load_u32(uint64_t at)
{
    gpu_fence();
    return *GPU_U32(at);
}
GPU_DEVICE uint64_t gpu_host_load_u64(uint64_t at)
{
    gpu_fence();
    return *GPU_U64(at);
}
GPU_DEVICE void gpu_host_store_u32(uint64_t at, uint32_t v)
{
    gpu_fence();
    *GPU_U32(at) = v;
    gpu_fence();
}
GPU_DEVICE void gpu_host_store_u64(uint64_t at, uint64_t v)
{
    gpu_fence();
    *GPU_U64(at) = v;
    gpu_fence();
}

/* ---- data that nobody else writes meanwhile: plain ---- */
/* at: a multiple of 16; of the bytes of a piece. */
GPU_DEVICE gpu_words gpu_read_words(uint64_t at)
{
    const uint4 v = *(const __global uint4 *)at;
    return gpu_words{v.x, v.y, v.z, v.w};
}
GPU_IS(void, gpu_write_words, (uint64_t at, gpu_words v), (void)(*(__global uint4 *)at = (uint4)(v.x, v.y, v.z, v.w)))
GPU_IS(uint8_t, gpu_read_u8, (uint64_t at), *(const __global uchar *)at)
GPU_IS(uint16_t, gpu_read_u16, (uint64_t at), *(const __global ushort *)at)
GPU_IS(uint32_t, gpu_read_u32, (uint64_t at), *(const __global uint *)at)
GPU_IS(uint64_t, gpu_read_u64, (uint64_t at), *(const __global ulong *)at)
GPU_IS(void, gpu_write_u8, (uint64_t at, uint8_t v), (void)(*(__global uchar *)at = v))
GPU_IS(void, gpu_write_u16, (uint64_t at, uint16_t v), (void)(*(__global ushort *)at = v))
GPU_IS(void, gpu_write_u32, (uint64_t at, uint32_t v), (void)(*(__global uint *)at = v))
GPU_IS(void, gpu_write_u64, (uint64_t at, uint64_t v), (void)(*(__global ulong *)at = v))

/* ---- numbers: each operation rounded once, to nearest even ---- */
GPU_IS(uint32_t, gpu_lowest, (uint32_t bits), 31 - clz(bits & (0 - bits))) /* the lowest bit that is set: one is */
GPU_IS(uint32_t, gpu_bits, (float v), as_uint(v))
GPU_IS(float, gpu_float, (uint32_t bits), as_float(bits))
GPU_IS(float, gpu_add, (float a, float b), a + b)
GPU_IS(float, gpu_multiply, (float a, float b), (a * b))
/* By the build option -cl-fp32-correctly-rounded-divide-sqrt (level_zero_images_flags). */
GPU_IS(float, gpu_divide, (float a, float b), a / b)
GPU_IS(uint64_t, gpu_bits64, (double v), as_ulong(v))
GPU_IS(double, gpu_double, (uint64_t bits), as_double(bits))
/* Modules whose names end in 64 alone have these: devices without double do not take others. */
GPU_IS(double, gpu_add, (double a, double b), a + b)
GPU_IS(double, gpu_multiply, (double a, double b), (a * b))
GPU_IS(double, gpu_divide, (double a, double b), a / b)

#endif
