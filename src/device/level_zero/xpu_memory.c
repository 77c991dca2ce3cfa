/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of devices, pinned memory of the host, and what a pointer is. */

#include "device/level_zero/driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- pointers ---- */

static int32_t ordinal_of(const struct xpu_driver *driver, void *device)
{
    void *root = NULL;
    for (uint32_t i = 0; i < driver->n_devices; i++)
        if (driver->devices[i] == device) return (int32_t)i;
    if (!device || !driver->device_root || driver->device_root(device, &root) != XPU_RESULT_OK || !root) return -1;
    return root == device ? -1 : ordinal_of(driver, root); /* for a part of a device */
}

int32_t tutti_xpu_of(const void *pointer)
{
    const struct xpu_driver *driver = xpu_driver_in_use();
    struct xpu_allocation_facts facts = {.structure = XPU_STRUCTURE_ALLOCATION};
    void *device = NULL;
    if (!driver || !pointer || driver->memory_facts(driver->context, pointer, &facts, &device) != XPU_RESULT_OK)
        return -1;
    return facts.type == XPU_MEMORY_DEVICE || facts.type == XPU_MEMORY_SHARED ? ordinal_of(driver, device) : -1;
}

enum tutti_status tutti_xpu_holds(struct tutti_device *device, const void *pointer, size_t bytes)
{
    const struct xpu_driver *driver = xpu_calls(device);
    void *base = NULL;
    size_t all = 0;
    if (tutti_xpu_of(pointer) >= 0) {
        const int result = driver->memory_range(driver->context, pointer, &base, &all);
        TUTTI_TRY(xpu_result(device, result, "zeMemGetAddressRange"));
        const size_t offset = (size_t)((uintptr_t)pointer - (uintptr_t)base);
        if (offset <= all && bytes <= all - offset) return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%p and its %zu bytes are not inside one allocation", pointer, bytes);
}

/* ---- allocation ---- */

/* With the bytes in the sentence. */
static enum tutti_status alloc_done(const struct tutti_device *device, int result, const char *call, size_t bytes)
{
    char text[64];
    snprintf(text, sizeof text, "%s of %zu bytes", call, bytes);
    return xpu_result(device, result, text);
}

enum tutti_status tutti_xpu_alloc(struct tutti_device *device, size_t bytes, void **out)
{
    const struct xpu *xpu = xpu_of(device);
    const struct xpu_flags_desc limits = {.structure = XPU_STRUCTURE_LIMITS, .flags = XPU_LIMITS_EXCEEDED};
    const struct xpu_device_memory_desc desc = {.structure = XPU_STRUCTURE_DEVICE_MEMORY,
                                                .next = bytes > xpu->max_alloc ? &limits : NULL};
    void *pointer = NULL;
    if (xpu_forked()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
    const int result =
        xpu->driver->memory_alloc(xpu->driver->context, &desc, bytes ? bytes : 1, 0, xpu->device, &pointer);
    TUTTI_TRY(alloc_done(device, result, "zeMemAllocDevice", bytes));
    *out = pointer;
    return TUTTI_OK;
}

/* All memory of the context has handles. */
enum tutti_status tutti_xpu_alloc_shared(struct tutti_device *device, enum tutti_device_share share, size_t bytes,
                                         void **out)
{
    (void)share;
    return tutti_xpu_alloc(device, bytes, out);
}

static _Atomic bool never_over; /* something that is enqueued */

void tutti_xpu_leave(struct tutti_device *device)
{
    if (!atomic_exchange(&never_over, true))
        tutti_log(TUTTI_LOG_WARN, "XPU device %d may never come to the end of what it has: memory is kept from now on",
                  (int)device->ordinal);
}

static void memory_free(struct tutti_device *device, void *pointer)
{
    static const struct xpu_flags_desc when_over = {.structure = XPU_STRUCTURE_FREE, .flags = XPU_FREE_BLOCKING};
    const struct xpu_driver *driver = xpu_calls(device);
    if (!pointer || xpu_forked() || atomic_load(&never_over)) return;
    if (driver->memory_free_when_over &&
        driver->memory_free_when_over(driver->context, &when_over, pointer) == XPU_RESULT_OK)
        return;
    xpu_result(device, driver->memory_free(driver->context, pointer), "zeMemFree");
}

void tutti_xpu_free(struct tutti_device *device, void *pointer)
{
    memory_free(device, pointer);
}

enum tutti_status tutti_xpu_alloc_host(struct tutti_device *device, size_t bytes, void **out)
{
    const struct xpu_driver *driver = xpu_calls(device);
    const struct xpu_flags_desc desc = {.structure = XPU_STRUCTURE_HOST_MEMORY};
    void *pointer = NULL;
    if (xpu_forked()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
    const int result = driver->host_alloc(driver->context, &desc, bytes ? bytes : 1, 0, &pointer);
    TUTTI_TRY(alloc_done(device, result, "zeMemAllocHost", bytes));
    memset(pointer, 0, bytes);
    *out = pointer;
    return TUTTI_OK;
}

void tutti_xpu_free_host(struct tutti_device *device, void *pointer)
{
    memory_free(device, pointer);
}

/* ---- copies ---- */

struct copy {
    void *dst;
    const void *src;
    size_t bytes;
    unsigned char value; /* a set's */
};

static int append_copy(const struct xpu_driver *driver, void *list, const void *job)
{
    const struct copy *copy = job;
    return driver->append_copy(list, copy->dst, copy->src, copy->bytes, NULL, 0, NULL);
}

static int append_set(const struct xpu_driver *driver, void *list, const void *job)
{
    const struct copy *copy = job;
    return driver->append_fill(list, copy->dst, &copy->value, 1, copy->bytes, NULL, 0, NULL);
}

enum tutti_status tutti_xpu_copy(struct tutti_device *device, void *dst, const void *src, size_t bytes, void *stream)
{
    const struct copy copy = {.dst = dst, .src = src, .bytes = bytes};
    const struct xpu_work work = {.append = append_copy, .job = &copy, .call = "zeCommandListAppendMemoryCopy"};
    return bytes ? xpu_enqueue(device, stream, &work) : TUTTI_OK;
}

/* On a stream of our own, so that nothing else is waited for. */
enum tutti_status tutti_xpu_copy_now(struct tutti_device *device, void *dst, const void *src, size_t bytes)
{
    const struct copy copy = {.dst = dst, .src = src, .bytes = bytes};
    const struct xpu_work work = {.append = append_copy, .job = &copy, .call = "zeCommandListAppendMemoryCopy"};
    return bytes ? xpu_carry_out(device, xpu_of(device)->now, &work) : TUTTI_OK;
}

enum tutti_status tutti_xpu_set(struct tutti_device *device, void *pointer, unsigned char value, size_t bytes)
{
    const struct copy set = {.dst = pointer, .bytes = bytes, .value = value};
    const struct xpu_work work = {.append = append_set, .job = &set, .call = "zeCommandListAppendMemoryFill"};
    return bytes ? xpu_carry_out(device, xpu_of(device)->now, &work) : TUTTI_OK;
}
