/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SCHED_PLAN_H
#define TUTTI_SCHED_PLAN_H

/* A plan: the steps of all slots for one kind and one shape, as data. Algorithms that are not compiled (traced from
 * Python, read from plans of others, found by a search) give one where others give functions: see `plan` in struct
 * tutti_schedule_ops. A plan says what an author would emit: it is sealed, checked, timed and run like any other.
 *
 * Its text has a statement a line; '#' begins a comment. BUFFER is data, scratch or in; SIDE is right or left, as in
 * <tutti/schedule.h>; `round` ends a round of the slot:
 *
 *   plan all_reduce slots 2 chunks 2 scratch 0
 *   slot 0
 *   send 1 data 1 1                        PEER BUFFER CHUNK N
 *   recv_reduce 1 data 0 1 right           PEER BUFFER CHUNK N SIDE
 *   round
 *   send 1 data 0 1
 *   recv 1 data 1 1                        PEER BUFFER CHUNK N
 *   slot 1
 *   copy data 0 scratch 1 1                BUFFER CHUNK from BUFFER CHUNK N
 *   reduce data 0 scratch 1 1 left         BUFFER CHUNK from BUFFER CHUNK N SIDE
 *   call broadcast 0 1 2 0 1 1 0           KIND BASE STRIDE SIZE CHUNK CHUNKS WIDTH ROOT, see struct tutti_view */

#include "sched/sched.h"

#include <stdio.h>

struct tutti_plan_step {
    uint8_t op; /* enum tutti_step_op */
    uint8_t dst_buffer, src_buffer, side;
    uint32_t slot, round;
    uint32_t peer; /* messages */
    uint32_t dst, src, n;
    uint32_t
        like; /* into SCRATCH: one more than the DATA chunk that dst is as large as, where the plan knows; else 0 */
    enum tutti_kind kind; /* calls: what, and where */
    struct tutti_view view;
};

#define TUTTI_PLAN_MOST_STEPS (UINT32_C(1) << 26)

struct tutti_plan {
    enum tutti_kind kind;
    uint32_t n_slots, n_chunks, n_scratch;
    uint32_t n_rounds;             /* the most of any slot */
    uint32_t n_steps, capacity;    /* before it is sealed, steps stand in the order in which they were added */
    struct tutti_plan_step *steps; /* sealed: by slot, then as added */
    uint32_t *first;               /* sealed: steps of slot s are steps[first[s] .. first[s + 1]) */
};

/* An empty plan. ARGUMENT: no slots, no chunks, or too many; MEMORY. */
enum tutti_status tutti_plan_init(struct tutti_plan *plan, enum tutti_kind kind, uint32_t n_slots, uint32_t n_chunks,
                                  uint32_t n_scratch);
void tutti_plan_fini(struct tutti_plan *plan);
/* Appends a step. Slots come in any order; rounds of one slot do not fall. ARGUMENT: a slot that is not there, or too
 * many steps; MEMORY. Whether peers and chunks exist is said by the sealer. */
enum tutti_status tutti_plan_add(struct tutti_plan *plan, const struct tutti_plan_step *step);
/* No more steps: sorts them by slot. */
enum tutti_status tutti_plan_seal(struct tutti_plan *plan);
/* Emits what the slot does in the round. */
void tutti_plan_emit(const struct tutti_plan *plan, uint32_t slot, uint32_t round, struct tutti_emit *emit);

/* Reads the text of a plan, and seals it. ARGUMENT with a sentence of the form "NAME:LINE: ..."; MEMORY. */
enum tutti_status tutti_plan_read(const char *name, const char *text, size_t bytes, struct tutti_plan *out);
/* Writes a sealed plan as text; false when the file refuses. */
bool tutti_plan_write(const struct tutti_plan *plan, FILE *file);

#endif
