/* SPDX-License-Identifier: BSD-3-Clause */

/* What devices are, without opening them, and who reaches whom. */

#include "device/level_zero/driver.h"

#include <stdio.h>
#include <string.h>

#define MEMORIES_MOST 8

enum tutti_status xpu_driver_for(int32_t ordinal, const struct xpu_driver **out)
{
    const struct xpu_driver *driver = xpu_driver();
    if (!driver) {
        tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
        return TUTTI_ERR_UNSUPPORTED;
    }
    if (ordinal < 0 || (uint32_t)ordinal >= driver->n_devices) {
        tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no XPU device %d: this process sees %u, from 0", ordinal,
                   driver->n_devices);
        return TUTTI_ERR_UNSUPPORTED;
    }
    *out = driver;
    return TUTTI_OK;
}

static size_t memory_bytes(const struct xpu_driver *driver, void *device)
{
    struct xpu_memory_facts all[MEMORIES_MOST];
    uint32_t n = 0;
    size_t bytes = 0;
    if (driver->device_memories(device, &n, NULL) != XPU_RESULT_OK) return 0;
    if (n > MEMORIES_MOST) n = MEMORIES_MOST;
    memset(all, 0, sizeof all);
    for (uint32_t i = 0; i < n; i++) all[i].structure = XPU_STRUCTURE_MEMORY;
    if (n == 0 || driver->device_memories(device, &n, all) != XPU_RESULT_OK) return 0;
    for (uint32_t i = 0; i < n; i++) bytes += (size_t)all[i].bytes;
    return bytes;
}

enum tutti_status xpu_facts_read(const struct xpu_driver *driver, int32_t ordinal, struct xpu_device_facts *own,
                                 struct tutti_device_facts *out)
{
    *own = (struct xpu_device_facts){.structure = XPU_STRUCTURE_DEVICE};
    TUTTI_TRY(xpu_result(NULL, driver->device_facts(driver->devices[ordinal], own), "zeDeviceGetProperties"));
    *out = (struct tutti_device_facts){.n_sms = own->slices * own->subslices_a_slice, .capability = own->device};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, own->name);
    memcpy(out->uuid, own->uuid, sizeof out->uuid);
    out->memory_bytes = memory_bytes(driver, driver->devices[ordinal]);
    return TUTTI_OK;
}

enum tutti_status tutti_xpu_facts(int32_t ordinal, struct tutti_device_facts *out)
{
    const struct xpu_driver *driver = NULL;
    struct xpu_device_facts own;
    TUTTI_TRY(xpu_driver_for(ordinal, &driver));
    return xpu_facts_read(driver, ordinal, &own, out);
}

/* Level Zero has no device that is current: where there is but one, that is it. */
int32_t tutti_xpu_current(void)
{
    const struct xpu_driver *driver = xpu_driver_in_use();
    return driver && driver->n_devices == 1 ? 0 : -1;
}

bool tutti_xpu_reaches(int32_t ordinal, int32_t other)
{
    const struct xpu_driver *driver = xpu_driver();
    unsigned char can = 0;
    if (!driver || (uint32_t)ordinal >= driver->n_devices || (uint32_t)other >= driver->n_devices) return false;
    return ordinal == other ||
           (driver->device_can_reach(driver->devices[ordinal], driver->devices[other], &can) == XPU_RESULT_OK && can);
}

/* Memory of a context is reached by all of its devices that can. */
enum tutti_status tutti_xpu_reach(struct tutti_device *device, struct tutti_device *other)
{
    if (tutti_xpu_reaches(device->ordinal, other->ordinal)) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "XPU device %d (%s) does not reach the memory of device %d (%s)",
                      device->ordinal, device->name, other->ordinal, other->name);
}
