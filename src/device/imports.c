/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of what this process has imported. A driver is called without the lock, since the process that is asked for
 * a descriptor may be slow; threads that want the same handle wait for the one that maps it. */

#include "device/share.h"

#include <pthread.h>
#include <string.h>

struct import {
    struct import *next;
    struct tutti_device *device;
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    void *pointer; /* NULL: a thread is mapping it */
    void *kept;
    size_t n_uses;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mapped = PTHREAD_COND_INITIALIZER;
static struct import *imports;

/* Under the lock. */
static struct import *find(const struct tutti_device *device, const unsigned char *handle)
{
    struct import *import = imports;
    while (import && (import->device != device || memcmp(import->handle, handle, sizeof import->handle) != 0))
        import = import->next;
    return import;
}

/* Under the lock. */
static void take_out(struct import *import)
{
    struct import **at = &imports;
    while (*at != import) at = &(*at)->next;
    *at = import->next;
}

static enum tutti_status map(struct import *import, const struct tutti_import_ops *ops)
{
    void *pointer = NULL;
    const enum tutti_status status = ops->map(import->device, import->handle, &pointer, &import->kept);
    pthread_mutex_lock(&lock);
    if (status < 0)
        take_out(import);
    else
        import->pointer = pointer;
    pthread_cond_broadcast(&mapped);
    pthread_mutex_unlock(&lock);
    if (status < 0) tutti_free(import);
    return status;
}

enum tutti_status tutti_import_add(struct tutti_device *device, const struct tutti_import_ops *ops,
                                   const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], void **out)
{
    struct import *made = tutti_alloc(sizeof *made), *import;
    if (!made) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an imported allocation");
    made->device = device, made->n_uses = 1;
    memcpy(made->handle, handle, sizeof made->handle);
    pthread_mutex_lock(&lock);
    while ((import = find(device, handle)) && !import->pointer) pthread_cond_wait(&mapped, &lock);
    if (import) {
        import->n_uses++;
        *out = import->pointer;
    } else {
        made->next = imports;
        imports = made;
    }
    pthread_mutex_unlock(&lock);
    if (import) {
        tutti_free(made);
        return TUTTI_OK;
    }
    TUTTI_TRY(map(made, ops));
    *out = made->pointer; /* which lasts at least as long as this use of it */
    return TUTTI_OK;
}

void tutti_import_drop(struct tutti_device *device, const struct tutti_import_ops *ops, void *pointer)
{
    pthread_mutex_lock(&lock);
    struct import *import = imports;
    while (import && (import->device != device || import->pointer != pointer)) import = import->next;
    if (import && --import->n_uses == 0) {
        take_out(import);
        ops->unmap(device, pointer, import->kept); /* before another thread can import it anew */
        tutti_free(import);
    }
    pthread_mutex_unlock(&lock);
}
