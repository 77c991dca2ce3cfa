/* SPDX-License-Identifier: BSD-3-Clause */

/* The test device on the stand-in for CUDA's driver: streams, events, graphs and memory are the stand-in's, so that
 * libtutti's kernels and PyTorch's tensors meet in them; PyTorch's own kernels are host functions in its streams. */

#include "driver.hpp"

#include <array>
#include <atomic>
#include <c10/core/Stream.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <stdexcept>
#include <thread>

namespace tuttidev
{
namespace
{

constexpr size_t arena_bytes = size_t(1) << 29;
constexpr int not_ready = 600;

[[noreturn]] void stop(const char *what, int result)
{
    std::fprintf(stderr, "tuttidev: %s: %d\n", what, result);
    std::abort();
}

/* The stand-in's functions, by the driver's names; there is a context for whoever calls. */
void *library()
{
    static void *found = [] {
        void *opened = dlopen("libcuda.so.1", RTLD_NOW);
        if (!opened) stop(dlerror(), 0);
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

struct Machine {
    std::array<void *, n_devices> contexts{};
    std::array<char *, n_devices> arenas{};
    std::array<std::atomic<size_t>, n_devices> used{};
    std::array<std::array<void *, n_streams>, n_devices> streams{};
    std::array<std::atomic<int64_t>, n_devices> n_handed_out{};

    Machine()
    {
        for (int device = 0; device < n_devices; device++) {
            must("cuDevicePrimaryCtxRetain", &contexts[size_t(device)], device);
            must("cuCtxSetCurrent", contexts[size_t(device)]);
            must("cuMemAlloc_v2", reinterpret_cast<unsigned long long *>(&arenas[size_t(device)]), arena_bytes);
            for (int stream = 1; stream < n_streams; stream++) /* 1: does not wait for the default stream */
                must("cuStreamCreate", &streams[size_t(device)][size_t(stream)], 1U);
        }
    }
};

Machine &machine()
{
    static auto *the = new Machine;
    return *the;
}

thread_local int device_now = 0;
thread_local std::array<int64_t, n_devices> streams_now{};

void *handle(int device, int64_t stream)
{
    void *found = machine().streams.at(size_t(device)).at(size_t(stream));
    must("cuCtxSetCurrent", machine().contexts.at(size_t(device)));
    return found;
}

void run(void *work)
{
    (*static_cast<std::function<void()> *>(work))();
}

} // namespace

bool is_broken(const char *)
{
    return false;
}

void *reserve(int device, size_t bytes)
{
    size_t offset = machine().used.at(size_t(device)).fetch_add((bytes + 511) / 512 * 512);
    if (offset + bytes > arena_bytes) throw std::bad_alloc();
    return machine().arenas.at(size_t(device)) + offset;
}

int device_of(const void *address)
{
    for (int device = 0; device < n_devices; device++) {
        const char *arena = machine().arenas[size_t(device)];
        if (address >= arena && address < arena + arena_bytes) return device;
    }
    constexpr int ordinal = 9; /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
    int device = -1;
    const auto pointer = reinterpret_cast<unsigned long long>(address);
    return call("cuPointerGetAttribute", static_cast<void *>(&device), ordinal, pointer) == 0 ? device : -1;
}

void *resolve(void *address)
{
    return address;
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
    must("cuLaunchHostFunc", handle(device, stream), &run, static_cast<void *>(new std::function<void()>(work)));
}

MarkPtr mark(int device, int64_t stream)
{
    void *on = handle(device, stream);
    auto point = std::make_shared<Mark>();
    must("cuEventCreate", &point->event, 0U);
    must("cuEventRecord", point->event, on);
    return point;
}

void wait_for(int device, int64_t stream, MarkPtr point)
{
    must("cuStreamWaitEvent", handle(device, stream), point->event, 0U);
}

void synchronize(int device, int64_t stream)
{
    must("cuStreamSynchronize", handle(device, stream));
}

bool is_idle(int device, int64_t stream)
{
    return call("cuStreamQuery", handle(device, stream)) == 0;
}

int64_t next_stream(int device)
{
    return 1 + machine().n_handed_out.at(size_t(device))++ % (n_streams - 1);
}

void begin_capture(int64_t device, int64_t stream)
{
    must("cuStreamBeginCapture_v2", handle(int(device), stream), 0);
}

int64_t end_capture(int64_t device, int64_t stream)
{
    void *graph = nullptr, *ready = nullptr;
    must("cuStreamEndCapture", handle(int(device), stream), &graph);
    must("cuGraphInstantiateWithFlags", &ready, graph, 0ULL);
    return int64_t(ready);
}

void replay(int64_t graph, int64_t device, int64_t stream)
{
    must("cuGraphLaunch", reinterpret_cast<void *>(graph), handle(int(device), stream));
}

int current_device()
{
    return device_now;
}

void set_current_device(int device)
{
    if (device < 0 || device >= n_devices) throw std::out_of_range("tuttidev: no such device");
    device_now = device;
    handle(device, 0);
}

int64_t current_stream(int device)
{
    return streams_now.at(size_t(device));
}

void set_current_stream(int device, int64_t stream)
{
    streams_now.at(size_t(device)) = stream;
}

void *take_pinned(size_t bytes)
{
    return std::malloc(bytes);
}

void give_pinned(void *address)
{
    std::free(address);
}

bool is_pinned(const void *)
{
    return false;
}

void set_copy_delay(int64_t) {}
void delay_copy() {}

/* What the shim asks PyTorch's library for CUDA. */
void *native_of(const c10::Stream *stream)
{
    return machine().streams.at(size_t(stream->device_index())).at(size_t(stream->id()));
}

} // namespace tuttidev

extern "C" __attribute__((visibility("default"))) void *
cuda_stream_handle(const c10::Stream *stream) __asm__("_ZNK3c104cuda10CUDAStream6streamEv");
void *cuda_stream_handle(const c10::Stream *stream)
{
    return tuttidev::native_of(stream);
}
