/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_FLAT_WAYS_H
#define TUTTI_BACKEND_FLAT_WAYS_H

/* What the table of methods (flat_methods.c) is made of: for each way of moving data the parts of struct flat_method.
 * NAME(op) advances, NAME_start, NAME_first and NAME_fit are called so. */

#include "backend/flat/flat.h"

#define FLAT_WAY(name)                                                                                                 \
    enum tutti_advance name(struct flat_op *op);                                                                       \
    void name##_start(struct flat_op *op);                                                                             \
    void name##_first(struct flat_op *op);                                                                             \
    bool name##_fit(const struct flat_instance *inst, const struct tutti_backend_call *call);

FLAT_WAY(flat_alone)       /* one rank: a copy */
FLAT_WAY(flat_line)        /* all_reduce, barrier, all_gather, reduce_scatter, all_to_all; fits: of all kinds */
FLAT_WAY(flat_line_groups) /* reduce, scan, exscan */
FLAT_WAY(flat_line_broadcast)
FLAT_WAY(flat_line_gather)
FLAT_WAY(flat_line_scatter)
FLAT_WAY(flat_rounds) /* staging: all but broadcast and scatter */
FLAT_WAY(flat_relay)  /* staging: broadcast, scatter; scans as a chain */
FLAT_WAY(flat_move)   /* straight between buffers: the kinds that move blocks; mapped ones or attached ones */
FLAT_WAY(flat_move_broadcast)
FLAT_WAY(flat_push)        /* all_gather to mapped outputs: flat_move with another fit */
FLAT_WAY(flat_attach)      /* flat_move with cross-memory copies */
FLAT_WAY(flat_swap)        /* all_to_all in place */
FLAT_WAY(flat_fold_mapped) /* reductions straight from and to mapped buffers */
FLAT_WAY(flat_fold_read)   /* cross-memory copies: few ranks read what they fold, */
FLAT_WAY(flat_fold_staged) /* many stage it, and write results */
#undef FLAT_WAY

/* ---- predicted times (flat_cost.c) ---- */
double flat_cost_alone(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_line(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_stage(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_direct(const struct flat_instance *inst, const struct tutti_backend_call *call); /* the root folds */
double flat_cost_slices(const struct flat_instance *inst, const struct tutti_backend_call *call); /* of scans */
double flat_cost_chain(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_mapped(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_attach(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_attach_staged(const struct flat_instance *inst, const struct tutti_backend_call *call);
/* Of a method, where the posts say `facts`; with what was found of it. Facts change a cost by FLAT_HUGE and by whether
 * both buffers are mapped, by nothing else: who relies on its own facts tries these (flat_op.c). */
double flat_cost_of(const struct flat_instance *inst, const struct flat_method *method,
                    const struct tutti_backend_call *call, uint64_t facts);

/* ---- what `tutti tune` found (flat_found.c) ---- */
/* How many times as long as predicted. */
double flat_found_times(const struct flat_instance *inst, const struct flat_method *method,
                        const struct tutti_backend_call *call, uint64_t facts);

#endif
