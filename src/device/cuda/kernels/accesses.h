/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_KERNELS_ACCESSES_H
#define TUTTI_DEVICE_CUDA_KERNELS_ACCESSES_H

/* What host code and kernels agree on for one-sided calls on windows (window.cu); compiled as C and as CUDA. */

#include "device/cuda/kernels/exchange.h"

#include <tutti/device.h>

#define CUDA_ACCESS_THREADS 512
enum cuda_change { CUDA_CHANGE_SET, CUDA_CHANGE_ADD, CUDA_CHANGE_SWAP };

/* `window_access`, one block of at most CUDA_ACCESS_THREADS threads: copies, then changes the word; *before: what was
 * there, of memory that the device reaches, and *there becomes 1 behind it. NULL: not wanted. */
struct cuda_one_access {
    struct tutti_device_alarm alarm;
    char *to;
    const char *from;
    uint64_t bytes;
    uint64_t *word;
    uint64_t value, expected;
    uint64_t *before;
    uint32_t *there;
    uint32_t change; /* enum cuda_change */
};

/* `window_await`, one warp: until the word compares so. */
struct cuda_one_await {
    struct tutti_device_alarm alarm;
    const uint64_t *word;
    uint64_t value, timeout_ns;
    uint32_t index, compare; /* of the signal */
    int32_t from;
};

#endif
