/* SPDX-License-Identifier: BSD-3-Clause */
/* One driver, its devices and contexts. The environment makes other machines of it:
 *   TUTTI_STANDIN_XPU_DEVICES=2   how many devices (0: zeInit finds no driver)
 *   TUTTI_STANDIN_XPU_PEERS=0     none reaches the memory of another
 *   TUTTI_STANDIN_XPU_WRONG=1     memory that comes from another process is not what is there
 *   TUTTI_STANDIN_XPU_WRONG=2     nor is, for kernels, memory of other devices and processes
 *   TUTTI_STANDIN_XPU_WRONG=3     more than a page that is copied to or from another device or process has a wrong byte
 *   TUTTI_STANDIN_XPU_WRONG=4     kernels do nothing
 *   TUTTI_STANDIN_XPU_BARRIERS=0  do not keep commands of a list in order
 *   TUTTI_STANDIN_XPU_DOUBLES=0   none has float64
 *   TUTTI_STANDIN_XPU_IPC=0       memory has no handles
 *   TUTTI_STANDIN_XPU_ROOM=2      so many groups of a launch run at once
 *   TUTTI_STANDIN_XPU_FAILS=zeMemAllocDevice:3:0x70000003   that call of the function, which counts from 1, has that
 * result */
#include "standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MOST 8

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_changed = PTHREAD_COND_INITIALIZER;
static struct standin_device devices[DEVICES_MOST];
static char the_driver, a_context;
/* The library passes it as a module. */
API const char tutti_standin_kernels[] = "the kernels of the stand-in";

long standin_setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}

int standin_fails(const char *function)
{
    static _Atomic long n_calls;
    const char *wanted = getenv("TUTTI_STANDIN_XPU_FAILS");
    const size_t n = strlen(function);
    char *end;
    if (!wanted || strncmp(wanted, function, n) != 0 || wanted[n] != ':') return 0;
    const long call = strtol(wanted + n + 1, &end, 10);
    return ++n_calls == call && *end == ':' ? (int)strtol(end + 1, NULL, 0) : 0;
}

