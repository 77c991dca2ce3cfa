/* SPDX-License-Identifier: BSD-3-Clause */

/* CUDA's functions, found in the process. */

#include "base/cuda.hpp"

#include <c10/util/Exception.h>

#include <dlfcn.h>

namespace tutti_torch
{
namespace
{

/* Never loads a library: whoever has a CUDA tensor has loaded all of them. */
template <typename Function> Function *find_loaded(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, symbol) : nullptr;
    if (handle) dlclose(handle); /* PyTorch keeps it */
    return reinterpret_cast<Function *>(found);
}

/* The driver's numbers. */
constexpr int success = 0, capture_none = 0, mode_relaxed = 2;

int exchange_mode(int mode)
{
    using Exchange = int(int *);
    static auto *const exchange = find_loaded<Exchange>("libcuda.so.1", "cuThreadExchangeStreamCaptureMode");
    if (exchange) exchange(&mode);
    return mode;
}

} // namespace

/* c10::Stream::native_handle() is not in every version; c10::cuda::CUDAStream, which is a c10::Stream and nothing else,
 * has had this method in all of them. */
void *native_stream(const c10::Stream &stream)
{
    using Handle = void *(const c10::Stream *);
    static auto *const handle = find_loaded<Handle>("libc10_cuda.so", "_ZNK3c104cuda10CUDAStream6streamEv");
    TORCH_CHECK(handle, "tutti: this PyTorch does not tell the handles of its CUDA streams");
    return handle(&stream);
}

/* The default stream can not be captured. */
bool is_captured(void *native)
{
    using IsCapturing = int(void *, int *);
    static auto *const ask = find_loaded<IsCapturing>("libcuda.so.1", "cuStreamIsCapturing");
    int state = capture_none;
    return native && ask && ask(native, &state) == success && state != capture_none;
}

BesideCaptures::BesideCaptures() : mode_(exchange_mode(mode_relaxed)) {}

BesideCaptures::~BesideCaptures()
{
    exchange_mode(mode_);
}

} // namespace tutti_torch
