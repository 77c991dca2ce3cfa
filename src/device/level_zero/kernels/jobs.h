/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_LEVEL_ZERO_JOBS_H
#define TUTTI_DEVICE_LEVEL_ZERO_JOBS_H

/* What kernels are told: one struct by value each, read by C and by OpenCL C. Addresses are integers, since a kernel's
 * argument may hold no pointers. */

#ifdef __OPENCL_C_VERSION__
typedef uint uint32_t;
typedef ulong uint64_t;
#else
#include <stdint.h>
#endif

/* struct tutti_fold */
struct xpu_fold {
    uint64_t dst, left, right, n;
    uint32_t op, unused;
};

#endif
