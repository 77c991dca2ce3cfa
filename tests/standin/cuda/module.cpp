/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules and launches of the stand-in: any image holds all kernels that were compiled into it. */

#include "driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

/* What the driver layer passes as the image; that it is there says that this is no real driver. */
STANDIN_API const char tutti_standin_kernels[];
const char tutti_standin_kernels[] = "all kernels";

using namespace standin;

STANDIN_API int cuModuleLoadData(void **out, const void *image)
{
    const int status = usable_in_context();
    if (status) return status;
    if (!image) return invalid_value;
    guard held(all().lock);
    const int forbidden = safe_call();
    if (forbidden) return forbidden;
    module *made = new module{current, {}};
    for (const cuda_standin_kernel *kernel = cuda_standin_kernels(); kernel; kernel = kernel->next) {
        made->functions.emplace_back(new function{made, kernel});
        all().functions.insert(made->functions.back().get());
    }
    all().modules.insert(made);
    *out = made;
    return success;
}

template <class F> static int with_module(void *handle, F act)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const auto found = all().modules.find(static_cast<module *>(handle));
    return found == all().modules.end() ? invalid_handle : act(*found);
}
template <class F> static int with_function(void *handle, F act)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const auto found = all().functions.find(static_cast<function *>(handle));
    return found == all().functions.end() ? invalid_handle : act(*found);
}

STANDIN_API int cuModuleUnload(void *handle)
{
    return with_module(handle, [](module *of) {
        for (const auto &one : of->functions) all().functions.erase(one.get());
        all().modules.erase(of);
        delete of;
        return (int)success;
    });
}

STANDIN_API int cuModuleGetFunction(void **out, void *handle, const char *name)
{
    return with_module(handle, [out, name](module *of) {
        for (const auto &one : of->functions) {
            if (strcmp(one->kernel->name, name) != 0) continue;
            *out = one.get();
            return (int)success;
        }
        return (int)not_found;
    });
}

STANDIN_API int cuModuleGetFunctionCount(unsigned *count, void *handle)
{
    return with_module(handle, [count](module *of) {
        *count = (unsigned)of->functions.size();
        return (int)success;
    });
}

STANDIN_API int cuModuleEnumerateFunctions(void **functions, unsigned n, void *handle)
{
    return with_module(handle, [functions, n](module *of) {
        for (unsigned i = 0; i < n && i < of->functions.size(); i++) functions[i] = of->functions[i].get();
        return (int)success;
    });
}

STANDIN_API int cuFuncGetName(const char **name, void *handle)
{
    return with_function(handle, [name](function *of) {
        *name = of->kernel->name;
        return (int)success;
    });
}

STANDIN_API int cuFuncLoad(void *handle)
{
    return with_function(handle, [](function *) { return (int)success; });
}

STANDIN_API int cuFuncGetAttribute(int *value, int attribute, void *handle)
{
    return with_function(handle, [value, attribute](function *of) {
        if (attribute < 0 || attribute > 15) return (int)invalid_value;
        *value = attribute == 0 ? (int)of->kernel->bounds.max_threads : attribute == 4 ? 32 : attribute == 5 ? 90 : 0;
        return (int)success;
    });
}

STANDIN_API int cuFuncSetAttribute(void *handle, int attribute, int)
{
    return with_function(handle, [attribute](function *) { return (int)(attribute == 8 ? success : invalid_value); });
}

/* The bytes of the one parameter, which are the caller's until the launch returns. */
static std::shared_ptr<std::vector<char>> parameter_of(const function *of, void **parameters, void **extra)
{
    const char *from = parameters ? (const char *)parameters[0] : nullptr;
    size_t bytes = of->kernel->parameter_bytes;
    for (size_t i = 0; !parameters && extra && extra[i]; i += 2) {
        if ((uintptr_t)extra[i] == 1) from = (const char *)extra[i + 1];
        if ((uintptr_t)extra[i] == 2) bytes = *(const size_t *)extra[i + 1];
    }
    if (!from || bytes != of->kernel->parameter_bytes) return nullptr;
    return std::make_shared<std::vector<char>>(from, from + bytes);
}

STANDIN_API int cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream_handle,
                               void **parameters, void **extra)
{
    if (has_few_queues()) wait_for_frees();
    return with_function(handle, [=](function *of) {
        stream *to = stream_of(stream_handle);
        if (!to || to->owner != current || of->owner->owner != current) return (int)invalid_handle;
        if (grid_x == 0 || block_x == 0 || block_x > 1024 || shared_bytes > 232448) return (int)invalid_value;
        if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) return (int)not_supported;
        if (block_x > of->kernel->bounds.max_threads) return (int)launch_out_of_resources;
        const auto parameter = parameter_of(of, parameters, extra);
        if (!parameter) return (int)invalid_value;
        if (from_environment("TUTTI_STANDIN_TRACE", 0)) {
            fprintf(stderr, "standin: process %d device %d: %s<%u, %u>%s\n", (int)getpid(), current->device,
                    of->kernel->name, grid_x, block_x, to->captured ? " captured" : "");
        }
        const char *idle = getenv("TUTTI_STANDIN_IDLE");
        if (idle && to->captured && strncmp(of->kernel->name, idle, strlen(idle)) == 0) return submit(to, [] {});
        return submit(to, [kernel = of->kernel, grid_x, block_x, shared_bytes, parameter] {
            cuda_standin_run({kernel, grid_x, block_x, shared_bytes, parameter->data()});
        });
    });
}
