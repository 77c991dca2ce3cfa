/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_MUTANTS_H
#define TUTTI_VERIFY_MUTANTS_H

/* Mutants by rules: each rule plants one fault at places by chance in right schedules, of every algorithm of a list and
 * every kind. The checker must refuse it. What it accepts is run by the plain engine of executor.h: a mutant that
 * comes to the right result in all runs changed nothing (it is counted apart), any other was missed. */

#include "verify/verify.h"

struct tutti_mutant_rule {
    const char *name, *what;
    bool sealed; /* what a broken sealer would do; else what an author would */
};
#define TUTTI_MUTANT_RULES 39
const struct tutti_mutant_rule *tutti_mutant_rule(uint32_t rule);

struct tutti_mutants {
    uint32_t n_pairs; /* algorithms and kinds */
    struct {
        uint32_t n, n_caught, n_same, n_missed;
        char caught[512], missed[512]; /* the sentence of the first one */
    } rules[TUTTI_MUTANT_RULES];
};
/* n_sites: mutants of each rule in each pair, as far as there are places for it. Errors: MEMORY. */
enum tutti_status tutti_mutants_run(const struct tutti_algorithm *const *algorithms, size_t n_algorithms,
                                    uint32_t n_sites, uint64_t seed, struct tutti_mutants *out);

#endif
