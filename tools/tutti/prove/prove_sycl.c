/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue of SYCL's, as programs make one, without its headers: by C++ symbols that are alike in libsycl.so.8 and
 * .so.9, called as device/level_zero/sycl.c does. What it throws ends the process, which is said of the point. */
#include "prove.h"

#include "base/symbols.h"
#include "device/level_zero/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define BACKEND_LEVEL_ZERO 2
#define IN_ORDER 8 /* a bit of the properties of a queue */

struct shared { /* std::shared_ptr: a platform, a context, an event */
    void *object, *count;
};
struct platforms { /* std::vector of them */
    struct shared *begin, *end, *capacity;
};
struct devices { /* std::vector of objects whose size is the library's matter: a shared_ptr, from .so.9 on a pointer */
    char *begin, *end, *capacity;
};
struct properties {
    uint64_t flags;
    void *with_values[3];
};

/* X(member, symbol, result, parameters) */
/* clang-format off */
#define SYCL_CALLS(X) \
    X(platforms, _ZN4sycl3_V18platform13get_platformsEv, void, (struct platforms *out)) \
    X(platform_backend, _ZNK4sycl3_V18platform11get_backendEv, char, (const struct shared *platform)) \
    X(platform_context, _ZNK4sycl3_V18platform30ext_oneapi_get_default_contextEv, void, (struct shared *out, const struct shared *platform)) \
    X(context_devices, _ZNK4sycl3_V17context11get_devicesEv, void, (struct devices *out, const struct shared *context)) \
    X(device_native, _ZNK4sycl3_V16device9getNativeEv, unsigned long, (const void *device)) \
    X(queue_make, _ZN4sycl3_V15queueC1ERKNS0_7contextERKNS0_6deviceERKNS0_13property_listE, void, (void *out, const struct shared *context, const void *device, const struct properties *properties)) \
    X(queue_copy, _ZN4sycl3_V15queue6memcpyEPvPKvmRKNS0_6detail13code_locationE, void, (struct shared *event, void *queue, void *dst, const void *src, size_t bytes, const void *where)) \
    X(queue_wait, _ZN4sycl3_V15queue10wait_proxyERKNS0_6detail13code_locationE, void, (void *queue, const void *where))
/* clang-format on */

static struct {
#define MEMBER(member, symbol, result, parameters) result(*member) parameters;
    SYCL_CALLS(MEMBER)
#undef MEMBER
} sycl;
static size_t device_bytes;
static const char nowhere[64]; /* a place in the sources that is not told */

bool prove_sycl_load(void)
{
    static const struct tutti_symbol calls[] = {
#define ROW(member, symbol, result, parameters) {#symbol, offsetof(__typeof__(sycl), member), true},
        SYCL_CALLS(ROW)
#undef ROW
    };
    for (int version = 12; version >= 8; version--) {
        char name[32];
        snprintf(name, sizeof name, "libsycl.so.%d", version);
        void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
        if (!library || tutti_symbols_find(library, calls, TUTTI_ARRAY_LEN(calls), &sycl)) continue;
        device_bytes = version >= 9 ? sizeof(void *) : sizeof(struct shared);
        return true;
    }
    tutti_fail(TUTTI_ERR_UNSUPPORTED, "no SYCL library is found (libsycl.so.8 or later, which has the symbols of SYCL "
                                      "2025 and 2026): name its folder in LD_LIBRARY_PATH");
    return false;
}

/* What SYCL gives us is kept. */
enum tutti_status prove_queue_open(const struct tutti_device *device, struct prove_queue *out)
{
    const struct properties in_order = {.flags = IN_ORDER};
    const struct xpu_driver *driver = xpu_driver();
    struct platforms platforms = {NULL, NULL, NULL};
    struct devices devices = {NULL, NULL, NULL};
    struct shared context = {NULL, NULL};
    sycl.platforms(&platforms);
    const struct shared *each = platforms.begin;
    while (each != platforms.end && sycl.platform_backend(each) != BACKEND_LEVEL_ZERO) each++;
    if (each == platforms.end) return prove_wrong("SYCL has no platform for Level Zero");
    sycl.platform_context(&context, each);
    sycl.context_devices(&devices, &context);
    const char *of_sycl = devices.begin;
    while (of_sycl < devices.end && (void *)(uintptr_t)sycl.device_native(of_sycl) != driver->devices[device->ordinal])
        of_sycl += device_bytes;
    if (of_sycl >= devices.end) return prove_wrong("SYCL's default context does not have the device");
    sycl.queue_make(out->room, &context, of_sycl, &in_order);
    return TUTTI_OK;
}

void prove_queue_copy(struct prove_queue *queue, void *dst, const void *src, size_t bytes)
{
    struct shared event;
    sycl.queue_copy(&event, queue->room, dst, src, bytes, nowhere);
}

void prove_queue_wait(struct prove_queue *queue)
{
    sycl.queue_wait(queue->room, nowhere);
}

/* ---- whether its commands and ours are in one order ---- */

static enum tutti_status one_order(const struct prove_bed *bed, struct prove_queue *queue, uint64_t turn)
{
    unsigned char *middle = bed->at + PROVE_BYTES, *back = bed->host + PROVE_BYTES;
    prove_fill(bed->host, turn);
    memset(back, 0, PROVE_BYTES);
    prove_queue_copy(queue, bed->at, bed->host, PROVE_BYTES);
    TUTTI_TRY(prove_move(bed, turn % 5 == 4, middle, bed->at, queue));
    prove_queue_copy(queue, back, middle, PROVE_BYTES);
    prove_queue_wait(queue);
    if (memcmp(bed->host, back, PROVE_BYTES) == 0) return TUTTI_OK;
    TUTTI_TRY(bed->ops->stream_sync(bed->device, bed->stream));
    TUTTI_TRY(bed->ops->copy_now(bed->device, back, middle, PROVE_BYTES));
    const bool after = memcmp(bed->host, back, PROVE_BYTES) == 0;
    return tutti_fail(TUTTI_ERR_INTERNAL, "%s of tutti's %s what SYCL had put %s it on the queue",
                      turn % 5 == 4 ? "a kernel" : "a copy", after ? "came behind" : "came before",
                      after ? "behind" : "ahead of");
}

static enum tutti_status order_on_queue(const struct prove_bed *bed)
{
    struct prove_queue queue;
    TUTTI_TRY(prove_queue_open(bed->device, &queue));
    for (uint64_t turn = 0; turn < 50; turn++) TUTTI_TRY(one_order(bed, &queue, turn));
    return TUTTI_OK;
}

enum tutti_status prove_queue_order(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    snprintf(out->text, sizeof out->text, "50 times SYCL's copy, tutti's copy or kernel, SYCL's copy");
    return prove_on_bed(kind, order_on_queue);
}
