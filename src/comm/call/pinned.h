/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_CALL_PINNED_H
#define TUTTI_COMM_CALL_PINNED_H

/* Pinned memory, which is slow to get, and to give back waits for the device. So a communicator's pieces are kept until
 * nobody has its pool any more, in sizes that serve many calls. Any thread. */

#include "comm/call/call.h"
#include "device/device.h"
#include "engine/bind.h"

#include <pthread.h>
#include <stdatomic.h>

struct tutti_pinned {
    struct tutti_pinned *next;
    char *at;
    size_t bytes;
};
struct tutti_pinned_pool {
    struct tutti_device *device; /* opened once more */
    _Atomic uint32_t refs;
    pthread_mutex_t lock; /* never held across calls of the driver */
    struct tutti_pinned *idle;
    size_t used_bytes;
    _Atomic uint32_t n_pending; /* one-sided calls that are enqueued (comm/window/stream.h), and not over */
};

enum tutti_status tutti_pinned_create(const struct tutti_device *device, struct tutti_pinned_pool **out);
struct tutti_pinned_pool *tutti_pinned_hold(struct tutti_pinned_pool *pool);
void tutti_pinned_drop(struct tutti_pinned_pool *pool); /* the caller has given all back; NULL: none */
enum tutti_status tutti_pinned_take(struct tutti_pinned_pool *pool, size_t bytes, struct tutti_pinned **out);
/* So many can be taken before any has to be made, which a driver may do only when its streams have come to rest. */
enum tutti_status tutti_pinned_reserve(struct tutti_pinned_pool *pool, uint32_t n, size_t bytes);
void tutti_pinned_give(struct tutti_pinned_pool *pool, struct tutti_pinned *pinned); /* NULL: none */
size_t tutti_pinned_used(struct tutti_pinned_pool *pool);

/* Pinned copies: host memory that stands for the buffers of a staged call. In a copy all blocks are packed, what is
 * sent first, so that a call on copies has no displacements and is never in place. What lies between the blocks of the
 * user's buffers is not touched. Pure functions over calls that were checked. */

enum tutti_pinned_way {
    TUTTI_PINNED_IN, /* from the device, before the call */
    TUTTI_PINNED_OUT /* to the device, after it */
};

/* Bytes of the copy, rounded up so that another one may follow it; SIZE_MAX when it can not be. */
size_t tutti_pinned_bytes(const struct tutti_call *call);
/* One run of bytes: `device` is the user's, `at` is from the copy's begin. */
typedef enum tutti_status (*tutti_pinned_visit)(void *arg, char *device, size_t at, size_t bytes);
/* A part of a call of equal blocks that is carried out by itself: some of the slices that it is cut into. */
struct tutti_pinned_part {
    const struct tutti_layout *layout;
    uint32_t first, until; /* slices */
};
/* All runs that travel that way, of the part (NULL: of the call); stops at an error. Before tutti_pinned_put. */
enum tutti_status tutti_pinned_each(const struct tutti_call *call, enum tutti_pinned_way way,
                                    const struct tutti_pinned_part *part, tutti_pinned_visit visit, void *arg);
/* From now on the call's buffers are those of the copy. */
void tutti_pinned_put(struct tutti_call *call, char *pinned);

#endif
