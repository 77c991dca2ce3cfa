/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_STANDIN_FABRIC_STANDIN_H
#define TESTS_STANDIN_FABRIC_STANDIN_H

/* A libfabric.so.1 without a network: provider "pinned" joins endpoints of one process and behaves as a network card
 * does. Memory that is registered is pinned: from then on the card reaches those pages, whatever the address means
 * later (pins.c). What is not registered, or not for this use, it does not touch. Writes and reads happen some looks
 * at the queue after they were posted, when what was sent meanwhile is there already. It says FI_HMEM.
 * With FABRIC_STANDIN_STALE=131072 in the environment it keeps registrations of so many bytes by their address for
 * ever, as a cache does that nobody tells of freed memory. With FABRIC_STANDIN_ORDERS=1 it does not tell of writes when
 * their bytes are there (FI_DELIVERY_COMPLETE), but keeps reads behind them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

struct fabric_standin_counts {
    uint64_t registered, devices, open;               /* memory: so often; as a device's; now */
    uint64_t sends, writes, reads;                    /* without error */
    uint64_t bytes_written, bytes_read, device_bytes; /* device_bytes: into or out of memory that is a device's */
    bool real;                                        /* pages are pinned, see pins.c */
    uint64_t refused;                                 /* not registered, or not for this */
};
/* Exported: what was done in this process so far. */
void fabric_standin_counts(struct fabric_standin_counts *out);
typedef void fabric_standin_counts_function(struct fabric_standin_counts *out);

/* ---- pins.c; callers hold the one lock ---- */
#define PINS_NONE (-1)
bool pins_are_real(void); /* false: there is no io_uring here, and memory is reached by its address */
/* The number of a pin of these bytes, or PINS_NONE. */
int pins_add(void *base, size_t bytes);
void pins_remove(int pin);
/* Copies from pinned memory into the staging from `at` on, or back. */
bool pins_out(int pin, const void *address, size_t bytes, size_t at);
bool pins_in(int pin, void *address, size_t bytes, size_t at);
#define PINS_STAGING ((size_t)8 << 20)

#endif
