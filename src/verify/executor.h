/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_EXECUTOR_H
#define TUTTI_VERIFY_EXECUTOR_H

/* A plain engine on integers, for those who test the checker: it shares no code with it. Sealed schedules of all slots
 * are run step by step, in a random order among those that hazard masks, window and channels allow; by chance, too,
 * messages are short or long, buffers are in place or not, and chunks differ in size. */

#include "sched/sched.h"

/* Runs the bundle n_runs times by seed. *right: whether each run came to its end with what the kind promises, and the
 * same bits on all replicas; why gets a sentence when not. Errors: MEMORY. */
enum tutti_status tutti_execute(const struct tutti_schedule *const *schedules, uint32_t n, uint32_t n_runs,
                                uint64_t seed, bool *right, char *why, size_t capacity);

#endif
