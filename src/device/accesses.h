/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_ACCESSES_H
#define TUTTI_DEVICE_ACCESSES_H

/* What host code and kernels agree on for one-sided calls on windows (window.h); compiled as C, as CUDA and as OpenCL
 * C. */

#include "device/exchange.h"

#include <tutti/device.h>

#define GPU_ACCESS_THREADS 512
/* enum tutti_compare, whose header OpenCL C does not take. */
enum gpu_compare { GPU_COMPARE_EQ, GPU_COMPARE_NE, GPU_COMPARE_LT, GPU_COMPARE_LE, GPU_COMPARE_GT, GPU_COMPARE_GE };
enum gpu_change { GPU_CHANGE_SET, GPU_CHANGE_ADD, GPU_CHANGE_SWAP };

/* `window_access`, one block of at most GPU_ACCESS_THREADS threads: copies, then changes the word; *before: what was
 * there, of memory that the device reaches, and *there becomes 1 behind it. NULL: not wanted. */
struct gpu_one_access {
    struct tutti_device_alarm alarm;
    TUTTI_DEVICE_POINTER(char) to;
    TUTTI_DEVICE_POINTER(const char) from;
    uint64_t bytes;
    TUTTI_DEVICE_POINTER(uint64_t) word;
    uint64_t value, expected;
    TUTTI_DEVICE_POINTER(uint64_t) before;
    TUTTI_DEVICE_POINTER(uint32_t) there;
    uint32_t change; /* enum gpu_change */
};

/* `window_await`, one warp: until the word compares so. */
struct gpu_one_await {
    struct tutti_device_alarm alarm;
    TUTTI_DEVICE_POINTER(const uint64_t) word;
    uint64_t value, timeout_ns;
    uint32_t index, compare; /* the signal's */
    int32_t from;
};

#endif
