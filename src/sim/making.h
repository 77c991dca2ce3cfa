/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_MAKING_H
#define TUTTI_SIM_MAKING_H

/* Inside src/sim alone: how sealed schedules become operations of a program, rank by rank (schedule.c). All ranks of a
 * world go through it, or those that stand for all (symmetry.c). */

#include "sim/sim.h"

struct making {
    const struct tutti_sim_work *work;
    const struct tutti_schedule *schedule;
    struct tutti_sim_program *program;
    uint32_t blocks, n_slices;
    uint64_t elements; /* a block's */
    uint32_t *begin;   /* by step: the operation that waits for what the step waits for, */
    uint32_t *end;     /* and the one whose end is the step's */
    uint64_t *reached; /* bit j: step i - 1 - j is over before step i begins, as edges say */
    bool *waited_for;
    uint32_t capacity;
    uint32_t *joins; /* by slice under way: the operation that is the end of a slice */
    uint32_t over;   /* the operation that is the end of the call before; TUTTI_SIM_NONE: there is none */
    uint32_t ends;   /* that of the call at hand, if another follows */
};

/* Close it in any case. MEMORY. */
enum tutti_status tutti_sim_making_open(struct making *making, const struct tutti_sim_work *work,
                                        struct tutti_sim_program *program);
void tutti_sim_making_close(struct making *making);
/* Ranks in order. ARGUMENT with the schedule's defect; MEMORY. */
enum tutti_status tutti_sim_making_add(struct making *making, const struct tutti_schedule *schedule, uint32_t rank);

#endif
