/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels that were built in: modules of SPIR-V, which the driver compiles when a device is opened, once a device
 * and version of the driver (xpu_cache.c); and their launches. */

#include "device/exchange.h"
#include "device/level_zero/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tutti_xpu_built_for(void)
{
    return xpu_images_for;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct xpu_kernel *)a)->name, ((const struct xpu_kernel *)b)->name);
}

/* ---- modules ---- */

/* What the driver's compiler says, in the log; *text is its first line. */
static void log_read(const struct xpu_driver *driver, void *log, char *text, size_t room)
{
    size_t bytes = 0;
    char *all = NULL;
    snprintf(text, room, "no reason was given");
    if (!log) return;
    if (driver->module_log(log, &bytes, NULL) == XPU_RESULT_OK && bytes > 1) all = tutti_alloc(bytes + 1);
    if (all && driver->module_log(log, &bytes, all) == XPU_RESULT_OK && all[0]) {
        tutti_log(TUTTI_LOG_WARN, "Level Zero's compiler: %s", all);
        snprintf(text, room, "%.*s", (int)strcspn(all, "\n"), all);
    }
    tutti_free(all);
    driver->module_log_destroy(log);
}

static int module_make(const struct xpu *xpu, const struct xpu_module_desc *desc, void **module, char *text,
                       size_t room)
{
    void *log = NULL;
    const int result = xpu->driver->module_create(xpu->driver->context, xpu->device, desc, module, &log);
    if (result != XPU_RESULT_OK)
        log_read(xpu->driver, log, text, room);
    else if (log)
        xpu->driver->module_log_destroy(log);
    return result;
}

static bool module_from_cache(const struct xpu *xpu, const struct tutti_gpu_image *image, void **module)
{
    void *native;
    char text[256];
    struct xpu_module_desc desc = {.structure = XPU_STRUCTURE_MODULE, .format = XPU_MODULE_NATIVE};
    if (!xpu_cache_read(xpu, image, &native, &desc.bytes)) return false;
    desc.image = native;
    const bool made = module_make(xpu, &desc, module, text, sizeof text) == XPU_RESULT_OK;
    tutti_free(native);
    return made;
}

static void module_to_cache(const struct xpu *xpu, const struct tutti_gpu_image *image, void *module)
{
    size_t bytes = 0;
    unsigned char *native = NULL;
    if (xpu->driver->module_native(module, &bytes, NULL) == XPU_RESULT_OK && bytes > 0) native = tutti_alloc(bytes);
    if (native && xpu->driver->module_native(module, &bytes, native) == XPU_RESULT_OK)
        xpu_cache_write(xpu, image, native, bytes);
    tutti_free(native);
}

static enum tutti_status module_load(const struct xpu *xpu, const struct tutti_gpu_image *image, void **module)
{
    char text[256];
    const struct xpu_module_desc desc = {.structure = XPU_STRUCTURE_MODULE,
                                         .format = XPU_MODULE_SPIRV,
                                         .image = image->begin,
                                         .flags = XPU_MODULE_FLAGS,
                                         .bytes = (size_t)(image->end - image->begin)};
    if (module_from_cache(xpu, image, module)) return TUTTI_OK;
    const int result = module_make(xpu, &desc, module, text, sizeof text);
    if (result != XPU_RESULT_OK)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "XPU device %d (%s) can not run the kernels that were built in (%s, 0x%x: %s): they are %s",
                          xpu->seen.ordinal, xpu->seen.name, image->name, (unsigned)result, text, xpu_images_for);
    module_to_cache(xpu, image, *module);
    return TUTTI_OK;
}

/* ---- kernels ---- */

static enum tutti_status kernel_make(struct xpu *xpu, void *module, const char *name)
{
    const struct xpu_kernel_desc desc = {.structure = XPU_STRUCTURE_KERNEL, .name = name};
    struct xpu_kernel made = {.name = tutti_text_copy(name)};
    if (!made.name) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the name of kernel %s", name);
    int result = xpu->driver->kernel_create(module, &desc, &made.kernel);
    if (result == XPU_RESULT_OK) result = xpu->driver->kernel_indirect(made.kernel, XPU_INDIRECT_ALL);
    if (result == XPU_RESULT_OK)
        xpu->kernels[xpu->n_kernels++] = made;
    else
        tutti_free(made.name);
    return xpu_result(&xpu->seen, result, "zeKernelCreate");
}

