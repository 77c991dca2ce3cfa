/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory between processes. What Level Zero calls a handle begins with a descriptor of the process that made it; the
 * importer gets a copy of that descriptor (xpu_descriptors.c) and writes its own number there. An offer also says which
 * file the descriptor is, so that one that has come to mean something else is found out. What is imported is mapped
 * once a handle, device and process. */

#include "device/level_zero/driver.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { OFFER = 0x31757078 };
struct xpu_offer {
    uint32_t kind;
    int32_t pid;
    uint64_t file; /* its number */
    struct xpu_ipc_handle handle;
};
_Static_assert(sizeof(struct xpu_offer) <= TUTTI_DEVICE_HANDLE_BYTES, "a handle holds an offer");

struct import {
    struct import *next;
    struct tutti_device *device;
    struct xpu_offer offer;
    void *pointer;
    size_t n_uses;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct import *imports;

static int descriptor_of(const struct xpu_ipc_handle *handle)
{
    int32_t descriptor;
    memcpy(&descriptor, handle->bytes, sizeof descriptor);
    return descriptor;
}

/* ---- the exporter ---- */

enum tutti_status tutti_xpu_export_memory(struct tutti_device *device, const void *pointer, size_t bytes,
                                          unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], uint64_t *offset)
{
    const struct xpu_driver *driver = xpu_calls(device);
    struct xpu_offer offer = {.kind = OFFER, .pid = getpid()};
    void *base = NULL;
    size_t all = 0;
    TUTTI_TRY(tutti_xpu_holds(device, pointer, bytes));
    TUTTI_TRY(xpu_result(device, driver->memory_range(driver->context, pointer, &base, &all), "zeMemGetAddressRange"));
    TUTTI_TRY(xpu_result(device, driver->ipc_get(driver->context, base, &offer.handle), "zeMemGetIpcHandle"));
    if (!xpu_descriptor_offer(descriptor_of(&offer.handle), &offer.file))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "this driver's handles of memory are no descriptors (the first word of one is %d: %s)",
                          descriptor_of(&offer.handle), strerror(errno));
    memset(handle, 0, TUTTI_DEVICE_HANDLE_BYTES);
    memcpy(handle, &offer, sizeof offer);
    *offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)base);
    return TUTTI_OK;
}

void tutti_xpu_unexport_memory(const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES])
{
    const struct xpu_driver *driver = xpu_driver_in_use();
    struct xpu_offer offer;
    memcpy(&offer, handle, sizeof offer);
    if (offer.kind != OFFER || offer.pid != getpid() || !xpu_descriptor_withdraw(offer.file)) return;
    if (driver && driver->ipc_put) driver->ipc_put(driver->context, offer.handle);
}

/* ---- the importer ---- */

static enum tutti_status map(struct tutti_device *device, const struct xpu_offer *offer, int descriptor, void **out)
{
    const struct xpu_driver *driver = xpu_calls(device);
    struct xpu_ipc_handle handle = offer->handle;
    memcpy(handle.bytes, &(int32_t){descriptor}, sizeof(int32_t));
    const int result = driver->ipc_open(driver->context, xpu_of(device)->device, handle, 0, out);
    return xpu_result(device, result, "zeMemOpenIpcHandle");
}

/* Under the lock. */
static enum tutti_status import_add(struct tutti_device *device, const struct xpu_offer *offer, int descriptor,
                                    struct import **out)
{
    struct import *made = tutti_alloc(sizeof *made);
    if (!made) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an imported allocation");
    *made = (struct import){.next = imports, .device = device, .offer = *offer};
    const enum tutti_status status = map(device, offer, descriptor, &made->pointer);
    if (status < 0)
        tutti_free(made);
    else
        *out = imports = made;
    return status;
}

/* One that is there, else one that is made of the descriptor; -1: PENDING. */
static enum tutti_status import_use(struct tutti_device *device, const struct xpu_offer *offer, int descriptor,
                                    void **out)
{
    enum tutti_status status = TUTTI_OK;
    pthread_mutex_lock(&lock);
    struct import *import = imports;
    while (import && (import->device != device || memcmp(&import->offer, offer, sizeof *offer) != 0))
        import = import->next;
    if (!import) status = descriptor < 0 ? TUTTI_PENDING : import_add(device, offer, descriptor, &import);
    if (status == TUTTI_OK && import) {
        import->n_uses++;
        *out = import->pointer;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

enum tutti_status tutti_xpu_import_memory(struct tutti_device *device,
                                          const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], void **out)
{
    struct xpu_offer offer;
    int descriptor = -1;
    memcpy(&offer, handle, sizeof offer);
    if (xpu_forked()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
    if (offer.kind != OFFER) return tutti_fail(TUTTI_ERR_ARGUMENT, "this is no handle of device memory");
    enum tutti_status status = import_use(device, &offer, -1, out);
    if (status != TUTTI_PENDING) return status;
    /* Without the lock: the other process may be slow. */
    TUTTI_TRY(xpu_descriptor_take(offer.pid, descriptor_of(&offer.handle), offer.file, &descriptor));
    status = import_use(device, &offer, descriptor, out);
    close(descriptor); /* the mapping keeps the memory */
    return status;
}

void tutti_xpu_unimport_memory(struct tutti_device *device, void *pointer)
{
    const struct xpu_driver *driver = xpu_calls(device);
    if (!pointer || xpu_forked()) return;
    pthread_mutex_lock(&lock);
    struct import **at = &imports;
    while (*at && ((*at)->device != device || (*at)->pointer != pointer)) at = &(*at)->next;
    struct import *import = *at;
    if (import && --import->n_uses == 0) {
        *at = import->next;
        xpu_result(device, driver->ipc_close(driver->context, pointer), "zeMemCloseIpcHandle");
        tutti_free(import);
    }
    pthread_mutex_unlock(&lock);
}
