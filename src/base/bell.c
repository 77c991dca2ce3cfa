/* SPDX-License-Identifier: BSD-3-Clause */

/* Bells, and the fence of all processes that spares who rings them a fence of its own. */

#include "base/bell.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

bool tutti_fence_all_available(void)
{
    long commands = membarrier(MEMBARRIER_CMD_QUERY);
    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) &&
           membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

void tutti_fence_all(void)
{
    membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

void tutti_bell_wake(struct tutti_bell *bell)
{
    atomic_fetch_add(&bell->event, 1);
    tutti_futex_wake(&bell->event, INT32_MAX);
}

uint32_t tutti_bell_listen(struct tutti_bell *bell)
{
    const uint32_t event = atomic_load(&bell->event);
    atomic_fetch_add(&bell->sleepers, 1);
    return event;
}

void tutti_bell_leave(struct tutti_bell *bell)
{
    atomic_fetch_sub(&bell->sleepers, 1);
}
