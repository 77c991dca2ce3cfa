/* SPDX-License-Identifier: BSD-3-Clause */

/* What SYCL's objects are in Level Zero: by the C++ symbols of the SYCL library that this process has loaded, which are
 * alike in libsycl.so.8 and .so.9; none of its headers is needed. Its objects are passed as pointers; what a function
 * returns by value (a shared_ptr, a vector) is written through a hidden pointer, which comes first. */

#include "base/symbols.h"
#include "device/level_zero/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define BACKEND_LEVEL_ZERO 2

struct shared { /* std::shared_ptr: a context, a platform */
    void *object, *count;
};
struct platforms { /* std::vector of platforms */
    struct shared *begin, *end, *capacity;
};

/* X(member, symbol, result, parameters) */
/* clang-format off */
#define SYCL_CALLS(X) \
    X(platforms, _ZN4sycl3_V18platform13get_platformsEv, void, (struct platforms *out)) \
    X(platform_backend, _ZNK4sycl3_V18platform11get_backendEv, char, (const struct shared *platform)) \
    X(platform_context, _ZNK4sycl3_V18platform30ext_oneapi_get_default_contextEv, void, (struct shared *out, const struct shared *platform)) \
    X(context_native, _ZNK4sycl3_V17context9getNativeEv, unsigned long, (const void *context)) \
    X(queue_backend, _ZNK4sycl3_V15queue11get_backendEv, char, (const void *queue)) \
    X(queue_context, _ZNK4sycl3_V15queue11get_contextEv, void, (struct shared *out, const void *queue)) \
    X(queue_native, _ZNK4sycl3_V15queue9getNativeERi, unsigned long, (const void *queue, int *desc))
/* clang-format on */

static struct {
#define MEMBER(member, symbol, result, parameters) result(*member) parameters;
    SYCL_CALLS(MEMBER)
#undef MEMBER
} sycl;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool found;

static bool calls_find(void *library)
{
    static const struct tutti_symbol calls[] = {
#define ROW(member, symbol, result, parameters) {#symbol, offsetof(__typeof__(sycl), member), true},
        SYCL_CALLS(ROW)
#undef ROW
    };
    return !tutti_symbols_find(library, calls, TUTTI_ARRAY_LEN(calls), &sycl);
}

/* The one that is loaded, whichever its number. */
static bool library_find(void)
{
    for (int version = 8; version <= 12; version++) {
        char name[32];
        snprintf(name, sizeof name, "libsycl.so.%d", version);
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        if (library && calls_find(library)) return true; /* stays open */
        if (library) dlclose(library);
    }
    return false;
}

bool xpu_sycl_loaded(void)
{
    if (atomic_load_explicit(&found, memory_order_acquire)) return true;
    pthread_mutex_lock(&lock);
    const bool now = atomic_load_explicit(&found, memory_order_relaxed) || library_find();
    atomic_store_explicit(&found, now, memory_order_release);
    pthread_mutex_unlock(&lock);
    return now;
}

bool tutti_xpu_has_sycl(void)
{
    return xpu_sycl_loaded();
}

/* The lists and shared pointers that SYCL gives us are kept: they live as long as the process. */
void *xpu_sycl_context(void)
{
    struct platforms all = {NULL, NULL, NULL};
    struct shared context = {NULL, NULL};
    if (!xpu_sycl_loaded()) return NULL;
    sycl.platforms(&all);
    for (const struct shared *each = all.begin; each != all.end; each++) {
        if (sycl.platform_backend(each) != BACKEND_LEVEL_ZERO) continue;
        sycl.platform_context(&context, each);
        return (void *)(uintptr_t)sycl.context_native(&context);
    }
    return NULL;
}

/* ---- queues ---- */

/* Whether the queue is of our context. That is asked once of a native handle, as far as these places go, since the
 * answer is a shared_ptr that stays counted. */
static bool of_context(const void *queue, const void *native, const void *context)
{
    static _Atomic(const void *) asked[256];
    _Atomic(const void *) *place = &asked[tutti_hash64(&native, sizeof native, 0) % TUTTI_ARRAY_LEN(asked)];
    struct shared held = {NULL, NULL};
    if (atomic_load_explicit(place, memory_order_relaxed) == native) return true;
    sycl.queue_context(&held, queue);
    const bool same = (const void *)(uintptr_t)sycl.context_native(&held) == context;
    if (same) atomic_store_explicit(place, native, memory_order_relaxed);
    return same;
}

enum tutti_status xpu_sycl_native(const void *queue, const void *context, enum tutti_native *kind, void **native)
{
    int desc = 0;
    if (!xpu_sycl_loaded())
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "%p is no stream of tutti's, and this process has no SYCL whose queue it could be", queue);
    if (sycl.queue_backend(queue) != BACKEND_LEVEL_ZERO)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the SYCL queue at %p is not Level Zero's", queue);
    void *handle = (void *)(uintptr_t)sycl.queue_native(queue, &desc);
    if (!of_context(queue, handle, context))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "the SYCL queue at %p is not of the default context of its platform, in which tutti works",
                          queue);
    *native = handle;
    *kind = desc ? TUTTI_NATIVE_LIST : TUTTI_NATIVE_QUEUE;
    return TUTTI_OK;
}
