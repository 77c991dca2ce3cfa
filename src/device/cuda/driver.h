/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_DRIVER_H
#define TUTTI_DEVICE_CUDA_DRIVER_H

/* CUDA's driver as this folder sees it: a table of the calls that are used, found by dlopen, with declarations of our
 * own. Handles are void pointers, device addresses uint64_t, enumerations and results int; that is the driver's binary
 * interface, which does not change (tests/cuda/device/driver_test.c compares it with the toolkit's header, where there
 * is one).
 *
 * TUTTI_CUDA_DRIVER names another library in the driver's place. One that exports the object
 * `tutti_standin_kernels` has the kernels built in: it is passed to module_load_data as the only image. */

#include "device/cuda/cuda_device.h"

#include <pthread.h>
#include <stdatomic.h>

#define CUDA_DRIVER_NEEDED 12000 /* as the driver counts: 12.0 */

enum cuda_result {
    CUDA_RESULT_OK = 0,
    CUDA_RESULT_INVALID_VALUE = 1,
    CUDA_RESULT_OUT_OF_MEMORY = 2,
    CUDA_RESULT_NOT_INITIALIZED = 3,
    CUDA_RESULT_NO_DEVICE = 100,
    CUDA_RESULT_INVALID_IMAGE = 200,
    CUDA_RESULT_ALREADY_MAPPED = 208,
    CUDA_RESULT_NO_BINARY_FOR_GPU = 209,
    CUDA_RESULT_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_RESULT_INVALID_PTX = 218,
    CUDA_RESULT_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_RESULT_NOT_FOUND = 500,
    CUDA_RESULT_NOT_READY = 600,
    CUDA_RESULT_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_RESULT_TOO_MANY_PEERS = 711,
    CUDA_RESULT_NOT_SUPPORTED = 801,
};
enum cuda_device_attribute {
    CUDA_DEVICE_N_SMS = 16,
    CUDA_DEVICE_CAPABILITY_MAJOR = 75,
    CUDA_DEVICE_CAPABILITY_MINOR = 76,
    CUDA_DEVICE_HAS_VIRTUAL_MEMORY = 102,
    CUDA_DEVICE_HAS_DESCRIPTORS = 103,
    CUDA_LINK_HAS_ATOMICS = 3, /* device_link's */
};
enum cuda_pointer_attribute {
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_BUFFER_ID = 7,
    CUDA_POINTER_IS_MANAGED = 8,
    CUDA_POINTER_DEVICE_ORDINAL = 9,
    CUDA_POINTER_IS_LEGACY_IPC_CAPABLE = 10,
    CUDA_POINTER_RANGE_START = 11,
    CUDA_POINTER_RANGE_SIZE = 12,
    CUDA_POINTER_MAPPING_SIZE = 18,
    CUDA_POINTER_MAPPING_START = 19,
};
enum {
    CUDA_MEMORY_OF_HOST = 1,
    CUDA_MEMORY_OF_DEVICE = 2,
    CUDA_FUNCTION_LOCAL_BYTES = 3,
    CUDA_FUNCTION_N_REGISTERS = 4,
    CUDA_FUNCTION_PTX_VERSION = 5,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_PORTABLE = 1,
    CUDA_HOST_DEVICEMAP = 2,
    CUDA_IPC_LAZY_PEER_ACCESS = 1,
    CUDA_CAPTURE_MODE_THREAD_LOCAL = 1,
    CUDA_CAPTURE_MODE_RELAXED = 2,
    CUDA_CAPTURE_NONE = 0,
    CUDA_CAPTURE_ACTIVE = 1,
    CUDA_CAPTURE_ADD_DEPENDENCIES = 0,
    CUDA_CAPTURE_SET_DEPENDENCIES = 1,
    CUDA_WAIT_VALUE_GEQ = 0,
    CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6,
    CUDA_ALLOCATION_PINNED = 1,
    CUDA_LOCATION_DEVICE = 1,
    CUDA_ACCESS_READWRITE = 3,
    CUDA_GRANULARITY_MINIMUM = 0,
    CUDA_GRANULARITY_RECOMMENDED = 1,
    CUDA_HANDLE_DESCRIPTOR = 1,
};
struct cuda_uuid {
    unsigned char bytes[16];
};
struct cuda_ipc_handle {
    unsigned char bytes[64];
};
struct cuda_location {
    int type, id;
};
struct cuda_allocation { /* what memory of the virtual memory API is */
    int type, handle_types;
    struct cuda_location location;
    void *unused;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
struct cuda_access {
    struct cuda_location location;
    int flags;
};
struct cuda_launch_attribute {
    int id;
    char unused[8 - sizeof(int)];
    union {
        int flag;
        char all[64];
    } value;
};
struct cuda_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    struct cuda_launch_attribute *attributes;
    unsigned n_attributes;
};

