/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_DEVICE_PINNED_H
#define TUTTI_COMM_DEVICE_PINNED_H

/* Pinned memory, which is slow to get, and to give back waits for the device. So a communicator's pieces are kept until
 * nobody has its pool any more, in sizes that serve many calls. Any thread. */

#include "device/device.h"

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
void tutti_pinned_drop(struct tutti_pinned_pool *pool); /* who drops has given all back; NULL: none */
enum tutti_status tutti_pinned_take(struct tutti_pinned_pool *pool, size_t bytes, struct tutti_pinned **out);
/* So many can be taken before any has to be made, which a driver may do only when its streams have come to rest. */
enum tutti_status tutti_pinned_reserve(struct tutti_pinned_pool *pool, uint32_t n, size_t bytes);
void tutti_pinned_give(struct tutti_pinned_pool *pool, struct tutti_pinned *pinned); /* NULL: none */
size_t tutti_pinned_used(struct tutti_pinned_pool *pool);

#endif
