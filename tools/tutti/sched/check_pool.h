/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_CHECK_POOL_H
#define TUTTI_TOOLS_CHECK_POOL_H

/* Proofs of many sizes of many algorithms by several processes at once, for `tutti sched check`. */

#include "verify/sweep.h"

struct check_pair {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    struct tutti_sweep sweep; /* out; shape is unset */
    double seconds;           /* out: of processors, all processes together */
};
struct check_pool {
    struct check_pair *pairs;
    size_t n_pairs;
    uint32_t first, last; /* sizes */
    struct tutti_sweep_depth depth;
    uint32_t n_processes;
    bool show_progress;                            /* a line on stderr */
    void (*report)(const struct check_pair *pair); /* called for each pair, in their order, when it is done */
};
/* After a refusal larger sizes of that pair are left out. Errors: MEMORY, SYSTEM, what a proof could not be made for.
 */
enum tutti_status check_pool_run(struct check_pool *pool);

#endif
