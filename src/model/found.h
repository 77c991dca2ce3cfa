/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_FOUND_H
#define TUTTI_MODEL_FOUND_H

/* Algorithms that a search found to be better than the one of the table, by shape: lines in the file of constants,
 *
 *     found KIND WORLD FROM TO ALGORITHM
 *
 * WORLD is a number of ranks, or levels as the option of that name has them (8x2: two hosts of 8 ranks); FROM to TO are
 * bytes of a block, as `tutti bench` counts them for one rank; ALGORITHM is a name, with a radix where it has one, or
 * the path of a file. The first line that fits is taken. All ranks must have the same lines (and files). */

#include "sched/sched.h"

#define TUTTI_MOST_FOUND 32

struct tutti_found {
    enum tutti_kind kind;
    struct tutti_shape world; /* size and levels */
    uint64_t from, to;        /* bytes of a block, both included */
    char name[160];
};
struct tutti_found_list {
    struct tutti_found list[TUTTI_MOST_FOUND];
    uint32_t n;
};

/* Adds those of a file of constants. ARGUMENT with file and line where a line is wrong or one too many, SYSTEM where
 * the file can not be read. */
enum tutti_status tutti_found_read(const char *path, struct tutti_found_list *out);
/* Adds a line to a file of constants, making it where there is none. SYSTEM; ARGUMENT: what reading would refuse. */
enum tutti_status tutti_found_append(const char *path, const struct tutti_found *found);
/* The first that is for this kind and world (slot, root and radix aside) and size; NULL: none. */
const struct tutti_found *tutti_found_for(const struct tutti_found_list *list, enum tutti_kind kind,
                                          const struct tutti_shape *world, uint64_t bytes);

#endif
