/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_DEVICE_PINNED_COPY_H
#define TUTTI_COMM_DEVICE_PINNED_COPY_H

/* Pinned copies: host memory that stands for the buffers of a staged call. In a copy all blocks are packed, what is
 * sent first, so that a call on copies has no displacements and is never in place. What lies between the blocks of the
 * user's buffers is not touched. Pure functions over requests that were checked. */

#include "comm/request/request.h"
#include "engine/bind.h"

enum tutti_pinned_way {
    TUTTI_PINNED_IN, /* from the device, before the call */
    TUTTI_PINNED_OUT /* to the device, after it */
};

/* Bytes of the copy, rounded up so that another one may follow it; SIZE_MAX when it can not be. */
size_t tutti_pinned_bytes(const struct tutti_request *request);
/* One run of bytes: `device` is the user's, `at` is from the copy's begin. */
typedef enum tutti_status (*tutti_pinned_visit)(void *arg, char *device, size_t at, size_t bytes);
/* A part of a call of equal blocks that is carried out by itself: some of the slices that it is cut into. */
struct tutti_pinned_part {
    const struct tutti_layout *layout;
    uint32_t first, until; /* slices */
};
/* All runs that travel that way, of the part (NULL: of the call); stops at an error. Before tutti_pinned_put. */
enum tutti_status tutti_pinned_each(const struct tutti_request *request, enum tutti_pinned_way way,
                                    const struct tutti_pinned_part *part, tutti_pinned_visit visit, void *arg);
/* From now on the request's buffers are those of the copy. */
void tutti_pinned_put(struct tutti_request *request, char *pinned);

#endif
