/* SPDX-License-Identifier: BSD-3-Clause */

/* CUDA's part, by the functions of its driver: streams, events and graphs. PyTorch's own kernels are host functions. */

#include "driver.hpp"

#include <array>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace tuttidev
{
namespace
{

constexpr int not_ready = 600;

/* The stand-in's functions, by the driver's names; there is a context for whoever calls. */
void *library()
{
    static void *found = [] {
        void *opened = open_library("libcuda.so.1");
        auto *init = reinterpret_cast<int (*)(unsigned)>(dlsym(opened, "cuInit"));
        if (int result = init(0)) stop("cuInit", result);
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

std::array<void *, n_devices> contexts{};

void run(void *work)
{
    (*static_cast<std::function<void()> *>(work))();
}

} // namespace

char *open_device(int device, size_t bytes)
{
    char *memory = nullptr;
    must("cuDevicePrimaryCtxRetain", &contexts[size_t(device)], device);
    enter_device(device);
    must("cuMemAlloc_v2", reinterpret_cast<unsigned long long *>(&memory), bytes);
    return memory;
}

void *open_stream(int device, int64_t stream)
{
    void *made = nullptr;
    enter_device(device);
    if (stream > 0) must("cuStreamCreate", &made, 1U); /* 1: does not wait for the default stream */
    return made;
}

void enter_device(int device)
{
    must("cuCtxSetCurrent", contexts.at(size_t(device)));
}

int owner_of(const void *address)
{
    constexpr int ordinal = 9; /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
    int device = -1;
    const auto pointer = reinterpret_cast<unsigned long long>(address);
    return call("cuPointerGetAttribute", static_cast<void *>(&device), ordinal, pointer) == 0 ? device : -1;
}

Mark::~Mark()
{
    if (event) call("cuEventDestroy_v2", event);
}

bool Mark::is_reached() const
{
    const int result = call("cuEventQuery", event);
    if (result != 0 && result != not_ready) throw std::runtime_error("cuEventQuery: " + std::to_string(result));
    return result == 0;
}

void Mark::wait() const
{
    must("cuEventSynchronize", event);
}

double milliseconds_between(const Mark &from, const Mark &to)
{
    float milliseconds = 0;
    must("cuEventElapsedTime", &milliseconds, from.event, to.event);
    return double(milliseconds);
}

/* Kept for good: a graph may run it again. */
void enqueue(int device, int64_t stream, std::function<void()> work)
{
    must("cuLaunchHostFunc", handle_of(device, stream), &run, static_cast<void *>(new std::function<void()>(work)));
}

MarkPtr mark(int device, int64_t stream)
{
    void *on = handle_of(device, stream);
    auto point = std::make_shared<Mark>();
    must("cuEventCreate", &point->event, 0U);
    must("cuEventRecord", point->event, on);
    return point;
}

void wait_for(int device, int64_t stream, MarkPtr point)
{
    must("cuStreamWaitEvent", handle_of(device, stream), point->event, 0U);
}

void synchronize(int device, int64_t stream)
{
    must("cuStreamSynchronize", handle_of(device, stream));
}

bool is_idle(int device, int64_t stream)
{
    return call("cuStreamQuery", handle_of(device, stream)) == 0;
}

void begin_capture(int64_t device, int64_t stream)
{
    must("cuStreamBeginCapture_v2", handle_of(int(device), stream), 0);
}

int64_t end_capture(int64_t device, int64_t stream)
{
    void *graph = nullptr, *ready = nullptr;
    must("cuStreamEndCapture", handle_of(int(device), stream), &graph);
    must("cuGraphInstantiateWithFlags", &ready, graph, 0ULL);
    return int64_t(ready);
}

void replay(int64_t graph, int64_t device, int64_t stream)
{
    must("cuGraphLaunch", reinterpret_cast<void *>(graph), handle_of(int(device), stream));
}

/* What the shim asks PyTorch's library for CUDA. */
void *native_of(const c10::Stream &stream)
{
    return stream_of(stream.device_index(), stream.id());
}

} // namespace tuttidev

extern "C" __attribute__((visibility("default"))) void *
cuda_stream_handle(const c10::Stream *stream) __asm__("_ZNK3c104cuda10CUDAStream6streamEv");
void *cuda_stream_handle(const c10::Stream *stream)
{
    return tuttidev::native_of(*stream);
}
