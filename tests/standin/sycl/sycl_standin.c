/* SPDX-License-Identifier: BSD-3-Clause */
/* The few functions of a SYCL library by which tutti finds out what a queue is in Level Zero, under their C++ names. A
 * queue and a context of this library are what a test writes down (sycl_standin.h). */
#include "sycl_standin.h"

#include <stddef.h>

#define API __attribute__((visibility("default")))

struct shared {
    const void *object, *count;
};
struct platforms {
    struct shared *begin, *end, *capacity;
};

API struct sycl_standin_context sycl_standin_default; /* of the platform for Level Zero */
static struct shared all[2] = {{"OpenCL", NULL}, {"Level Zero", NULL}};

#define NAMED(symbol) __asm__(symbol)
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
