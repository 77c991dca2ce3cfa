/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices, contexts and errors of the stand-in. TUTTI_STANDIN_DEVICES says how many devices the machine has (2),
 * TUTTI_STANDIN_SMS how many multiprocessors each (16), TUTTI_STANDIN_MEMORY how many MiB (8192); with
 * TUTTI_STANDIN_PEERS=0 none reaches another, with TUTTI_STANDIN_IPC=0 there are no legacy IPC handles, with
 * TUTTI_STANDIN_FDS=0 no descriptors, with TUTTI_STANDIN_ATOMICS=0 no atomics between devices. With
 * TUTTI_STANDIN_QUEUES=1 all streams of a device have one queue for copies from the host and one for those to it, and
 * who launches while memory is freed waits: what threads that share a device have to be ready for.
 * TUTTI_STANDIN_TRACE=1 writes every launch to stderr. In graphs, kernels whose names begin with TUTTI_STANDIN_IDLE do
 * nothing. CUDA_VISIBLE_DEVICES is obeyed.
 */

#include "driver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace standin
{
thread_local context *current;
thread_local bool in_host_function;

world &all()
{
    static world *one = new world;
    return *one;
}

long from_environment(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, nullptr, 10) : otherwise;
}

int usable()
{
    if (in_host_function) return not_permitted;
    guard held(all().lock);
    return all().initialized ? success : not_initialized;
}

int usable_in_context()
{
    const int status = usable();
    if (status) return status;
    return current ? success : invalid_context;
}

bool may_reach(int device, int other)
{
    return device == other || from_environment("TUTTI_STANDIN_PEERS", 1) != 0;
}

bool has_few_queues()
{
    return from_environment("TUTTI_STANDIN_QUEUES", 0) != 0;
}

/* As the driver: up to the first one that does not exist. */
static std::vector<int> visible_devices()
{
    const int n = (int)from_environment("TUTTI_STANDIN_DEVICES", 2);
    std::vector<int> devices;
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) {
        for (int i = 0; i < n; i++) devices.push_back(i);
        return devices;
    }
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        const long device = strtol(text, &end, 10);
        if (end == text || device < 0 || device >= n) break;
        if (std::find(devices.begin(), devices.end(), (int)device) != devices.end()) return {};
        devices.push_back((int)device);
    }
    return devices;
}

static bool has_device(int device)
{
    return device >= 0 && (size_t)device < all().devices.size();
}
} // namespace standin
using namespace standin;

STANDIN_API int cuInit(unsigned flags)
{
    if (flags) return invalid_value;
    guard held(all().lock);
    if (!all().initialized) {
        all().devices = visible_devices();
        for (size_t i = 0; i < all().devices.size(); i++) {
            all().contexts.push_back(std::make_unique<context>());
            all().contexts.back()->device = (int)i;
        }
        all().bytes_used.resize(all().devices.size());
    }
    if (all().devices.empty()) return no_device;
    all().initialized = true;
    return success;
}

STANDIN_API int cuDriverGetVersion(int *version)
{
    *version = (int)from_environment("TUTTI_STANDIN_VERSION", 13000);
    return success;
}

