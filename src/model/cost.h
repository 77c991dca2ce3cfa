/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_COST_H
#define TUTTI_MODEL_COST_H

/* What a call costs through the engine, in two steps: what an algorithm asks of a machine (its load, by formula:
 * load.c), and how long the measured machine takes for that (cost.c). Basic arithmetic alone, so that all ranks get the
 * same last digit. */

#include "model/choose.h"

/* Counts of one call. A message is what one send step moves; the engine cuts long ones into slices. */
struct tutti_load {
    double hops;                   /* messages of the longest chain, in which each waits for the one before */
    double chain;                  /* bytes that these carry together */
    double messages;               /* at the busiest rank: those that it sends and those that it receives */
    double sent, received, folded; /* bytes of the busiest rank, */
    double early;                  /* those folded as they come, not stored first, */
    double copied;                 /* and those that it moves by itself */
    double waits;                  /* how often a rank has to wait: the sum over all ranks */
    double all_messages, all_bytes, all_folded, all_early; /* sums over all ranks: of what is sent, and of folds */
    double largest;                                        /* bytes of the largest message */
    double calls;                                          /* steps of a rank that are calls of its group */
    double beside;                                         /* ranks of a host that send to others at once */
};

/* A pattern of messages, what is folded of it, and how it is meant: see the table in load.c. */
struct ask;
struct tutti_load_phase {
    struct tutti_load (*pattern)(const struct ask *ask);
    int fold, flags;
};
struct tutti_load_row {
    enum tutti_kind kind;
    const struct tutti_algorithm *algorithm;
    uint32_t radices[4];               /* worth a try, up to the first 0; none: it takes none */
    struct tutti_load_phase phases[4]; /* one after another, up to the first without a pattern */
};
/* One row for each kind of each algorithm; of equal times the first one's counts. */
extern const struct tutti_load_row tutti_load_rows[];
extern const size_t tutti_n_load_rows;

/* bytes: of a block. */
struct tutti_load tutti_load_of(const struct tutti_load_row *row, const struct tutti_shape *shape, uint64_t bytes);
/* The part of it that stays inside the groups of the first level, or the rest. */
struct tutti_load tutti_load_at(const struct tutti_load_row *row, const struct tutti_shape *shape, uint64_t bytes,
                                bool near);
bool tutti_load_is_near(const struct tutti_load_row *row); /* whether there is such a part */
double tutti_cost_ns(const struct tutti_facts *facts, const struct tutti_load *load);
/* Two parts on links of their own. One thread of each rank sees to both: where levels overlap, that of one rank works
 * inside while another's waits for the network, but no less is done. */
double tutti_cost_of_levels_ns(const struct tutti_facts *facts, const struct tutti_load *near,
                               const struct tutti_load *far);

#endif
