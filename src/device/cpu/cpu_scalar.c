/* SPDX-License-Identifier: BSD-3-Clause */

/* Kernels for any machine: the compiler lowers 16-byte vectors to what the baseline has. */

#define VECTOR_BYTES 16
#define KERNEL_TABLE tutti_cpu_scalar
#include "device/cpu/cpu_vector.h"

NO_HALF_INSTRUCTIONS

#include "device/cpu/cpu_kernels.h"
