/* SPDX-License-Identifier: BSD-3-Clause */

/* The kernels that were built in: loaded when a device is opened, every one of them, since what is loaded later may
 * wait for the device, where another kernel spins until a peer comes that waits for this one. */

#include "device/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tutti_cuda_built_for(void)
{
    return cuda_images_for;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct cuda_kernel *)a)->name, ((const struct cuda_kernel *)b)->name);
}

/* Drivers before 12.4 load a kernel when its attributes are asked for. */
static int kernel_force(const struct cuda_driver *driver, void *function)
{
    int n_registers;
    return driver->function_load ? driver->function_load(function)
                                 : driver->function_attribute(&n_registers, CUDA_FUNCTION_N_REGISTERS, function);
}

/* ---- images ---- */

/* What to do about an image that the driver can not use. */
static enum tutti_status image_refused(const struct cuda_gpu *gpu, int result, const char *name)
{
    const char *text = NULL;
    if (gpu->driver->error_string(result, &text) != CUDA_RESULT_OK || !text) text = "error";
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "CUDA device %d (%s, compute capability %u.%u) can not run the kernels that were built in (%s: "
                      "%s): they are for %s, made by CUDA %s, and the driver is for CUDA %d.%d; build tutti with "
                      "-DTUTTI_CUDA_ARCHITECTURES=%u and a toolkit that is not newer than the driver",
                      gpu->seen.ordinal, gpu->seen.name, gpu->seen.capability / 10, gpu->seen.capability % 10, name,
                      text, cuda_images_for, cuda_images_by, gpu->driver->version / 1000,
                      gpu->driver->version % 1000 / 10, gpu->seen.capability);
}

static enum tutti_status image_load(struct cuda_gpu *gpu, const void *image, const char *name)
{
    static const int unfit[] = {CUDA_RESULT_INVALID_IMAGE, CUDA_RESULT_NO_BINARY_FOR_GPU, CUDA_RESULT_INVALID_PTX,
                                CUDA_RESULT_UNSUPPORTED_PTX_VERSION};
    void *module;
    const int result = gpu->driver->module_load_data(&module, image);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(unfit); i++)
        if (result == unfit[i]) return image_refused(gpu, result, name);
    TUTTI_TRY(cuda_result(&gpu->seen, result, "cuModuleLoadData"));
    gpu->modules[gpu->n_modules++] = module;
    return TUTTI_OK;
}

static enum tutti_status images_load(struct cuda_gpu *gpu)
{
    const void *standin = gpu->driver->standin_kernels;
    const size_t n = standin ? 1 : cuda_n_images;
    if (n == 0)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "this tutti was built without kernels for CUDA devices: build it where there is nvcc");
    gpu->modules = tutti_alloc_array(n, sizeof(void *));
    if (!gpu->modules) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu images of kernels", n);
    if (standin) return image_load(gpu, standin, "the stand-in's");
    for (size_t i = 0; i < n; i++) TUTTI_TRY(image_load(gpu, cuda_images[i].begin, cuda_images[i].name));
    return TUTTI_OK;
}

/* ---- kernels ---- */

/* A module's, behind those that are there; `room` is for all. */
static enum tutti_status kernels_list(struct cuda_gpu *gpu, void *module, void **room, unsigned n)
{
    const struct cuda_driver *driver = gpu->driver;
    if (n == 0) return TUTTI_OK;
    TUTTI_TRY(cuda_result(&gpu->seen, driver->module_functions(room, n, module), "cuModuleEnumerateFunctions"));
    for (unsigned i = 0; i < n; i++) {
        struct cuda_kernel *kernel = &gpu->kernels[gpu->n_kernels];
        kernel->function = room[i];
        TUTTI_TRY(cuda_result(&gpu->seen, driver->function_name(&kernel->name, room[i]), "cuFuncGetName"));
        TUTTI_TRY(cuda_result(&gpu->seen, kernel_force(driver, room[i]), "cuFuncLoad"));
        gpu->n_kernels++;
    }
    return TUTTI_OK;
}

static enum tutti_status kernels_find(struct cuda_gpu *gpu)
{
    const struct cuda_driver *driver = gpu->driver;
    unsigned n_all = 0, n;
    for (size_t i = 0; i < gpu->n_modules; i++, n_all += n)
        TUTTI_TRY(
            cuda_result(&gpu->seen, driver->module_function_count(&n, gpu->modules[i]), "cuModuleGetFunctionCount"));
    void **room = tutti_alloc_array(n_all ? n_all : 1, sizeof *room);
    gpu->kernels = tutti_alloc_array(n_all ? n_all : 1, sizeof *gpu->kernels);
    enum tutti_status status = TUTTI_OK;
    if (!room || !gpu->kernels) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for the names of %u kernels", n_all);
    for (size_t i = 0; status == TUTTI_OK && i < gpu->n_modules; i++) {
        status =
            cuda_result(&gpu->seen, driver->module_function_count(&n, gpu->modules[i]), "cuModuleGetFunctionCount");
        if (status == TUTTI_OK) status = kernels_list(gpu, gpu->modules[i], room, n);
    }
    tutti_free(room);
    if (status == TUTTI_OK) qsort(gpu->kernels, gpu->n_kernels, sizeof *gpu->kernels, by_name);
    return status;
}

