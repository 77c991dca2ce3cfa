/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a communicator's device: what is under way is waited for or stopped, then its back ends are closed. */
#include "comm/device/device.h"
#include "comm/device/pinned.h"

#define GIVE_UP_NS TUTTI_NS_PER_S /* for a failure to be told */
#define NAP_FIRST_NS UINT64_C(5000)
#define NAP_LONGEST_NS (500 * UINT64_C(1000))

/* Its back ends are closed, or were never opened. */
static void device_free(struct tutti_comm_device *device)
{
    tutti_device_free_events(device);
    tutti_device_space_free(device);
    tutti_pinned_drop(device->pinned);
    if (device->device) device->device->ops->close(device->device);
    pthread_mutex_destroy(&device->lock);
    tutti_free(device);
}

void tutti_comm_close_device(struct tutti_comm *comm, uint64_t deadline_ns)
{
    struct tutti_comm_device *device = comm->device;
    if (!device) return;
    if (tutti_comm_wait_device(comm, deadline_ns))
        tutti_comm_hear_device(comm); /* works that are held say how it ended */
    else
        tutti_comm_stop_device(comm, false);
    pthread_mutex_lock(&device->lock); /* works that are not over are looked at, and stopped, by other threads */
    struct tutti_staging *staging = device->staging;
    uint32_t n = device->n;
    device->staging = NULL, device->n = 0;
    pthread_mutex_unlock(&device->lock);
    tutti_staging_close(staging);
    while (n > 0) {
        struct tutti_backend *backend = device->backends[--n];
        backend->ops->close(backend, deadline_ns);
    }
}

void tutti_comm_free_device(struct tutti_comm *comm)
{
    if (comm->device) device_free(comm->device);
    comm->device = NULL;
}

void tutti_comm_stop_device(struct tutti_comm *comm, bool owned)
{
    struct tutti_comm_device *device = comm->device;
    for (uint32_t b = 0; device && b < device->n; b++) device->backends[b]->ops->stop(device->backends[b]);
    if (device && device->staging) tutti_staging_stop(device->staging, owned);
}

/* Whether nothing is under way any more. What the device failed with is over, too. */
static bool is_idle(const struct tutti_comm_device *device)
{
    for (uint32_t b = 0; b < device->n; b++) {
        void *event = device->backends[b]->ops->last_event(device->backends[b]);
        if (event && device->device->ops->event_query(device->device, event) == TUTTI_PENDING) return false;
        if (device->backends[b]->ops->busy && device->backends[b]->ops->busy(device->backends[b])) return false;
    }
    void *event = tutti_device_space_event(device);
    if (event && device->device->ops->event_query(device->device, event) == TUTTI_PENDING) return false;
    if (device->pinned && atomic_load(&device->pinned->n_pending) > 0) return false;
    return !device->staging || tutti_staging_idle(device->staging);
}

bool tutti_comm_wait_device(struct tutti_comm *comm, uint64_t until_ns)
{
    for (uint64_t nap = NAP_FIRST_NS; comm->device && !is_idle(comm->device);) {
        uint64_t now = tutti_now_ns();
        if (now >= until_ns || tutti_team_failed(comm->team)) return is_idle(comm->device);
        tutti_sleep_ns(nap < until_ns - now ? nap : until_ns - now);
        if (nap < NAP_LONGEST_NS) nap *= 2;
    }
    return true;
}

bool tutti_device_has_failed(const struct tutti_comm_device *device)
{
    for (uint32_t b = 0; b < device->n; b++) {
        const struct tutti_backend_ops *ops = device->backends[b]->ops;
        if (ops->failed && ops->failed(device->backends[b])) return true;
    }
    return false;
}

void tutti_comm_hear_device(struct tutti_comm *comm)
{
    uint64_t deadline = tutti_deadline_ns(GIVE_UP_NS); /* back ends look every few milliseconds */
    while (comm->device && tutti_device_has_failed(comm->device) && !tutti_team_failed(comm->team) &&
           tutti_now_ns() < deadline)
        tutti_sleep_ns(NAP_LONGEST_NS);
}
