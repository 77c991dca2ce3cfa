/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_LEVEL_ZERO_DRIVER_H
#define TUTTI_DEVICE_LEVEL_ZERO_DRIVER_H

/* Level Zero as this folder sees it: a table of the calls that are used, found by dlopen, with declarations of our own.
 * Handles are void pointers, enumerations and results int; that is the binary interface of the loader, which does not
 * change (tests/xpu/driver_test.c compares it with the loader's header, where there is one).
 *
 * TUTTI_LEVEL_ZERO_LIBRARY names another library in the loader's place. One that exports the object
 * `tutti_standin_kernels` has the kernels built in: it is passed to module_create as the only image. */

#include "device/level_zero/xpu.h"

#include <pthread.h>

#define XPU_DEVICES_MAX 64
#define XPU_HANDLE_BYTES 64
#define XPU_PARAMETER_MOST 2048 /* bytes: a larger one lies in pinned memory, and the kernel has its address */

enum xpu_result {
    XPU_RESULT_OK = 0,
    XPU_RESULT_NOT_READY = 1,
    XPU_RESULT_DEVICE_LOST = 0x70000001,
    XPU_RESULT_OUT_OF_HOST_MEMORY = 0x70000002,
    XPU_RESULT_OUT_OF_DEVICE_MEMORY = 0x70000003,
    XPU_RESULT_MODULE_BUILD_FAILURE = 0x70000004,
    XPU_RESULT_INSUFFICIENT_PERMISSIONS = 0x70010000,
    XPU_RESULT_DEPENDENCY_UNAVAILABLE = 0x70020000,
    XPU_RESULT_UNINITIALIZED = 0x78000001,
    XPU_RESULT_UNSUPPORTED_VERSION = 0x78000002,
    XPU_RESULT_UNSUPPORTED_FEATURE = 0x78000003,
    XPU_RESULT_INVALID_ARGUMENT = 0x78000004,
    XPU_RESULT_INVALID_SIZE = 0x78000008,
    XPU_RESULT_UNSUPPORTED_SIZE = 0x78000009,
    XPU_RESULT_INVALID_NATIVE_BINARY = 0x7800000f,
    XPU_RESULT_UNKNOWN = 0x7ffffffe,
};
enum xpu_structure {
    XPU_STRUCTURE_DRIVER_PROPERTIES = 0x1,
    XPU_STRUCTURE_MODULES = 0x5,
    XPU_STRUCTURE_QUEUE_GROUP = 0x6,
    XPU_STRUCTURE_MEMORY = 0x7,
    XPU_STRUCTURE_LINK = 0xb,
    XPU_STRUCTURE_CONTEXT = 0xd,
    XPU_STRUCTURE_QUEUE = 0xe,
    XPU_STRUCTURE_LIST = 0xf,
    XPU_STRUCTURE_EVENT_POOL = 0x10,
    XPU_STRUCTURE_EVENT = 0x11,
    XPU_STRUCTURE_DEVICE_MEMORY = 0x15,
    XPU_STRUCTURE_HOST_MEMORY = 0x16,
    XPU_STRUCTURE_ALLOCATION = 0x17,
    XPU_STRUCTURE_MODULE = 0x1b,
    XPU_STRUCTURE_KERNEL = 0x1d,
    XPU_STRUCTURE_FREE = 0x1000a,
    XPU_STRUCTURE_LIMITS = 0x20001,
    XPU_STRUCTURE_DEVICE = 0x20006, /* since 1.2: timer_resolution is a frequency */
};
enum {
    XPU_INIT_GPU_ONLY = 1,
    XPU_DEVICE_GPU = 1,
    XPU_GROUP_COMPUTE = 1,
    XPU_MODULES_DOUBLE = 2,
    XPU_LINK_ATOMICS = 2,
    XPU_QUEUE_ASYNCHRONOUS = 2,
    XPU_EVENT_HOST_VISIBLE = 1,
    XPU_EVENT_TIMED = 4,
    XPU_SCOPE_HOST = 4,
    XPU_MEMORY_DEVICE = 2,
    XPU_MEMORY_SHARED = 3,
    XPU_FREE_BLOCKING = 1,
    XPU_LIMITS_EXCEEDED = 1, /* an allocation may be larger than max_alloc */
    XPU_MODULE_SPIRV = 0,
    XPU_MODULE_NATIVE = 1,
    XPU_INDIRECT_ALL = 7, /* addresses within arguments may be of the host's, devices' and shared memory */
};

