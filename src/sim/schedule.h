/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_SCHEDULE_H
#define TUTTI_SIM_SCHEDULE_H

/* From an algorithm to a program: what a call of so many bytes does on every rank of a world. */

#include "sched/sched.h"
#include "sim/sim.h"

struct tutti_sim_work {
    uint64_t
        block_bytes; /* a block's, as a call's count is: all_reduce of S has one block of S, all_gather n of S / n */
    uint32_t element_bytes;    /* blocks are cut between elements */
    uint64_t slice_bytes;      /* a chunk is cut into slices of at most this; 0: into none */
    uint32_t active;           /* slices of a rank that are under way at once; 0: all */
    uint64_t copy_fs, fold_fs; /* femtoseconds a byte that is copied, or folded */
    /* Called after each rank, where it is not NULL. */
    void (*progress)(void *argument, uint32_t n_done, uint32_t n);
    void *argument;
};
/* The slot of the shape does not matter. UNSUPPORTED: the algorithm does not offer this; ARGUMENT: it is defective, or
 * there would be too many operations; MEMORY. The program is sealed. */
enum tutti_status tutti_sim_program_make(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                         const struct tutti_shape *shape, const struct tutti_sim_work *work,
                                         struct tutti_sim_program *out);

#endif
