/* SPDX-License-Identifier: BSD-3-Clause */

/* The part of Intel's devices, by the functions of Level Zero: a stream is an immediate command list, PyTorch's own
 * kernels are host functions in it, which only the stand-in has. This file plays SYCL, too, as far as libtutti and the
 * shim ask it (libsycl.so.8): a sycl::queue is a struct Queue. */

#include "driver.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace tuttidev
{
namespace
{

constexpr int not_ready = 1;
constexpr uint64_t for_ever = UINT64_MAX;

void *library()
{
    static void *found = [] {
        const char *named = std::getenv("TUTTI_LEVEL_ZERO_LIBRARY");
        void *opened = open_library(named && *named ? named : "libze_loader.so.1");
        auto *init = reinterpret_cast<int (*)(uint32_t)>(dlsym(opened, "zeInit"));
        if (int result = init(1)) stop("zeInit", result); /* 1: GPUs alone */
        return opened;
    }();
    return found;
}

template <typename... Arguments> int call(const char *name, Arguments... arguments)
{
    void *function = dlsym(library(), name);
    if (!function) stop(name, -1);
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

template <typename... Arguments> void must(const char *name, Arguments... arguments)
{
    if (int result = call(name, arguments...)) stop(name, result);
}

/* Descriptions as Level Zero has them: a number, a link to a further one, and what they say. */
struct ContextDescription {
    int structure = 0xd;
    const void *next = nullptr;
    uint32_t flags = 0;
};
struct MemoryDescription {
    int structure = 0x15;
    const void *next = nullptr;
    uint32_t flags = 0, memory = 0;
};
struct QueueDescription {
    int structure = 0xe;
    const void *next = nullptr;
    uint32_t group = 0, index = 0, flags = 0;
    int mode = 2, priority = 0; /* 2: asynchronous */
};
struct PoolDescription {
    int structure = 0x10;
    const void *next = nullptr;
    uint32_t flags = 5, n = 1; /* 1: the host sees them, 4: with times */
};
struct EventDescription {
    int structure = 0x11;
    const void *next = nullptr;
    uint32_t index = 0, signal_scope = 4, wait_scope = 4; /* 4: the host */
};
struct MemoryFacts {
    int structure = 0x17;
    const void *next = nullptr;
    int type = 0;
    uint64_t id = 0, page = 0;
};
struct Times {
    uint64_t start, end, context_start, context_end;
};

struct Driver {
    void *handle = nullptr, *context = nullptr;
    std::array<void *, n_devices> devices{};

    Driver()
    {
        const ContextDescription description;
        uint32_t n = 1;
        must("zeDriverGet", &n, &handle);
        n = n_devices;
        must("zeDeviceGet", handle, &n, devices.data());
        if (n < n_devices) stop("zeDeviceGet", int(n));
        must("zeContextCreate", handle, &description, &context);
    }
};

Driver &driver()
{
    static auto *the = new Driver;
    return *the;
}

struct Queue {
    void *list;
    bool recording;
};

Queue &queue_of(int device, int64_t stream)
{
    return *static_cast<Queue *>(handle_of(device, stream));
}

void append_barrier(const Queue &queue, void *signal, void *after)
{
    must("zeCommandListAppendBarrier", queue.list, signal, uint32_t(after != nullptr), after ? &after : nullptr);
}

void run(void *given)
{
    auto *work = static_cast<std::function<void()> *>(given);
    (*work)();
    delete work;
}

/* Behind a barrier; the one after it makes it what others come behind. */
void append_host(const Queue &queue, std::function<void()> work)
{
    must("standin_list_call", queue.list, &run, static_cast<void *>(new std::function<void()>(work)));
    append_barrier(queue, nullptr, nullptr);
}

} // namespace

/* ---- devices and memory ---- */

char *open_device(int device, size_t bytes)
{
    const MemoryDescription description;
    void *memory = nullptr;
    must("zeMemAllocDevice", driver().context, &description, bytes, size_t(4096), driver().devices.at(size_t(device)),
         &memory);
    return static_cast<char *>(memory);
}

void *open_stream(int device, int64_t)
{
    const QueueDescription description;
    auto *queue = new Queue{};
    must("zeCommandListCreateImmediate", driver().context, driver().devices.at(size_t(device)), &description,
         &queue->list);
    return queue;
}

void enter_device(int) {}

c10::DataPtr take_from_pool(size_t, int)
{
    return {}; /* it has none */
}

int owner_of(const void *address)
{
    MemoryFacts facts;
    void *device = nullptr;
    must("zeMemGetAllocProperties", driver().context, address, &facts, &device);
    for (int i = 0; i < n_devices; i++)
        if (device && driver().devices.at(size_t(i)) == device) return i;
    return -1;
}

/* ---- streams and events: an event lives as long as a command names it ---- */

Mark::~Mark()
{
    if (!event) return;
    must("zeEventDestroy", event);
    must("zeEventPoolDestroy", pool);
}

bool Mark::is_reached() const
{
    const int result = call("zeEventQueryStatus", event);
    if (result != 0 && result != not_ready) throw std::runtime_error("zeEventQueryStatus: " + std::to_string(result));
    return result == 0;
}

void Mark::wait() const
{
    must("zeEventHostSynchronize", event, for_ever);
}

/* Reads a clock of 12.5 MHz that counts to 2^32. */
double milliseconds_between(const Mark &from, const Mark &to)
{
    Times begin{}, end{};
    must("zeEventQueryKernelTimestamp", from.event, &begin);
    must("zeEventQueryKernelTimestamp", to.event, &end);
    return double(uint32_t(end.end - begin.end)) / 12500.0;
}

void enqueue(int device, int64_t stream, std::function<void()> work)
{
    append_host(queue_of(device, stream), std::move(work));
}

MarkPtr mark(int device, int64_t stream)
{
    const PoolDescription of_pool;
    const EventDescription of_event;
    const Queue &queue = queue_of(device, stream);
    auto point = std::make_shared<Mark>();
    must("zeEventPoolCreate", driver().context, &of_pool, uint32_t(0), static_cast<void **>(nullptr), &point->pool);
    must("zeEventCreate", point->pool, &of_event, &point->event);
    append_barrier(queue, point->event, nullptr);
    append_host(queue, [point] {});
    return point;
}

void wait_for(int device, int64_t stream, MarkPtr point)
{
    const Queue &queue = queue_of(device, stream);
    append_barrier(queue, nullptr, point->event);
    append_host(queue, [point] {});
}

void synchronize(int device, int64_t stream)
{
    mark(device, stream)->wait();
}

bool is_idle(int device, int64_t stream)
{
    return call("standin_list_is_idle", queue_of(device, stream).list) != 0;
}

/* ---- graphs: that a queue is being recorded can be said, and is all there is ---- */

void begin_capture(int64_t device, int64_t stream)
{
    queue_of(int(device), stream).recording = true;
}

int64_t end_capture(int64_t device, int64_t stream)
{
    queue_of(int(device), stream).recording = false;
    return 0;
}

void replay(int64_t, int64_t, int64_t)
{
    stop("there are no graphs", 0);
}

/* ---- SYCL: objects are held by a pointer and a count ---- */

namespace
{

struct Shared {
    void *object, *count;
};
struct Platforms {
    Shared *begin, *end, *capacity;
};
constexpr char level_zero = 2;

void get_platforms(Platforms *out)
{
    static Shared only{&driver(), nullptr};
    *out = {&only, &only + 1, &only + 1};
}

char backend_of(const void *)
{
    return level_zero;
}

void get_context(Shared *out, const void *)
{
    *out = {&driver(), nullptr};
}

unsigned long native_context(const void *)
{
    return reinterpret_cast<unsigned long>(driver().context);
}

unsigned long native_queue(const void *queue, int *description)
{
    *description = 1; /* an immediate list */
    return reinterpret_cast<unsigned long>(static_cast<const Queue *>(queue)->list);
}

int state_of(const void *queue)
{
    return static_cast<const Queue *>(queue)->recording;
}

} // namespace

void *native_of(const c10::Stream &stream)
{
    return stream_of(stream.device_index(), stream.id());
}

} // namespace tuttidev

/* By the names that the libraries have them under. */
#define EXPORT(name, symbol, result, parameters, value)                                                                \
    extern "C" __attribute__((visibility("default"))) result name parameters __asm__(symbol);                          \
    result name parameters                                                                                             \
    {                                                                                                                  \
        return tuttidev::value;                                                                                        \
    }
using tuttidev::Platforms;
using tuttidev::Shared;
EXPORT(sycl_platforms, "_ZN4sycl3_V18platform13get_platformsEv", void, (Platforms * out), get_platforms(out))
EXPORT(sycl_backend, "_ZNK4sycl3_V18platform11get_backendEv", char, (const void *platform), backend_of(platform))
EXPORT(sycl_default, "_ZNK4sycl3_V18platform30ext_oneapi_get_default_contextEv", void,
       (Shared * out, const void *platform), get_context(out, platform))
EXPORT(sycl_native_context, "_ZNK4sycl3_V17context9getNativeEv", unsigned long, (const void *context),
       native_context(context))
EXPORT(sycl_queue_backend, "_ZNK4sycl3_V15queue11get_backendEv", char, (const void *queue), backend_of(queue))
EXPORT(sycl_queue_context, "_ZNK4sycl3_V15queue11get_contextEv", void, (Shared * out, const void *queue),
       get_context(out, queue))
EXPORT(sycl_native_queue, "_ZNK4sycl3_V15queue9getNativeERi", unsigned long, (const void *queue, int *description),
       native_queue(queue, description))
EXPORT(sycl_state, "_ZNK4sycl3_V15queue20ext_oneapi_get_stateEv", int, (const void *queue), state_of(queue))
EXPORT(c10_queue, "_ZNK3c103xpu9XPUStream5queueEv", void *, (const c10::Stream *stream), native_of(*stream))
