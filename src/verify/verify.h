/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_VERIFY_H
#define TUTTI_VERIFY_VERIFY_H

/* The checker: proves a collective for all ranks at once, by running its sealed schedules on abstract contents. For
 * tools and tests; the library never runs it. This room may use base, sched and algo. Begin here, then bundle.h (the
 * checks and their order) and verify.c; sweep.h tries many shapes. */

#include "sched/sched.h"

/* What a refusal is about; checks of one shape stop at the first. */
enum tutti_finding {
    TUTTI_FOUND_NOTHING,
    TUTTI_FOUND_EMITTED,   /* an algorithm emitted what can not be */
    TUTTI_FOUND_APART,     /* schedules that do not belong together */
    TUTTI_FOUND_STEP,      /* a step that is wrong in itself */
    TUTTI_FOUND_UNMATCHED, /* messages */
    TUTTI_FOUND_HAZARD,
    TUTTI_FOUND_DEADLOCK,
    TUTTI_FOUND_CONTENT, /* a wrong result, order or size; memory read before it was written */
    TUTTI_FOUND_BARRIER,
    TUTTI_FOUND_IMPURE
};
struct tutti_verdict {
    bool ok;
    enum tutti_finding finding;
    uint32_t rank, step;          /* where it was found; UINT32_MAX: nowhere in particular */
    uint64_t n_steps, n_messages; /* all that were checked, on all ranks */
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

/* ---- samples, for worlds that are too large to be proved whole ---- */
struct tutti_coverage {
    bool all_steps;                 /* every step of every rank: matched, no deadlock, hazards, ranges */
    uint32_t n_columns, of_columns; /* chunks whose contents were followed to the results */
    uint64_t n_results, of_results; /* ranks and chunks whose result was computed, of those in the columns */
    uint64_t n_assumed;             /* reads of input, without a look at all rounds before */
    uint64_t n_steps, n_messages;   /* that were looked at */
};
struct tutti_sampling {
    uint32_t n_columns;
    uint64_t most_sealed; /* steps of all ranks up to which all of them are checked */
    uint64_t most_work;   /* steps to generate in a column; then fewer results are computed */
};
/* Proves a sample. Where ranks have few steps all of them are checked, as by tutti_verify, but contents for n_columns
 * chunks alone. Else these columns alone: the steps that make the results of these chunks are looked up from the
 * results backwards, matched, computed, compared with what the kind requires, and checked for an order in which all can
 * complete; steps that no result depends on are not seen.
 * Errors: MEMORY, UNSUPPORTED (a single result takes more than most_work). */
enum tutti_status tutti_verify_sample(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                      const struct tutti_shape *shape, const struct tutti_sampling *sampling,
                                      struct tutti_verdict *verdict, struct tutti_coverage *coverage);
/* About how many steps all ranks have together, from a few of them; and whether their chunks are more than can be held
 * at once, so that contents can be proved by sample alone. */
enum tutti_status tutti_verify_estimate(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                        const struct tutti_shape *shape, uint64_t *n_steps, bool *too_wide);

/* Seals all slots of the world that shape describes (slot ignored) into schedules[size]; on failure some are NULL. */
enum tutti_status tutti_seal_all(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                 const struct tutti_shape *shape, bool expand, struct tutti_schedule **schedules);

#endif