void standin_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("standin of Level Zero: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

static uint32_t n_devices(void)
{
    const long n = standin_setting("TUTTI_STANDIN_XPU_DEVICES", 2);
    return n < 0 ? 0 : n > DEVICES_MOST ? DEVICES_MOST : (uint32_t)n;
}

bool standin_is_device(const void *device)
{
    for (uint32_t i = 0; i < n_devices(); i++)
        if (device == &devices[i]) return true;
    return false;
}

/* How many go into an array, as all such calls have it: asked with 0, the count alone is told. */
static bool counts(uint32_t *n, uint32_t there, const void *array)
{
    const bool asked = *n == 0 || !array;
    if (asked || *n > there) *n = there;
    return !asked;
}

API int zeInit(uint32_t flags)
{
    STANDIN_MAY_FAIL();
    if (flags & ~1u) return XPU_RESULT_INVALID_ARGUMENT;
    return n_devices() ? XPU_RESULT_OK : XPU_RESULT_UNINITIALIZED;
}

API int zeDriverGet(uint32_t *n, void **drivers)
{
    if (counts(n, 1, drivers)) drivers[0] = &the_driver;
    return XPU_RESULT_OK;
}

API int zeDriverGetApiVersion(void *driver, int *version)
{
    *version = 1 << 16 | 4;
    return driver == &the_driver ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

API int zeDriverGetProperties(void *driver, struct xpu_driver_facts *facts)
{
    if (driver != &the_driver || facts->structure != XPU_STRUCTURE_DRIVER_PROPERTIES)
        return XPU_RESULT_INVALID_ARGUMENT;
    facts->version = 7;
    return XPU_RESULT_OK;
}

API int zeDeviceGet(void *driver, uint32_t *n, void **out)
{
    if (driver != &the_driver) return XPU_RESULT_INVALID_ARGUMENT;
    if (counts(n, n_devices(), out))
        for (uint32_t i = 0; i < *n; i++) {
            devices[i].ordinal = (int32_t)i;
            out[i] = &devices[i];
        }
    return XPU_RESULT_OK;
}

API int zeDeviceGetProperties(void *device, struct xpu_device_facts *facts)
{
    STANDIN_MAY_FAIL();
    if (!standin_is_device(device) || facts->structure != XPU_STRUCTURE_DEVICE) return XPU_RESULT_INVALID_ARGUMENT;
    const int32_t ordinal = ((struct standin_device *)device)->ordinal;
    *facts = (struct xpu_device_facts){.structure = facts->structure,
                                       .type = XPU_DEVICE_GPU,
                                       .vendor = 0x8086,
                                       .device = 0xbd5,
                                       .max_alloc = UINT64_C(4) << 30,
                                       .simd_width = 16,
                                       .subslices_a_slice = STANDIN_UNITS,
                                       .slices = 1,
                                       .timer_resolution = STANDIN_TIMER_HZ,
                                       .timestamp_bits = STANDIN_TIMER_BITS,
                                       .kernel_timestamp_bits = STANDIN_TIMER_BITS,
                                       .uuid = {0x86, 0x80, 0xd5, 0x0b, (unsigned char)ordinal}};
    snprintf(facts->name, sizeof facts->name, "stand-in of an Intel GPU");
    return XPU_RESULT_OK;
}

API int zeDeviceGetMemoryProperties(void *device, uint32_t *n, struct xpu_memory_facts *facts)
{
    if (!standin_is_device(device)) return XPU_RESULT_INVALID_ARGUMENT;
    if (!counts(n, 1, facts)) return XPU_RESULT_OK;
    if (facts->structure != XPU_STRUCTURE_MEMORY) return XPU_RESULT_INVALID_ARGUMENT;
    facts->bytes = UINT64_C(16) << 30;
    return XPU_RESULT_OK;
}

/* As Intel's driver has it: what computes is first, then engines that copy. */
API int zeDeviceGetCommandQueueGroupProperties(void *device, uint32_t *n, struct xpu_group_facts *facts)
{
    static const uint32_t flags[] = {7, 2};
    if (!standin_is_device(device)) return XPU_RESULT_INVALID_ARGUMENT;
    if (!counts(n, TUTTI_ARRAY_LEN(flags), facts)) return XPU_RESULT_OK;
    for (uint32_t i = 0; i < *n; i++) {
        if (facts[i].structure != XPU_STRUCTURE_QUEUE_GROUP) return XPU_RESULT_INVALID_ARGUMENT;
        facts[i].flags = flags[i], facts[i].n_queues = 1, facts[i].max_pattern = 16;
    }
    return XPU_RESULT_OK;
}

API int zeDeviceGetModuleProperties(void *device, struct xpu_module_facts *facts)
{
    if (!standin_is_device(device) || facts->structure != XPU_STRUCTURE_MODULES) return XPU_RESULT_INVALID_ARGUMENT;
    facts->flags = standin_setting("TUTTI_STANDIN_XPU_DOUBLES", 1) ? XPU_MODULES_DOUBLE : 0;
    facts->max_arguments = XPU_PARAMETER_MOST;
    return XPU_RESULT_OK;
}

API int zeDeviceGetP2PProperties(void *device, void *other, struct xpu_flags_desc *facts)
{
    if (!standin_is_device(device) || !standin_is_device(other) || facts->structure != XPU_STRUCTURE_LINK)
        return XPU_RESULT_INVALID_ARGUMENT;
    facts->flags = standin_setting("TUTTI_STANDIN_XPU_PEERS", 1) ? 1 | XPU_LINK_ATOMICS : 0;
    return XPU_RESULT_OK;
}

API int zeDeviceCanAccessPeer(void *device, void *other, unsigned char *can)
{
    if (!standin_is_device(device) || !standin_is_device(other)) return XPU_RESULT_INVALID_ARGUMENT;
    *can = device == other || standin_setting("TUTTI_STANDIN_XPU_PEERS", 1) != 0;
    return XPU_RESULT_OK;
}

API int zeDeviceGetStatus(void *device)
{
    STANDIN_MAY_FAIL();
    return standin_is_device(device) ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

API int zeContextCreate(void *driver, const struct xpu_flags_desc *desc, void **context)
{
    STANDIN_MAY_FAIL();
    if (driver != &the_driver || desc->structure != XPU_STRUCTURE_CONTEXT || desc->next)
        return XPU_RESULT_INVALID_ARGUMENT;
    *context = &a_context;
    return XPU_RESULT_OK;
}
