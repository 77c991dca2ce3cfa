/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_BUNDLE_H
#define TUTTI_VERIFY_BUNDLE_H

/* A bundle: the sealed schedules of all slots as one array of steps, and the checks that run over it one after another.
 * Each check relies on those before it, in the order in which they are declared here. A check returns an error only
 * when it could not be made (MEMORY); what it finds wrong it says in the verdict, and the first finding ends the
 * check. */

#include "verify/verify.h"

#define TUTTI_NO_INDEX UINT32_MAX

struct tutti_bundle {
    const struct tutti_schedule *const *schedules; /* by slot */
    uint32_t n;                                    /* slots */
    enum tutti_kind kind;
    const struct tutti_kind_info *info;
    const struct tutti_shape *shape; /* slot 0's */
    uint32_t needs;                  /* enum tutti_needs, as the algorithm claims */
    uint32_t n_chunks, per_block;    /* chunks of DATA, and of a block */
    uint32_t n_steps;                /* in all slots */
    uint32_t *base;                  /* n + 1: the number of a slot's first step in the bundle */
    uint32_t *match;                 /* the number of a send's receive, and the reverse; else TUTTI_NO_INDEX */
    uint32_t *previous;              /* the send before it in its channel, or TUTTI_NO_INDEX */
    uint32_t *order;                 /* an order in which the steps may complete, without sends (they complete with
                                      * their receives) */
    uint32_t *order_slot;            /* the slots of these */
    uint32_t n_order;
    uint32_t sampled; /* 0: everything is checked; else contents are left to column.c, a barrier to so many passes */
    enum tutti_finding finding; /* what a refusal is about now */
    struct tutti_verdict *verdict;
};

/* ---- bundle.c ---- */
/* A plain view of n >= 1 schedules; refuses schedules that do not belong together or that name their defect. */
enum tutti_status tutti_bundle_init(struct tutti_bundle *bundle, const struct tutti_schedule *const *schedules,
                                    uint32_t n, struct tutti_verdict *verdict);
void tutti_bundle_fini(struct tutti_bundle *bundle);
uint32_t tutti_bundle_slot(const struct tutti_bundle *bundle, uint32_t index); /* the slot whose step it is */
static inline const struct tutti_step *tutti_bundle_step(const struct tutti_bundle *bundle, uint32_t slot,
                                                         uint32_t step)
{
    return &bundle->schedules[slot]->steps[step];
}
/* ---- report.c: the sentence. Slot or step may be TUTTI_NO_INDEX. ---- */
void tutti_bundle_refuse(const struct tutti_bundle *bundle, uint32_t slot, uint32_t step, const char *format, ...)
    TUTTI_PRINTF(4, 5);
/* "chunk 3" or "chunks 3 to 5" with the buffer where it is not DATA. */
void tutti_chunks_text(uint8_t buffer, uint32_t chunk, uint32_t n, char *out, size_t capacity);
/* "sends chunk 3 to rank 1", "receives ...". */
void tutti_step_text(const struct tutti_step *step, char *out, size_t capacity);

/* ---- the checks, in order ---- */
enum tutti_status tutti_bundle_check_steps(struct tutti_bundle *bundle);    /* steps.c: operands, ranges, numbering */
enum tutti_status tutti_bundle_match(struct tutti_bundle *bundle);          /* match.c: sends with receives */
enum tutti_status tutti_bundle_check_hazards(struct tutti_bundle *bundle);  /* hazard.c: masks lack nothing */
enum tutti_status tutti_bundle_check_deadlock(struct tutti_bundle *bundle); /* deadlock.c: all complete; fills order */
enum tutti_status tutti_bundle_check_values(struct tutti_bundle *bundle);   /* value.c: contents, lengths, result */
enum tutti_status
tutti_bundle_check_barrier(struct tutti_bundle *bundle); /* barrier.c: all arrived before one leaves */

/* How messages move, from the strictest (deadlock.c says what each means). */
enum tutti_channel_mode {
    TUTTI_CHANNEL_SINGLE,     /* one message at a time, and it waits for its receive */
    TUTTI_CHANNEL_RENDEZVOUS, /* in order, each waits for its receive */
    TUTTI_CHANNEL_CREDIT,     /* in order, through one place of staging */
    TUTTI_N_CHANNEL_MODES
};
/* Runs the bundle under one mode: whether all steps complete; if not, report refuses with the cycle.
 * SINGLE fills order. */
enum tutti_status tutti_bundle_run(struct tutti_bundle *bundle, enum tutti_channel_mode mode, bool report, bool *done);

#endif
