/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_CHOOSE_H
#define TUTTI_MODEL_CHOOSE_H

/* Which algorithm runs a call: a pure function of facts agreed at creation and of arguments that all ranks share. */

#include "sched/sched.h"

struct tutti_facts {
    struct tutti_shape shape;  /* size and levels; slot and root ignored */
    uint32_t min_cpus, n_host; /* oversubscribed: more ranks on a host than CPUs */
    bool reproducible;
    const char *overrides; /* option "algorithm": all_reduce=ring,broadcast=tree:4; already checked */
};
struct tutti_question {
    enum tutti_kind kind;
    uint64_t bytes;        /* of a block, equal on all ranks; v forms: of the largest block, or 0 when not shared */
    bool commutative;      /* the operation */
    bool v, counts_shared; /* a v form; whether all ranks know the whole table */
    const char *algorithm; /* per-call override, or NULL */
};
/* Writes the algorithm and completes shape (radix, levels; not slot and root). ARGUMENT or UNSUPPORTED with a sentence
 * when an override is unknown or does not fit; without override there is always an answer. */
enum tutti_status tutti_choose(const struct tutti_facts *facts, const struct tutti_question *question,
                               const struct tutti_algorithm **algorithm, struct tutti_shape *shape);
/* Whether every entry of an option "algorithm" names a collective and an algorithm that offers it. ARGUMENT. */
enum tutti_status tutti_overrides_check(const char *text);

#endif
