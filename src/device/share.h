/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_SHARE_H
#define TUTTI_DEVICE_SHARE_H

/* What drivers share of memory between processes: descriptors that one process offers and others take (descriptors.c),
 * and the table of what a process has imported (imports.c). */

#include "device/device.h"

/* ---- descriptors ---- */
/* An offer, as it travels in a handle. Its key is unlike that of any other offer of the process. */
struct tutti_descriptor {
    int32_t pid, descriptor;
    uint64_t door; /* where the process can be asked: part of the name of a socket, random; 0: nowhere */
    uint64_t key;
};
/* Offers n open descriptors, the i-th by key + i, *out the first one's. A second offer of the same key is counted.
 * False: they are not open, or there is no memory. */
bool tutti_descriptor_offer(const int *descriptors, size_t n, uint64_t key, struct tutti_descriptor *out);
/* True: no offer of these keys is left. */
bool tutti_descriptor_withdraw(uint64_t key);
/* Takes a copy. The caller finds out whether it is still what was offered: numbers of processes and descriptors can
 * come to mean something else. UNSUPPORTED: it can not be had, or not any more (tutti_descriptor_gone). */
enum tutti_status tutti_descriptor_take(const struct tutti_descriptor *offer, int *out);
enum tutti_status tutti_descriptor_gone(const struct tutti_descriptor *offer);

/* ---- imports ---- */
struct tutti_import_ops {
    /* *kept is for unmap. */
    enum tutti_status (*map)(struct tutti_device *device, const unsigned char *handle, void **out, void **kept);
    void (*unmap)(struct tutti_device *device, void *pointer, void *kept);
};
/* Maps memory of another process, once for each handle and device, however often it is imported. */
enum tutti_status tutti_import_add(struct tutti_device *device, const struct tutti_import_ops *ops,
                                   const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], void **out);
/* Unmaps it after as many calls as there were imports. */
void tutti_import_drop(struct tutti_device *device, const struct tutti_import_ops *ops, void *pointer);

#endif
