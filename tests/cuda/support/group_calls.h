/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_GROUP_CALLS_H
#define TUTTI_TESTS_CUDA_GROUP_CALLS_H

/* Groups of random collectives on one piece of memory a rank, and what they make of it: every rank knows all ranks'
 * memory, and computes what its own must be from the meaning of the calls, one after another, by the reference. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

enum { GROUP_RANKS = 8 };

struct group_call {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    enum tutti_op op;
    uint32_t root;
    size_t count;
    double factor;                                  /* for premul_sum */
    size_t in_at[GROUP_RANKS], out_at[GROUP_RANKS]; /* where each rank's buffers begin, in bytes */
};

struct group_shape {
    uint32_t ranks, most_calls;
    size_t most_bytes; /* a block's */
    bool alike;        /* one kind, type, operation and root */
    bool no_avg;       /* NCCL's, of factors 1 / ranks, is not exact where these are no power of two */
    bool depends;      /* buffers lie anywhere, so that calls use one another's results, each rank's its own way */
};

struct group_plan {
    struct group_shape shape;
    struct group_call *calls;
    size_t n, bytes;
    unsigned char *memory[GROUP_RANKS];
};

/* The same on all ranks for a seed. False: out of memory. */
bool group_plan_draw(struct group_plan *plan, const struct group_shape *shape, uint64_t seed);
void group_plan_free(struct group_plan *plan);
/* Fresh random memory of all ranks, such that reductions are exact in any order. */
void group_plan_fill(struct group_plan *plan, uint64_t seed);
/* The memory as the calls leave it. */
void group_plan_apply(struct group_plan *plan);
/* A call as rank's back end gets it; the factor is in *out. */
struct tutti_backend_call;
void group_call_bind(const struct group_call *call, const struct group_plan *plan, uint32_t rank, unsigned char *base,
                     struct tutti_backend_call *out);
/* Makes all calls of a rank whose memory is at `base`, as one group. work: of the group; NULL: none. */
enum tutti_status group_plan_make(const struct group_plan *plan, uint32_t rank, unsigned char *base,
                                  struct tutti_comm *comm, const struct tutti_call_options *options,
                                  struct tutti_work **work);
/* The first difference of what a rank got as a sentence; false: there is none. */
bool group_plan_differs(const struct group_plan *plan, uint32_t rank, const unsigned char *got, char *out,
                        size_t capacity);

#endif
