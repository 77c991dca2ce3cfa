/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_DEVICE_COUNTED_H
#define TUTTI_COMM_DEVICE_COUNTED_H

/* An all_to_all_v whose counts only the senders know (call/dynamic.c), on the device. */

#include "comm/device/device.h"
#include "device/counted.h"

struct tutti_counted_call {
    struct tutti_comm *comm;
    const void *send;
    void *recv;
    struct tutti_counted_row row; /* but for n and row */
    uint64_t *recv_counts;
    int32_t *status;
    enum tutti_dtype dtype;
    struct tutti_call_options options;
};
/* Whether counts can be read on the communicator's device; equal on all ranks. */
bool tutti_counted_on_device(const struct tutti_comm *comm);
/* All memory is of the device. Takes the turn. */
enum tutti_status tutti_counted_enqueue(const struct tutti_counted_call *call);

#endif
