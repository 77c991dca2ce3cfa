/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_LEVEL_ZERO_OPENCL_H
#define TUTTI_STANDIN_LEVEL_ZERO_OPENCL_H

/* What the .cl files say of OpenCL C, in C++ (src/device/level_zero/kernels/opencl.h includes it). */

#include "standin/cuda/grid.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef uint64_t ulong;

#define __global
#define __constant static const

#define TUTTI_KERNEL(name, type)                                                                                       \
    static void name(type job);                                                                                        \
    static void name##_run(const void *argument)                                                                       \
    {                                                                                                                  \
        name(*static_cast<const type *>(argument));                                                                    \
    }                                                                                                                  \
    static cuda_standin_kernel name##_kernel(#name, name##_run, sizeof(type), {1024});                                 \
    static void name(type job)

static inline ulong get_local_id(uint)
{
    return cuda_standin_current->thread;
}
static inline ulong get_local_size(uint)
{
    return cuda_standin_current->threads;
}
static inline ulong get_group_id(uint)
{
    return cuda_standin_current->block;
}
static inline ulong get_num_groups(uint)
{
    return cuda_standin_current->blocks;
}
static inline ulong get_global_id(uint)
{
    return get_group_id(0) * get_local_size(0) + get_local_id(0);
}
static inline ulong get_global_size(uint)
{
    return get_num_groups(0) * get_local_size(0);
}

#endif
