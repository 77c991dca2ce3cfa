/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ALGO_ALGO_H
#define TUTTI_ALGO_ALGO_H

/* The algorithms of collectives, one family a file. Begin with ring.c, which is the simplest; this header is the list.
 * An algorithm is one file that defines `const struct tutti_algorithm tutti_algorithm_NAME`, and one line here. These
 * files see <tutti/schedule.h> alone: their library may import nothing but tutti_emit_* (S10). Only table.c, which
 * looks algorithms up, may also use base and sched. */

#include <tutti/schedule.h>

#include <stddef.h>

#define TUTTI_ALGORITHMS(X)                                                                                            \
    X(ring)                                                                                                            \
    X(halving_doubling)                                                                                                \
    X(recursive_doubling)                                                                                              \
    X(tree)                                                                                                            \
    X(double_tree)                                                                                                     \
    X(bruck)                                                                                                           \
    X(pat)                                                                                                             \
    X(pairwise)                                                                                                        \
    X(dissemination)                                                                                                   \
    X(direct)                                                                                                          \
    X(direct_two_shot)                                                                                                 \
    X(hierarchical)                                                                                                    \
    X(by_levels)

#define TUTTI_ALGORITHM_DECLARE(name) extern const struct tutti_algorithm tutti_algorithm_##name;
TUTTI_ALGORITHMS(TUTTI_ALGORITHM_DECLARE)
#undef TUTTI_ALGORITHM_DECLARE

extern const struct tutti_algorithm *const tutti_algorithms[];
extern const size_t tutti_n_algorithms;
/* "ring" or "tree:4" (radix to *radix, else 0), or the path or name of a file's; NULL if unknown. The table's names
 * come first, then what was registered last. Any thread. */
const struct tutti_algorithm *tutti_algorithm_find(const char *name, uint32_t *radix);

/* So many groups exchange, at most, what they have of an all_reduce (hierarchical): the more there are, the more dearly
 * are fewer hops bought with messages. */
#define TUTTI_EXCHANGING_GROUPS 64

/* An algorithm that came from a file (src/load). It stays for the life of the process. */
struct tutti_loaded {
    const struct tutti_algorithm *algorithm;
    const char *path; /* as it was named */
    const struct tutti_loaded *older;
};
/* Puts it in front; one thread at a time. */
void tutti_loaded_add(struct tutti_loaded *loaded);
const struct tutti_loaded *tutti_loaded_newest(void); /* NULL: there is none */
/* Installs the reference algorithms for calls (tutti_schedule_set_reference). Idempotent; any thread. */
void tutti_algorithms_init(void);

#endif
