/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_CELL_H
#define TUTTI_VERIFY_CELL_H

/* What the checker knows of one chunk in place of its bytes: hashes of the contributions in it, of their order, and of
 * the tree in which they were combined. A wrong content has the right hash with a probability of 2^-64. */

#include "verify/bundle.h"

#define TUTTI_MOST_CELLS (UINT64_C(1) << 25) /* held at once: 2 GiB of them */

enum tutti_cell_state {
    TUTTI_CELL_EMPTY,  /* nothing was ever here */
    TUTTI_CELL_INPUT,  /* the user's input, not yet written over */
    TUTTI_CELL_WRITTEN /* by a step */
};
struct tutti_cell {
    uint64_t sum;      /* the sum of random numbers, one for each contribution: what is in it, and how often */
    uint64_t tree;     /* commutative, not associative: the tree of the reduction, blind to sides */
    uint64_t word;     /* the hash of the contributions from left to right, blind to the tree (associative) */
    uint64_t scale;    /* what word is multiplied by when more is appended */
    uint64_t fold;     /* neither: the tree with its sides */
    uint64_t length;   /* which size it has (tutti_length_of) */
    uint32_t n_leaves; /* contributions, repeated ones included */
    uint32_t writer;   /* step, or TUTTI_NO_INDEX */
    uint8_t state;
};

/* The contribution of a slot to a chunk (of IN for all_to_all, else of DATA). */
struct tutti_cell tutti_cell_leaf(uint32_t slot, uint32_t chunk);
/* The number in `sum` of that contribution alone. */
uint64_t tutti_cell_fingerprint(uint32_t slot, uint32_t chunk);
/* left op right; everything but the hashes is left's. */
struct tutti_cell tutti_cell_combine(const struct tutti_cell *left, const struct tutti_cell *right);

/* ---- lengths. Blocks may be of any size (v forms) and chunks of a block differ by an element, so chunks may only meet
 * when they are as long for every count. A length is a number that is equal for these alone. ---- */
#define TUTTI_LENGTH_LARGEST UINT64_MAX /* as the largest chunk there is */
uint64_t tutti_length_of_data(const struct tutti_bundle *bundle, uint32_t slot, uint32_t chunk);
uint64_t tutti_length_of_in(const struct tutti_bundle *bundle, uint32_t slot, uint32_t chunk);
/* The i-th chunk of a step, as the sealer has it. */
uint64_t tutti_length_of_step(const struct tutti_bundle *bundle, uint32_t slot, const struct tutti_step *step,
                              uint32_t i);

/* The slot whose contribution a block is that HOLDS_ORIGIN, for what DATA holds at `slot`. */
struct tutti_cell tutti_cell_origin(const struct tutti_bundle *bundle, uint32_t slot, uint32_t chunk);

/* The cells of all slots: DATA, then SCRATCH. */
struct tutti_cells {
    struct tutti_cell *cells;
    size_t *data, *scratch; /* by slot: where they start */
};
static inline struct tutti_cell *tutti_cell_at(const struct tutti_cells *cells, uint32_t slot, uint8_t buffer,
                                               uint32_t chunk)
{
    return &cells->cells[(buffer == TUTTI_DATA ? cells->data[slot] : cells->scratch[slot]) + chunk];
}
/* Compares what DATA holds with what the kind promises (result.c). */
enum tutti_status tutti_bundle_check_result(struct tutti_bundle *bundle, const struct tutti_cells *cells);

#endif
