/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_MAKER_H
#define TUTTI_DEVICE_MAKER_H

/* A maker's driver, found at run time: opened when something first asks for a device, and never closed, since others in
 * this process may use it, too. Why there is none is kept as a sentence. A driver does not survive a fork: a child of a
 * process that has opened it has none. */

#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>

struct tutti_maker {
    const char *name;     /* for sentences: "CUDA" */
    const char *what;     /* "CUDA driver" */
    const char *variable; /* the environment's, which names another file */
    const char *file;
    bool (*start)(struct tutti_maker *maker, void *library); /* false: `absence` says why */
    /* Whether some part of this process, which has loaded the library, uses devices. NULL: it does. */
    bool (*used)(void *library);
    /* The rest begins as TUTTI_MAKER_INIT; what is beside the lock is written under it before `state` says so. */
    pthread_mutex_t lock;
    _Atomic int state;
    _Atomic bool forked;
    _Atomic uint64_t looked_ns;
    char absence[512], after_fork[256];
};
#define TUTTI_MAKER_INIT .lock = PTHREAD_MUTEX_INITIALIZER

const char *tutti_maker_file(const struct tutti_maker *maker);
/* Whether it is open; opens it the first time. */
bool tutti_maker_open(struct tutti_maker *maker);
/* Whether it is open, or another part of the process uses devices: then it is opened, too. Cheap: each question whose
 * memory a pointer is asks this. */
bool tutti_maker_in_use(struct tutti_maker *maker);
const char *tutti_maker_absence(struct tutti_maker *maker); /* NULL: it is there */
static inline bool tutti_maker_forked(const struct tutti_maker *maker)
{
    return atomic_load_explicit(&maker->forked, memory_order_relaxed);
}

#endif
