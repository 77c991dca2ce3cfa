/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_LEVEL_ZERO_OPENCL_H
#define TUTTI_DEVICE_LEVEL_ZERO_OPENCL_H

/* What all .cl files begin with. They are OpenCL C 1.2, and C++ for the stand-in, which has this header's words its own
 * way (TUTTI_OPENCL names its file). A kernel has one parameter, `job`. */

#ifdef TUTTI_OPENCL
#include TUTTI_OPENCL
#else
#define TUTTI_KERNEL(name, type) __kernel void name(type job)
#endif
#include "device/level_zero/kernels/jobs.h"

#endif
