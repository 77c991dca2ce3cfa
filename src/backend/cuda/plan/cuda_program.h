/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_CUDA_CUDA_PROGRAM_H
#define TUTTI_BACKEND_CUDA_CUDA_PROGRAM_H

/* Schedules that a call or the option `algorithm` names, on devices: made into programs (device/cuda/kernels/program.h) once,
 * kept in pinned memory until the communicator closes, since graphs may replay them at any time, and bound to each
 * call's buffers. All decisions are pure over what is equal on all members. */

#include "device/cuda/kernels/program.h"
#include "engine/engine.h"

#define CUDA_PROGRAMS 128
#define CUDA_PROGRAM_BYTES ((size_t)256 << 10) /* of pinned memory, for all of them */

struct cuda_program_facts {
    uint64_t hash; /* of the schedule */
    const struct cuda_program *program;
    uint32_t n_steps;
    uint32_t n_private;          /* chunks of private memory, the most of all ranks */
    uint32_t own_data, own_kept; /* as in struct cuda_plan */
};
struct cuda_programs {
    char *memory; /* pinned and mapped, CUDA_PROGRAM_BYTES */
    size_t used;
    uint32_t n;
    struct cuda_program_facts facts[CUDA_PROGRAMS];
};

/* The program of the schedule's slot: room for CUDA_PLAN_STEPS. UNSUPPORTED: it has more steps, or calls. Fills all of
 * facts but `program` and what concerns other ranks. */
enum tutti_status cuda_program_make(const struct tutti_schedule *schedule, struct cuda_program *out,
                                    struct cuda_program_facts *facts);
/* The one that is kept, or else makes it. UNSUPPORTED with a sentence, on all ranks: one of them can not have it, or
 * there is no more room. */
enum tutti_status cuda_programs_find(struct cuda_programs *programs, const struct tutti_schedule *schedule,
                                     struct cuda_program_facts *out);
/* Where a launch may work. */
struct cuda_program_place {
    struct cuda_layout layout;
    char *own; /* private memory */
    size_t own_bytes;
    uint32_t n, me;
};
/* Binds the program to a call's buffers: all of the parameter but `call`; *blocks is the launch's grid, 0: there is
 * nothing to do. UNSUPPORTED: it needs more private memory than there is. */
enum tutti_status cuda_program_bind(const struct cuda_program_facts *facts, const struct cuda_program_place *site,
                                    const struct tutti_bind *bind, struct cuda_plan *out, uint32_t *blocks);

#endif
