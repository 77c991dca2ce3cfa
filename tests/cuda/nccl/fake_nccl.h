/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_FAKE_NCCL_H
#define TUTTI_TESTS_CUDA_FAKE_NCCL_H

#define FAKE_NCCL_STUCK 666 /* elements of a collective, bytes of a message, that never come */

#endif
