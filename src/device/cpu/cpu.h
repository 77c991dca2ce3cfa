/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CPU_CPU_H
#define TUTTI_DEVICE_CPU_CPU_H

/* The device `cpu`: folds and copies on the host's CPUs. This room may use base and device/device.h. Begin with
 * cpu_device.c (the table of device functions), then reduce.h and copy.h. Here: the kernels of one instruction set, as
 * one table; cpu_kernels.h fills it in, once for each cpu_<isa>.c. */

#include "device/cpu/reduce.h"

struct tutti_cpu_kernels {
    tutti_reduce_kernel reduce[TUTTI_N_DTYPES][TUTTI_N_OPS]; /* NULL: undefined */
    tutti_divide_kernel divide[TUTTI_N_DTYPES];
    tutti_scale_kernel scale[TUTTI_N_DTYPES];
};

extern const struct tutti_cpu_kernels tutti_cpu_scalar;
#if defined(__x86_64__)
extern const struct tutti_cpu_kernels tutti_cpu_avx2;
extern const struct tutti_cpu_kernels tutti_cpu_avx512;
#elif defined(__aarch64__)
extern const struct tutti_cpu_kernels tutti_cpu_neon;
#endif

/* The set for an option: "auto", "avx2", ... as tutti_reduce_find takes it. */
const struct tutti_cpu_kernels *tutti_kernels_find(const char *isa);

#endif
