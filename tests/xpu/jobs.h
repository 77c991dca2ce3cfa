/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_XPU_JOBS_H
#define TUTTI_TESTS_XPU_JOBS_H

/* What devices carry out beside folds (packed data, sparse blocks, rows of counts, windows), by kernels of Intel GPUs, against
 * the CPU's, bit for bit; whoever runs the kernels. */

#include "test.h"

/* Runs a kernel of a module, until it is over, on memory of this process. */
typedef void (*jobs_run)(const char *module, const char *name, uint32_t blocks, uint32_t threads, const void *args,
                         size_t args_bytes);
void jobs_recode(jobs_run run, uint64_t seed, uint32_t times);
void jobs_sparse(jobs_run run, uint64_t seed);
void jobs_counted_row(jobs_run run, uint64_t seed);
/* One-sided calls on windows: accesses, a wait that ends at once, one whose time is up. */
void jobs_windows(jobs_run run, uint64_t seed);

#endif
