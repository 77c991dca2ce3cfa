/* SPDX-License-Identifier: BSD-3-Clause */
/* The few functions of a SYCL library by which tutti finds out what a queue is in Level Zero, under their C++ names. A
 * queue and a context of this library are what a test writes down (sycl_standin.h). And those by which `tutti prove`
 * makes a queue and copies on it, by the stand-in of Level Zero. TUTTI_STANDIN_SYCL_HOLDS=1: such a copy begins when
 * somebody waits for the queue. */
#include "sycl_standin.h"

#include "device/level_zero/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

struct shared {
    const void *object, *count;
};
struct platforms {
    struct shared *begin, *end, *capacity;
};

API struct sycl_standin_context sycl_standin_default; /* the platform for Level Zero has it */
static struct shared all[2] = {{"OpenCL", NULL}, {"Level Zero", NULL}};

#define NAMED(symbol) __asm__(symbol)

/* ---- the driver below ---- */
static struct {
    int (*init)(uint32_t flags);
    int (*driver_get)(uint32_t *n, void **drivers);
    int (*device_get)(void *driver, uint32_t *n, void **devices);
    int (*context_create)(void *driver, const struct xpu_flags_desc *desc, void **context);
    int (*list_create)(void *context, void *device, const struct xpu_queue_desc *desc, void **list);
    int (*append_barrier)(void *list, void *signal, uint32_t n_waits, void **waits);
    int (*append_copy)(void *list, void *dst, const void *src, size_t bytes, void *signal, uint32_t n, void **waits);
    int (*is_idle)(void *list);
} driver;

/* Its functions in the order above. */
static __typeof__(&driver) driver_opened(void)
{
    static const char *const names[] = {"zeInit",
                                        "zeDriverGet",
                                        "zeDeviceGet",
                                        "zeContextCreate",
                                        "zeCommandListCreateImmediate",
                                        "zeCommandListAppendBarrier",
                                        "zeCommandListAppendMemoryCopy",
                                        "standin_list_is_idle"};
    void *library = driver.init ? NULL : dlopen(getenv("TUTTI_LEVEL_ZERO_LIBRARY"), RTLD_NOW);
    for (size_t i = 0; library && i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(library, names[i]);
        memcpy((char *)&driver + i * sizeof found, &found, sizeof found);
    }
    if (!driver.init || !driver.is_idle) abort();
    return &driver;
}

static void *a_driver(void)
{
    void *found = NULL;
    uint32_t n = 1;
    driver_opened()->init(0);
    return driver.driver_get(&n, &found) == XPU_RESULT_OK && n ? found : NULL;
}

/* ---- platforms and contexts ---- */
API void get_platforms(struct platforms *out) NAMED("_ZN4sycl3_V18platform13get_platformsEv");
API void get_platforms(struct platforms *out)
{
    *out = (struct platforms){all, all + 2, all + 2};
}

API char platform_backend(const struct shared *platform) NAMED("_ZNK4sycl3_V18platform11get_backendEv");
API char platform_backend(const struct shared *platform)
{
    return platform == &all[1] ? SYCL_STANDIN_LEVEL_ZERO : SYCL_STANDIN_OPENCL;
}

API void platform_context(struct shared *out, const struct shared *platform)
    NAMED("_ZNK4sycl3_V18platform30ext_oneapi_get_default_contextEv");
API void platform_context(struct shared *out, const struct shared *platform)
{
    (void)platform;
    *out = (struct shared){&sycl_standin_default, NULL};
}

API unsigned long context_native(const struct shared *context) NAMED("_ZNK4sycl3_V17context9getNativeEv");
API unsigned long context_native(const struct shared *context)
{
    struct sycl_standin_context *of = (struct sycl_standin_context *)(uintptr_t)context->object;
    const struct xpu_flags_desc desc = {.structure = XPU_STRUCTURE_CONTEXT};
    if (of == &sycl_standin_default && !of->native) driver_opened()->context_create(a_driver(), &desc, &of->native);
    return (unsigned long)((const struct sycl_standin_context *)context->object)->native;
}

API char queue_backend(const struct sycl_standin_queue *queue) NAMED("_ZNK4sycl3_V15queue11get_backendEv");
API char queue_backend(const struct sycl_standin_queue *queue)
{
    return queue->backend;
}