/* X(member, symbol, parameters). NEEDED: of every driver since 12.0; LATER: came after it, NULL where it is not there.
 */
#define CUDA_DRIVER_CALLS(NEEDED, LATER)                                                                               \
    NEEDED(init, cuInit, (unsigned flags))                                                                             \
    NEEDED(driver_version, cuDriverGetVersion, (int *version))                                                         \
    NEEDED(error_name, cuGetErrorName, (int result, const char **name))                                                \
    NEEDED(error_string, cuGetErrorString, (int result, const char **text))                                            \
    NEEDED(device_count, cuDeviceGetCount, (int *count))                                                               \
    NEEDED(device_name, cuDeviceGetName, (char *name, int capacity, int device))                                       \
    NEEDED(device_uuid, cuDeviceGetUuid_v2, (struct cuda_uuid * uuid, int device))                                     \
    NEEDED(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))                            \
    NEEDED(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                                           \
    NEEDED(device_can_reach, cuDeviceCanAccessPeer, (int *can, int device, int peer))                                  \
    LATER(device_link, cuDeviceGetP2PAttribute, (int *value, int attribute, int device, int peer))                     \
    NEEDED(primary_retain, cuDevicePrimaryCtxRetain, (void **context, int device))                                     \
    NEEDED(primary_release, cuDevicePrimaryCtxRelease_v2, (int device))                                                \
    NEEDED(context_get, cuCtxGetCurrent, (void **context))                                                             \
    NEEDED(context_set, cuCtxSetCurrent, (void *context))                                                              \
    NEEDED(context_device, cuCtxGetDevice, (int *device))                                                              \
    NEEDED(context_reach, cuCtxEnablePeerAccess, (void *peer, unsigned flags))                                         \
    NEEDED(context_sync, cuCtxSynchronize, (void))                                                                     \
    NEEDED(pointer_attribute, cuPointerGetAttribute, (void *value, int attribute, uint64_t pointer))                   \
    NEEDED(pointer_attributes, cuPointerGetAttributes,                                                                 \
           (unsigned n, const int *attributes, void **values, uint64_t pointer))                                       \
    NEEDED(memory_alloc, cuMemAlloc_v2, (uint64_t * out, size_t bytes))                                                \
    NEEDED(memory_free, cuMemFree_v2, (uint64_t pointer))                                                              \
    LATER(memory_alloc_ordered, cuMemAllocAsync, (uint64_t * out, size_t bytes, void *stream))                         \
    LATER(memory_free_ordered, cuMemFreeAsync, (uint64_t pointer, void *stream))                                       \
    NEEDED(host_alloc, cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))                                     \
    NEEDED(host_free, cuMemFreeHost, (void *pointer))                                                                  \
    NEEDED(memory_info, cuMemGetInfo_v2, (size_t * left, size_t * bytes))                                              \
    NEEDED(memory_set, cuMemsetD8Async, (uint64_t pointer, unsigned char value, size_t bytes, void *stream))           \
    NEEDED(memory_copy, cuMemcpyAsync, (uint64_t dst, uint64_t src, size_t bytes, void *stream))                       \
    NEEDED(ipc_get, cuIpcGetMemHandle, (struct cuda_ipc_handle * handle, uint64_t pointer))                            \
    NEEDED(ipc_open, cuIpcOpenMemHandle_v2, (uint64_t * out, struct cuda_ipc_handle handle, unsigned flags))           \
    NEEDED(ipc_close, cuIpcCloseMemHandle, (uint64_t pointer))                                                         \
    NEEDED(virtual_create, cuMemCreate,                                                                                \
           (uint64_t * out, size_t bytes, const struct cuda_allocation *what, unsigned long long flags))               \
    NEEDED(virtual_release, cuMemRelease, (uint64_t handle))                                                           \
    NEEDED(virtual_retain, cuMemRetainAllocationHandle, (uint64_t * out, void *pointer))                               \
    NEEDED(virtual_properties, cuMemGetAllocationPropertiesFromHandle,                                                 \
           (struct cuda_allocation * out, uint64_t handle))                                                            \
    NEEDED(virtual_granularity, cuMemGetAllocationGranularity,                                                         \
           (size_t * out, const struct cuda_allocation *what, int option))                                             \
    NEEDED(virtual_export, cuMemExportToShareableHandle,                                                               \
           (void *out, uint64_t handle, int type, unsigned long long flags))                                           \
    NEEDED(virtual_import, cuMemImportFromShareableHandle, (uint64_t * out, void *descriptor, int type))               \
    NEEDED(virtual_map, cuMemMap,                                                                                      \
           (uint64_t pointer, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags))                 \
    NEEDED(virtual_unmap, cuMemUnmap, (uint64_t pointer, size_t bytes))                                                \
    NEEDED(virtual_access, cuMemSetAccess,                                                                             \
           (uint64_t pointer, size_t bytes, const struct cuda_access *access, size_t n))                               \
    NEEDED(virtual_access_get, cuMemGetAccess,                                                                         \
           (unsigned long long *flags, const struct cuda_location *location, uint64_t pointer))                        \
    NEEDED(address_reserve, cuMemAddressReserve,                                                                       \
           (uint64_t * out, size_t bytes, size_t alignment, uint64_t address, unsigned long long flags))               \
    NEEDED(address_free, cuMemAddressFree, (uint64_t pointer, size_t bytes))                                           \
    NEEDED(stream_create, cuStreamCreate, (void **out, unsigned flags))                                                \
    NEEDED(stream_destroy, cuStreamDestroy_v2, (void *stream))                                                         \
    NEEDED(stream_query, cuStreamQuery, (void *stream))                                                                \
    NEEDED(stream_sync, cuStreamSynchronize, (void *stream))                                                           \
    NEEDED(stream_wait_event, cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                          \
    NEEDED(stream_wait_value, cuStreamWaitValue32_v2, (void *stream, uint64_t word, uint32_t value, unsigned flags))   \
    NEEDED(event_create, cuEventCreate, (void **out, unsigned flags))                                                  \
    NEEDED(event_destroy, cuEventDestroy_v2, (void *event))                                                            \
    NEEDED(event_record, cuEventRecord, (void *event, void *stream))                                                   \
    NEEDED(event_query, cuEventQuery, (void *event))                                                                   \
    NEEDED(event_elapsed, cuEventElapsedTime, (float *ms, void *from, void *to))                                       \
    NEEDED(module_load_data, cuModuleLoadData, (void **out, const void *image))                                        \
    NEEDED(module_unload, cuModuleUnload, (void *module))                                                              \
    NEEDED(module_function, cuModuleGetFunction, (void **out, void *module, const char *name))                         \
    LATER(module_function_count, cuModuleGetFunctionCount, (unsigned *count, void *module))                            \
    LATER(module_functions, cuModuleEnumerateFunctions, (void **functions, unsigned n, void *module))                  \
    LATER(function_name, cuFuncGetName, (const char **name, void *function))                                           \
    LATER(function_load, cuFuncLoad, (void *function))                                                                 \
    NEEDED(function_attribute, cuFuncGetAttribute, (int *value, int attribute, void *function))                        \
    NEEDED(launch, cuLaunchKernel,                                                                                     \
           (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,     \
            unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra))                   \
    LATER(launch_by, cuLaunchKernelEx,                                                                                 \
          (const struct cuda_launch_config *config, void *function, void **parameters, void **extra))                  \
    NEEDED(launch_host, cuLaunchHostFunc, (void *stream, void (*function)(void *arg), void *arg))                      \
    NEEDED(capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                                               \
    NEEDED(capture_begin, cuStreamBeginCapture_v2, (void *stream, int mode))                                           \
    NEEDED(capture_end, cuStreamEndCapture, (void *stream, void **graph))                                              \
    LATER(capture_info, cuStreamGetCaptureInfo_v2,                                                                     \
          (void *stream, int *status, uint64_t *id, void **graph, void *const **nodes, size_t *n))                     \
    LATER(capture_info_edges, cuStreamGetCaptureInfo_v3,                                                               \
          (void *stream, int *status, uint64_t *id, void **graph, void *const **nodes, const void **edges, size_t *n)) \
    LATER(capture_update, cuStreamUpdateCaptureDependencies, (void *stream, void **nodes, size_t n, unsigned flags))   \
    LATER(capture_update_edges, cuStreamUpdateCaptureDependencies_v2,                                                  \
          (void *stream, void **nodes, const void *edges, size_t n, unsigned flags))                                   \
    NEEDED(graph_add_empty, cuGraphAddEmptyNode, (void **node, void *graph, void *const *after, size_t n))             \
    NEEDED(graph_instantiate, cuGraphInstantiateWithFlags, (void **out, void *graph, unsigned long long flags))        \
    NEEDED(graph_launch, cuGraphLaunch, (void *graph, void *stream))                                                   \
    NEEDED(graph_exec_destroy, cuGraphExecDestroy, (void *graph))                                                      \
    NEEDED(graph_destroy, cuGraphDestroy, (void *graph))

struct cuda_driver {
#define CUDA_DRIVER_MEMBER(member, symbol, parameters) int(*member) parameters;
    CUDA_DRIVER_CALLS(CUDA_DRIVER_MEMBER, CUDA_DRIVER_MEMBER)
#undef CUDA_DRIVER_MEMBER
    const void *standin_kernels; /* NULL: a real driver */
    int version;
    uint32_t n_devices;
};

/* ---- driver.c ---- */
/* Opens and initialises the driver at first use; NULL where there is no device that can be used: why, says
 * tutti_cuda_absence. */
const struct cuda_driver *cuda_driver(void);
/* The same, but never loads what nobody in this process uses yet. */
const struct cuda_driver *cuda_driver_in_use(void);
/* This process is a child of one that used the driver, which can not be used here. */
bool cuda_forked(void);
enum tutti_status cuda_fail_forked(void);
/* OK for OK, PENDING for not ready; else fails with "CALL on CUDA device 0 (its name): the driver's words (its name for
 * them)": MEMORY, UNSUPPORTED (peers, what this driver or device has not), all else SYSTEM. */
enum tutti_status cuda_result(const struct tutti_device *gpu, int result, const char *call);

/* ---- cuda_contexts.c: what a gpu is besides what all see ---- */
/* Allocations of the virtual memory API that lie, or are to lie, one after another. */
struct cuda_piece {
    uint64_t handle; /* 0: released */
    size_t bytes;
};
struct cuda_pieces {
    struct cuda_piece *at; /* freed by cuda_pieces_free */
    size_t n, capacity;
};
struct cuda_kernel {
    const char *name; /* the driver's */
    void *function;
};
struct cuda_gpu {
    struct tutti_device seen;
    const struct cuda_driver *driver;
    void *stream; /* for what is waited for at once */
    void **modules;
    size_t n_modules;
    struct cuda_kernel *kernels; /* ordered by name */
    size_t n_kernels;
    bool overlaps;                 /* launches may: kernels wait by themselves for what is ahead of them */
    struct cuda_virtual *virtuals; /* under the lock: what cuda_virtual.c gave out */
    _Atomic bool no_handles;       /* the driver makes no legacy handles of this device's memory */
    uint64_t cell;                 /* some bytes of it, of no meaning */
    pthread_mutex_t queues;        /* held while what may be the first of its kind is enqueued on a stream */
    _Atomic uint32_t queue_turns;  /* how often it has been given back */
};
static inline struct cuda_gpu *cuda_gpu_of(struct tutti_device *gpu)
{
    return (struct cuda_gpu *)gpu; /* its first member */
}
static inline const struct cuda_driver *cuda_calls(const struct tutti_device *gpu)
{
    return ((const struct cuda_gpu *)gpu)->driver;
}
#define CUDA_GPUS_MAX 64 /* on a host */
/* cuda_contexts.c: the driver, if it has the device; and the device's facts. */
enum tutti_status cuda_driver_for(int32_t ordinal, const struct cuda_driver **out);
enum tutti_status cuda_facts_read(const struct cuda_driver *driver, int device, struct tutti_device_facts *out);
void cuda_lock(void); /* the process's gpus */
void cuda_unlock(void);
/* Ends what tutti_cuda_enter began, and says what became of the call. */
static inline enum tutti_status cuda_done(const struct tutti_device *gpu, const struct tutti_device_scope *scope,
                                          int result, const char *call)
{
    tutti_cuda_leave(scope);
    return result == CUDA_RESULT_OK ? TUTTI_OK : cuda_result(gpu, result, call);
}

/* The same around calls that a capture somewhere in this process would forbid, or be ended by (allocations, queries):
 * they are none of its business. */
struct cuda_aside {
    struct tutti_device_scope scope;
    int mode;
};
enum tutti_status cuda_aside_enter(struct tutti_device *gpu, struct cuda_aside *aside);
enum tutti_status cuda_aside_done(const struct tutti_device *gpu, struct cuda_aside *aside, int result,
                                  const char *call);

/* What is left of functions that are one call of the driver: it is made, and they return what became of it. `member` is
 * of struct cuda_driver, the rest its arguments; `call` is its name for sentences. ASIDE: beside captures. QUEUED: on a
 * stream, by cuda_stream.c; in a capture it becomes part of that. */
#define CUDA_RETURN_ASIDE(gpu, call, member, ...)                                                                      \
    do {                                                                                                               \
        struct cuda_aside aside_;                                                                                      \
        TUTTI_TRY(cuda_aside_enter(gpu, &aside_));                                                                     \
        return cuda_aside_done(gpu, &aside_, cuda_calls(gpu)->member(__VA_ARGS__), call);                              \
    } while (0)
#define CUDA_RETURN_QUEUED(gpu, stream, use, call, member, ...)                                                        \
    do {                                                                                                               \
        struct tutti_device_scope scope_;                                                                              \
        TUTTI_TRY(tutti_cuda_enter(gpu, &scope_));                                                                     \
        const bool locked_ = cuda_queue_begin(gpu, stream, use);                                                       \
        const int result_ = cuda_calls(gpu)->member(__VA_ARGS__);                                                      \
        cuda_queue_end(gpu, locked_);                                                                                  \
        return cuda_done(gpu, &scope_, result_, call);                                                                 \
    } while (0)
/* Where the driver is to put an address. */
static inline uint64_t *cuda_address(void **out)
{
    return (uint64_t *)(void *)out;
}
/* The driver's `call` that destroys `what`; nothing can be done about its failure. */
void cuda_destroy(struct tutti_device *gpu, int (*destroy)(void *), void *what, const char *call);

/* ---- cuda_memory.c ---- */
/* It can have a legacy IPC handle: not expandable segments, cudaMallocAsync or managed memory. */
bool cuda_memory_is_legacy(const struct cuda_driver *driver, uint64_t pointer);

/* ---- cuda_virtual.c: memory of the virtual memory API ---- */
enum tutti_status cuda_pieces_add(struct cuda_pieces *pieces, uint64_t handle, size_t bytes);
size_t cuda_pieces_bytes(const struct cuda_pieces *pieces);
void cuda_pieces_release(struct tutti_device *gpu, struct cuda_pieces *pieces); /* once */
void cuda_pieces_free(struct tutti_device *gpu, struct cuda_pieces *pieces);    /* releases what is not yet */
/* The allocations that hold the range, retained, and where the first begins; none (n is 0): it is other memory.
 * ARGUMENT: something between is not mapped. */
enum tutti_status cuda_pieces_find(struct tutti_device *gpu, const void *pointer, size_t bytes, struct cuda_pieces *out,
                                   uint64_t *start);
/* One after another at new addresses, for this device; the handles may be released then. */
enum tutti_status cuda_pieces_map(struct tutti_device *gpu, const struct cuda_pieces *pieces, uint64_t *out);
void cuda_pieces_unmap(struct tutti_device *gpu, uint64_t pointer, const struct cuda_pieces *pieces);
/* Memory that can be exported by descriptors; true: it was such memory. */
enum tutti_status cuda_virtual_alloc(struct tutti_device *gpu, size_t bytes, void **out);
bool cuda_virtual_free(struct tutti_device *gpu, void *pointer);

/* ---- cuda_stream.c: around what enqueues something on a stream of a caller ---- */
enum cuda_use { CUDA_USE_KERNEL, CUDA_USE_GRAPH, CUDA_USE_HOST, CUDA_USE_EVENT, CUDA_USE_COPY, CUDA_N_USES };
/* Where this may be the first such use of the stream: locks out others of the device that come to that; gives up after
 * some milliseconds of one of them. True: locked, which `end` undoes. */
bool cuda_queue_begin(struct tutti_device *gpu, void *stream, enum cuda_use use);
void cuda_queue_end(struct tutti_device *gpu, bool locked);
void cuda_queue_made(void); /* a stream was */

/* ---- cuda_kernels.c ---- */
enum tutti_status cuda_kernels_load(struct cuda_gpu *gpu); /* the context is current; unload also after a failure */
void cuda_kernels_unload(struct cuda_gpu *gpu);

TUTTI_GPU_IMAGES(cuda)

#endif
