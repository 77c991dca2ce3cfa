/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of device memory: each rank tells where its part lies in an allocation that others can map; the back ends of
 * devices map the others' parts, and know from then on that the same offset is there on all ranks. */
#include "comm/window/window.h"

bool tutti_window_on_device(const struct tutti_comm *comm, const void *base)
{
    const struct tutti_comm_device *device = comm->device;
    return base && device && device->device && device->device->ops->of(base) == device->ordinal;
}

/* Others can map what holds the range: by its address in this process, else by a handle. */
static enum tutti_status card_fill(const struct tutti_comm *comm, void *base, size_t bytes,
                                   struct tutti_window_card *card)
{
    struct tutti_device *dev = comm->device->device;
    bool addresses = tutti_memory_is_one(comm->family->world.transport->memory);

    card->bytes = bytes;
    card->address = (uint64_t)(uintptr_t)base;
    if (addresses || comm->size == 1) return dev->ops->holds(dev, base, bytes);
    if (!dev->ops->export_memory)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "memory of device %d is this process's alone", (int)dev->ordinal);
    return dev->ops->export_memory(dev, base, bytes, card->handle, &card->offset);
}

void tutti_window_device_part(const struct tutti_comm *comm, void *base, size_t bytes, struct tutti_window_part *out)
{
    out->memory = TUTTI_WINDOW_DEVICE;
    out->status = card_fill(comm, base, bytes, &out->card);
}

void tutti_window_device_withdraw(const struct tutti_comm *comm, const struct tutti_window_part *part)
{
    const struct tutti_device *dev = part->memory == TUTTI_WINDOW_DEVICE ? comm->device->device : NULL;
    if (dev && dev->ops->unexport_memory) dev->ops->unexport_memory(part->card.handle);
}

static size_t n_windowed(const struct tutti_comm_device *device)
{
    size_t n = 0;
    for (uint32_t b = 0; b < device->n; b++) n += device->backends[b]->ops->window_add != NULL;
    return n;
}

static void remove_from(const struct tutti_comm_device *device, uint32_t n_backends, void *own)
{
    for (uint32_t b = 0; b < n_backends; b++) {
        struct tutti_backend *backend = device->backends[b];
        if (backend->ops->window_remove) backend->ops->window_remove(backend, own);
    }
}

/* To all back ends or none; the first one's mappings are what users see. */
static enum tutti_status add_to_all(struct tutti_comm *comm, const struct tutti_window_part *parts, void *own,
                                    void **first, void **others)
{
    const struct tutti_comm_device *device = comm->device;
    size_t bytes = (size_t)parts[comm->rank].bytes;
    void **peers = first;

    for (uint32_t b = 0; b < device->n; b++) {
        struct tutti_backend *backend = device->backends[b];
        if (!backend->ops->window_add) continue;
        enum tutti_status status = backend->ops->window_add(backend, &parts->card, sizeof(*parts), own, bytes, peers);
        if (status < 0) {
            struct tutti_error why = *tutti_last_error();
            remove_from(device, b, own);
            return tutti_fail_record(&why);
        }
        peers = others;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_window_device_map(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                          struct tutti_window *window)
{
    size_t n = (size_t)comm->size;

    if (!comm->device || n_windowed(comm->device) == 0)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "window_create on rank %d: the devices of this communicator do not reach one another, or no "
                          "back end of devices serves it",
                          (int)comm->rank);
    void **peers = tutti_alloc_array(2 * n, sizeof(void *));
    if (!peers) return tutti_fail(TUTTI_ERR_MEMORY, "window_create on rank %d: out of memory", (int)comm->rank);
    window->own = parts[comm->rank].bytes ? base : window; /* another one may begin there */
    tutti_comm_turn_take(comm);
    enum tutti_status status = add_to_all(comm, parts, window->own, peers, peers + n);
    tutti_comm_turn_give(comm);
    for (size_t r = 0; r < n && status >= 0; r++) {
        bool own = (int32_t)r == comm->rank;
        window->peers[r].address = parts[r].bytes == 0 ? NULL : own ? base : peers[r];
    }
    tutti_free(peers);
    if (status < 0) return status;
    window->on_device = true;
    window->n_devices = comm->n_devices;
    return TUTTI_OK;
}

bool tutti_window_device_lives(const struct tutti_comm *comm, const struct tutti_window *window)
{
    return comm->device && comm->n_devices == window->n_devices;
}

void tutti_window_device_unmap(struct tutti_comm *comm, const struct tutti_window *window)
{
    if (!tutti_window_device_lives(comm, window)) return; /* the back ends took them back */
    /* What does not end keeps its mappings until the back ends close. */
    if (!tutti_comm_wait_device(comm, tutti_deadline_ns(atomic_load(&comm->timeout_ns)))) return;
    tutti_comm_turn_take(comm);
    remove_from(comm->device, comm->device->n, window->own);
    tutti_comm_turn_give(comm);
}
