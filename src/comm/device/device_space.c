/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of a communicator for calls that consist of several steps (device_packed.c). Such calls use
 * it one after another, whatever their streams: by an event after each, and within a capture by its nodes. It grows and
 * never shrinks, and what was outgrown stays: graphs that were captured with it may be launched at any time. */
#include "comm/device/device.h"

struct outgrown {
    struct outgrown *next;
    void *memory;
};

struct tutti_device_space {
    void *memory;
    size_t bytes;
    struct outgrown *outgrown;
    void *event; /* behind the last call outside captures; */
    void *stream;
    bool used;        /* there was one */
    uint64_t capture; /* the last capture that had such a call, */
    void *capture_stream, *node;
};

static enum tutti_status space_open(struct tutti_comm *comm)
{
    struct tutti_comm_device *device = comm->device;
    if (device->space) return TUTTI_OK;
    struct tutti_device_space *space = tutti_alloc(sizeof(*space));
    if (!space) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory", (int)comm->rank);
    enum tutti_status status = device->device->ops->event_create(device->device, false, &space->event);
    if (status < 0) {
        tutti_free(space);
        return status;
    }
    pthread_mutex_lock(&device->lock); /* others ask for its event */
    device->space = space;
    pthread_mutex_unlock(&device->lock);
    return TUTTI_OK;
}

static enum tutti_status space_grow(struct tutti_comm *comm, size_t bytes)
{
    struct tutti_device *dev = comm->device->device;
    struct tutti_device_space *space = comm->device->space;
    if (bytes <= space->bytes) return TUTTI_OK;
    struct outgrown *old = tutti_alloc(sizeof(*old));
    void *memory = NULL;
    if (!old) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory", (int)comm->rank);
    if (bytes < 2 * space->bytes) bytes = 2 * space->bytes;
    enum tutti_status status = dev->ops->alloc(dev, bytes, &memory);
    if (status < 0) {
        tutti_free(old);
        return status;
    }
    *old = (struct outgrown){space->outgrown, space->memory};
    space->outgrown = old;
    space->memory = memory, space->bytes = bytes;
    return TUTTI_OK;
}

enum tutti_status tutti_device_space_begin(struct tutti_comm *comm, void *stream, size_t bytes, char **out)
{
    struct tutti_device *dev = comm->device->device;
    uint64_t capture = 0;
    TUTTI_TRY(space_open(comm));
    TUTTI_TRY(space_grow(comm, bytes));
    struct tutti_device_space *space = comm->device->space;
    TUTTI_TRY(tutti_device_capturing(dev, stream, &capture));
    if (capture && capture == space->capture && !tutti_device_one_stream(dev, stream, space->capture_stream))
        TUTTI_TRY(dev->ops->capture_after(dev, stream, space->node));
    if (!capture && space->used && !tutti_device_one_stream(dev, stream, space->stream))
        TUTTI_TRY(dev->ops->stream_wait(dev, stream, space->event));
    *out = space->memory;
    return TUTTI_OK;
}

enum tutti_status tutti_device_space_end(struct tutti_comm *comm, void *stream)
{
    struct tutti_device *dev = comm->device->device;
    struct tutti_device_space *space = comm->device->space;
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(dev, stream, &capture));
    if (capture) {
        space->capture = capture, space->capture_stream = stream;
        return dev->ops->capture_mark(dev, stream, &space->node);
    }
    TUTTI_TRY(dev->ops->event_record(dev, space->event, stream));
    space->stream = stream, space->used = true;
    return TUTTI_OK;
}

void *tutti_device_space_event(const struct tutti_comm_device *device)
{
    return device->space && device->space->used ? device->space->event : NULL;
}

void tutti_device_space_free(struct tutti_comm_device *device)
{
    struct tutti_device_space *space = device->space;
    if (!space) return;
    while (space->outgrown) {
        struct outgrown *old = space->outgrown;
        space->outgrown = old->next;
        device->device->ops->free(device->device, old->memory);
        tutti_free(old);
    }
    device->device->ops->free(device->device, space->memory);
    device->device->ops->event_destroy(device->device, space->event);
    tutti_free(space);
    device->space = NULL;
}
