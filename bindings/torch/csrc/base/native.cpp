/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of native devices; functions of CUDA and SYCL, found in the process. */

#include "base/native.hpp"

#include "base/compat.hpp"

#include <c10/util/Exception.h>

#include <dlfcn.h>

namespace tutti_torch
{
namespace
{

/* Never loads a library: whoever has a device's tensor has loaded all of them. */
void *find_symbol(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, symbol) : nullptr;
    if (handle) dlclose(handle); /* PyTorch keeps it */
    return found;
}

template <typename Function> Function *find_loaded(const char *library, const char *symbol)
{
    return reinterpret_cast<Function *>(find_symbol(library, symbol));
}

/* ---- CUDA ---- */

/* The driver's numbers. */
constexpr int success = 0, capture_none = 0, mode_relaxed = 2;

int exchange_mode(int mode)
{
    using Exchange = int(int *);
    static auto *const exchange = find_loaded<Exchange>("libcuda.so.1", "cuThreadExchangeStreamCaptureMode");
    if (exchange) exchange(&mode);
    return mode;
}

/* c10::Stream::native_handle() is not in every version; c10::cuda::CUDAStream, which is a c10::Stream and nothing else,
 * has had this method in all of them. */
void *cuda_stream(const c10::Stream &stream)
{
    using Handle = void *(const c10::Stream *);
    static auto *const handle = find_loaded<Handle>("libc10_cuda.so", "_ZNK3c104cuda10CUDAStream6streamEv");
    TORCH_CHECK(handle, "tutti: this PyTorch does not tell the handles of its CUDA streams");
    return handle(&stream);
}

/* The default stream can not be captured. */
bool cuda_captured(void *native)
{
    using IsCapturing = int(void *, int *);
    static auto *const ask = find_loaded<IsCapturing>("libcuda.so.1", "cuStreamIsCapturing");
    int state = capture_none;
    return native && ask && ask(native, &state) == success && state != capture_none;
}

/* ---- SYCL ---- */

/* c10::xpu::XPUStream is a c10::Stream and nothing else; its queues live as long as the process. */
void *xpu_queue(const c10::Stream &stream)
{
    using Queue = void *(const c10::Stream *);
    if (void *queue = detail::handle_of(stream, 0)) return queue;
    static auto *const queue_of = find_loaded<Queue>("libc10_xpu.so", "_ZNK3c103xpu9XPUStream5queueEv");
    TORCH_CHECK(queue_of, "tutti: this PyTorch does not tell the queues of its XPU streams");
    return queue_of(&stream);
}

/* The SYCL library has one of these names. */
void *find_state()
{
    void *found = nullptr;
    for (const char *name : {"libsycl.so.8", "libsycl.so.9", "libsycl.so.10", "libsycl.so.11", "libsycl.so.12"})
        if (!found) found = find_symbol(name, "_ZNK4sycl3_V15queue20ext_oneapi_get_stateEv");
    return found;
}

void *xpu_stream(const c10::Stream &stream)
{
    using State = int(const void *);
    constexpr int recording = 1;
    static auto *const state_of = reinterpret_cast<State *>(find_state());
    void *queue = xpu_queue(stream);
    TORCH_CHECK(!state_of || state_of(queue) != recording, "tutti: ", stream,
                " is being recorded into a graph, of which calls can not be parts: make them before or after it");
    return queue;
}

bool never_captured(void *)
{
    return false;
}

/* ---- the table ---- */

struct Native {
    c10::DeviceType type;
    const char *kind;
    void *(*stream)(const c10::Stream &);
    bool (*captured)(void *native);
};

constexpr Native natives[] = {
    {c10::kCUDA, "cuda", cuda_stream, cuda_captured},
    {c10::kXPU, "xpu", xpu_stream, never_captured},
};

const Native *find_native(c10::DeviceType type)
{
    for (const Native &native : natives)
        if (native.type == type) return &native;
    return nullptr;
}

const Native &native_of(const c10::Stream &stream)
{
    const Native *native = find_native(stream.device_type());
    TORCH_CHECK(native, "tutti: ", stream, " is of no device that the library works on itself");
    return *native;
}

} // namespace

bool is_native(c10::Device device)
{
    return find_native(device.type()) != nullptr;
}

const char *native_kind(c10::DeviceType type)
{
    const Native *native = find_native(type);
    return native ? native->kind : nullptr;
}

void *native_stream(const c10::Stream &stream)
{
    return native_of(stream).stream(stream);
}

bool is_captured(const c10::Stream &stream)
{
    const Native &native = native_of(stream);
    return native.captured(native.stream(stream));
}

BesideCaptures::BesideCaptures() : mode_(exchange_mode(mode_relaxed)) {}

BesideCaptures::~BesideCaptures()
{
    exchange_mode(mode_);
}

} // namespace tutti_torch
