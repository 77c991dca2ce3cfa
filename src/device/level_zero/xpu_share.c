/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory between processes. What Level Zero calls a handle begins with a descriptor of the process that made it; the
 * importer gets a copy of that descriptor and writes its own number there. An offer's key is the number of the
 * descriptor's file, so that one that has come to mean something else is found out. */

#include "device/level_zero/driver.h"
#include "device/share.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OFFER = 0x32757078 };
struct xpu_offer {
    uint32_t kind;
    int32_t pid;
    uint64_t door, file;
    struct xpu_ipc_handle handle;
};
_Static_assert(sizeof(struct xpu_offer) <= TUTTI_DEVICE_HANDLE_BYTES, "a handle holds an offer");

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
    struct xpu_offer offer = {.kind = OFFER};
    struct tutti_descriptor offered;
    struct stat file;
    void *base = NULL;
    size_t all = 0;
    TUTTI_TRY(tutti_xpu_holds(device, pointer, bytes));
    TUTTI_TRY(xpu_result(device, driver->memory_range(driver->context, pointer, &base, &all), "zeMemGetAddressRange"));
    TUTTI_TRY(xpu_result(device, driver->ipc_get(driver->context, base, &offer.handle), "zeMemGetIpcHandle"));
    const int descriptor = descriptor_of(&offer.handle);
    if (fstat(descriptor, &file) < 0 || !tutti_descriptor_offer(&descriptor, 1, (uint64_t)file.st_ino, &offered))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "this driver's handles of memory are no descriptors (the first word of one is %d: %s)",
                          descriptor, strerror(errno));
    offer.pid = offered.pid, offer.door = offered.door, offer.file = offered.key;
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
    if (offer.kind != OFFER || offer.pid != getpid() || !tutti_descriptor_withdraw(offer.file)) return;
    if (driver && driver->ipc_put) driver->ipc_put(driver->context, offer.handle);
}

/* ---- the importer ---- */

static enum tutti_status descriptor_take(const struct xpu_offer *offer, int *out)
{
    const struct tutti_descriptor told = {offer->pid, descriptor_of(&offer->handle), offer->door, offer->file};
    struct stat file;
    TUTTI_TRY(tutti_descriptor_take(&told, out));
    if (fstat(*out, &file) == 0 && (uint64_t)file.st_ino == offer->file) return TUTTI_OK;
    close(*out);
    return tutti_descriptor_gone(&told);
}

static enum tutti_status map(struct tutti_device *device, const unsigned char *bytes, void **out, void **kept)
{
    const struct xpu_driver *driver = xpu_calls(device);
    struct xpu_offer offer;
    int descriptor;
    (void)kept;
    memcpy(&offer, bytes, sizeof offer);
    TUTTI_TRY(descriptor_take(&offer, &descriptor));
    memcpy(offer.handle.bytes, &(int32_t){descriptor}, sizeof(int32_t));
    const int result = driver->ipc_open(driver->context, xpu_of(device)->device, offer.handle, 0, out);
    close(descriptor); /* the mapping keeps the memory */
    return xpu_result(device, result, "zeMemOpenIpcHandle");
}

static void unmap(struct tutti_device *device, void *pointer, void *kept)
{
    const struct xpu_driver *driver = xpu_calls(device);
    (void)kept;
    xpu_result(device, driver->ipc_close(driver->context, pointer), "zeMemCloseIpcHandle");
}
static const struct tutti_import_ops import_ops = {map, unmap};

enum tutti_status tutti_xpu_import_memory(struct tutti_device *device,
                                          const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], void **out)
{
    uint32_t kind;
    memcpy(&kind, handle, sizeof kind);
    if (xpu_forked()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", tutti_xpu_absence());
    if (kind != OFFER) return tutti_fail(TUTTI_ERR_ARGUMENT, "this is no handle of device memory");
    return tutti_import_add(device, &import_ops, handle, out);
}

void tutti_xpu_unimport_memory(struct tutti_device *device, void *pointer)
{
    if (pointer && !xpu_forked()) tutti_import_drop(device, &import_ops, pointer);
}
