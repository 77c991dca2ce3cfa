/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EXAMPLE_H
#define EXAMPLE_H

/* What the examples share: the world communicator, and an end with a sentence when a call fails. A program may do that;
 * the library never does. */

#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) < 0) {                                                                                              \
            fprintf(stderr, "%s failed: %s\n", #call, tutti_last_error()->text);                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline struct tutti_comm *world_create(void)
{
    struct tutti_comm *world;
    CHECK(tutti_comm_create(NULL, NULL, &world));
    return world;
}

#endif
