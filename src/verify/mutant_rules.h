/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_MUTANT_RULES_H
#define TUTTI_VERIFY_MUTANT_RULES_H

/* Inside src/verify alone: what the rules of mutants alter. An author's mutant is a list of emitted steps of all ranks,
 * a sealer's one a bundle of sealed schedules. Rules take a place by chance and say whether there was anything to
 * alter. */

#include "verify/mutants.h"

enum { TUTTI_MUTANT_RANKS = 8 };

struct tutti_mutant_list {
    struct tutti_step *steps;
    uint32_t n, capacity;
};
struct tutti_mutant_book { /* the emitted steps of all ranks */
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    struct tutti_shape shape;
    uint32_t n_chunks, n_scratch, n_rounds;
    struct tutti_mutant_list ranks[TUTTI_MUTANT_RANKS];
    struct tutti_schedule **sealed; /* sealer's mutants: all slots */
    uint64_t random;
};
/* Fills in what algorithm, kind and shape emit. Errors: MEMORY. */
enum tutti_status tutti_mutant_book_write(struct tutti_mutant_book *book);
void tutti_mutant_book_fini(struct tutti_mutant_book *book);
/* Applies a rule; false: there was no place for it. */
bool tutti_mutant_apply(struct tutti_mutant_book *book, uint32_t rule);

#endif
