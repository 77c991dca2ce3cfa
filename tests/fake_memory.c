/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the fake device: an address that nobody can touch stands for bytes elsewhere. */
#include "fake_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct range {
    struct range *next;
    char *address, *bytes;
    size_t size;
    int32_t ordinal;
};
static struct range *ranges;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. NULL: not in one range of any device. */
static struct range *range_of(const void *pointer, size_t size)
{
    for (struct range *r = ranges; r; r = r->next) {
        uintptr_t at = (uintptr_t)pointer - (uintptr_t)r->address;
        if (at < r->size && size <= r->size - at) return r;
    }
    return NULL;
}

/* Where the bytes of a pointer of any memory are, device or host. */
void *fake_bytes(const void *pointer, size_t size)
{
    pthread_mutex_lock(&ranges_lock);
    const struct range *r = range_of(pointer, size);
    void *bytes = r ? r->bytes + ((const char *)pointer - r->address) : (void *)(uintptr_t)pointer;
    pthread_mutex_unlock(&ranges_lock);
    return bytes;
}

enum tutti_status fake_alloc(struct tutti_device *device, size_t size, void **out)
{
    struct range *r = calloc(1, sizeof(*r));
    if (r) *r = (struct range){.size = size ? size : 1, .ordinal = device->ordinal};
    if (r) r->bytes = malloc(r->size);
    if (r) r->address = mmap(NULL, r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!r || !r->bytes || r->address == MAP_FAILED) {
        if (r) free(r->bytes);
        free(r);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes on fake device %d", size, (int)device->ordinal);
    }
    memset(r->bytes, 0xdb, r->size); /* nobody may count on zeros */
    pthread_mutex_lock(&ranges_lock);
    r->next = ranges, ranges = r;
    pthread_mutex_unlock(&ranges_lock);
    *out = r->address;
    return TUTTI_OK;
}

enum tutti_status fake_alloc_shared(struct tutti_device *device, enum tutti_device_share share, size_t size, void **out)
{
    (void)share; /* export_memory is left out */
    return fake_alloc(device, size, out);
}

enum tutti_status fake_alloc_host(struct tutti_device *device, size_t size, void **out)
{
    *out = calloc(1, size ? size : 1);
    if (*out) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_MEMORY, "no host memory for %zu bytes of fake device %d", size, (int)device->ordinal);
}

void fake_free_host(struct tutti_device *device, void *pointer)
{
    (void)device;
    free(pointer);
}

int32_t fake_of(const void *pointer)
{
    pthread_mutex_lock(&ranges_lock);
    const struct range *r = range_of(pointer, 1);
    int32_t ordinal = r ? r->ordinal : -1;
    pthread_mutex_unlock(&ranges_lock);
    return ordinal;
}

enum tutti_status fake_holds(struct tutti_device *device, const void *pointer, size_t size)
{
    pthread_mutex_lock(&ranges_lock);
    const struct range *r = range_of(pointer, size);
    bool held = r && r->ordinal == device->ordinal;
    pthread_mutex_unlock(&ranges_lock);
    if (held) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%zu bytes at %p are not in one allocation of fake device %d", size, pointer,
                      (int)device->ordinal);
}

enum tutti_status fake_copy_now(struct tutti_device *device, void *dst, const void *src, size_t size)
{
    (void)device;
    if (size) memmove(fake_bytes(dst, size), fake_bytes(src, size), size);
    return TUTTI_OK;
}

enum tutti_status fake_set(struct tutti_device *device, void *pointer, unsigned char value, size_t size)
{
    (void)device;
    if (size) memset(fake_bytes(pointer, size), value, size);
    return TUTTI_OK;
}

void fake_give_back(struct tutti_device *device, void *pointer)
{
    pthread_mutex_lock(&ranges_lock);
    struct range **at = &ranges;
    while (*at && (*at)->address != pointer) at = &(*at)->next;
    struct range *r = *at;
    if (!r || r->ordinal != device->ordinal) abort(); /* the test's error */
    *at = r->next;
    pthread_mutex_unlock(&ranges_lock);
    munmap(r->address, r->size);
    free(r->bytes);
    free(r);
}
