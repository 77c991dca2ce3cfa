/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_COLUMN_H
#define TUTTI_VERIFY_COLUMN_H

/* A column is what becomes of one chunk of DATA on all ranks: the steps that its result was made by, and no others.
 * Results are asked for, and steps looked up from there backwards, so that a column of a ring of 131,072 ranks costs a
 * few steps a rank, not two rounds a rank and rank. Begin with column.c; here is what it looks steps up with
 * (supply.c), and what it leaves for the order of its steps (column_order.c). */

#include "verify/cell.h"

/* Rounds are generated as they are needed. A block is what is generated at once: all rounds of a rank where these are
 * few (or sealed already), else some rounds, as many at each rank. */
struct tutti_column_place { /* where a step stands */
    uint32_t rank, block, index;
};
struct tutti_supply {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    struct tutti_shape shape;
    const struct tutti_schedule *const *sealed; /* NULL: generated */
    uint32_t n_chunks, n_rounds, n_blocks;      /* n_blocks: of a rank */
    uint32_t per_block;                         /* rounds */
    uint64_t work, most_work;                   /* steps generated, and as many as a while of searching is worth */
    uint32_t reach;                             /* index of the reach that a column was proved with (column.c) */
    bool exact;                                 /* receives take their sends by counting, never by being near */
    uint64_t for_one;                           /* work that a single result may take beyond what a column may */
    struct tutti_block *cache;
    uint32_t n_cache, *numbers;
    uint64_t n_held; /* steps that the cache has room for by now */
    /* All writes of one rank, of which so much was asked that they were listed. */
    struct tutti_listed *listed; /* by buffer, chunk, place; NULL: none */
    size_t n_listed;
    uint32_t listed_rank, asking, n_asked; /* asking: the rank that was asked last, so many times in a row */
    char defect[512];                      /* what an algorithm emitted that can not be; "": nothing */
};

/* sealed: the schedules of all slots, or NULL. Errors: MEMORY. */
enum tutti_status tutti_supply_init(struct tutti_supply *supply, const struct tutti_algorithm *algorithm,
                                    enum tutti_kind kind, const struct tutti_shape *shape,
                                    const struct tutti_schedule *const *sealed);
void tutti_supply_fini(struct tutti_supply *supply);
/* The steps of a block, valid until the next one is asked for; message numbers count within the block. NULL, and an
 * error in *status: MEMORY; UNSUPPORTED, when most_work is spent or there is a defect. */
const struct tutti_step *tutti_supply_steps(struct tutti_supply *supply, uint32_t rank, uint32_t block, uint32_t *n,
                                            enum tutti_status *status);

/* The last step of a rank that writes a chunk before a place; looks at n_back blocks (UINT32_MAX: at all). */
struct tutti_write {
    bool found, looked_at_all;
    struct tutti_column_place place;
    struct tutti_step step;
};
enum tutti_status tutti_supply_last_write(struct tutti_supply *supply, const struct tutti_column_place *before,
                                          uint8_t buffer, uint32_t chunk, uint32_t n_back, struct tutti_write *out);
/* The send that a receive takes: in the block of the same number, else by counting all messages of the two ranks.
 * found is false when there is none. */
enum tutti_status tutti_supply_send_of(struct tutti_supply *supply, const struct tutti_column_place *recv,
                                       const struct tutti_step *step, struct tutti_write *out);
/* All messages from one rank to another, k-th with k-th, all rounds; *bad is the number of the first that does not fit,
 * or TUTTI_NO_INDEX. */
enum tutti_status tutti_supply_compare_channel(struct tutti_supply *supply, uint32_t from, uint32_t to, uint32_t *bad);

/* Some columns, as tutti_verify_sample. */
enum tutti_status tutti_verify_columns(struct tutti_supply *supply, uint32_t n_columns, uint64_t most_work,
                                       struct tutti_verdict *verdict, struct tutti_coverage *coverage);

/* The steps of a column, cut down to its one chunk, in any order; they are checked for an order in which all can
 * complete under the engine's rules (as in deadlock.c). */
struct tutti_column_step {
    struct tutti_column_place place;
    struct tutti_step step;
};
enum tutti_status tutti_column_check_order(const struct tutti_bundle *bundle, struct tutti_column_step *steps,
                                           size_t n);

#endif
