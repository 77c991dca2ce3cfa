/* SPDX-License-Identifier: BSD-3-Clause */

/* Devices of this process: their contexts and facts, and who reaches whom. */

#include "device/cuda/driver.h"

#include <pthread.h>
#include <string.h>

/* Contexts of devices, which are the process's, like the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void cuda_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cuda_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- contexts ---- */

enum tutti_status tutti_cuda_enter(struct tutti_device *gpu, struct tutti_device_scope *scope)
{
    scope->changed = false;
    if (__builtin_expect(cuda_forked(), 0)) return cuda_fail_forked();
    int result = cuda_calls(gpu)->context_get(&scope->before);
    if (result == CUDA_RESULT_OK && scope->before == gpu->context) return TUTTI_OK;
    if (result == CUDA_RESULT_OK) result = cuda_calls(gpu)->context_set(gpu->context);
    scope->changed = result == CUDA_RESULT_OK;
    return cuda_result(gpu, result, "cuCtxSetCurrent");
}

void tutti_cuda_leave(const struct tutti_device_scope *scope)
{
    if (!scope->changed) return;
    const struct cuda_driver *driver = cuda_driver();
    if (driver) driver->context_set(scope->before);
}

enum tutti_status cuda_aside_enter(struct tutti_device *gpu, struct cuda_aside *aside)
{
    TUTTI_TRY(tutti_cuda_enter(gpu, &aside->scope));
    aside->mode = CUDA_CAPTURE_MODE_RELAXED;
    const int result = cuda_calls(gpu)->capture_mode(&aside->mode); /* it is exchanged */
    if (result == CUDA_RESULT_OK) return TUTTI_OK;
    return cuda_done(gpu, &aside->scope, result, "cuThreadExchangeStreamCaptureMode");
}

enum tutti_status cuda_aside_done(const struct tutti_device *gpu, struct cuda_aside *aside, int result,
                                  const char *call)
{
    cuda_calls(gpu)->capture_mode(&aside->mode);
    return cuda_done(gpu, &aside->scope, result, call);
}

void cuda_destroy(struct tutti_device *gpu, int (*destroy)(void *), void *what, const char *call)
{
    struct cuda_aside aside;
    if (cuda_aside_enter(gpu, &aside) == TUTTI_OK) cuda_aside_done(gpu, &aside, destroy(what), call);
}

bool tutti_cuda_in_use(void)
{
    return cuda_driver_in_use() != NULL;
}

int32_t tutti_cuda_current(void)
{
    const struct cuda_driver *driver = cuda_driver_in_use();
    int device;
    void *context = NULL;
    if (!driver || driver->context_get(&context) != CUDA_RESULT_OK || !context) return -1;
    return driver->context_device(&device) == CUDA_RESULT_OK ? device : -1;
}

/* ---- facts ---- */

enum tutti_status cuda_facts_read(const struct cuda_driver *driver, int device, struct tutti_device_facts *out)
{
    struct cuda_uuid uuid;
    int major = 0, minor = 0, n_sms = 0, result;
    if ((result = driver->device_name(out->name, sizeof out->name, device)) != CUDA_RESULT_OK ||
        (result = driver->device_uuid(&uuid, device)) != CUDA_RESULT_OK ||
        (result = driver->device_memory(&out->memory_bytes, device)) != CUDA_RESULT_OK ||
        (result = driver->device_attribute(&n_sms, CUDA_DEVICE_N_SMS, device)) != CUDA_RESULT_OK ||
        (result = driver->device_attribute(&major, CUDA_DEVICE_CAPABILITY_MAJOR, device)) != CUDA_RESULT_OK ||
        (result = driver->device_attribute(&minor, CUDA_DEVICE_CAPABILITY_MINOR, device)) != CUDA_RESULT_OK)
        return cuda_result(NULL, result, "cuDeviceGetAttribute");
    memcpy(out->uuid, uuid.bytes, sizeof out->uuid);
    out->n_sms = (uint32_t)n_sms;
    out->capability = (uint32_t)(major * 10 + minor);
    return TUTTI_OK;
}

/* The driver, if it has the device. */
enum tutti_status cuda_driver_for(int32_t ordinal, const struct cuda_driver **out)
{
    const struct cuda_driver *driver = cuda_driver();
    if (!driver) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_cuda_absence());
    const uint32_t n = driver->n_devices < CUDA_GPUS_MAX ? driver->n_devices : CUDA_GPUS_MAX;
    if (ordinal < 0 || (uint32_t)ordinal >= n)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no CUDA device %d: this process sees %u, from 0", ordinal,
                          n);
    *out = driver;
    return TUTTI_OK;
}

enum tutti_status tutti_cuda_facts(int32_t ordinal, struct tutti_device_facts *out)
{
    const struct cuda_driver *driver = NULL;
    TUTTI_TRY(cuda_driver_for(ordinal, &driver));
    return cuda_facts_read(driver, ordinal, out);
}

/* ---- peers ---- */

bool tutti_cuda_reaches(int32_t ordinal, int32_t other)
{
    const struct cuda_driver *driver = cuda_driver();
    int can = 0;
    return driver && (ordinal == other || (driver->device_can_reach(&can, ordinal, other) == CUDA_RESULT_OK && can));
}

enum tutti_status tutti_cuda_reach(struct tutti_device *gpu, struct tutti_device *other)
{
    if (gpu == other) return TUTTI_OK;
    struct cuda_aside aside;
    if (!tutti_cuda_reaches(gpu->ordinal, other->ordinal))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "CUDA device %d (%s) does not reach the memory of device %d (%s)",
                          gpu->ordinal, gpu->name, other->ordinal, other->name);
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->context_reach(other->context, 0);
    const bool there = result == CUDA_RESULT_PEER_ACCESS_ALREADY_ENABLED;
    return cuda_aside_done(gpu, &aside, there ? CUDA_RESULT_OK : result, "cuCtxEnablePeerAccess");
}

/* As this process counts, -1: it does not see it. */
static int32_t ordinal_of(const struct cuda_driver *driver, const unsigned char uuid[16])
{
    struct cuda_uuid other;
    for (int32_t i = 0; i < (int32_t)driver->n_devices; i++)
        if (driver->device_uuid(&other, i) == CUDA_RESULT_OK && memcmp(other.bytes, uuid, sizeof other.bytes) == 0)
            return i;
    return -1;
}

bool tutti_cuda_may_reach(struct tutti_device *gpu, const unsigned char uuid[16])
{
    if (cuda_forked()) return false;
    const int32_t other = ordinal_of(cuda_calls(gpu), uuid);
    return other < 0 || tutti_cuda_reaches(gpu->ordinal, other);
}

bool tutti_cuda_has_atomics(struct tutti_device *gpu, const unsigned char uuid[16])
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    if (cuda_forked() || !driver->device_link) return true;
    const int32_t other = ordinal_of(driver, uuid);
    int has = 0;
    return other < 0 || other == gpu->ordinal ||
           driver->device_link(&has, CUDA_LINK_HAS_ATOMICS, gpu->ordinal, other) != CUDA_RESULT_OK || has;
}
