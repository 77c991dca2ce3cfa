/* SPDX-License-Identifier: BSD-3-Clause */

/* What the back end of GPUs asks of a maker (device/gpu.h). */

#include "device/level_zero/driver.h"

#include <string.h>

static enum tutti_status block_id(const struct tutti_device *device, const void *pointer, uint64_t *out)
{
    const struct xpu_driver *driver = ((const struct xpu *)(const void *)device)->driver;
    struct xpu_allocation_facts facts = {.structure = XPU_STRUCTURE_ALLOCATION};
    TUTTI_TRY(
        xpu_result(device, driver->memory_facts(driver->context, pointer, &facts, NULL), "zeMemGetAllocProperties"));
    *out = facts.type == XPU_MEMORY_DEVICE || facts.type == XPU_MEMORY_SHARED ? facts.id : 0;
    return TUTTI_OK;
}

/* All memory of the context is reached by who reaches the device. */
static enum tutti_status reach_memory(struct tutti_device *device, const void *pointer, size_t bytes)
{
    (void)device, (void)pointer, (void)bytes;
    return TUTTI_OK;
}

/* As this process counts, -1: it does not see it. */
static int32_t ordinal_of(const struct xpu_driver *driver, const unsigned char uuid[16])
{
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        struct xpu_device_facts facts = {.structure = XPU_STRUCTURE_DEVICE};
        if (driver->device_facts(driver->devices[i], &facts) == XPU_RESULT_OK &&
            memcmp(facts.uuid, uuid, sizeof facts.uuid) == 0)
            return (int32_t)i;
    }
    return -1;
}

static bool may_reach(struct tutti_device *device, const unsigned char uuid[16])
{
    if (xpu_forked()) return false;
    const int32_t other = ordinal_of(xpu_calls(device), uuid);
    return other < 0 || tutti_xpu_reaches(device->ordinal, other);
}

static bool has_atomics(struct tutti_device *device, const unsigned char uuid[16])
{
    const struct xpu_driver *driver = xpu_calls(device);
    struct xpu_flags_desc link = {.structure = XPU_STRUCTURE_LINK};
    if (xpu_forked()) return true;
    const int32_t other = ordinal_of(driver, uuid);
    return other < 0 || other == device->ordinal ||
           driver->device_link(driver->devices[device->ordinal], driver->devices[other], &link) != XPU_RESULT_OK ||
           (link.flags & XPU_LINK_ATOMICS);
}

/* SYCL's queues are synchronized by their owners. */
static enum tutti_status sync_all(struct tutti_device *device)
{
    return xpu_streams_sync(xpu_of(device));
}

const struct tutti_gpu_ops xpu_gpu_ops = {
    .doubts_peers = true,
    .tile_threads = 512, /* no sub-group signals alone */
    .kernel = tutti_xpu_kernel,
    .launch = tutti_xpu_launch,
    .block_id = block_id,
    .reach_memory = reach_memory,
    .may_reach = may_reach,
    .has_atomics = has_atomics,
    .sync = sync_all,
};