API void queue_context(struct shared *out, const struct sycl_standin_queue *queue)
    NAMED("_ZNK4sycl3_V15queue11get_contextEv");
API void queue_context(struct shared *out, const struct sycl_standin_queue *queue)
{
    *out = (struct shared){queue->context, NULL};
}

API unsigned long queue_native(const struct sycl_standin_queue *queue, int *desc)
    NAMED("_ZNK4sycl3_V15queue9getNativeERi");
API unsigned long queue_native(const struct sycl_standin_queue *queue, int *desc)
{
    *desc = queue->immediate;
    return (unsigned long)queue->native;
}

/* ---- a queue of its own ---- */
enum { DEVICES_MOST = 8, HELD_MOST = 64 };
static void *devices[DEVICES_MOST];
static struct shared device_objects[DEVICES_MOST];
static struct held {
    const struct sycl_standin_queue *queue;
    void *dst;
    const void *src;
    size_t bytes;
} held[HELD_MOST];
static size_t n_held;

API void context_devices(struct platforms *out, const struct shared *context)
    NAMED("_ZNK4sycl3_V17context11get_devicesEv");
API void context_devices(struct platforms *out, const struct shared *context)
{
    uint32_t n = DEVICES_MOST;
    (void)context;
    if (driver_opened()->device_get(a_driver(), &n, devices) != XPU_RESULT_OK) n = 0;
    for (uint32_t i = 0; i < n; i++) device_objects[i].object = devices[i];
    *out = (struct platforms){device_objects, device_objects + n, device_objects + n};
}

API unsigned long device_native(const struct shared *device) NAMED("_ZNK4sycl3_V16device9getNativeEv");
API unsigned long device_native(const struct shared *device)
{
    return (unsigned long)device->object;
}

API void queue_make(struct sycl_standin_queue *out, const struct shared *context, const struct shared *device,
                    const void *properties)
    NAMED("_ZN4sycl3_V15queueC1ERKNS0_7contextERKNS0_6deviceERKNS0_13property_listE");
API void queue_make(struct sycl_standin_queue *out, const struct shared *context, const struct shared *device,
                    const void *properties)
{
    const struct xpu_queue_desc desc = {.structure = XPU_STRUCTURE_QUEUE, .mode = XPU_QUEUE_ASYNCHRONOUS};
    void *native = NULL;
    if (*(const uint64_t *)properties != 8) abort(); /* in order */
    if (driver_opened()->list_create((void *)context_native(context), (void *)(uintptr_t)device->object, &desc,
                                     &native) != XPU_RESULT_OK)
        abort();
    *out = (struct sycl_standin_queue){SYCL_STANDIN_LEVEL_ZERO, 1, native, context->object};
}

static void copy(const struct held *c)
{
    driver.append_barrier(c->queue->native, NULL, 0, NULL);
    driver.append_copy(c->queue->native, c->dst, c->src, c->bytes, NULL, 0, NULL);
    driver.append_barrier(c->queue->native, NULL, 0, NULL);
}

API void queue_copy(struct shared *event, const struct sycl_standin_queue *queue, void *dst, const void *src,
                    size_t bytes, const void *where)
    NAMED("_ZN4sycl3_V15queue6memcpyEPvPKvmRKNS0_6detail13code_locationE");
API void queue_copy(struct shared *event, const struct sycl_standin_queue *queue, void *dst, const void *src,
                    size_t bytes, const void *where)
{
    const struct held made = {queue, dst, src, bytes};
    const char *holds = getenv("TUTTI_STANDIN_SYCL_HOLDS");
    (void)where;
    *event = (struct shared){NULL, NULL};
    if (holds && *holds == '1' && n_held < HELD_MOST)
        held[n_held++] = made;
    else
        copy(&made);
}

API void queue_wait(const struct sycl_standin_queue *queue, const void *where)
    NAMED("_ZN4sycl3_V15queue10wait_proxyERKNS0_6detail13code_locationE");
API void queue_wait(const struct sycl_standin_queue *queue, const void *where)
{
    static const struct timespec nap = {0, 50000};
    (void)where;
    for (size_t i = 0; i < n_held; i++) copy(&held[i]);
    n_held = 0;
    while (!driver.is_idle(queue->native)) nanosleep(&nap, NULL);
}
