/* SPDX-License-Identifier: BSD-3-Clause */

/* Multicast objects of the virtual memory API: a range of addresses at which a store goes to the memory of several
 * devices. The object goes from its maker to the others by descriptor, also within a process. */

#include "device/cuda/share.h"

#include <stdlib.h>
#include <string.h>

struct tutti_gpu_multicast {
    struct tutti_gpu *gpu;
    struct cuda_pieces object; /* the one; its bytes are those of each device's memory */
    void *own;
    uint64_t all; /* where it is mapped; 0: not yet */
    bool bound;
};

/* NCCL's switch for the same hardware: whoever runs the machine may have reasons. */
static bool is_switched_off(void)
{
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    return nvls && strcmp(nvls, "0") == 0;
}

bool tutti_gpu_has_multicast(const struct tutti_gpu *gpu)
{
    const struct cuda_driver *driver = cuda_calls(gpu);
    int has = 0;
    return !is_switched_off() && driver->multicast_create && driver->multicast_granularity && driver->multicast_add &&
           driver->multicast_bind && driver->multicast_unbind &&
           driver->device_attribute(&has, CUDA_DEVICE_HAS_MULTICAST, gpu->ordinal) == CUDA_RESULT_OK && has;
}

/* ---- one object, many who have it ---- */

static enum tutti_status multicast_new(struct tutti_gpu *gpu, struct tutti_gpu_multicast **out)
{
    if (!tutti_gpu_has_multicast(gpu))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "CUDA device %d (%s) or its driver has no multicast, or NCCL_NVLS_ENABLE is 0", gpu->ordinal,
                          gpu->name);
    *out = tutti_alloc(sizeof **out);
    if (!*out) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to note a multicast object");
    (*out)->gpu = gpu;
    return TUTTI_OK;
}

/* To the caller, if all went well. */
static enum tutti_status multicast_give(struct tutti_gpu_multicast *m, enum tutti_status status,
                                        struct tutti_gpu_multicast **out)
{
    if (status >= 0) {
        *out = m;
        return TUTTI_OK;
    }
    struct tutti_error why = *tutti_last_error();
    tutti_gpu_multicast_free(m);
    return tutti_fail_record(&why);
}

/* Rounded up to what the driver can bind. */
static int object_create(const struct cuda_driver *driver, struct cuda_multicast_properties *what, uint64_t *out,
                         const char **call)
{
    size_t unit = 0;
    *call = "cuMulticastGetGranularity";
    const int result = driver->multicast_granularity(&unit, what, CUDA_GRANULARITY_MINIMUM);
    if (result != CUDA_RESULT_OK) return result;
    *call = "cuMulticastCreate";
    if (unit == 0 || what->bytes > SIZE_MAX - unit) return CUDA_RESULT_OUT_OF_MEMORY;
    what->bytes = (what->bytes + unit - 1) / unit * unit;
    return driver->multicast_create(out, what);
}

static enum tutti_status multicast_make(struct tutti_gpu_multicast *m, uint32_t n, size_t bytes,
                                        struct cuda_offer *offer)
{
    struct cuda_multicast_properties what = {.n_devices = n, .bytes = bytes, .handle_types = CUDA_HANDLE_DESCRIPTOR};
    struct cuda_aside aside;
    const char *call;
    TUTTI_TRY(cuda_pieces_add(&m->object, 0, bytes));
    TUTTI_TRY(cuda_aside_enter(m->gpu, &aside));
    const int result = object_create(cuda_calls(m->gpu), &what, &m->object.at[0].handle, &call);
    TUTTI_TRY(cuda_aside_done(m->gpu, &aside, result, call));
    m->object.at[0].bytes = what.bytes;
    offer->kind = CUDA_OFFER_MULTICAST;
    return cuda_descriptors_offer(m->gpu, &m->object, &offer->by.descriptors);
}

