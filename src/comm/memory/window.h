/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_MEMORY_WINDOW_H
#define TUTTI_COMM_MEMORY_WINDOW_H

/* Memory and windows: tutti_mem_alloc (mem.c), windows of host memory (window.c) and of device memory
 * (window_device.c). This room may use object, request and device of comm, and all below comm. Begin with mem.c, then
 * window.c. This header has what both kinds of windows share. */

#include "comm/device/device.h"

enum tutti_window_memory { TUTTI_WINDOW_NONE, TUTTI_WINDOW_HOST, TUTTI_WINDOW_DEVICE };

/* What a rank brings. */
struct tutti_window_part {
    uint64_t offset, bytes; /* offset: of host memory, in what its transport offers */
    int64_t status;
    int64_t memory; /* enum tutti_window_memory */
    struct tutti_window_card card;
};

struct tutti_window_peer {
    void *address; /* NULL: another host */
    size_t bytes;
};

struct tutti_window {
    struct tutti_attached attached; /* first */
    uint32_t n;
    struct tutti_window_peer *peers;
    bool on_device;
    void *own;          /* the pointer by which back ends of devices know the window */
    uint32_t n_devices; /* the communicator's count of them when it was made */
};

/* Whether it is memory of the communicator's device at this rank. */
bool tutti_window_on_device(const struct tutti_comm *comm, const void *base);
/* The own part; status and the thread's error record say what is wrong with it. */
void tutti_window_device_part(const struct tutti_comm *comm, void *base, size_t bytes, struct tutti_window_part *out);
/* Withdraws the offer that the own part holds, if it holds one. */
void tutti_window_device_withdraw(const struct tutti_comm *comm, const struct tutti_window_part *part);
/* Maps the peers' parts. */
enum tutti_status tutti_window_device_map(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                          struct tutti_window *window);
/* Whether its mappings are still the communicator's. */
bool tutti_window_device_lives(const struct tutti_comm *comm, const struct tutti_window *window);
/* Waits until nothing that is enqueued uses the window, and takes the mappings back. */
void tutti_window_device_unmap(struct tutti_comm *comm, const struct tutti_window *window);

#endif
