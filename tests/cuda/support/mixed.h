/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_MIXED_H
#define TUTTI_TESTS_CUDA_MIXED_H

/* Worlds in which some ranks have a device and some do not, or all have one and go through the host: a rank's buffers
 * are where it has its memory, and the same calls are made on all. */

#include "ranks.h"

#include "device/cuda/cuda_device.h"

struct mixed_world {
    uint32_t n;
    uint64_t devices; /* bit r: rank r has one */
    bool forked;
    bool host;        /* the option gpu is host */
    uint64_t may_die; /* see ranks_config */
};
extern const struct mixed_world mixed_worlds[];
extern const uint32_t mixed_n_worlds;
/* Runs the functions on all ranks, one after the other, each on a communicator of its own, until one fails; number of
 * ranks that failed. In the same processes, since a process takes a second or so to open a device. */
unsigned mixed_run(const struct mixed_world *world, const rank_function *functions, size_t n);
/* In all worlds of so many ranks at least: as processes first, since the driver does not survive a fork. */
void mixed_run_all(uint32_t least, bool forked, const rank_function *functions, size_t n);

/* What a rank has: a device and streams of it, or nothing of the kind. */
#define MIXED_STREAMS 2
struct mixed {
    struct rank *rank;
    const struct mixed_world *world;
    struct tutti_comm *beside; /* a communicator of the same ranks, for meeting where rank->comm is to fail */
    struct tutti_device *gpu;  /* NULL: none */
    void *streams[MIXED_STREAMS];
    struct tutti_call_options on[MIXED_STREAMS]; /* options of calls on them */
};
/* All ranks have opened when one returns. */
bool mixed_open(struct rank *rank, struct mixed *out);
void mixed_close(struct mixed *m); /* and the rank's communicator */

/* Memory of the rank's kind, with a copy of what is at `from` (NULL: zeros). NULL, and the rank failed: there is none.
 */
void *mixed_put(struct mixed *m, const void *from, size_t bytes);
/* When all of the rank's streams are over. False, and the rank failed: it can not be had. */
bool mixed_get(struct mixed *m, void *to, const void *memory, size_t bytes);
bool mixed_sync(struct mixed *m);
void mixed_free(struct mixed *m, void *memory);

#endif
