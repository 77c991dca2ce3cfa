/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of devices and pinned memory of the host: mappings, those of devices of memfds, so that handles of them are
 * descriptors, as Intel's driver has it. What is given back is unmapped at once. */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
enum { UNKNOWN, HOST, DEVICE };

struct allocation {
    struct allocation *next;
    char *at;
    size_t bytes;
    int type, file, shown; /* file: -1, or its memfd; shown: the descriptor in its handle, or -1 */
    bool imported;
    uint64_t id;
    struct standin_device *device;
};
static struct allocation *all; /* under the lock */
static uint64_t last_id;

/* Under the lock. */
static struct allocation *find(const void *pointer)
{
    for (struct allocation *a = all; a; a = a->next)
        if ((uintptr_t)pointer - (uintptr_t)a->at < a->bytes) return a;
    return NULL;
}

static int map(struct allocation wanted, void **out)
{
    struct allocation *made = tutti_alloc(sizeof *made);
    const int flags = wanted.file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    wanted.at = mmap(NULL, wanted.bytes, PROT_READ | PROT_WRITE, flags, wanted.file, 0);
    if (wanted.at == MAP_FAILED || !made) {
        tutti_free(made);
        if (wanted.file >= 0) close(wanted.file);
        return XPU_RESULT_OUT_OF_DEVICE_MEMORY;
    }
    *made = wanted;
    pthread_mutex_lock(&standin_lock);
    made->id = ++last_id, made->shown = -1;
    made->next = all, all = made;
    pthread_mutex_unlock(&standin_lock);
    *out = made->at;
    return XPU_RESULT_OK;
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

API int zeMemAllocDevice(void *context, const struct xpu_device_memory_desc *desc, size_t bytes, size_t alignment,
                         void *device, void **out)
{
    STANDIN_MAY_FAIL();
    const struct xpu_flags_desc *limits = desc->next;
    const bool exceeds = limits && limits->structure == XPU_STRUCTURE_LIMITS && limits->flags == XPU_LIMITS_EXCEEDED;
    if (!context || !standin_is_device(device) || desc->structure != XPU_STRUCTURE_DEVICE_MEMORY || desc->memory != 0 ||
        (alignment & (alignment - 1)) || alignment > PAGE)
        return XPU_RESULT_INVALID_ARGUMENT;
    if (bytes == 0 || (bytes > (size_t)4 << 30 && !exceeds)) return XPU_RESULT_UNSUPPORTED_SIZE;
    if (bytes > (size_t)16 << 30) return XPU_RESULT_OUT_OF_DEVICE_MEMORY;
    const int file = memfd_create("standin-xpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)pages(bytes)) < 0) return XPU_RESULT_OUT_OF_DEVICE_MEMORY;
    return map((struct allocation){.bytes = pages(bytes), .type = DEVICE, .file = file, .device = device}, out);
}

API int zeMemAllocHost(void *context, const struct xpu_flags_desc *desc, size_t bytes, size_t alignment, void **out)
{
    STANDIN_MAY_FAIL();
    if (!context || desc->structure != XPU_STRUCTURE_HOST_MEMORY || alignment > PAGE)
        return XPU_RESULT_INVALID_ARGUMENT;
    if (bytes == 0) return XPU_RESULT_UNSUPPORTED_SIZE;
    return map((struct allocation){.bytes = pages(bytes), .type = HOST, .file = -1}, out);
}

/* Under the lock. */
static int give_back(void *pointer, bool imported)
{
    struct allocation **at = &all;
    while (*at && ((*at)->at != pointer || (*at)->imported != imported)) at = &(*at)->next;
    struct allocation *gone = *at;
    if (!gone) return XPU_RESULT_INVALID_ARGUMENT;
    *at = gone->next;
    munmap(gone->at, gone->bytes);
    if (gone->file >= 0) close(gone->file);
    if (gone->shown >= 0) close(gone->shown);
    tutti_free(gone);
    return XPU_RESULT_OK;
}

/* A copy of its own in place of what is there, with one wrong byte a line. */
static void spoil(char *at, size_t bytes)
{
    char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) standin_fatal("no memory to play a board that is wrong");
    for (size_t i = 0; i < bytes; i++) copy[i] = (char)(at[i] ^ (i % 64 == 5));
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) standin_fatal("mremap");
}

static bool is_foreign(const struct allocation *a, const void *device)
{
    return a->type == DEVICE && (a->imported || a->device != device);
}

void standin_hide(const void *device)
{
    pthread_mutex_lock(&standin_lock);
    for (struct allocation *a = all; a; a = a->next)
        if (is_foreign(a, device)) spoil(a->at, a->bytes);
    pthread_mutex_unlock(&standin_lock);
}

void standin_show(const void *device)
{
    pthread_mutex_lock(&standin_lock);
    for (struct allocation *a = all; a; a = a->next)
        if (is_foreign(a, device) &&
            mmap(a->at, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, a->file, 0) == MAP_FAILED)
            standin_fatal("memory that was hidden is gone");
    pthread_mutex_unlock(&standin_lock);
}