/* All of a module, behind those that are there. The module stays with the process. */
static enum tutti_status kernels_add(struct xpu *xpu, void *module)
{
    uint32_t n = 0;
    enum tutti_status status =
        xpu_result(&xpu->seen, xpu->driver->module_kernels(module, &n, NULL), "zeModuleGetKernelNames");
    if (status < 0 || n == 0) return status;
    const char **names = tutti_alloc_array(n, sizeof *names);
    struct xpu_kernel *larger = tutti_alloc_array(xpu->n_kernels + n, sizeof *larger);
    if (names && larger) {
        if (xpu->n_kernels) memcpy(larger, xpu->kernels, xpu->n_kernels * sizeof *larger);
        tutti_free(xpu->kernels);
        xpu->kernels = larger;
        status = xpu_result(&xpu->seen, xpu->driver->module_kernels(module, &n, names), "zeModuleGetKernelNames");
        for (uint32_t i = 0; i < n && status == TUTTI_OK; i++) status = kernel_make(xpu, module, names[i]);
    } else {
        tutti_free(larger);
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for the names of %u kernels", n);
    }
    tutti_free((void *)names);
    return status;
}

/* By its name: nothing else may ask for float64, which many devices lack. */
static bool has_doubles(const struct tutti_gpu_image *image)
{
    const size_t n = strlen(image->name);
    return n > 3 && strcmp(image->name + n - 3, "_64") == 0;
}

/* Where none were built in, devices have memory and streams alone: calls go through the host. */
enum tutti_status xpu_kernels_load(struct xpu *xpu)
{
    const unsigned char *standin = xpu->driver->standin_kernels;
    const struct tutti_gpu_image of_standin = {
        .name = "the stand-in's", .begin = standin, .end = standin ? standin + 1 : NULL};
    const struct tutti_gpu_image *images = standin ? &of_standin : xpu_images;
    const size_t n = standin ? 1 : xpu_n_images;
    for (size_t i = 0; i < n; i++) {
        void *module = NULL;
        if (!xpu->doubles && has_doubles(&images[i])) continue;
        TUTTI_TRY(module_load(xpu, &images[i], &module));
        TUTTI_TRY(kernels_add(xpu, module));
    }
    if (xpu->n_kernels) qsort(xpu->kernels, xpu->n_kernels, sizeof *xpu->kernels, by_name);
    return TUTTI_OK;
}

void xpu_kernels_unload(struct xpu *xpu)
{
    for (size_t i = 0; i < xpu->n_kernels; i++) {
        xpu->driver->kernel_destroy(xpu->kernels[i].kernel);
        tutti_free(xpu->kernels[i].name);
    }
    tutti_free(xpu->kernels);
    xpu->kernels = NULL, xpu->n_kernels = 0;
}

void *tutti_xpu_kernel(struct tutti_device *device, const char *name)
{
    const struct xpu *xpu = xpu_of(device);
    const struct xpu_kernel key = {.name = (char *)(uintptr_t)name};
    const struct xpu_kernel *found =
        xpu->n_kernels ? bsearch(&key, xpu->kernels, xpu->n_kernels, sizeof key, by_name) : NULL;
    return found ? found->kernel : NULL;
}

/* ---- launches ---- */

struct xpu_argument { /* one that is too large for a kernel's parameter */
    struct xpu_argument *next;
    void *at;
    size_t bytes;
    struct xpu_mark *over; /* the mark of the kernel that reads it */
};

/* Under the lock: room that no kernel reads any more; NULL, with the error record: there is none. */
static struct xpu_argument *argument_take(struct xpu *xpu, size_t bytes)
{
    struct xpu_argument *each = xpu->arguments;
    while (each && (each->bytes < bytes || (each->over && xpu->driver->event_status(each->over->event))))
        each = each->next;
    if (!each) {
        if (!(each = tutti_alloc(sizeof *each))) {
            tutti_fail(TUTTI_ERR_MEMORY, "no memory for an argument");
            return NULL;
        }
        each->bytes = bytes;
        if (tutti_xpu_alloc_host(&xpu->seen, bytes, &each->at) < 0) {
            tutti_free(each);
            return NULL;
        }
        each->next = xpu->arguments, xpu->arguments = each;
    }
    xpu_mark_drop(each->over);
    each->over = NULL;
    return xpu_mark_take(xpu->driver, false, &each->over) < 0 ? NULL : each;
}

struct launching {
    const struct tutti_gpu_launch *launch;
    bool *appended;
};

static int append_launch(const struct xpu_driver *driver, void *list, const void *job)
{
    const struct launching *launching = job;
    const struct xpu_grid grid = {{launching->launch->blocks, 1, 1}};
    const int result = driver->append_kernel(list, launching->launch->kernel, &grid, NULL, 0, NULL);
    *launching->appended = result == XPU_RESULT_OK;
    return result;
}

