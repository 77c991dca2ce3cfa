/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_SEGMENT_H
#define TUTTI_TESTS_CUDA_SEGMENT_H

/* Memory as frameworks make it who map piece after piece: one range of addresses, of which the first pieces are mapped
 * and more are reserved. */

#include "device/cuda/cuda_device.h"

struct segment {
    struct tutti_device *gpu;
    char *base;
    size_t piece, n; /* bytes of one, and how many there are */
};
/* shareable: descriptors can be made of it. False: the thread's record says why. */
bool segment_open(struct segment *segment, struct tutti_device *gpu, size_t n, bool shareable);
/* Maps other memory in place of piece i; what is enqueued is over. False: as above. */
bool segment_renew(const struct segment *segment, size_t i);
void segment_close(struct segment *segment); /* what is enqueued is over */

#endif
