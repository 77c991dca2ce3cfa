/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_XPU_OPENCL_H
#define TUTTI_TESTS_XPU_OPENCL_H

/* The kernels of Intel GPUs, as they are shipped, on a CPU: by an OpenCL run time of Intel's, opened with dlopen, which
 * takes SPIR-V and addresses of the process's own memory. Everything asserts. */

#include "test.h"

struct opencl;
/* NULL: there is none here, and *why says so. */
struct opencl *opencl_open(const char **why);
const char *opencl_name(const struct opencl *cl);
/* A kernel by its name in the sources. The module is built when the first of its kernels is asked for. */
void *opencl_kernel(struct opencl *cl, const char *module, const char *name);
/* Until it is over. */
void opencl_run(struct opencl *cl, void *kernel, uint32_t blocks, uint32_t threads, const void *args,
                size_t args_bytes);

#endif