static const struct {
    int result;
    const char *name, *text;
} errors[] = {
    {success, "CUDA_SUCCESS", "no error"},
    {invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {map_failed, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {already_mapped, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {peer_access_unsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these devices"},
    {invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {launch_out_of_resources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {peer_access_already_enabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {not_permitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {not_supported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {capture_merge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {capture_unmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {capture_unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {capture_implicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {captured_event, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {capture_wrong_thread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

static int error_of(int result, const char **out, bool name)
{
    for (const auto &error : errors) {
        if (error.result == result) {
            *out = name ? error.name : error.text;
            return success;
        }
    }
    *out = nullptr;
    return invalid_value;
}
STANDIN_API int cuGetErrorName(int result, const char **name)
{
    return error_of(result, name, true);
}
STANDIN_API int cuGetErrorString(int result, const char **text)
{
    return error_of(result, text, false);
}

/* ---- devices ---- */
STANDIN_API int cuDeviceGetCount(int *count)
{
    const int status = usable();
    if (!status) *count = (int)all().devices.size();
    return status;
}

STANDIN_API int cuDeviceGet(int *device, int ordinal)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(ordinal)) return invalid_device;
    *device = ordinal;
    return success;
}

STANDIN_API int cuDeviceGetName(char *name, int capacity, int device)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device)) return invalid_device;
    snprintf(name, (size_t)capacity, "Stand-in for a GPU");
    return success;
}

STANDIN_API int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device)) return invalid_device;
    memcpy(uuid, "stand-in for gpu", 16);
    uuid[15] = (unsigned char)('0' + all().devices[(size_t)device]);
    return success;
}

STANDIN_API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    static const std::map<int, int> known = {
        {1, 1024},    {2, 1024},    {5, 0x7fffffff},
        {8, 49152},   {10, 32}, /* threads, block, grid, shared, warp */
        {18, 0},      {19, 1},      {41, 1},
        {75, 9},      {76, 0}, /* integrated, host memory, addresses, 9.0 */
        {39, 2048},   {81, 233472}, {92, 1},
        {97, 232448}, {102, 1}, /* threads and shared of an SM, values, virtual memory */
    };
    const int status = usable();
    if (status) return status;
    if (!has_device(device)) return invalid_device;
    *value = 0;
    if (attribute == 16) *value = (int)from_environment("TUTTI_STANDIN_SMS", 16);
    if (attribute == 103) *value = from_environment("TUTTI_STANDIN_FDS", 1) != 0;
    if (known.count(attribute)) *value = known.at(attribute);
    return success;
}

STANDIN_API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device)) return invalid_device;
    *bytes = (size_t)from_environment("TUTTI_STANDIN_MEMORY", 8192) << 20;
    return success;
}

STANDIN_API int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device) || !has_device(peer)) return invalid_device;
    *can = device != peer && may_reach(device, peer);
    return success;
}

STANDIN_API int cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device) || !has_device(peer) || device == peer) return invalid_device;
    *value = may_reach(device, peer) && (attribute != 3 || from_environment("TUTTI_STANDIN_ATOMICS", 1) != 0);
    return success;
}

/* ---- contexts: the primary ones alone ---- */
STANDIN_API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device)) return invalid_device;
    guard held(all().lock);
    context *of = all().contexts[(size_t)device].get();
    of->n_retained++;
    *out = of;
    return success;
}

STANDIN_API int cuDevicePrimaryCtxRelease_v2(int device)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device)) return invalid_device;
    guard held(all().lock);
    context *of = all().contexts[(size_t)device].get();
    if (of->n_retained == 0) return invalid_context;
    of->n_retained--;
    return success;
}

STANDIN_API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    const int status = usable();
    if (status) return status;
    if (!has_device(device)) return invalid_device;
    guard held(all().lock);
    *flags = 0;
    *active = all().contexts[(size_t)device]->n_retained > 0;
    return success;
}

STANDIN_API int cuCtxGetCurrent(void **out)
{
    const int status = usable();
    if (!status) *out = current;
    return status;
}

STANDIN_API int cuCtxSetCurrent(void *handle)
{
    const int status = usable();
    if (status) return status;
    guard held(all().lock);
    if (handle) {
        const auto of = [handle](const std::unique_ptr<context> &one) { return one.get() == handle; };
        const auto found = std::find_if(all().contexts.begin(), all().contexts.end(), of);
        if (found == all().contexts.end() || (*found)->n_retained == 0) return invalid_context;
    }
    current = static_cast<context *>(handle);
    return success;
}

STANDIN_API int cuCtxGetDevice(int *device)
{
    const int status = usable_in_context();
    if (!status) *device = current->device;
    return status;
}

STANDIN_API int cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    const int status = usable_in_context();
    if (status) return status;
    if (!peer || flags) return invalid_value;
    guard held(all().lock);
    context *other = static_cast<context *>(peer);
    if (other == current) return invalid_device;
    if (!may_reach(current->device, other->device)) return peer_access_unsupported;
    return current->reached.insert(other).second ? success : peer_access_already_enabled;
}

STANDIN_API int cuCtxSynchronize()
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const int forbidden = safe_call();
    if (forbidden) return forbidden;
    for (const stream *of : all().streams) {
        if (of->owner != current || !of->captured) continue;
        invalidate(of->captured.get());
        return capture_unsupported;
    }
    const auto marks = pending(current);
    held.unlock();
    wait_for(marks);
    return success;
}
