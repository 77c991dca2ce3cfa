/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CUDA_DRIVER_CALLS_H
#define TUTTI_STANDIN_CUDA_DRIVER_CALLS_H

/* What tests of the stand-in call: the driver's functions, from the library that the first argument names, and the
 * usual ways to call them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct ipc_handle {
    char bytes[64];
};
struct properties { /* CUmemAllocationProp */
    int type, handle_types, location_type, location;
    void *unused[2];
};
struct permission { /* CUmemAccessDesc */
    int location_type, location, flags;
};
#define CALLS(X)                                                                                                       \
    X(cuInit, (unsigned))                                                                                              \
    X(cuDevicePrimaryCtxRetain, (void **, int))                                                                        \
    X(cuCtxSetCurrent, (void *))                                                                                       \
    X(cuDeviceGetAttribute, (int *, int, int))                                                                         \
    X(cuModuleLoadData, (void **, const void *))                                                                       \
    X(cuModuleGetFunction, (void **, void *, const char *))                                                            \
    X(cuMemAlloc_v2, (void **, size_t))                                                                                \
    X(cuMemFree_v2, (void *))                                                                                          \
    X(cuMemAllocAsync, (void **, size_t, void *))                                                                      \
    X(cuMemFreeAsync, (void *, void *))                                                                                \
    X(cuMemcpyAsync, (void *, const void *, size_t, void *))                                                           \
    X(cuMemsetD8Async, (void *, unsigned char, size_t, void *))                                                        \
    X(cuPointerGetAttribute, (void *, int, uint64_t))                                                                  \
    X(cuIpcGetMemHandle, (struct ipc_handle *, void *))                                                                \
    X(cuIpcOpenMemHandle_v2, (void **, struct ipc_handle, unsigned))                                                   \
    X(cuIpcCloseMemHandle, (void *))                                                                                   \
    X(cuMemCreate, (uint64_t *, size_t, const struct properties *, unsigned long long))                                \
    X(cuMemRelease, (uint64_t))                                                                                        \
    X(cuMemRetainAllocationHandle, (uint64_t *, void *))                                                               \
    X(cuMemGetAllocationPropertiesFromHandle, (struct properties *, uint64_t))                                         \
    X(cuMemGetAllocationGranularity, (size_t *, const struct properties *, int))                                       \
    X(cuMemExportToShareableHandle, (void *, uint64_t, int, unsigned long long))                                       \
    X(cuMemImportFromShareableHandle, (uint64_t *, void *, int))                                                       \
    X(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long))                                 \
    X(cuMemAddressFree, (uint64_t, size_t))                                                                            \
    X(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long))                                              \
    X(cuMemUnmap, (uint64_t, size_t))                                                                                  \
    X(cuMemSetAccess, (uint64_t, size_t, const struct permission *, size_t))                                           \
    X(cuMemGetAccess, (unsigned long long *, const struct permission *, uint64_t))                                     \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                           \
    X(cuStreamCreate, (void **, unsigned))                                                                             \
    X(cuStreamDestroy_v2, (void *))                                                                                    \
    X(cuStreamSynchronize, (void *))                                                                                   \
    X(cuStreamQuery, (void *))                                                                                         \
    X(cuStreamWaitEvent, (void *, void *, unsigned))                                                                   \
    X(cuStreamWaitValue32_v2, (void *, uint64_t, uint32_t, unsigned))                                                  \
    X(cuStreamWriteValue32_v2, (void *, uint64_t, uint32_t, unsigned))                                                 \
    X(cuLaunchHostFunc, (void *, void (*)(void *), void *))                                                            \
    X(cuEventCreate, (void **, unsigned))                                                                              \
    X(cuEventRecord, (void *, void *))                                                                                 \
    X(cuEventQuery, (void *))                                                                                          \
    X(cuThreadExchangeStreamCaptureMode, (int *))                                                                      \
    X(cuStreamBeginCapture_v2, (void *, int))                                                                          \
    X(cuStreamEndCapture, (void *, void **))                                                                           \
    X(cuStreamGetCaptureInfo_v2, (void *, int *, uint64_t *, void **, void *const **, size_t *))                       \
    X(cuStreamUpdateCaptureDependencies, (void *, void **, size_t, unsigned))                                          \
    X(cuGraphGetNodes, (void *, void **, size_t *))                                                                    \
    X(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                                              \
    X(cuGraphLaunch, (void *, void *))                                                                                 \
    X(cuGraphExecDestroy, (void *))                                                                                    \
    X(cuUserObjectCreate, (void **, void *, void (*)(void *), unsigned, unsigned))                                     \
    X(cuGraphRetainUserObject, (void *, void *, unsigned, unsigned))                                                   \
    X(cuGraphDestroy, (void *))                                                                                        \
    X(cuLaunchKernel,                                                                                                  \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))
#define POINTER(name, parameters) static int(*name) parameters;
CALLS(POINTER)

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    ALREADY_MAPPED = 208,
    NOT_READY = 600
};
enum {
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    UNSUPPORTED = 900,
    INVALIDATED = 901,
    UNJOINED = 904,
    ISOLATION = 905,
    IMPLICIT = 906
};

static const char *library;
static void *module;

static inline void load(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_msg("%s", dlerror());
#define LOAD(name, parameters)                                                                                         \
    *(void **)&name = dlsym(handle, #name);                                                                            \
    assert_non_null(name);
    CALLS(LOAD)
}

static inline void enter(int device)
{
    void *context;
    assert_int_equal(cuInit(0), SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, "any"), SUCCESS);
}

struct words {
    uint32_t *word;
    uint32_t value, n;
};
static inline void launch_with(const char *name, unsigned blocks, unsigned threads, void *stream, void *parameter)
{
    void *function, *parameters[] = {parameter};
    assert_int_equal(cuModuleGetFunction(&function, module, name), SUCCESS);
    assert_int_equal(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL), SUCCESS);
}

static inline void launch(const char *name, unsigned blocks, unsigned threads, void *stream, struct words x)
{
    launch_with(name, blocks, threads, stream, &x);
}

static inline uint32_t *words(size_t n)
{
    void *made;
    assert_int_equal(cuMemAlloc_v2(&made, n * 4), SUCCESS);
    assert_int_equal(cuMemsetD8Async(made, 0, n * 4, NULL), SUCCESS);
    assert_int_equal(cuStreamSynchronize(NULL), SUCCESS);
    return made;
}

static inline void *stream(void)
{
    void *made;
    assert_int_equal(cuStreamCreate(&made, 1), SUCCESS);
    return made;
}

/* In processes that have not used the driver before. */
static inline void in_two_processes(void (*const be[2])(const int pipes[2]))
{
    int to[2], back[2], status;
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(back), 0);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        const int pipes[2] = {i ? to[0] : back[0], i ? back[1] : to[1]};
        be[i](pipes);
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
        assert_int_equal(close(to[i]) | close(back[i]), 0);
    }
}

static inline bool take_arguments(int argc, char **argv)
{
    if (argc == 2) {
        library = argv[1];
        load();
    } else {
        fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
    }
    return argc == 2;
}

#endif
