/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_CUDA_DESCRIPTORS_H
#define TUTTI_DEVICE_CUDA_CUDA_DESCRIPTORS_H

/* What handles of device memory hold (cuda_share.c), and the way by descriptors (cuda_descriptors.c): each allocation's
 * descriptor stays open in the exporting process, next to a table of them in memory that has a descriptor of its own.
 * The importer takes the table's, and then the others' (device/share.h). The table has a random number that the handle
 * repeats, and loses it when the offer is withdrawn: so numbers of processes and descriptors that have come to mean
 * something else are found out. The table is offered by that number as its key, piece i by the number plus 1 + i. */

#include "device/cuda/driver.h"

enum cuda_offer_kind { CUDA_OFFER_IPC = 0x63706931, CUDA_OFFER_DESCRIPTORS = 0x73646632 };
struct cuda_descriptors {
    int32_t pid, table;
    uint64_t nonce, door;
    uint64_t n;
};
struct cuda_offer {
    uint32_t kind;
    uint32_t block; /* a part of its identity: another allocation may have had the same IPC handle */
    union {
        struct cuda_ipc_handle ipc;
        struct cuda_descriptors descriptors;
    } by;
};
_Static_assert(sizeof(struct cuda_offer) <= TUTTI_DEVICE_HANDLE_BYTES, "a handle holds an offer");

/* UNSUPPORTED: a piece was not allocated for that. */
enum tutti_status cuda_descriptors_may(struct tutti_device *gpu, const struct cuda_pieces *pieces);
/* Opens descriptors of all pieces. */
enum tutti_status cuda_descriptors_offer(struct tutti_device *gpu, const struct cuda_pieces *pieces,
                                         struct cuda_descriptors *out);
void cuda_descriptors_withdraw(const struct cuda_descriptors *offer);
/* The pieces of another process, imported but not mapped. UNSUPPORTED: they can not be had, or not any more. */
enum tutti_status cuda_descriptors_take(struct tutti_device *gpu, const struct cuda_descriptors *offer,
                                        struct cuda_pieces *out);

#endif
