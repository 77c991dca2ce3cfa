/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_KERNELS_PROGRAM_H
#define TUTTI_DEVICE_CUDA_KERNELS_PROGRAM_H

/* Sealed schedules on devices: what host code and the kernels plan_R agree on; compiled as C and as CUDA. A program is
 * one rank's schedule, without bytes or pointers, made once; a launch binds it to buffers. Kernels are named as those
 * of tiles: "plan_move_16", or by the dtype for any operation on it.
 *
 * Slices. Chunks are cut into slices of slice_bytes, and slice s of a step depends on slice s of other steps alone
 * (docs/schedules.md, S8): all offsets of a chunk are cut alike, and chunks that meet in a step are equally long. So
 * block b carries out the whole program on slice b, then on b + stride, and so on, by itself: there is no word between
 * blocks of a rank, and block b of one rank talks to block b of another, through the rings of `tiles`.
 *
 * Nothing can deadlock if the checker has proved the schedule (`tutti sched check`): what is needed is its weakest
 * rule (src/verify/deadlock.c, SINGLE), that a channel carries one message at a time, and that a send is complete only
 * once its receive has begun. No eager bytes are counted upon, and a ring may be shorter than any message. A block has
 * a lane for each peer and direction, which carries out the messages of this channel one after another, in the order of
 * the program, and all lanes advance at once; local steps run as soon as nothing that they wait for is open, in any
 * order. Claim: what completes under SINGLE completes here, by induction over the order in which it completes there. A
 * step whose hazards are over may begin; the messages of its channel before it are complete under SINGLE, at both ends,
 * hence here; a send needs room, which the peer's receive gives back tile by tile once it has begun, and a receive
 * needs tiles, which its send brings; local steps need nothing else, and one does not wait for another. A window of 64
 * steps is what SINGLE has, too. The next slice begins when the last step of one is complete, and slices go in one
 * order on all ranks. Grids of all ranks have to be resident, as for tiles. */

#include "exchange.h"

#define CUDA_PLAN_STEPS 256 /* of a program, at most */
#define CUDA_PLAN_NONE 0xffffu
#define CUDA_PLAN_WINDOW 64
#define CUDA_PLAN_UNIT 128    /* slices are multiples of so many bytes */
#define CUDA_PLAN_THREADS 288 /* of a block: 8 warps that move data, one that schedules */

enum cuda_plan_act { CUDA_PLAN_SEND, CUDA_PLAN_RECV, CUDA_PLAN_LOCAL };
enum cuda_plan_buffer {
    CUDA_PLAN_DATA,
    CUDA_PLAN_SCRATCH,
    CUDA_PLAN_IN,
    CUDA_PLAN_KEPT, /* a private copy of IN where this is one with the output; else IN itself */
};
enum cuda_plan_flag {
    CUDA_PLAN_FOLDS = 1,     /* dst = old op src: all operations of kernels commute, bit by bit */
    CUDA_PLAN_SRC_INPUT = 2, /* src is read from the user's input, */
    CUDA_PLAN_OLD_INPUT = 4, /* old is */
    CUDA_PLAN_DIVIDES = 8,   /* dst = src / divisor; nothing where that is 0 */
};

struct cuda_plan_step {
    uint64_t need; /* bit t: step i - 64 + t must be complete */
    uint32_t src, dst, n, extent;
    uint16_t next; /* on its channel; CUDA_PLAN_NONE: there is none */
    uint8_t act, flags, src_buffer, dst_buffer;
    uint16_t unused;
};

/* Lane p sends to rank p, lane 16 + q receives from q. */
struct cuda_program {
    uint16_t first[2 * CUDA_MAX_RANKS]; /* step of the lane's channel */
    struct cuda_plan_step steps[CUDA_PLAN_STEPS];
};

/* Blocks of a kind: one for each rank, or one; chunk c is part c % per_block of block c / per_block, cut evenly in
 * elements. */
struct cuda_plan {
    struct cuda_call call;
    const struct cuda_program *program; /* in host memory that is pinned and mapped */
    uint32_t n_steps, element, per_block;
    uint32_t kept;                          /* 1: IN is to be copied before anything is written */
    uint64_t slice_bytes, n_slices, stride; /* slices of this rank; stride is equal on all */
    uint64_t largest;                       /* elements of the largest chunk: of SCRATCH without an extent */
    uint64_t counts[CUDA_MAX_RANKS];        /* elements of block b of DATA, */
    uint64_t in_counts[CUDA_MAX_RANKS];     /* of IN */
    const char *input[CUDA_MAX_RANKS];      /* where the user's input has block b (of IN, if there is one), */
    char *output[CUDA_MAX_RANKS];           /* and the output; NULL: it is private */
    char *own; /* private memory: own_bytes for each block, in chunks of slice_bytes: SCRATCH's, then */
    uint64_t own_bytes;
    uint32_t own_data, own_kept; /* those of DATA from chunk own_data on, of the copy of IN from own_kept on */
};

#endif
