/* SPDX-License-Identifier: BSD-3-Clause */

/* Finds CUDA's driver. It is opened when something first asks for a device, initialised once, and never closed: others
 * in this process may use it, too. Why there is none is kept as a sentence. */

#include "device/cuda/driver.h"
#include "base/symbols.h"
#include "device/maker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool driver_start(struct tutti_maker *maker, void *library);
static bool has_context(void *library);
/* The process's one driver. */
static struct tutti_maker maker = {
    .name = "CUDA",
    .what = "CUDA driver",
    .variable = "TUTTI_CUDA_DRIVER",
    .file = "libcuda.so.1",
    .start = driver_start,
    .used = has_context,
    TUTTI_MAKER_INIT,
};
static struct cuda_driver driver;

bool cuda_forked(void)
{
    return tutti_maker_forked(&maker);
}

enum tutti_status cuda_fail_forked(void)
{
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_maker_absence(&maker));
}

enum tutti_status cuda_result(const struct tutti_device *gpu, int result, const char *call)
{
    if (result == CUDA_RESULT_OK) return TUTTI_OK;
    if (result == CUDA_RESULT_NOT_READY) return TUTTI_PENDING;
    const enum tutti_status status = result == CUDA_RESULT_OUT_OF_MEMORY ? TUTTI_ERR_MEMORY
                                     : result == CUDA_RESULT_PEER_ACCESS_UNSUPPORTED ||
                                             result == CUDA_RESULT_TOO_MANY_PEERS || result == CUDA_RESULT_NOT_SUPPORTED
                                         ? TUTTI_ERR_UNSUPPORTED
                                         : TUTTI_ERR_SYSTEM;
    const char *name = NULL, *text = NULL;
    if (driver.error_name(result, &name) != CUDA_RESULT_OK || !name) name = "an error that the driver has no name for";
    if (driver.error_string(result, &text) != CUDA_RESULT_OK || !text) text = "error";
    if (gpu)
        return tutti_fail(status, "%s on CUDA device %d (%s): %s (%s, %d)", call, gpu->ordinal, gpu->name, text, name,
                          result);
    return tutti_fail(status, "%s: %s (%s, %d)", call, text, name, result);
}

/* ---- opening ---- */

/* The functions by name; false: it has no *missing. */
static bool calls_find(void *library, const char **missing)
{
    static const struct tutti_symbol calls[] = {
#define ROW_NEEDED(member, symbol, parameters) {#symbol, offsetof(struct cuda_driver, member), true},
#define ROW_LATER(member, symbol, parameters) {#symbol, offsetof(struct cuda_driver, member), false},
        CUDA_DRIVER_CALLS(ROW_NEEDED, ROW_LATER)
#undef ROW_NEEDED
#undef ROW_LATER
    };
    *missing = tutti_symbols_find(library, calls, TUTTI_ARRAY_LEN(calls), &driver);
    if (*missing) return false;
    *missing = "cuStreamGetCaptureInfo";
    return (driver.capture_info || driver.capture_info_edges) && (driver.capture_update || driver.capture_update_edges);
}

/* The words for what init or another first call came back with. */
static void absence_from(int result, const char *call)
{
    cuda_result(NULL, result, call);
    snprintf(maker.absence, sizeof maker.absence, "the CUDA driver does not start: %s", tutti_last_error()->text);
}

/* init: what it came back with. Without a device it has not made the driver ready for questions. */
static bool devices_find(int init)
{
    int n = 0;
    const int result = init == CUDA_RESULT_OK ? driver.device_count(&n) : init;
    if (result != CUDA_RESULT_OK && result != CUDA_RESULT_NO_DEVICE)
        return absence_from(result, "cuDeviceGetCount"), false;
    driver.n_devices = result == CUDA_RESULT_OK && n > 0 ? (uint32_t)n : 0;
    if (driver.n_devices > 0) return true;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    snprintf(maker.absence, sizeof maker.absence, "the CUDA driver sees no device%s%s",
             visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? (*visible ? visible : "empty") : "");
    return false;
}

static bool driver_start(struct tutti_maker *started, void *library)
{
    (void)started;
    const char *missing;
    int (*version)(int *) = NULL;
    void *symbol = dlsym(library, "cuDriverGetVersion");
    memcpy(&version, &symbol, sizeof symbol);
    if (version) version(&driver.version);
    if (driver.version > 0 && driver.version < CUDA_DRIVER_NEEDED) {
        snprintf(maker.absence, sizeof maker.absence,
                 "the CUDA driver here is for CUDA %d.%d, and %d.%d or later is needed", driver.version / 1000,
                 driver.version % 1000 / 10, CUDA_DRIVER_NEEDED / 1000, CUDA_DRIVER_NEEDED % 1000 / 10);
        return false;
    }
    if (!calls_find(library, &missing)) {
        snprintf(maker.absence, sizeof maker.absence, "%s is no CUDA driver of 12.0 or later: it has no %s",
                 tutti_maker_file(&maker), missing);
        return false;
    }
    driver.standin_kernels = dlsym(library, "tutti_standin_kernels");
    const int result = driver.init(0);
    if (result != CUDA_RESULT_OK && result != CUDA_RESULT_NO_DEVICE) return absence_from(result, "cuInit"), false;
    return devices_find(result);
}

/* Whether some part of this process has made a context: an initialised driver says which is current, if any. */
static bool has_context(void *library)
{
    int (*get)(void **) = NULL;
    void *symbol = dlsym(library, "cuCtxGetCurrent"), *context;
    memcpy(&get, &symbol, sizeof symbol);
    return get && get(&context) == CUDA_RESULT_OK;
}

const struct cuda_driver *cuda_driver(void)
{
    return tutti_maker_open(&maker) ? &driver : NULL;
}

const struct cuda_driver *cuda_driver_in_use(void)
{
    return tutti_maker_in_use(&maker) ? &driver : NULL;
}

const char *tutti_cuda_absence(void)
{
    return tutti_maker_absence(&maker);
}

int tutti_cuda_driver_version(void)
{
    return cuda_driver() ? driver.version : 0;
}

uint32_t tutti_cuda_count(void)
{
    const struct cuda_driver *found = cuda_driver();
    return found ? found->n_devices : 0;
}
