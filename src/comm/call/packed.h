/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_REQUEST_PACKED_H
#define TUTTI_COMM_REQUEST_PACKED_H

/* Quantised calls: a reduce_scatter is an all_to_all of packed data, which each rank sums (in float32, in rank order)
 * and turns into elements again; an all_reduce packs the sums instead, and an all_gather spreads them, so that all
 * ranks unpack the same bytes. Both steps take a number of the communicator each. The own contribution is not packed.
 * Here: what is equal on all ways, and the way on host memory, where both steps are calls of the engine that are
 * started at once: the second one waits at a gate, slice by slice, for what the first one brings. On devices:
 * comm/call/device_steps.c. */

#include "comm/call/call.h"

/* Sizes of a quantised call, and where packed data lies in one region of memory. */
struct tutti_packed_shape {
    struct tutti_packing packing;
    bool all;               /* all_reduce */
    uint32_t n, me;         /* ranks */
    size_t part, total;     /* elements of a rank's part, but for the last ones; of all. v: of the own one */
    size_t part_bytes;      /* packed; v: of the own one */
    size_t sent, collected; /* offsets: what is sent, what comes from each rank; */
    size_t spread;          /* all_reduce: the packed results of all */
    size_t bytes;
};
/* Takes a checked call. MEMORY: sizes overflow. */
enum tutti_status tutti_packed_shape(const struct tutti_call *call, struct tutti_packed_shape *out);

enum tutti_packed_step { TUTTI_PACKED_COLLECT, TUTTI_PACKED_SPREAD };
/* A step as a request of its own on packed data, in the region of the shape. For reduce_scatter_v the call needs
 * tables: room for 4 * n sizes, which stay until it has started. */
void tutti_packed_step(const struct tutti_call *call, const struct tutti_packed_shape *shape,
                       enum tutti_packed_step step, char *region, size_t *tables, struct tutti_call *out);
/* The jobs of the device: the input into packed data, one job or (v) one for each rank; the sum of what came, to
 * elements or packed again; what was spread into elements. begin and end are all. */
void tutti_packed_input(const struct tutti_call *call, const struct tutti_packed_shape *shape, uint32_t part,
                        char *region, struct tutti_recode *out);
void tutti_packed_sum(const struct tutti_call *call, const struct tutti_packed_shape *shape, char *region,
                      struct tutti_recode *out);
void tutti_packed_result(const struct tutti_call *call, const struct tutti_packed_shape *shape, char *region,
                         struct tutti_recode *out);
/* How many jobs the input takes. */
static inline uint32_t tutti_packed_inputs(const struct tutti_call *call)
{
    return call->job.bind.v ? (uint32_t)call->comm->size : 1;
}

/* ---- on host memory ---- */
struct tutti_packed_call;
/* As tutti_call_prepare and _start, of a request of route PACKED. */
enum tutti_status tutti_packed_prepare(struct tutti_call *call);
enum tutti_status tutti_packed_start(struct tutti_call *call, enum tutti_start how, struct tutti_work **work);
/* Frees a call that was prepared and not started. */
void tutti_packed_drop(struct tutti_packed_call *packed);

#endif
