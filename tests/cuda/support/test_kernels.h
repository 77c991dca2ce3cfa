/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_TEST_KERNELS_H
#define TUTTI_TESTS_CUDA_TEST_KERNELS_H

/* Kernels that are the tests' own: a file that nvcc made, or the stand-in's. */

#include "device/cuda/cuda_device.h"

/* Loads the kernel of window_cases.cu by its name; NULL: *why says why. Before anything waits on the device. */
void *test_kernel(struct tutti_device *gpu, const char *name, const char **why);
/* Whether there are such kernels: false where nvcc made none. */
bool test_kernels_built(void);

#endif
