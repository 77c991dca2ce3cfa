/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_LINE_CALLS_H
#define TUTTI_TESTS_CUDA_LINE_CALLS_H

/* Calls of the kernels that exchange by lines and by sentinels, on a rig: a description, random inputs for it,
 * launches, and what has to be in every byte of the outputs and around them afterwards. Everything asserts. */

#include "cuda/support/rig.h"

#include <tutti/types.h>

enum line_kind {
    KIND_ALL_REDUCE,
    KIND_REDUCE_SCATTER,
    KIND_REDUCE, /* to the last rank */
    KIND_SCAN,
    KIND_EXSCAN,
    KIND_ALL_GATHER, /* moves from here on */
    KIND_ALL_TO_ALL,
    KIND_ALL_TO_ALL_V, /* unequal parts, some of them empty */
    KIND_BROADCAST,    /* from the last rank */
    KIND_RELAY,        /* likewise, in shares that go on: count is a share's; in place */
    N_KINDS
};

struct line_spec {
    enum line_kind kind;
    const char *protocol; /* "lines", "sentinel", "sentinel2", "sentinel_relay" */
    bool fast;            /* the kernel for sums alone */
    enum tutti_dtype dtype;
    enum tutti_op op;
    size_t count; /* elements of a part; bytes in moves */
    uint32_t threads, units, skew_in, skew_out;
    bool in_place;
    int values; /* enum ref_values */
    uint64_t seed;
    void (*paint)(unsigned char *input, size_t bytes, uint64_t seed); /* over an input; NULL: it stays as it is */
};

/* One rank's side: the buffers' bytes on the host, and where they are on the device. */
struct line_side {
    struct gpu_exchange exchange;
    struct gpu_two_shot two_shot;
    size_t in_bytes, out_bytes;
    unsigned char *in, *want; /* want: with its surroundings */
    char *device_in, *device_out;
};

struct line_call {
    struct rig *rig;
    struct line_spec spec;
    uint32_t blocks;
    struct line_side sides[GPU_MAX_RANKS];
};

void line_call_open(struct line_call *call, struct rig *rig, const struct line_spec *spec);
void line_call_launch(const struct line_call *call, uint32_t rank);
void line_call_check(const struct line_call *call);
void line_call_close(struct line_call *call);
/* All of it. */
void line_call_run(struct rig *rig, const struct line_spec *spec);

/* Nothing but ones; and here and there, in runs from a few bytes to some units of a warp. */
void line_paint_ones(unsigned char *input, size_t bytes, uint64_t seed);
void line_paint_runs(unsigned char *input, size_t bytes, uint64_t seed);

/* The result of the inputs, each times its factor if there are factors, in their order: rounded once where the kernels
 * round once. */
void line_reduce(enum tutti_dtype dtype, enum tutti_op op, const unsigned char *const *inputs,
                 const unsigned char *const *factors, size_t n_inputs, size_t n, unsigned char *out);

#endif
