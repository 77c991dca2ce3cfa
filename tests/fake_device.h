/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FAKE_DEVICE_H
#define TUTTI_TESTS_FAKE_DEVICE_H

/* A third device, for tests, and as unlike cpu and cuda as the contract (device/device.h) allows. The host can not
 * touch its memory: a pointer is a reserved address, and the bytes are elsewhere. Each stream, the default one too, is
 * a thread that is late with all it does. Nothing is shared between processes, nothing is captured, no device reaches
 * another, and all that may be left out is. Put it into the table: tutti_devices[TUTTI_DEVICE_cuda] = &fake_device. */

#include "device/device.h"

#define FAKE_DEVICES 4

extern const struct tutti_device_ops fake_device;

/* What `current` is on this thread; -1, as at first: none. */
extern _Thread_local int32_t fake_device_current;

#endif
