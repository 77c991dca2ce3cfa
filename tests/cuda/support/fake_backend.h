/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_FAKE_BACKEND_H
#define TUTTI_TESTS_CUDA_FAKE_BACKEND_H

/* A device back end that carries nothing out: it writes down what it is given, and leaves on the stream an event of
 * each call. For tests of what communicators do around back ends. */

#include "backend/backend.h"

#include <stdatomic.h>

#define FAKE_CALLS 128
enum fake_type { FAKE_CALL, FAKE_BATCH, FAKE_MESSAGES };
struct fake_entry {
    enum fake_type type;
    enum tutti_kind kind;
    uint64_t seq, count;
    bool known; /* by the method of that name */
    const void *input;
    void *output, *stream;
    size_t n; /* messages; calls of the batch from this one on */
    struct tutti_backend_message messages[8];
};
struct fake {
    struct tutti_backend base;
    struct tutti_backend_config config;
    void *event;
    bool recorded;
    size_t n;
    struct fake_entry entries[FAKE_CALLS];
    _Atomic uint32_t n_stops, n_entered, n_within; /* within: stop or failed, as the switch lingers lets them last */
};

/* Switches of all instances; zero: it opens, connects, takes every call, and has no batches. */
struct fake_switches {
    _Atomic int refuse_open, refuse_connect; /* 1 + rank that does */
    _Atomic int refuse_kind;                 /* 1 + kind that it does not take */
    _Atomic bool fail_enqueue, reports_failure, batches, lingers;
    _Atomic uint32_t n_closed_within; /* what was found: instances that were closed while somebody was within */
};
extern struct fake_switches fake_switches;

/* In the place of the first back end, with the switches as they are; remove also puts those back. */
void fake_install(void);
void fake_remove(void);
/* The instance of a communicator, NULL if it has none. */
struct tutti_comm;
struct fake *fake_of(const struct tutti_comm *comm);

#endif