/* Every struct of Level Zero begins so; what is written by us has `next` NULL. */
#define XPU_STRUCT(...)                                                                                                \
    {                                                                                                                  \
        int structure;                                                                                                 \
        const void *next;                                                                                              \
        __VA_ARGS__                                                                                                    \
    }
/* clang-format off */
struct xpu_driver_facts XPU_STRUCT(unsigned char uuid[16]; uint32_t version;);
struct xpu_device_facts XPU_STRUCT(
    int type; uint32_t vendor, device, flags, subdevice, clock_rate; uint64_t max_alloc;
    uint32_t max_contexts, max_priority, threads_a_unit, simd_width, units_a_subslice, subslices_a_slice, slices;
    uint64_t timer_resolution; uint32_t timestamp_bits, kernel_timestamp_bits;
    unsigned char uuid[16]; char name[256];);
struct xpu_memory_facts XPU_STRUCT(uint32_t flags, clock_rate, bus_width; uint64_t bytes; char name[256];);
struct xpu_module_facts XPU_STRUCT(uint32_t spirv_version, flags, half, single, twice, max_arguments, printf_bytes;
                                   unsigned char native_uuid[16];);
struct xpu_group_facts XPU_STRUCT(uint32_t flags; size_t max_pattern; uint32_t n_queues;);
struct xpu_allocation_facts XPU_STRUCT(int type; uint64_t id, page;);
struct xpu_queue_desc XPU_STRUCT(uint32_t group, index, flags; int mode, priority;);
struct xpu_list_desc XPU_STRUCT(uint32_t group, flags;);
struct xpu_pool_desc XPU_STRUCT(uint32_t flags, n;);
struct xpu_event_desc XPU_STRUCT(uint32_t index, signal_scope, wait_scope;);
struct xpu_flags_desc XPU_STRUCT(uint32_t flags;); /* for contexts, host memory, limits, ways to free */
struct xpu_device_memory_desc XPU_STRUCT(uint32_t flags, memory;);
struct xpu_module_desc XPU_STRUCT(int format; size_t bytes; const void *image; const char *flags; const void *constants;);
struct xpu_kernel_desc XPU_STRUCT(uint32_t flags; const char *name;);
/* clang-format on */
struct xpu_ipc_handle {
    unsigned char bytes[XPU_HANDLE_BYTES]; /* the first four: a descriptor of the process that it is of */
};
struct xpu_grid {
    uint32_t groups[3];
};
struct xpu_timestamps {
    uint64_t start, end;                 /* by the device's clock */
    uint64_t context_start, context_end; /* by one that stands still while others run */
};

/* X(member, symbol, parameters). NEEDED: of every loader since 1.3; LATER: came after it, or stands for an extension,
 * NULL where it is not there. */
