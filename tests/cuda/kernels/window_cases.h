/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_WINDOW_CASES_H
#define TUTTI_TESTS_CUDA_WINDOW_CASES_H

/* Parameters of the kernels that try tutti/device.cuh (window_cases.cu); compiled as C and as CUDA. */

#ifdef __cplusplus
#include <tutti/device.cuh>
typedef tutti::device_window window_of_case;
#else
#include <tutti/device.h>
typedef struct tutti_device_window window_of_case;
#endif

/* The caller: each thread of a block, each warp, or each block of the grid. Each has a part of the window, a
 * signal and a barrier of its own, so there are at most WINDOW_CALLERS. */
#define WINDOW_CALLERS 16
enum window_scope { WINDOW_THREAD, WINDOW_WARP, WINDOW_BLOCK, WINDOW_SCOPES };

struct window_case {
    window_of_case w;
    char *source;                   /* device memory: the callers' slices, one after another */
    uint64_t bytes, stride, offset; /* a slice's length; from one to the next; the first one's in the window */
    uint32_t scope, callers, rounds;
    uint32_t seed;   /* for delays; 0: none */
    uint32_t *wrong; /* [caller]: how much was wrong */
};

/* What rank `rank` puts there in a round. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline unsigned char
    window_byte(uint32_t rank, uint32_t caller, uint32_t round, uint64_t i)
{
    return (unsigned char)(rank * 31 + caller * 7 + round * 13 + i * 5 + (i >> 8));
}

#endif
