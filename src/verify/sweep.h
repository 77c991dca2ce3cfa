/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_SWEEP_H
#define TUTTI_VERIFY_SWEEP_H

/* The checker over many shapes: which shapes of a size an algorithm is tried on, and the run over a range of sizes. */

#include "verify/verify.h"

#define TUTTI_SWEEP_SHAPES 2048 /* at most, of one size */

/* Fills out with shapes of this size that the algorithm fits (slot 0): roots, radices where it has one, levels (even
 * and ragged groups, one to three levels deep, by chance too). Returns their number, at most capacity. Pure. */
size_t tutti_sweep_shapes(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t size,
                          struct tutti_shape *out, size_t capacity);

struct tutti_sweep {
    uint32_t n_shapes;          /* checked */
    uint32_t n_refused;         /* among these */
    struct tutti_shape shape;   /* the last one: where an algorithm that crashes has come to */
    struct tutti_verdict first; /* refusal; ok when there is none */
};
/* Checks all shapes of sizes first..last; goes on after a refusal when all is set. Errors as tutti_verify. */
enum tutti_status tutti_verify_sweep(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t first,
                                     uint32_t last, bool all, struct tutti_sweep *out);

#endif
