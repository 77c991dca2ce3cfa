/* SPDX-License-Identifier: BSD-3-Clause */
/* Intel GPUs as a device: those that this process has open, once each, with their kernels; and the table of functions.
 */

#include "device/level_zero/driver.h"

#include <stdio.h>
#include <string.h>

#define GROUPS_MOST 16 /* groups of queues */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpu *opened[XPU_DEVICES_MAX]; /* by ordinal; under the lock */

/* ---- opening ---- */

/* The group of queues that computes: the first one launches what waits for one another, too. */
static enum tutti_status group_find(struct xpu *xpu)
{
    struct xpu_group_facts all[GROUPS_MOST];
    uint32_t n = 0;
    int result = xpu->driver->device_groups(xpu->device, &n, NULL);
    if (n > GROUPS_MOST) n = GROUPS_MOST;
    memset(all, 0, sizeof all);
    for (uint32_t i = 0; i < n; i++) all[i].structure = XPU_STRUCTURE_QUEUE_GROUP;
    if (result == XPU_RESULT_OK) result = xpu->driver->device_groups(xpu->device, &n, all);
    TUTTI_TRY(xpu_result(&xpu->seen, result, "zeDeviceGetCommandQueueGroupProperties"));
    uint32_t first = 0;
    while (first < n && !(all[first].flags & XPU_GROUP_COMPUTE)) first++;
    if (first == n)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "XPU device %d (%s) has no queues that compute", xpu->seen.ordinal,
                          xpu->seen.name);
    xpu->group = first;
    return TUTTI_OK;
}

static enum tutti_status xpu_create(const struct xpu_driver *driver, int32_t ordinal, struct xpu **out)
{
    struct tutti_device_facts facts;
    struct xpu_device_facts own;
    struct xpu *xpu = tutti_alloc(sizeof *xpu);
    if (!xpu) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for XPU device %d", ordinal);
    xpu->driver = driver;
    xpu->device = driver->devices[ordinal];
    pthread_mutex_init(&xpu->launching, NULL);
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, xpu_facts_read(driver, ordinal, &own, &facts), err_xpu);
    xpu->seen = (struct tutti_device){.ops = &tutti_device_xpu,
                                      .ordinal = ordinal,
                                      .n_sms = facts.n_sms,
                                      .capability = facts.capability,
                                      .context = driver->context};
    memcpy(xpu->seen.name, facts.name, sizeof facts.name);
    memcpy(xpu->seen.uuid, facts.uuid, sizeof facts.uuid);
    xpu->max_alloc = own.max_alloc;
    xpu->timer_hz = own.timer_resolution ? own.timer_resolution : TUTTI_NS_PER_S;
    xpu->timer_bits = own.kernel_timestamp_bits ? own.kernel_timestamp_bits : 64;
    TUTTI_TRY_GOTO(status, group_find(xpu), err_xpu);
    struct xpu_module_facts modules = {.structure = XPU_STRUCTURE_MODULES};
    xpu->doubles =
        driver->device_modules(xpu->device, &modules) == XPU_RESULT_OK && (modules.flags & XPU_MODULES_DOUBLE);
    TUTTI_TRY_GOTO(status, xpu_kernels_load(xpu), err_xpu);
    TUTTI_TRY_GOTO(status, xpu_streams_open(xpu), err_xpu);
    *out = xpu;
    return TUTTI_OK;
err_xpu:
    xpu_kernels_unload(xpu);
    pthread_mutex_destroy(&xpu->launching);
    tutti_free(xpu);
    return status;
}

enum tutti_status tutti_xpu_open(int32_t ordinal, struct tutti_device **out)
{
    const struct xpu_driver *driver = NULL;
    TUTTI_TRY(xpu_driver_for(ordinal, &driver));
    pthread_mutex_lock(&lock);
    enum tutti_status status = TUTTI_OK;
    if (!opened[ordinal]) status = xpu_create(driver, ordinal, &opened[ordinal]);
    if (status == TUTTI_OK) *out = &opened[ordinal]->seen;
    pthread_mutex_unlock(&lock);
    return status;
}

void tutti_xpu_close(struct tutti_device *device)
{
    (void)device; /* it stays for the next: see xpu.h */
}

/* ---- the table ---- */

static void say_version(int version, char *out, size_t room)
{
    snprintf(out, room, "for Level Zero %d.%d", version / 1000, version % 1000);
}

static void say_units(const struct tutti_device_facts *facts, char *out, size_t room)
{
    snprintf(out, room, "PCI device %04x, %u Xe cores", facts->capability, facts->n_sms);
}

static const struct tutti_device_about about = {
    .maker = "Intel",
    .interface = "Level Zero",
    .get_driver = "Level Zero's loader (libze1) and Intel's driver (intel-opencl-icd or libze-intel-gpu1)",
    .get_open = "install a newer driver: intel-opencl-icd, libze-intel-gpu1",
    .get_kernels = "clang-15 and llvm-spirv-15",
    .without_kernels = "calls on memory of Intel GPUs go through the host",
    .uuid_prefix = "",
    .say_version = say_version,
    .say_units = say_units,
};

const struct tutti_device_ops tutti_device_xpu = {.name = "xpu",
                                                  .about = &about,
                                                  .gpu = &xpu_gpu_ops,
                                                  .handles_move = true, /* sycl::queue */
#define TUTTI_XPU_ROW(function) .function = tutti_xpu_##function,
                                                  TUTTI_GPU_JOBS,
                                                  TUTTI_XPU_TABLE(TUTTI_XPU_ROW)
#undef TUTTI_XPU_ROW
};

/* What devices are, without opening them, and who reaches whom. */

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
