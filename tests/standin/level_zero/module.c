/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules: the one that has all kernels of the .cl files. */
#include "standin.h"

#include <string.h>

extern const char tutti_standin_kernels[];
static const char native[] = "the stand-in's native binary";
static const char refusal[] = "the stand-in has no compiler: it takes its own kernels alone\nand nothing else";
static char the_module, the_log;

API int zeModuleCreate(void *context, void *device, const struct xpu_module_desc *desc, void **module, void **log)
{
    STANDIN_MAY_FAIL();
    if (!context || !standin_is_device(device) || desc->structure != XPU_STRUCTURE_MODULE)
        return XPU_RESULT_INVALID_ARGUMENT;
    if (log) *log = &the_log;
    if (desc->format == XPU_MODULE_NATIVE
            ? desc->bytes == sizeof native && memcmp(desc->image, native, sizeof native) == 0
            : desc->image == (const void *)tutti_standin_kernels) {
        *module = &the_module;
        return XPU_RESULT_OK;
    }
    return desc->format == XPU_MODULE_NATIVE ? XPU_RESULT_INVALID_NATIVE_BINARY : XPU_RESULT_MODULE_BUILD_FAILURE;
}

API int zeModuleDestroy(void *module)
{
    return module == &the_module ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

API int zeModuleBuildLogGetString(void *log, size_t *bytes, char *text)
{
    if (log != &the_log) return XPU_RESULT_INVALID_ARGUMENT;
    *bytes = sizeof refusal;
    if (text) memcpy(text, refusal, sizeof refusal);
    return XPU_RESULT_OK;
}

API int zeModuleBuildLogDestroy(void *log)
{
    return log == &the_log ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

API int zeModuleGetNativeBinary(void *module, size_t *bytes, unsigned char *image)
{
    if (module != &the_module) return XPU_RESULT_INVALID_ARGUMENT;
    *bytes = sizeof native;
    if (image) memcpy(image, native, sizeof native);
    return XPU_RESULT_OK;
}

API int zeModuleGetKernelNames(void *module, uint32_t *n, const char **names)
{
    const uint32_t there = (uint32_t)standin_n_kernels();
    if (module != &the_module) return XPU_RESULT_INVALID_ARGUMENT;
    for (uint32_t i = 0; names && i < *n && i < there; i++) names[i] = standin_kernel_name(i);
    if (!names || *n > there) *n = there;
    return XPU_RESULT_OK;
}

API int zeKernelCreate(void *module, const struct xpu_kernel_desc *desc, void **kernel)
{
    STANDIN_MAY_FAIL();
    if (module != &the_module || desc->structure != XPU_STRUCTURE_KERNEL) return XPU_RESULT_INVALID_ARGUMENT;
    for (size_t i = 0; i < standin_n_kernels(); i++) {
        if (strcmp(standin_kernel_name(i), desc->name) != 0) continue;
        struct standin_kernel *made = tutti_alloc(sizeof *made);
        if (!made) return XPU_RESULT_OUT_OF_HOST_MEMORY;
        made->index = i;
        *kernel = made;
        return XPU_RESULT_OK;
    }
    return XPU_RESULT_INVALID_ARGUMENT;
}

API int zeKernelDestroy(void *kernel)
{
    tutti_free(kernel);
    return XPU_RESULT_OK;
}

API int zeKernelSetGroupSize(void *kernel, uint32_t x, uint32_t y, uint32_t z)
{
    STANDIN_MAY_FAIL();
    if (x == 0 || x > 1024 || y != 1 || z != 1) return XPU_RESULT_INVALID_ARGUMENT;
    ((struct standin_kernel *)kernel)->group_size = x;
    return XPU_RESULT_OK;
}

API int zeKernelSetArgumentValue(void *handle, uint32_t index, size_t bytes, const void *value)
{
    struct standin_kernel *kernel = handle;
    if (index != 0 || bytes != standin_kernel_bytes(kernel->index) || bytes > sizeof kernel->argument)
        return XPU_RESULT_INVALID_ARGUMENT;
    memcpy(kernel->argument, value, bytes);
    kernel->has_argument = true;
    return XPU_RESULT_OK;
}

API int zeKernelSetIndirectAccess(void *kernel, uint32_t flags)
{
    (void)kernel;
    return flags == XPU_INDIRECT_ALL ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

bool standin_kernel_capture(const void *handle, struct standin_launch *out)
{
    const struct standin_kernel *kernel = handle;
    out->index = kernel->index, out->group_size = kernel->group_size;
    memcpy(out->argument, kernel->argument, sizeof out->argument);
    return kernel->has_argument && kernel->group_size && out->groups;
}
