/* SPDX-License-Identifier: BSD-3-Clause */
/* See test_kernels.h. */
#include "cuda/support/test_kernels.h"

#include "device/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>

bool test_kernels_built(void)
{
    return TEST_KERNELS[0] || getenv("TUTTI_CUDA_DRIVER");
}

static void *image_read(void)
{
    FILE *file = fopen(TEST_KERNELS, "rb");
    char *image = NULL;
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long bytes = ftell(file);
        image = bytes > 0 ? calloc(1, (size_t)bytes + 1) : NULL;
        rewind(file);
        if (image && fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
            free(image);
            image = NULL;
        }
    }
    fclose(file);
    return image;
}

/* The module stays: kernels may be launched until the process ends. */
void *test_kernel(struct tutti_device *gpu, const char *name, const char **why)
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    void *image = driver->standin_kernels ? NULL : image_read(), *module = NULL, *function = NULL;
    struct tutti_device_scope scope;
    *why = "there is no image of the tests' kernels";
    if (!image && !driver->standin_kernels) return NULL;
    *why = "the driver refuses it";
    if (tutti_cuda_enter(gpu, &scope) == TUTTI_OK) {
        int registers = 0;
        if (driver->module_load_data(&module, image ? image : driver->standin_kernels) == CUDA_RESULT_OK)
            (void)driver->module_function(&function, module, name);
        if (function) (void)driver->function_attribute(&registers, CUDA_FUNCTION_N_REGISTERS, function); /* loads it */
        tutti_cuda_leave(&scope);
    }
    free(image);
    return function;
}
