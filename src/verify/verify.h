/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_VERIFY_H
#define TUTTI_VERIFY_VERIFY_H

/* The checker: proves a collective for all ranks at once, by running its sealed schedules on abstract contents. For
 * tools and tests; the library never runs it. This room may use base, sched and algo. Begin here, then bundle.h (the
 * checks and their order) and verify.c; sweep.h tries many shapes. */

#include "sched/sched.h"

struct tutti_verdict {
    bool ok;
    char text[512]; /* when refused: algorithm, shape, round, rank, step, chunk and what is wrong, as one sentence */
};

/* Seals the schedules of all slots of the shape (its own slot does not matter) and checks everything: matched and equal
 * sizes; no deadlock with the window, channel order and one credit, alone and beside a second copy issued in the
 * opposite order; result; replicas bitwise equal; operand order (unless NEEDS_COMMUTATIVE); scratch; ranges. Errors:
 * MEMORY, UNSUPPORTED. */
enum tutti_status tutti_verify(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                               const struct tutti_shape *shape, struct tutti_verdict *verdict);
/* The same for a given bundle of n sealed schedules (schedules[s] is slot s's), as mutants need. */
enum tutti_status tutti_verify_bundle(const struct tutti_schedule *const *schedules, uint32_t n,
                                      struct tutti_verdict *verdict);
/* Seals all slots of the world that shape describes (slot ignored) into schedules[size]; on failure some are NULL. */
enum tutti_status tutti_seal_all(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                 const struct tutti_shape *shape, bool expand, struct tutti_schedule **schedules);

#endif
