/* SPDX-License-Identifier: BSD-3-Clause */

/* Events of a communicator's device, which are used again. */

#include "comm/device/device.h"

struct tutti_device_event *tutti_device_event_take(struct tutti_comm *comm)
{
    struct tutti_comm_device *device = comm->device;
    pthread_mutex_lock(&device->lock);
    struct tutti_device_event *event = device->events;
    if (event) device->events = event->next;
    pthread_mutex_unlock(&device->lock);
    if (event) return event;
    event = tutti_alloc(sizeof(*event));
    if (!event) {
        tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory for an event", (int)comm->rank);
    } else if (device->device->ops->event_create(device->device, false, &event->event) < 0) {
        tutti_free(event);
        event = NULL;
    } else {
        event->comm = comm;
    }
    return event;
}

void tutti_device_event_give(void *arg)
{
    struct tutti_device_event *event = arg;
    struct tutti_comm_device *device = event->comm->device;
    pthread_mutex_lock(&device->lock);
    event->next = device->events;
    device->events = event;
    pthread_mutex_unlock(&device->lock);
}

void tutti_device_free_events(struct tutti_comm_device *device)
{
    while (device->events) {
        struct tutti_device_event *event = device->events;
        device->events = event->next;
        device->device->ops->event_destroy(device->device, event->event);
        tutti_free(event);
    }
}
