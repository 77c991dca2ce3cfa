/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_CALLS_H
#define TUTTI_TESTS_FLAT_CALLS_H

/* Calls of fingerprints on a communicator, and what may happen to a rank inside one. */

#include "marks.h"
#include "ranks.h"

/* Buffers for up to so many words of a side; private ones, and mapped ones of the communicator. */
bool calls_open(struct rank *rank, size_t words, struct mark_sheet *sheet);
void calls_close(struct rank *rank, struct mark_sheet *sheet);
/* Bytes of a slot of staging of the communicator's lane. */
size_t calls_chunk(const struct rank *rank);
/* A count that makes the method take several rounds or go its way at all. */
size_t calls_count(const struct rank *rank, const char *method);
/* Prepares, calls, waits, compares: fails the rank when anything is wrong. */
void calls_make(struct rank *rank, const struct mark_plan *plan, struct mark_sheet *sheet);

/* The call has failed: nobody may touch its buffers any more. */
void calls_check_left_alone(struct rank *rank, const struct mark_plan *plan, struct mark_sheet *sheet);

/* From now on steps of calls on this thread are counted (steps.h), and at step `at` this happens; 0: nothing. */
void calls_watch(void (*happen)(void *arg), void *arg, uint64_t at);
uint64_t calls_steps(void); /* since then */
bool calls_is_due(void);    /* it has not happened yet */
/* All ranks: one call, in which rank `who` counts its steps; when all are through with it, `happen` is to come there at
 * a random step of the next. Where calls have none that are told, at once. Before the ranks are started: the gate. */
void calls_gate_reset(void);
void calls_expect(struct rank *rank, int32_t who, const struct mark_plan *plan, struct mark_sheet *sheet,
                  void (*happen)(void *arg), void *arg);
uint64_t calls_now_ns(void);

#endif