/* clang-format off */
#define XPU_DRIVER_CALLS(NEEDED, LATER) \
    NEEDED(init, zeInit, (uint32_t flags)) \
    NEEDED(drivers, zeDriverGet, (uint32_t *n, void **drivers)) \
    NEEDED(driver_version, zeDriverGetApiVersion, (void *driver, int *version)) \
    NEEDED(driver_facts, zeDriverGetProperties, (void *driver, struct xpu_driver_facts *facts)) \
    NEEDED(devices_list, zeDeviceGet, (void *driver, uint32_t *n, void **devices)) \
    NEEDED(device_facts, zeDeviceGetProperties, (void *device, struct xpu_device_facts *facts)) \
    NEEDED(device_memories, zeDeviceGetMemoryProperties, (void *device, uint32_t *n, struct xpu_memory_facts *facts)) \
    NEEDED(device_groups, zeDeviceGetCommandQueueGroupProperties, (void *device, uint32_t *n, struct xpu_group_facts *facts)) \
    NEEDED(device_modules, zeDeviceGetModuleProperties, (void *device, struct xpu_module_facts *facts)) \
    NEEDED(device_link, zeDeviceGetP2PProperties, (void *device, void *other, struct xpu_flags_desc *facts)) \
    NEEDED(device_can_reach, zeDeviceCanAccessPeer, (void *device, void *other, unsigned char *can)) \
    NEEDED(device_status, zeDeviceGetStatus, (void *device)) \
    LATER(device_root, zeDeviceGetRootDevice, (void *device, void **root)) \
    NEEDED(context_create, zeContextCreate, (void *driver, const struct xpu_flags_desc *desc, void **context)) \
    NEEDED(memory_alloc, zeMemAllocDevice, (void *context, const struct xpu_device_memory_desc *desc, size_t bytes, size_t alignment, void *device, void **out)) \
    NEEDED(host_alloc, zeMemAllocHost, (void *context, const struct xpu_flags_desc *desc, size_t bytes, size_t alignment, void **out)) \
    NEEDED(memory_free, zeMemFree, (void *context, void *pointer)) \
    LATER(memory_free_when_over, zeMemFreeExt, (void *context, const struct xpu_flags_desc *desc, void *pointer)) \
    NEEDED(memory_facts, zeMemGetAllocProperties, (void *context, const void *pointer, struct xpu_allocation_facts *facts, void **device)) \
    NEEDED(memory_range, zeMemGetAddressRange, (void *context, const void *pointer, void **base, size_t *bytes)) \
    NEEDED(ipc_get, zeMemGetIpcHandle, (void *context, const void *pointer, struct xpu_ipc_handle *handle)) \
    LATER(ipc_put, zeMemPutIpcHandle, (void *context, struct xpu_ipc_handle handle)) \
    NEEDED(ipc_open, zeMemOpenIpcHandle, (void *context, void *device, struct xpu_ipc_handle handle, uint32_t flags, void **out)) \
    NEEDED(ipc_close, zeMemCloseIpcHandle, (void *context, const void *pointer)) \
    NEEDED(list_create_immediate, zeCommandListCreateImmediate, (void *context, void *device, const struct xpu_queue_desc *desc, void **list)) \
    NEEDED(list_create, zeCommandListCreate, (void *context, void *device, const struct xpu_list_desc *desc, void **list)) \
    NEEDED(list_destroy, zeCommandListDestroy, (void *list)) \
    NEEDED(list_close, zeCommandListClose, (void *list)) \
    NEEDED(list_reset, zeCommandListReset, (void *list)) \
    NEEDED(queue_execute, zeCommandQueueExecuteCommandLists, (void *queue, uint32_t n, void **lists, void *fence)) \
    NEEDED(append_barrier, zeCommandListAppendBarrier, (void *list, void *signal, uint32_t n_waits, void **waits)) \
    NEEDED(append_copy, zeCommandListAppendMemoryCopy, (void *list, void *dst, const void *src, size_t bytes, void *signal, uint32_t n_waits, void **waits)) \
    NEEDED(append_fill, zeCommandListAppendMemoryFill, (void *list, void *pointer, const void *pattern, size_t pattern_bytes, size_t bytes, void *signal, uint32_t n_waits, void **waits)) \
    NEEDED(append_kernel, zeCommandListAppendLaunchKernel, (void *list, void *kernel, const struct xpu_grid *grid, void *signal, uint32_t n_waits, void **waits)) \
    LATER(append_host, zeCommandListAppendHostFunction, (void *list, void (*function)(void *arg), void *arg, const void *next, void *signal, uint32_t n_waits, void **waits)) \
    NEEDED(pool_create, zeEventPoolCreate, (void *context, const struct xpu_pool_desc *desc, uint32_t n_devices, void **devices, void **pool)) \
    NEEDED(event_create, zeEventCreate, (void *pool, const struct xpu_event_desc *desc, void **event)) \
    NEEDED(event_signal, zeEventHostSignal, (void *event)) \
    NEEDED(event_sync, zeEventHostSynchronize, (void *event, uint64_t timeout_ns)) \
    NEEDED(event_status, zeEventQueryStatus, (void *event)) \
    NEEDED(event_reset, zeEventHostReset, (void *event)) \
    NEEDED(event_times, zeEventQueryKernelTimestamp, (void *event, struct xpu_timestamps *out)) \
    NEEDED(module_create, zeModuleCreate, (void *context, void *device, const struct xpu_module_desc *desc, void **module, void **log)) \
    NEEDED(module_destroy, zeModuleDestroy, (void *module)) \
    NEEDED(module_log, zeModuleBuildLogGetString, (void *log, size_t *bytes, char *text)) \
    NEEDED(module_log_destroy, zeModuleBuildLogDestroy, (void *log)) \
    NEEDED(module_native, zeModuleGetNativeBinary, (void *module, size_t *bytes, unsigned char *image)) \
    NEEDED(module_kernels, zeModuleGetKernelNames, (void *module, uint32_t *n, const char **names)) \
    NEEDED(kernel_create, zeKernelCreate, (void *module, const struct xpu_kernel_desc *desc, void **kernel)) \
    NEEDED(kernel_destroy, zeKernelDestroy, (void *kernel)) \
    NEEDED(kernel_group, zeKernelSetGroupSize, (void *kernel, uint32_t x, uint32_t y, uint32_t z)) \
    NEEDED(kernel_argument, zeKernelSetArgumentValue, (void *kernel, uint32_t index, size_t bytes, const void *value)) \
    NEEDED(kernel_indirect, zeKernelSetIndirectAccess, (void *kernel, uint32_t flags))
