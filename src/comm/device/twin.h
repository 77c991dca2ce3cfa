/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_DEVICE_TWIN_H
#define TUTTI_COMM_DEVICE_TWIN_H

/* Twins: host memory that stands for the buffers of a call on device memory. In a twin all blocks are packed, what is
 * sent first, so that a call on twins has no displacements and is never in place. What lies between the blocks of the
 * user's buffers is not touched. Pure functions over requests that were checked. */

#include "comm/request/request.h"

enum tutti_twin_way {
    TUTTI_TWIN_IN, /* from the device, before the call */
    TUTTI_TWIN_OUT /* to the device, after it */
};

/* Bytes of the twin, SIZE_MAX when it can not be. */
size_t tutti_twin_bytes(const struct tutti_request *request);
/* One run of bytes: `device` is the user's, `at` is from the twin's begin. */
typedef enum tutti_status (*tutti_twin_visit)(void *arg, char *device, size_t at, size_t bytes);
/* All runs that travel that way; stops at an error. Before tutti_twin_put. */
enum tutti_status tutti_twin_each(const struct tutti_request *request, enum tutti_twin_way way, tutti_twin_visit visit,
                                  void *arg);
/* From now on the request's buffers are those of the twin. */
void tutti_twin_put(struct tutti_request *request, char *twin);

#endif
