/* SPDX-License-Identifier: BSD-3-Clause */
/* How often a driver is looked for that nobody uses: each question whose memory a pointer is asks for it. */
#include "device/device.h"

#include <stdatomic.h>
#include <time.h>

#define LOOK_NS (10 * TUTTI_NS_PER_MS)

static uint64_t coarse_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * TUTTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

bool tutti_device_look_due(const _Atomic uint64_t *looked_ns)
{
    const uint64_t looked = atomic_load_explicit(looked_ns, memory_order_relaxed);
    return looked == 0 || coarse_now_ns() - looked >= LOOK_NS;
}

void tutti_device_looked(_Atomic uint64_t *looked_ns)
{
    atomic_store_explicit(looked_ns, coarse_now_ns(), memory_order_relaxed);
}
