/* SPDX-License-Identifier: BSD-3-Clause */

/* The test device on the stand-in for a maker's driver: memory and streams are the stand-in's, so that libtutti's
 * kernels and PyTorch's tensors meet in them. What is alike whoever made it; the driver's own words are in
 * driver_cuda.cpp and driver_xpu.cpp. */

#include "driver.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <stdexcept>

namespace tuttidev
{
namespace
{

constexpr size_t arena_bytes = size_t(1) << 29;

struct Machine {
    std::array<char *, n_devices> arenas{};
    std::array<std::atomic<size_t>, n_devices> used{};
    std::array<std::array<void *, n_streams>, n_devices> streams{};
    std::array<std::atomic<int64_t>, n_devices> n_handed_out{};

    Machine()
    {
        for (int device = 0; device < n_devices; device++) {
            arenas[size_t(device)] = open_device(device, arena_bytes);
            for (int stream = 0; stream < n_streams; stream++)
                streams[size_t(device)][size_t(stream)] = open_stream(device, stream);
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

} // namespace

void stop(const char *what, int result)
{
    std::fprintf(stderr, "tuttidev: %s: 0x%x\n", what, unsigned(result));
    std::abort();
}

void *open_library(const char *name)
{
    void *opened = dlopen(name, RTLD_NOW);
    if (!opened) stop(dlerror(), 0);
    return opened;
}

bool is_broken(const char *)
{
    return false;
}

/* ---- memory ---- */

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
    return owner_of(address);
}

void *resolve(void *address)
{
    return address;
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

/* ---- streams ---- */

void *stream_of(int device, int64_t stream)
{
    return machine().streams.at(size_t(device)).at(size_t(stream));
}

void *handle_of(int device, int64_t stream)
{
    void *found = stream_of(device, stream);
    enter_device(device);
    return found;
}

int64_t next_stream(int device)
{
    return 1 + machine().n_handed_out.at(size_t(device))++ % (n_streams - 1);
}

int current_device()
{
    return device_now;
}

void set_current_device(int device)
{
    if (device < 0 || device >= n_devices) throw std::out_of_range("tuttidev: no such device");
    device_now = device;
    handle_of(device, 0);
}

int64_t current_stream(int device)
{
    return streams_now.at(size_t(device));
}

void set_current_stream(int device, int64_t stream)
{
    streams_now.at(size_t(device)) = stream;
}

} // namespace tuttidev
