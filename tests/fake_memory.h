/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FAKE_MEMORY_H
#define TUTTI_TESTS_FAKE_MEMORY_H

/* Memory of the fake device, by the functions of its table, and what its streams need. Any thread. */

#include "device/device.h"

/* Where the bytes of a pointer of any memory are, device or host. */
void *fake_bytes(const void *pointer, size_t size);
/* When nothing on the device uses it any more. */
void fake_give_back(struct tutti_device *device, void *pointer);

enum tutti_status fake_alloc(struct tutti_device *device, size_t size, void **out);
enum tutti_status fake_alloc_shared(struct tutti_device *device, enum tutti_device_share share, size_t size,
                                    void **out);
enum tutti_status fake_alloc_host(struct tutti_device *device, size_t size, void **out);
void fake_free_host(struct tutti_device *device, void *pointer);
int32_t fake_of(const void *pointer);
enum tutti_status fake_holds(struct tutti_device *device, const void *pointer, size_t size);
enum tutti_status fake_copy_now(struct tutti_device *device, void *dst, const void *src, size_t size);
enum tutti_status fake_set(struct tutti_device *device, void *pointer, unsigned char value, size_t size);

#endif
