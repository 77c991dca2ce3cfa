/* SPDX-License-Identifier: BSD-3-Clause */
/* One call on device memory: who carries it out, what it comes after, and its number. */
#include "comm/device/device.h"

#include <math.h>

/* Back ends put their own calls in order; those of another one come before, too. Not in a capture, which sees only what
 * is captured in it. */
enum tutti_status tutti_device_come_after(const struct tutti_comm *comm, const struct tutti_backend *backend,
                                          void *stream)
{
    const struct tutti_comm_device *device = comm->device;
    for (uint32_t b = 0; b <= device->n + 1; b++) {
        struct tutti_backend *other = b < device->n ? device->backends[b] : NULL;
        void *event = b > device->n      ? tutti_device_space_event(device)
                      : !other           ? tutti_staging_last_event(device->staging)
                      : other == backend ? NULL
                                         : other->ops->last_event(other);
        uint64_t capture;
        if (!event) continue;
        TUTTI_TRY(tutti_device_capturing(device->device, stream, &capture));
        if (!capture) TUTTI_TRY(device->device->ops->stream_wait(device->device, stream, event));
    }
    return TUTTI_OK;
}

struct tutti_backend *tutti_device_choose(struct tutti_comm *comm, struct tutti_backend_call *call)
{
    struct tutti_comm_device *device = comm->device;
    struct tutti_device_choice *choice = &device->choices[call->info.signature % TUTTI_DEVICE_CHOICES];
    struct tutti_backend *best = NULL;
    double least = HUGE_VAL;
    if (choice->signature == call->info.signature && choice->backend) return choice->backend;
    for (uint32_t b = 0; b < device->n; b++) {
        double ns = device->backends[b]->ops->score(device->backends[b], call);
        if (ns < least) best = device->backends[b], least = ns;
    }
    *choice = (struct tutti_device_choice){call->info.signature, best};
    return best;
}

enum tutti_status tutti_device_enqueue(struct tutti_comm *comm, struct tutti_backend *backend,
                                       struct tutti_backend_call *call, void *stream)
{
    struct tutti_error failure;
    if (tutti_team_failed(comm->team) && tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    call->seq = tutti_team_next(comm->team);
    TUTTI_TRY(tutti_device_come_after(comm, backend, stream));
    TUTTI_TRY(backend->ops->enqueue(backend, call, stream));
    tutti_team_count(comm->team);
    atomic_store_explicit(&comm->sequence, call->seq, memory_order_relaxed);
    return TUTTI_OK;
}

enum tutti_status tutti_device_step(struct tutti_request *step)
{
    struct tutti_comm *comm = step->comm;
    struct tutti_comm_device *device = comm->device;
    struct tutti_backend_call call;
    struct tutti_backend *backend = NULL;
    step->route = (struct tutti_route){.via = TUTTI_VIA_DEVICE};
    if (device->n > 0) {
        tutti_request_call(step, &call);
        backend = tutti_device_choose(comm, &call);
    }
    if (backend) return tutti_device_enqueue(comm, backend, &call, step->options.stream);
    step->route.via = TUTTI_VIA_STAGING;
    return tutti_staging_enqueue(device->staging, step, 1);
}
