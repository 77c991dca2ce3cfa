/* SPDX-License-Identifier: BSD-3-Clause */

/* Finds Level Zero: its loader, the first driver that has GPUs, and the context in which all is done. It is opened when
 * something first asks for a device, and never closed: others in this process may use it, too. Why there is none is
 * kept as a sentence. */

#include "device/level_zero/driver.h"
#include "base/symbols.h"
#include "device/maker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVERS_MOST 16

static bool driver_start(struct tutti_maker *maker, void *library);
/* The process's one driver. */
static struct tutti_maker maker = {
    .name = "Level Zero",
    .what = "Level Zero",
    .variable = "TUTTI_LEVEL_ZERO_LIBRARY",
    .file = "libze_loader.so.1",
    .start = driver_start,
    TUTTI_MAKER_INIT,
};
static struct xpu_driver driver;

bool xpu_forked(void)
{
    return tutti_maker_forked(&maker);
}

/* ---- results ---- */

static const struct {
    int result;
    enum tutti_status status;
    const char *text;
} results[] = {
    {XPU_RESULT_DEVICE_LOST, TUTTI_ERR_SYSTEM, "the device is lost"},
    {XPU_RESULT_OUT_OF_HOST_MEMORY, TUTTI_ERR_MEMORY, "out of host memory"},
    {XPU_RESULT_OUT_OF_DEVICE_MEMORY, TUTTI_ERR_MEMORY, "out of device memory"},
    {XPU_RESULT_MODULE_BUILD_FAILURE, TUTTI_ERR_UNSUPPORTED, "the module was not built"},
    {XPU_RESULT_INSUFFICIENT_PERMISSIONS, TUTTI_ERR_UNSUPPORTED, "insufficient permissions"},
    {XPU_RESULT_DEPENDENCY_UNAVAILABLE, TUTTI_ERR_UNSUPPORTED, "a library that the driver needs is not there"},
    {XPU_RESULT_UNINITIALIZED, TUTTI_ERR_UNSUPPORTED, "no driver was initialised"},
    {XPU_RESULT_UNSUPPORTED_VERSION, TUTTI_ERR_UNSUPPORTED, "unsupported version"},
    {XPU_RESULT_UNSUPPORTED_FEATURE, TUTTI_ERR_UNSUPPORTED, "unsupported feature"},
    {XPU_RESULT_INVALID_ARGUMENT, TUTTI_ERR_SYSTEM, "invalid argument"},
    {XPU_RESULT_INVALID_SIZE, TUTTI_ERR_SYSTEM, "invalid size"},
    {XPU_RESULT_UNSUPPORTED_SIZE, TUTTI_ERR_MEMORY, "unsupported size"},
    {XPU_RESULT_INVALID_NATIVE_BINARY, TUTTI_ERR_UNSUPPORTED, "invalid native binary"},
    {XPU_RESULT_UNKNOWN, TUTTI_ERR_SYSTEM, "an unknown error"},
};

enum tutti_status xpu_result(const struct tutti_device *device, int result, const char *call)
{
    if (result == XPU_RESULT_OK) return TUTTI_OK;
    if (result == XPU_RESULT_NOT_READY) return TUTTI_PENDING;
    enum tutti_status status = TUTTI_ERR_SYSTEM;
    const char *text = "an error of Level Zero";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(results); i++)
        if (results[i].result == result) status = results[i].status, text = results[i].text;
    if (device)
        return tutti_fail(status, "%s on XPU device %d (%s): %s (0x%x)", call, device->ordinal, device->name, text,
                          (unsigned)result);
    return tutti_fail(status, "%s: %s (0x%x)", call, text, (unsigned)result);
}

/* ---- opening ---- */

/* The functions by name; the one that is not there, NULL: all are. */
static const char *calls_find(void *library)
{
    static const struct tutti_symbol calls[] = {
#define ROW_NEEDED(member, symbol, parameters) {#symbol, offsetof(struct xpu_driver, member), true},
#define ROW_LATER(member, symbol, parameters) {#symbol, offsetof(struct xpu_driver, member), false},
        XPU_DRIVER_CALLS(ROW_NEEDED, ROW_LATER)
#undef ROW_NEEDED
#undef ROW_LATER
    };
    return tutti_symbols_find(library, calls, TUTTI_ARRAY_LEN(calls), &driver);
}