/* Whether kernels wait for what is ahead of them: those of PTX before that of sm_90 do not, whatever device the driver
 * has compiled it for. Before 12.3 the driver does not capture such launches. */
static bool may_overlap(struct cuda_gpu *gpu)
{
    const struct cuda_driver *driver = gpu->driver;
    void *kernel = tutti_cuda_kernel(&gpu->seen, "meet");
    int ptx = 0;
    return gpu->seen.capability >= 90 && driver->launch_by && driver->version >= 12030 && kernel &&
           driver->function_attribute(&ptx, CUDA_FUNCTION_PTX_VERSION, kernel) == CUDA_RESULT_OK && ptx >= 90;
}

enum tutti_status cuda_kernels_load(struct cuda_gpu *gpu)
{
    const struct cuda_driver *driver = gpu->driver;
    TUTTI_TRY(images_load(gpu));
    if (driver->module_functions && driver->module_function_count && driver->function_name)
        TUTTI_TRY(kernels_find(gpu));
    gpu->overlaps = may_overlap(gpu);
    return TUTTI_OK;
}

void cuda_kernels_unload(struct cuda_gpu *gpu)
{
    for (size_t i = 0; i < gpu->n_modules; i++) gpu->driver->module_unload(gpu->modules[i]);
    tutti_free(gpu->modules);
    tutti_free(gpu->kernels);
    gpu->n_modules = gpu->n_kernels = 0;
    gpu->modules = NULL;
    gpu->kernels = NULL;
}

/* For drivers that do not list what a module holds (before 12.4). */
static void *kernel_ask(struct tutti_device *gpu, const char *name)
{
    struct cuda_gpu *own = cuda_gpu_of(gpu);
    struct cuda_aside aside;
    void *function = NULL;
    if (cuda_aside_enter(gpu, &aside) < 0) return NULL;
    int result = CUDA_RESULT_NOT_FOUND;
    for (size_t i = 0; i < own->n_modules && result != CUDA_RESULT_OK; i++)
        result = own->driver->module_function(&function, own->modules[i], name);
    if (result == CUDA_RESULT_OK) result = kernel_force(own->driver, function);
    cuda_aside_done(gpu, &aside, CUDA_RESULT_OK, "");
    return result == CUDA_RESULT_OK ? function : NULL;
}

void *tutti_cuda_kernel(struct tutti_device *gpu, const char *name)
{
    const struct cuda_gpu *own = cuda_gpu_of(gpu);
    const struct cuda_kernel wanted = {.name = name};
    if (!own->kernels) return kernel_ask(gpu, name);
    const struct cuda_kernel *found = bsearch(&wanted, own->kernels, own->n_kernels, sizeof *own->kernels, by_name);
    return found ? found->function : NULL;
}

static int launch_overlapping(struct tutti_device *gpu, const struct tutti_gpu_launch *launch, void **parameters)
{
    struct cuda_launch_attribute attribute = {.id = CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION, .value = {.flag = 1}};
    const struct cuda_launch_config config = {.grid = {launch->blocks, 1, 1},
                                              .block = {launch->threads, 1, 1},
                                              .shared_bytes = launch->shared_bytes,
                                              .stream = launch->stream,
                                              .attributes = &attribute,
                                              .n_attributes = 1};
    return cuda_calls(gpu)->launch_by(&config, launch->kernel, parameters, NULL);
}

static int launch_in_turn(struct tutti_device *gpu, const struct tutti_gpu_launch *launch, void **parameters)
{
    return cuda_calls(gpu)->launch(launch->kernel, launch->blocks, 1, 1, launch->threads, 1, 1, launch->shared_bytes,
                                   launch->stream, parameters, NULL);
}

enum tutti_status tutti_cuda_launch(struct tutti_device *gpu, const struct tutti_gpu_launch *launch, const void *args)
{
    void *parameters[] = {(void *)(uintptr_t)args}; /* it is only read */
    const bool overlaps = launch->overlaps && cuda_gpu_of(gpu)->overlaps;
    const bool locked = cuda_queue_begin(gpu, launch->stream, CUDA_USE_KERNEL);
    const int result = (overlaps ? launch_overlapping : launch_in_turn)(gpu, launch, parameters);
    cuda_queue_end(gpu, locked);
    if (__builtin_expect(result == CUDA_RESULT_OK, 1)) return TUTTI_OK;
    return cuda_result(gpu, result, overlaps ? "cuLaunchKernelEx" : "cuLaunchKernel");
}
