/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_DIRECT_CALLS_H
#define TUTTI_TESTS_CUDA_DIRECT_CALLS_H

/* Calls of the kernels that store to where peers are to have it, on a rig: direct_move_16, and reductions by tiles
 * whose results go to all. Before a call each stream fills its output once more, and behind it keeps a copy: what came
 * too early is gone then, and what came too late is missing. Inputs, and what is around outputs, stay as they were.
 * What the caller does not say is drawn from its seed. Everything asserts. */

#include "cuda/support/rig.h"

#include <tutti/types.h>

enum direct_kind {
    DIRECT_GATHER,
    DIRECT_GATHER_IN_PLACE,
    DIRECT_TO_ALL,
    DIRECT_TO_ALL_V, /* unequal parts, some of them empty */
    DIRECT_SHARES,   /* a broadcast, of which the root sends each other rank a share that goes on to the rest */
    DIRECT_CHAIN,    /* a broadcast, all of which goes from each rank to the next */
    DIRECT_REDUCE,   /* by tiles */
    N_DIRECT_KINDS
};

struct direct_reduction {
    enum tutti_dtype dtype;
    enum tutti_op op;
    const char *kernel; /* "float32_sum" */
    size_t count;
    bool in_place;
    bool exact; /* data whose reduction is the same in any order */
    bool alone; /* each rank has the result of its shard, and of no other */
};

struct direct_side {
    struct gpu_direct direct;
    struct gpu_exchange tiles;
    uint32_t in_skew, out_skew;
    unsigned char *in, *before, *want; /* from the first byte of the buffers */
    char *memory;
};

struct direct_call {
    struct rig *rig;
    uint64_t *seed;
    enum direct_kind kind;
    size_t bytes; /* buffers' size */
    uint32_t root;
    bool bare; /* nothing but the kernel is launched */
    struct gpu_direct_grid grid;
    struct direct_reduction reduction;
    struct direct_side sides[GPU_MAX_RANKS];
};

static inline bool direct_is_broadcast(enum direct_kind kind)
{
    return kind == DIRECT_SHARES || kind == DIRECT_CHAIN;
}

/* A move of parts of so many bytes; of a broadcast, which alone has a root, in all. */
void direct_call_move(struct direct_call *call, struct rig *rig, enum direct_kind kind, uint32_t root, size_t bytes,
                      uint64_t *seed);
void direct_call_reduce(struct direct_call *call, struct rig *rig, const struct direct_reduction *reduction,
                        uint64_t *seed);
void direct_call_launch(const struct direct_call *call, uint32_t r);
void direct_call_check(const struct direct_call *call);
/* That nothing was stored anywhere by a bare call. */
void direct_call_check_untouched(const struct direct_call *call);
void direct_call_close(const struct direct_call *call);
/* Launches it on all ranks, waits, and does the rest. */
void direct_call_run(const struct direct_call *call);

#endif