static enum tutti_status launch_with(struct xpu *xpu, const struct tutti_gpu_launch *launch, const void *args,
                                     size_t bytes, const struct xpu_work *work)
{
    const struct xpu_driver *driver = xpu->driver;
    TUTTI_TRY(
        xpu_result(&xpu->seen, driver->kernel_group(launch->kernel, launch->threads, 1, 1), "zeKernelSetGroupSize"));
    TUTTI_TRY(
        xpu_result(&xpu->seen, driver->kernel_argument(launch->kernel, 0, bytes, args), "zeKernelSetArgumentValue"));
    return xpu_enqueue(&xpu->seen, launch->stream, work);
}

/* A kernel's group size and argument are the kernel's until it is appended. */
static enum tutti_status launch_locked(struct xpu *xpu, const struct tutti_gpu_launch *launch, const void *args)
{
    bool appended = false;
    const struct launching launching = {launch, &appended};
    struct xpu_work work = {.append = append_launch, .job = &launching, .call = "launching a kernel"};
    struct xpu_argument *apart = NULL;
    uint64_t address = 0;
    size_t bytes = launch->args_bytes;
    if (bytes > XPU_PARAMETER_MOST) {
        apart = argument_take(xpu, bytes);
        if (!apart) return tutti_last_error()->status;
        memcpy(apart->at, args, bytes);
        address = (uintptr_t)apart->at;
        work.signal = apart->over->event;
        args = &address, bytes = sizeof address;
    }
    const enum tutti_status status = launch_with(xpu, launch, args, bytes, &work);
    if (status < 0 && apart && !appended) { /* no kernel reads it */
        xpu_mark_return(apart->over);
        apart->over = NULL;
    }
    return status;
}

enum tutti_status tutti_xpu_launch(struct tutti_device *device, const struct tutti_gpu_launch *launch, const void *args)
{
    struct xpu *xpu = xpu_of(device);
    if (xpu_forked()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
    pthread_mutex_lock(&xpu->launching);
    const enum tutti_status status = launch_locked(xpu, launch, args);
    pthread_mutex_unlock(&xpu->launching);
    return status;
}

/* What the back end of GPUs asks of a maker (device/gpu.h). */

static enum tutti_status block_id(const struct tutti_device *device, const void *pointer, uint64_t *out)
{
    const struct xpu_driver *driver = ((const struct xpu *)(const void *)device)->driver;
    struct xpu_allocation_facts facts = {.structure = XPU_STRUCTURE_ALLOCATION};
    TUTTI_TRY(
        xpu_result(device, driver->memory_facts(driver->context, pointer, &facts, NULL), "zeMemGetAllocProperties"));
    *out = facts.type == XPU_MEMORY_DEVICE || facts.type == XPU_MEMORY_SHARED ? facts.id : 0;
    return TUTTI_OK;
}

/* All memory of the context is reached by who reaches the device. */
static enum tutti_status reach_memory(struct tutti_device *device, const void *pointer, size_t bytes)
{
    (void)device, (void)pointer, (void)bytes;
    return TUTTI_OK;
}

/* As this process counts, -1: it does not see it. */
static int32_t ordinal_of(const struct xpu_driver *driver, const unsigned char uuid[16])
{
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        struct xpu_device_facts facts = {.structure = XPU_STRUCTURE_DEVICE};
        if (driver->device_facts(driver->devices[i], &facts) == XPU_RESULT_OK &&
            memcmp(facts.uuid, uuid, sizeof facts.uuid) == 0)
            return (int32_t)i;
    }
    return -1;
}

static bool may_reach(struct tutti_device *device, const unsigned char uuid[16])
{
    if (xpu_forked()) return false;
    const int32_t other = ordinal_of(xpu_calls(device), uuid);
    return other < 0 || tutti_xpu_reaches(device->ordinal, other);
}

static bool has_atomics(struct tutti_device *device, const unsigned char uuid[16])
{
    const struct xpu_driver *driver = xpu_calls(device);
    struct xpu_flags_desc link = {.structure = XPU_STRUCTURE_LINK};
    if (xpu_forked()) return true;
    const int32_t other = ordinal_of(driver, uuid);
    return other < 0 || other == device->ordinal ||
           driver->device_link(driver->devices[device->ordinal], driver->devices[other], &link) != XPU_RESULT_OK ||
           (link.flags & XPU_LINK_ATOMICS);
}

/* SYCL's queues are synchronized by their owners. */
static enum tutti_status sync_all(struct tutti_device *device)
{
    return xpu_streams_sync(xpu_of(device));
}

const struct tutti_gpu_ops xpu_gpu_ops = {
    .doubts_peers = true,
    .tile_threads = 512, /* no sub-group signals alone */
    .fold_threads = 256,
    .kernel = tutti_xpu_kernel,
    .launch = tutti_xpu_launch,
    .block_id = block_id,
    .reach_memory = reach_memory,
    .may_reach = may_reach,
    .has_atomics = has_atomics,
    .sync = sync_all,
};
