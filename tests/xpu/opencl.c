/* SPDX-License-Identifier: BSD-3-Clause */
/* See opencl.h. Declarations of our own of the few calls that are used. */
#include "xpu/opencl.h"

#include "device/level_zero/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { DEVICE_CPU = 2, DEVICE_NAME = 0x102b, PROGRAM_BUILD_LOG = 0x1183, MODULES_MOST = 64 };

/* clang-format off */
#define CALLS(X) \
    X(platforms, clGetPlatformIDs, (uint32_t n, void **platforms, uint32_t *found)) \
    X(devices, clGetDeviceIDs, (void *platform, uint64_t type, uint32_t n, void **devices, uint32_t *found)) \
    X(device_info, clGetDeviceInfo, (void *device, uint32_t name, size_t room, void *out, size_t *bytes)) \
    X(build, clBuildProgram, (void *program, uint32_t n, void **devices, const char *options, void *notify, void *arg)) \
    X(build_info, clGetProgramBuildInfo, (void *program, void *device, uint32_t name, size_t room, void *out, size_t *bytes)) \
    X(argument, clSetKernelArg, (void *kernel, uint32_t index, size_t bytes, const void *value)) \
    X(launch, clEnqueueNDRangeKernel, (void *queue, void *kernel, uint32_t dimensions, const size_t *offset, \
        const size_t *global, const size_t *local, uint32_t n_waits, void **waits, void **event)) \
    X(finish, clFinish, (void *queue))
#define MAKERS(X) \
    X(context, clCreateContext, (const intptr_t *properties, uint32_t n, void **devices, void *notify, void *arg, int *error)) \
    X(queue, clCreateCommandQueue, (void *context, void *device, uint64_t properties, int *error)) \
    X(program, clCreateProgramWithIL, (void *context, const void *il, size_t bytes, int *error)) \
    X(kernel, clCreateKernel, (void *program, const char *name, int *error))
/* clang-format on */

struct opencl {
#define CALL_MEMBER(member, symbol, parameters) int(*member) parameters;
#define MAKER_MEMBER(member, symbol, parameters) void *(*member)parameters;
    CALLS(CALL_MEMBER)
    MAKERS(MAKER_MEMBER)
    void *device, *in, *commands; /* the context and the queue */
    void *programs[MODULES_MOST];
    char device_name[128];
};

static bool load(struct opencl *cl)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (!library) return false;
#define LOAD(member, symbol, parameters)                                                                               \
    *(void **)&cl->member = dlsym(library, #symbol);                                                                   \
    if (!cl->member) return false;
    CALLS(LOAD)
    MAKERS(LOAD)
    return true;
}

struct opencl *opencl_open(const char **why)
{
    static struct opencl cl;
    void *platforms[8];
    uint32_t n = 0, found = 0;
    int error;
    *why = "there is no libOpenCL.so.1 that takes SPIR-V";
    if (!load(&cl)) return NULL;
    *why = "OpenCL has no CPU here that takes SPIR-V";
    if (cl.platforms(TUTTI_ARRAY_LEN(platforms), platforms, &n) != 0) return NULL;
    for (uint32_t i = 0; i < n && i < TUTTI_ARRAY_LEN(platforms) && !found; i++) {
        char il[256] = "";
        if (cl.devices(platforms[i], DEVICE_CPU, 1, &cl.device, &found) != 0) found = 0;
        if (found && cl.device_info(cl.device, 0x105b, sizeof il, il, NULL) != 0) found = 0; /* CL_DEVICE_IL_VERSION */
        if (!strstr(il, "SPIR-V")) found = 0;
    }
    if (!found) return NULL;
    assert_int_equal(cl.device_info(cl.device, DEVICE_NAME, sizeof cl.device_name, cl.device_name, NULL), 0);
    cl.in = cl.context(NULL, 1, &cl.device, NULL, NULL, &error);
    assert_int_equal(error, 0);
    cl.commands = cl.queue(cl.in, cl.device, 0, &error);
    assert_int_equal(error, 0);
    return &cl;
}

const char *opencl_name(const struct opencl *cl)
{
    return cl->device_name;
}

static void *program_of(struct opencl *cl, const char *module)
{
    int error;
    for (size_t i = 0; i < xpu_n_images; i++) {
        const struct tutti_gpu_image *image = &xpu_images[i];
        if (strcmp(image->name, module) != 0) continue;
        if (cl->programs[i]) return cl->programs[i];
        void *program = cl->program(cl->in, image->begin, (size_t)(image->end - image->begin), &error);
        assert_int_equal(error, 0);
        if (cl->build(program, 1, &cl->device, "-cl-fp32-correctly-rounded-divide-sqrt", NULL, NULL) != 0) {
            static char text[4096];
            cl->build_info(program, cl->device, PROGRAM_BUILD_LOG, sizeof text, text, NULL);
            fail_msg("%s: %s", module, text);
        }
        return cl->programs[i] = program;
    }
    fail_msg("there is no module %s", module);
    return NULL;
}

void *opencl_kernel(struct opencl *cl, const char *module, const char *name)
{
    int error;
    void *kernel = cl->kernel(program_of(cl, module), name, &error);
    if (error) fail_msg("%s has no kernel %s (%d)", module, name, error);
    return kernel;
}

void opencl_run(struct opencl *cl, void *kernel, uint32_t blocks, uint32_t threads, const void *args, size_t args_bytes)
{
    const size_t global = (size_t)blocks * threads, local = threads;
    assert_int_equal(cl->argument(kernel, 0, args_bytes, args), 0);
    assert_int_equal(cl->launch(cl->commands, kernel, 1, NULL, &global, &local, 0, NULL, NULL), 0);
    assert_int_equal(cl->finish(cl->commands), 0);
}
