/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CPU_COPY_H
#define TUTTI_DEVICE_CPU_COPY_H

/* Copies of data that is too large for the caches. */

#include "base/base.h"

/* Copies of at least so many bytes in all leave no room in a cache for anything else, and are out of it before they are
 * read; so they are written past the caches. Measured on two to four ranks. */
#define TUTTI_PAST_CACHE_BYTES ((size_t)8 << 20)

/* As memcpy, any alignment. Where the processor can, it writes past the caches, which spares reading every line before
 * it is overwritten. What was written is ordered before all later stores of this thread, as usual. */
void tutti_copy_past_cache(void *dst, const void *src, size_t bytes);
/* The same for many pieces: what was written is ordered before later stores only by tutti_copy_fence. */
void tutti_copy_stream(void *dst, const void *src, size_t bytes);
void tutti_copy_fence(void);

#endif
