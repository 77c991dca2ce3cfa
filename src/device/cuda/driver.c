/* SPDX-License-Identifier: BSD-3-Clause */

/* Finds CUDA's driver. It is opened when something first asks for a device, initialised once, and never closed: others
 * in this process may use it, too. Why there is none is kept as a sentence. */

#include "device/cuda/driver.h"
#include "base/symbols.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNOPENED, OPEN, ABSENT };

/* The process's one driver. What is beside the lock is written under it before `state` says so. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int state = UNOPENED;
static _Atomic bool forked;
static struct cuda_driver driver;
static char absence[512];

/* Only while the driver is in use: whoever forks before that has a child that may open it. */
static void on_fork(void)
{
    atomic_store_explicit(&forked, true, memory_order_relaxed);
}

bool cuda_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

static const char forked_text[] = "there is no CUDA after fork: the parent of this process has used the driver; start "
                                  "processes with exec (in Python: "
                                  "multiprocessing's start method spawn)";

enum tutti_status cuda_fail_forked(void)
{
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", forked_text);
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

static const char *library_name(void)
{
    const char *named = getenv("TUTTI_CUDA_DRIVER");
    return named && *named ? named : "libcuda.so.1";
}

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
    snprintf(absence, sizeof absence, "the CUDA driver does not start: %s", tutti_last_error()->text);
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
    snprintf(absence, sizeof absence, "the CUDA driver sees no device%s%s", visible ? "; CUDA_VISIBLE_DEVICES is " : "",
             visible ? (*visible ? visible : "empty") : "");
    return false;
}

static bool driver_start(void *library)
{
    const char *missing;
    int (*version)(int *) = NULL;
    void *symbol = dlsym(library, "cuDriverGetVersion");
    memcpy(&version, &symbol, sizeof symbol);
    if (version) version(&driver.version);
    if (driver.version > 0 && driver.version < CUDA_DRIVER_NEEDED) {
        snprintf(absence, sizeof absence, "the CUDA driver here is for CUDA %d.%d, and %d.%d or later is needed",
                 driver.version / 1000, driver.version % 1000 / 10, CUDA_DRIVER_NEEDED / 1000,
                 CUDA_DRIVER_NEEDED % 1000 / 10);
        return false;
    }
    if (!calls_find(library, &missing)) {
        snprintf(absence, sizeof absence, "%s is no CUDA driver of 12.0 or later: it has no %s", library_name(),
                 missing);
        return false;
    }
    driver.standin_kernels = dlsym(library, "tutti_standin_kernels");
    const int result = driver.init(0);
    if (result != CUDA_RESULT_OK && result != CUDA_RESULT_NO_DEVICE) return absence_from(result, "cuInit"), false;
    return devices_find(result);
}

/* Under the lock, the first time. */
static int driver_open(void)
{
    void *library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(absence, sizeof absence, "there is no CUDA driver here: %s", dlerror());
        return ABSENT;
    }
    if (!driver_start(library)) return ABSENT; /* stays open: what it registered can not be unloaded */
    pthread_atfork(NULL, NULL, on_fork);
    return OPEN;
}

static int driver_state(void)
{
    if (cuda_forked()) return ABSENT;
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now != UNOPENED) return now;
    pthread_mutex_lock(&lock);
    now = atomic_load_explicit(&state, memory_order_relaxed);
    if (now == UNOPENED) {
        now = driver_open();
        atomic_store_explicit(&state, now, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return now;
}

const struct cuda_driver *cuda_driver(void)
{
    return driver_state() == OPEN ? &driver : NULL;
}

/* Whether some part of this process has made a context: an initialised driver says which is current, if any. */
static bool used_by_others(void)
{
    static _Atomic uint64_t looked_ns;
    if (!tutti_device_look_due(&looked_ns)) return false;
    if (getenv("TUTTI_CUDA_DRIVER")) return true;
    void *library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) {
        tutti_device_looked(&looked_ns);
        return false;
    }
    int (*get)(void **) = NULL;
    void *symbol = dlsym(library, "cuCtxGetCurrent"), *context;
    memcpy(&get, &symbol, sizeof symbol);
    const bool used = get && get(&context) == CUDA_RESULT_OK;
    dlclose(library);
    return used;
}

const struct cuda_driver *cuda_driver_in_use(void)
{
    if (cuda_forked()) return NULL;
    const int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == OPEN) return &driver;
    return now == UNOPENED && used_by_others() ? cuda_driver() : NULL;
}

const char *tutti_cuda_absence(void)
{
    const int now = driver_state();
    return now == OPEN ? NULL : cuda_forked() ? forked_text : absence;
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