enum tutti_status tutti_gpu_multicast_make(struct tutti_gpu *gpu, uint32_t n, size_t bytes,
                                           unsigned char handle[TUTTI_GPU_HANDLE_BYTES],
                                           struct tutti_gpu_multicast **out)
{
    struct tutti_gpu_multicast *m;
    struct cuda_offer offer = {.kind = 0};
    TUTTI_TRY(multicast_new(gpu, &m));
    TUTTI_TRY(multicast_give(m, multicast_make(m, n, bytes, &offer), out));
    memset(handle, 0, TUTTI_GPU_HANDLE_BYTES);
    memcpy(handle, &offer, sizeof offer);
    return TUTTI_OK;
}

enum tutti_status tutti_gpu_multicast_join(struct tutti_gpu *gpu, const unsigned char handle[TUTTI_GPU_HANDLE_BYTES],
                                           struct tutti_gpu_multicast **out)
{
    struct tutti_gpu_multicast *m;
    struct cuda_offer offer;
    memcpy(&offer, handle, sizeof offer);
    if (offer.kind != CUDA_OFFER_MULTICAST)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "this is no handle of a multicast object");
    TUTTI_TRY(multicast_new(gpu, &m));
    return multicast_give(m, cuda_descriptors_take(gpu, &offer.by.descriptors, &m->object), out);
}

/* ---- devices and their memory ---- */

enum tutti_status tutti_gpu_multicast_add(struct tutti_gpu_multicast *m)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_virtual_alloc(m->gpu, m->object.at[0].bytes, &m->own));
    TUTTI_TRY(tutti_gpu_set(m->gpu, m->own, 0, m->object.at[0].bytes));
    TUTTI_TRY(cuda_aside_enter(m->gpu, &aside));
    const int result = cuda_calls(m->gpu)->multicast_add(m->object.at[0].handle, m->gpu->ordinal);
    return cuda_aside_done(m->gpu, &aside, result, "cuMulticastAddDevice");
}

static int bind_own(struct tutti_gpu_multicast *m, const char **call)
{
    const struct cuda_driver *driver = cuda_calls(m->gpu);
    const struct cuda_piece *object = &m->object.at[0];
    uint64_t memory;
    *call = "cuMemRetainAllocationHandle";
    int result = driver->virtual_retain(&memory, m->own);
    if (result != CUDA_RESULT_OK) return result;
    *call = "cuMulticastBindMem";
    result = driver->multicast_bind(object->handle, 0, memory, 0, object->bytes, 0);
    m->bound = result == CUDA_RESULT_OK;
    driver->virtual_release(memory); /* the mapping keeps it */
    return result;
}

enum tutti_status tutti_gpu_multicast_bind(struct tutti_gpu_multicast *m, void **own, void **all)
{
    struct cuda_aside aside;
    const char *call;
    TUTTI_TRY(cuda_aside_enter(m->gpu, &aside));
    const int result = bind_own(m, &call);
    TUTTI_TRY(cuda_aside_done(m->gpu, &aside, result, call));
    TUTTI_TRY(cuda_pieces_map(m->gpu, &m->object, &m->all));
    *own = m->own;
    *all = (void *)(uintptr_t)m->all;
    return TUTTI_OK;
}

static void unbind(struct tutti_gpu_multicast *m)
{
    struct cuda_aside aside;
    if (!m->bound || cuda_aside_enter(m->gpu, &aside) < 0) return;
    const int result =
        cuda_calls(m->gpu)->multicast_unbind(m->object.at[0].handle, m->gpu->ordinal, 0, m->object.at[0].bytes);
    cuda_aside_done(m->gpu, &aside, result, "cuMulticastUnbind");
}

void tutti_gpu_multicast_free(struct tutti_gpu_multicast *m)
{
    if (!m || cuda_forked()) return;
    if (m->all) cuda_pieces_unmap(m->gpu, m->all, &m->object);
    unbind(m);
    if (m->own) tutti_gpu_free(m->gpu, m->own);
    cuda_pieces_free(m->gpu, &m->object);
    tutti_free(m);
}