/* clang-format on */

struct xpu_driver {
#define XPU_DRIVER_MEMBER(member, symbol, parameters) int(*member) parameters;
    XPU_DRIVER_CALLS(XPU_DRIVER_MEMBER, XPU_DRIVER_MEMBER)
#undef XPU_DRIVER_MEMBER
    void *driver, *context;
    int version;            /* the interface's: 1004 is 1.4 */
    uint32_t maker_version; /* the maker counts */
    uint32_t n_devices;
    void *devices[XPU_DEVICES_MAX];
    const void *standin_kernels; /* NULL: it is no stand-in */
};

/* ---- driver.c ---- */
/* Opened at the first question; NULL: there is none (tutti_xpu_absence). */
const struct xpu_driver *xpu_driver(void);
/* NULL, too, where nobody uses it yet. */
const struct xpu_driver *xpu_driver_in_use(void);
bool xpu_forked(void); /* the parent has used the driver: nothing works here */
/* The status of a call's result, with the error record. device: NULL where it is of none. */
enum tutti_status xpu_result(const struct tutti_device *device, int result, const char *call);

/* ---- xpu_device.c ---- */
struct xpu_kernel {
    char *name;
    void *kernel;
};
/* A device that is open. */
struct xpu {
    struct tutti_device seen;
    const struct xpu_driver *driver;
    void *device;
    uint32_t group; /* the queues': the first that computes */
    bool doubles;   /* has float64 */
    uint64_t max_alloc, timer_hz;
    uint32_t timer_bits;
    struct xpu_stream *stream, *now; /* the default one; that of set and copy_now */
    pthread_mutex_t launching;       /* a kernel has its argument until it is appended */
    struct xpu_argument *arguments;  /* in pinned memory; under that lock */
    struct xpu_kernel *kernels;      /* by name */
    size_t n_kernels;
};
static inline struct xpu *xpu_of(struct tutti_device *device)
{
    return (struct xpu *)(void *)device;
}
static inline const struct xpu_driver *xpu_calls(struct tutti_device *device)
{
    return xpu_of(device)->driver;
}