static bool absent(int result, const char *call)
{
    if (result == XPU_RESULT_UNINITIALIZED) {
        snprintf(maker.absence, sizeof maker.absence, "Level Zero's loader finds no driver for Intel GPUs (%s: 0x%x)",
                 call, (unsigned)result);
        return false;
    }
    xpu_result(NULL, result, call);
    snprintf(maker.absence, sizeof maker.absence, "Level Zero does not start: %s", tutti_last_error()->text);
    return false;
}

/* GPUs of a driver; how many. */
static uint32_t gpus_of(void *candidate)
{
    void *all[XPU_DEVICES_MAX];
    uint32_t n = 0, n_gpus = 0;
    if (driver.devices_list(candidate, &n, NULL) != XPU_RESULT_OK) return 0;
    if (n > XPU_DEVICES_MAX) n = XPU_DEVICES_MAX;
    if (n == 0 || driver.devices_list(candidate, &n, all) != XPU_RESULT_OK) return 0;
    for (uint32_t i = 0; i < n; i++) {
        struct xpu_device_facts facts = {.structure = XPU_STRUCTURE_DEVICE};
        if (driver.device_facts(all[i], &facts) == XPU_RESULT_OK && facts.type == XPU_DEVICE_GPU)
            driver.devices[n_gpus++] = all[i];
    }
    return n_gpus;
}

static bool devices_find(void)
{
    void *all[DRIVERS_MOST];
    uint32_t n = 0;
    int result = driver.drivers(&n, NULL);
    if (n > DRIVERS_MOST) n = DRIVERS_MOST;
    if (result == XPU_RESULT_OK && n > 0) result = driver.drivers(&n, all);
    if (result != XPU_RESULT_OK) return absent(result, "zeDriverGet");
    for (uint32_t i = 0; i < n && driver.n_devices == 0; i++) {
        driver.driver = all[i];
        driver.n_devices = gpus_of(all[i]);
    }
    if (driver.n_devices > 0) return true;
    const char *mask = getenv("ZE_AFFINITY_MASK");
    snprintf(maker.absence, sizeof maker.absence, "Level Zero sees no Intel GPU%s%s",
             mask ? "; ZE_AFFINITY_MASK is " : "", mask ? mask : "");
    return false;
}

static bool context_find(void)
{
    struct xpu_driver_facts facts = {.structure = XPU_STRUCTURE_DRIVER_PROPERTIES};
    const struct xpu_flags_desc desc = {.structure = XPU_STRUCTURE_CONTEXT};
    int version = 0;
    if (driver.driver_version(driver.driver, &version) == XPU_RESULT_OK)
        driver.version = (version >> 16) * 1000 + (version & 0xffff);
    if (driver.driver_facts(driver.driver, &facts) == XPU_RESULT_OK) driver.maker_version = facts.version;
    driver.context = xpu_sycl_context();
    if (driver.context) return true;
    const int result = driver.context_create(driver.driver, &desc, &driver.context);
    return result == XPU_RESULT_OK || absent(result, "zeContextCreate");
}

static bool driver_start(struct tutti_maker *started, void *library)
{
    (void)started;
    const char *missing = calls_find(library);
    if (missing) {
        snprintf(maker.absence, sizeof maker.absence, "%s is no loader of Level Zero 1.3 or later: it has no %s",
                 tutti_maker_file(&maker), missing);
        return false;
    }
    driver.standin_kernels = dlsym(library, "tutti_standin_kernels");
    const int result = driver.init(XPU_INIT_GPU_ONLY); /* after a failure nothing else may be called */
    return result == XPU_RESULT_OK ? devices_find() && context_find() : absent(result, "zeInit");
}

const struct xpu_driver *xpu_driver(void)
{
    return tutti_maker_open(&maker) ? &driver : NULL;
}

const struct xpu_driver *xpu_driver_in_use(void)
{
    return tutti_maker_in_use(&maker) ? &driver : NULL;
}

const char *tutti_xpu_absence(void)
{
    return tutti_maker_absence(&maker);
}

int tutti_xpu_driver_version(void)
{
    return xpu_driver() ? driver.version : 0;
}

uint32_t tutti_xpu_count(void)
{
    const struct xpu_driver *found = xpu_driver();
    return found ? found->n_devices : 0;
}

bool tutti_xpu_in_use(void)
{
    return xpu_driver_in_use() != NULL;
}
