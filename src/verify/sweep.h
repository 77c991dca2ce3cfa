/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_SWEEP_H
#define TUTTI_VERIFY_SWEEP_H

/* The checker over many shapes: which shapes of a size an algorithm is tried on, and the run over a range of sizes. */

#include "verify/verify.h"

#define TUTTI_SWEEP_LONG (UINT64_C(24) << 20) /* steps up to which a proof in full is a matter of seconds */
#define TUTTI_SWEEP_SHAPES 2048               /* at most, of one size */

/* Fills out with shapes of this size that the algorithm fits (slot 0): roots, radices where it has one, levels (even
 * and ragged groups, one to three levels deep, by chance too). Returns their number, at most capacity. Pure. */
size_t tutti_sweep_shapes(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t size,
                          struct tutti_shape *out, size_t capacity);

/* How far a sweep goes. */
struct tutti_sweep_depth {
    bool all;           /* go on after a refusal */
    uint32_t full_size; /* sizes up to this one are proved in full */
    uint64_t
        full_steps; /* larger ones by sample where they have more steps than this, but for one size in full_every */
    uint32_t full_every; /* (0: none), by turns of algorithm and kind, and powers of two and their neighbours */
    struct tutti_sampling sampling;
};
/* All shapes in full. */
#define TUTTI_SWEEP_FULL ((struct tutti_sweep_depth){.full_steps = UINT64_MAX})

struct tutti_sweep {
    uint32_t n_tried;             /* proofs begun, those of tutti_shrink too: it changes as long as there is progress */
    uint32_t n_shapes;            /* checked */
    uint32_t n_sampled;           /* among these: by sample */
    uint32_t n_refused;           /* among these */
    uint64_t n_schedules;         /* ranks of all these shapes */
    uint64_t n_steps, n_messages; /* that were looked at */
    struct tutti_coverage coverage; /* the last sample */
    struct tutti_shape shape;       /* the last one: where an algorithm that crashes has come to */
    struct tutti_verdict first;     /* refusal; ok when there is none */
    struct tutti_shape refused;     /* its shape */
};
/* Checks one more shape; counts it. Errors as tutti_verify. */
enum tutti_status tutti_sweep_check(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                    const struct tutti_shape *shape, const struct tutti_sweep_depth *depth,
                                    struct tutti_sweep *sweep);
/* Checks all shapes of sizes first..last; goes on after a refusal when depth says so. out is set anew. */
enum tutti_status tutti_verify_sweep(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t first,
                                     uint32_t last, const struct tutti_sweep_depth *depth, struct tutti_sweep *out);
/* Looks for a smaller shape that is refused for the same kind of finding as sweep->first: fewer ranks, then fewer
 * levels, groups, a smaller radix, a smaller root; and puts it there. Sizes from `proved` on to that of the refusal are
 * known to hold. Bounded: it gives up early where proofs are long, so that what it finds may not be the smallest. */
enum tutti_status tutti_sweep_shrink(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t proved,
                                     struct tutti_sweep *sweep);

#endif
