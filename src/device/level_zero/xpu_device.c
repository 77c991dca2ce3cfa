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
                                                  TUTTI_XPU_TABLE(TUTTI_XPU_ROW)
#undef TUTTI_XPU_ROW
};
