/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_SERIAL_BACKEND_H
#define TUTTI_TESTS_SERIAL_BACKEND_H

/* A second back end for host memory, for tests, and as unlike flat as the contract (backend/backend.h) allows: all
 * ranks take turns at one small buffer of the first rank. It serves all_reduce, broadcast and barrier, has one method,
 * and leaves out all that a back end may leave out. Put it into the table: tutti_backends[TUTTI_BACKEND_flat] =
 * &serial_backend. */

#include "backend/backend.h"

extern const struct tutti_backend_ops serial_backend;

/* For this process: what goes wrong (1 + the slot, 0: nothing), and how many calls of each kind were begun. */
extern struct serial_state {
    uint32_t refuses_open, breaks_connect;
    _Atomic uint64_t n_begun[TUTTI_N_KINDS];
} serial_state;

#endif