bool standin_is_between(const void *dst, const void *src)
{
    pthread_mutex_lock(&standin_lock);
    const struct allocation *to = find(dst), *from = find(src);
    const bool is = to && from && to->type == DEVICE && from->type == DEVICE &&
                    (to->device != from->device || to->imported != from->imported);
    pthread_mutex_unlock(&standin_lock);
    return is;
}

API int zeMemFree(void *context, void *pointer)
{
    (void)context;
    pthread_mutex_lock(&standin_lock);
    const int result = give_back(pointer, false);
    pthread_mutex_unlock(&standin_lock);
    return result;
}

API int zeMemFreeExt(void *context, const struct xpu_flags_desc *desc, void *pointer)
{
    (void)context;
    if (desc->structure != XPU_STRUCTURE_FREE || desc->flags != XPU_FREE_BLOCKING) return XPU_RESULT_INVALID_ARGUMENT;
    pthread_mutex_lock(&standin_lock);
    standin_drain();
    const int result = give_back(pointer, false);
    pthread_mutex_unlock(&standin_lock);
    return result;
}

API int zeMemGetAllocProperties(void *context, const void *pointer, struct xpu_allocation_facts *facts, void **device)
{
    if (!context || facts->structure != XPU_STRUCTURE_ALLOCATION) return XPU_RESULT_INVALID_ARGUMENT;
    pthread_mutex_lock(&standin_lock);
    const struct allocation *found = find(pointer);
    facts->type = found ? found->type : UNKNOWN;
    facts->id = found ? found->id : 0;
    if (device) *device = found ? found->device : NULL;
    pthread_mutex_unlock(&standin_lock);
    return XPU_RESULT_OK;
}

API int zeMemGetAddressRange(void *context, const void *pointer, void **base, size_t *bytes)
{
    (void)context;
    pthread_mutex_lock(&standin_lock);
    const struct allocation *found = find(pointer);
    if (found) *base = found->at, *bytes = found->bytes;
    pthread_mutex_unlock(&standin_lock);
    return found ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

/* ---- between processes ---- */

API int zeMemGetIpcHandle(void *context, const void *pointer, struct xpu_ipc_handle *handle)
{
    (void)context;
    STANDIN_MAY_FAIL();
    if (!standin_setting("TUTTI_STANDIN_XPU_IPC", 1)) return XPU_RESULT_UNSUPPORTED_FEATURE;
    pthread_mutex_lock(&standin_lock);
    struct allocation *found = find(pointer);
    const bool good = found && found->at == pointer && found->type == DEVICE && !found->imported;
    if (good && found->shown < 0) found->shown = fcntl(found->file, F_DUPFD_CLOEXEC, 0);
    memset(handle, 0x5a, sizeof *handle);
    if (good) memcpy(handle->bytes, &found->shown, sizeof found->shown);
    pthread_mutex_unlock(&standin_lock);
    return good ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

API int zeMemPutIpcHandle(void *context, struct xpu_ipc_handle handle)
{
    int shown;
    (void)context;
    memcpy(&shown, handle.bytes, sizeof shown);
    pthread_mutex_lock(&standin_lock);
    struct allocation *found = all;
    while (found && (found->shown < 0 || found->shown != shown)) found = found->next;
    if (found) {
        close(found->shown);
        found->shown = -1;
    }
    pthread_mutex_unlock(&standin_lock);
    return found ? XPU_RESULT_OK : XPU_RESULT_INVALID_ARGUMENT;
}

API int zeMemOpenIpcHandle(void *context, void *device, struct xpu_ipc_handle handle, uint32_t flags, void **out)
{
    STANDIN_MAY_FAIL();
    struct stat file;
    int shown;
    memcpy(&shown, handle.bytes, sizeof shown);
    if (!context || !standin_is_device(device) || flags || handle.bytes[sizeof shown] != 0x5a ||
        fstat(shown, &file) < 0 || !S_ISREG(file.st_mode) || file.st_size == 0)
        return XPU_RESULT_INVALID_ARGUMENT;
    const int own = fcntl(shown, F_DUPFD_CLOEXEC, 0);
    const int result = map(
        (struct allocation){
            .bytes = (size_t)file.st_size, .type = DEVICE, .file = own, .device = device, .imported = true},
        out);
    if (result == XPU_RESULT_OK && standin_setting("TUTTI_STANDIN_XPU_WRONG", 0) == 1)
        spoil(*out, (size_t)file.st_size);
    return result;
}

API int zeMemCloseIpcHandle(void *context, const void *pointer)
{
    (void)context;
    pthread_mutex_lock(&standin_lock);
    const int result = give_back((void *)(uintptr_t)pointer, true);
    pthread_mutex_unlock(&standin_lock);
    return result;
}
