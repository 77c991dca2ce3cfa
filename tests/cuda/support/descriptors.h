/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_DESCRIPTORS_H
#define TUTTI_TESTS_CUDA_DESCRIPTORS_H

/* Descriptors of this process, and system calls that it may not make. */

#include <stdbool.h>
#include <stdint.h>

int descriptors_open(void);    /* -1: they can not be seen */
int descriptors_offered(void); /* those of tables of memory that is exported */
/* From now on the call fails so, in this thread and in those that it starts. */
bool descriptors_forbid(uint32_t call, uint32_t error);

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#endif