/* ---- xpu_device.c ---- */
/* The driver, if it has the device. */
enum tutti_status xpu_driver_for(int32_t ordinal, const struct xpu_driver **out);
enum tutti_status xpu_facts_read(const struct xpu_driver *driver, int32_t ordinal, struct xpu_device_facts *own,
                                 struct tutti_device_facts *out);

/* ---- xpu_events.c: events of Level Zero, each for one point in a stream, and used again when that is over ---- */
struct xpu_mark {
    void *event;
    struct xpu_mark *next, *holds; /* another, which this one's command still looks at */
    uint32_t n_users;
    bool timed;
};
enum tutti_status xpu_mark_take(const struct xpu_driver *driver, bool timed, struct xpu_mark **out);
void xpu_mark_hold(struct xpu_mark *mark);
void xpu_mark_drop(struct xpu_mark *mark); /* when it is over, it serves others; NULL is fine */
/* Nothing that signals it was enqueued. */
void xpu_mark_return(struct xpu_mark *mark);

/* ---- xpu_stream.c ---- */
struct xpu_stream;
struct xpu_work {
    void *after; /* the event that is waited for first; NULL: none */
    int (*append)(const struct xpu_driver *driver, void *list, const void *job); /* NULL: nothing but the rest */
    const void *job;
    void *signal;     /* the event that is signalled in the end; NULL: none */
    const char *call; /* for sentences */
};
/* Barrier, work, barrier. */
enum tutti_status xpu_enqueue(struct tutti_device *device, void *stream, const struct xpu_work *work);
/* Enqueues, and waits until it is over. */
enum tutti_status xpu_carry_out(struct tutti_device *device, void *stream, const struct xpu_work *work);
enum tutti_status xpu_streams_open(struct xpu *xpu); /* its own two */
/* Until what is enqueued on its streams of ours is over. */
enum tutti_status xpu_streams_sync(struct xpu *xpu);
/* The stream goes on when the watcher has signalled *gate, which the caller drops. */
enum tutti_status xpu_gate(struct tutti_device *device, void *stream, struct xpu_mark **gate);

/* ---- xpu_kernels.c ---- */
extern const struct tutti_gpu_ops xpu_gpu_ops;

/* ---- sycl.c: a SYCL library that the process has loaded ---- */
bool xpu_sycl_loaded(void);
/* The default context of its platform for Level Zero; NULL: there is none. */
void *xpu_sycl_context(void);
/* What a sycl::queue of that context is in Level Zero. */
enum tutti_status xpu_sycl_native(const void *queue, const void *context, enum tutti_native *kind, void **native);

/* ---- xpu_kernels.c ---- */
#define XPU_MODULE_FLAGS "-cl-fp32-correctly-rounded-divide-sqrt" /* as on CPUs */
enum tutti_status xpu_kernels_load(struct xpu *xpu);
void xpu_kernels_unload(struct xpu *xpu);

/* ---- xpu_cache.c: native binaries of images, in files of the user's cache folder ---- */
/* *out is malloc'ed by tutti_alloc. False: there is none that can be believed. */
bool xpu_cache_read(const struct xpu *xpu, const struct tutti_gpu_image *image, void **out, size_t *bytes);
/* Failing is no error: it is made anew the next time. */
void xpu_cache_write(const struct xpu *xpu, const struct tutti_gpu_image *image, const void *native, size_t bytes);

TUTTI_GPU_IMAGES(xpu)

#endif
