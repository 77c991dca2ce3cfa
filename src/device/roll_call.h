/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_ROLL_CALL_H
#define TUTTI_DEVICE_ROLL_CALL_H

/* Whether all blocks of a launch run at once, on which waits of kernels rest: a job of `tutti prove`. Compiled as C, as
 * CUDA and as OpenCL C. */

#include <tutti/device.h>

/* `roll_call`: each block says that it is there, then waits until all are, or the host has had enough, or it has looked
 * so often; and says how many it saw. */
struct gpu_roll_call {
    TUTTI_DEVICE_POINTER(uint64_t) here;       /* zero at first */
    TUTTI_DEVICE_POINTER(uint64_t) seen;       /* [block] */
    TUTTI_DEVICE_POINTER(const uint32_t) stop; /* the host's, pinned */
    uint64_t looks;
};

#endif
