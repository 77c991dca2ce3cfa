/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way a call goes: first by where its buffers are, then by what can carry it out there. */
#include "algo/algo.h"
#include "comm/call/device.h"

#include <math.h>

#define REFUSE(...) tutti_request_fail(request, TUTTI_ERR_ARGUMENT, __VA_ARGS__)

/* ---- where the buffers are ---- */

struct buffer {
    const char *name;
    const void *pointer;
    bool empty;
    int32_t device; /* -1: host memory */
};

static bool side_is_empty(const struct tutti_call_side *side)
{
    if (!side->counts) return side->block_bytes == 0;
    for (size_t b = 0; b < side->n_blocks; b++)
        if (side->counts[b]) return false;
    return true;
}

/* What the call reads and writes here. */
static uint32_t buffers_of(const struct tutti_request *request, struct buffer out[2])
{
    uint32_t n = 0;
    for (int sending = 1; sending >= 0; sending--) {
        struct tutti_call_side side = tutti_request_side(request, sending != 0);
        if (side.n_blocks) out[n++] = (struct buffer){side.name, side.base, side_is_empty(&side), -1};
    }
    return n;
}

static enum tutti_status refuse_foreign(const struct tutti_request *request, const struct buffer *buffer)
{
    const struct tutti_comm_device *device = request->comm->device;
    struct tutti_error failure; /* on the way to a device, too */
    if (!device && tutti_team_state(request->comm->team, &failure) < 0) return tutti_fail_record(&failure);
    if (!device || !device->device)
        return REFUSE("%s is memory of device %d, but the communicator has no device at this rank: give it one by "
                      "tutti_comm_config.device or tutti_comm_set_device",
                      buffer->name, (int)buffer->device);
    return REFUSE("%s is memory of device %d, but the communicator's device at this rank is %d: copy it there, or use "
                  "tutti_comm_set_device",
                  buffer->name, (int)buffer->device, (int)device->ordinal);
}

static enum tutti_status refuse_mixed(const struct tutti_request *request, const struct buffer *a,
                                      const struct buffer *b)
{
    const struct buffer *there = a->device >= 0 ? a : b, *here = a->device >= 0 ? b : a;
    return REFUSE("%s is memory of device %d, but %s is host memory: copy one of them, so that both are of one kind",
                  there->name, (int)there->device, here->name);
}

/* What device memory of the communicator's means: its back ends' calls, if there are some, else staging. */
static enum tutti_via via_device(const struct tutti_comm_device *device)
{
    return device->n > 0 ? TUTTI_VIA_DEVICE : TUTTI_VIA_STAGING;
}

/* A call without a byte of this rank. Where all ranks have the same counts it is so on all, and goes where no buffer is
 * needed to tell; else where its pointers are, if it has any. */
static enum tutti_via via_of_empty(const struct tutti_request *request, const struct buffer *buffers, uint32_t n)
{
    const struct tutti_comm_device *device = request->comm->device;
    bool told = false, here = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!buffers[i].pointer) continue;
        told = true;
        here |= device && device->device && device->device->ops->of(buffers[i].pointer) == device->ordinal;
    }
    if (!device || !device->device || n == 0) return TUTTI_VIA_ENGINE;
    bool uneven = request->v || request->type != TUTTI_REQUEST_COLLECTIVE;
    if (device->n > 0 && (!uneven || !told)) return TUTTI_VIA_DEVICE;
    return here ? via_device(device) : TUTTI_VIA_ENGINE;
}

/* ENGINE, DEVICE or STAGING, for what is on the host's memory, on the device's, and on it where no back end serves. */
static enum tutti_status via_of_memory(const struct tutti_request *request, enum tutti_via *out)
{
    const struct tutti_comm_device *device = request->comm->device;
    struct buffer buffers[2] = {{NULL, NULL, true, -1}, {NULL, NULL, true, -1}};
    const struct buffer *first = NULL;
    *out = TUTTI_VIA_ENGINE;
    if (!device && !request->comm->guarded) return TUTTI_OK;
    uint32_t n = buffers_of(request, buffers);
    for (uint32_t i = 0; i < n; i++) {
        struct buffer *buffer = &buffers[i];
        if (buffer->empty) continue;
        buffer->device = tutti_device_of(buffer->pointer);
        if (first && (first->device < 0) != (buffer->device < 0)) return refuse_mixed(request, first, buffer);
        first = buffer;
    }
    for (uint32_t i = 0; i < n; i++)
        if (buffers[i].device >= 0 && (!device || buffers[i].device != device->ordinal))
            return refuse_foreign(request, &buffers[i]);
    if (!first)
        *out = via_of_empty(request, buffers, n);
    else if (first->device >= 0)
        *out = via_device(device);
    return TUTTI_OK;
}

/* ---- which back end of devices ---- */

/* Messages have no score: the first back end carries them out, or the one that is named. A schedule that is named runs
 * on the host. */
static enum tutti_status choose_named(const struct tutti_request *request, struct tutti_route *out)
{
    const struct tutti_comm_device *device = request->comm->device;
    const char *wanted = request->options.algorithm, *method = NULL;
    struct tutti_backend_call call;
    for (uint32_t b = 0; b < device->n && !out->backend; b++)
        if (tutti_backend_is_named(device->backends[b]->ops, wanted, &method)) out->backend = device->backends[b];
    if (!out->backend && request->type == TUTTI_REQUEST_COLLECTIVE && tutti_algorithm_find(wanted, NULL))
        return TUTTI_OK;
    if (!out->backend)
        return REFUSE(
            "algorithm \"%s\" is none for device memory here: NAME or NAME:METHOD of a back end (%s) that is open, "
            "or, for a collective, one of `tutti sched list`",
            wanted, tutti_backend_names(true));
    if (request->type != TUTTI_REQUEST_COLLECTIVE) return TUTTI_OK;
    tutti_request_call(request, &call);
    call.method = method;
    if (out->backend->ops->score(out->backend, &call) < HUGE_VAL) return TUTTI_OK;
    return REFUSE("algorithm \"%s\" can not run this call", wanted);
}

/* Leaves the back end NULL where no back end takes the call. */
static enum tutti_status choose_device(const struct tutti_request *request, struct tutti_route *out)
{
    struct tutti_comm *comm = request->comm;
    struct tutti_backend_call call;
    bool collective = request->type == TUTTI_REQUEST_COLLECTIVE;
    if (!collective && request->type != TUTTI_REQUEST_SEND && request->source == TUTTI_ANY_SOURCE)
        return tutti_request_fail(request, TUTTI_ERR_UNSUPPORTED,
                                  "source is TUTTI_ANY_SOURCE: on device memory it must be a rank");
    if (request->user.function || request->options.wire) return TUTTI_OK;
    if (request->options.algorithm) return choose_named(request, out);
    if (!collective) {
        out->backend = comm->device->backends[0];
        return TUTTI_OK;
    }
    tutti_request_call(request, &call);
    tutti_comm_turn_take(comm); /* the choices are its */
    out->backend = tutti_device_choose(comm, &call);
    tutti_comm_turn_give(comm);
    return TUTTI_OK;
}

enum tutti_status tutti_route(const struct tutti_request *request, struct tutti_route *out)
{
    struct tutti_route route = {.via = TUTTI_VIA_ENGINE};
    TUTTI_TRY(via_of_memory(request, &route.via));
    if (route.via != TUTTI_VIA_ENGINE && request->options.wire) TUTTI_TRY(tutti_packed_refusal(request));
    if (route.via == TUTTI_VIA_DEVICE) {
        TUTTI_TRY(choose_device(request, &route));
        if (!route.backend && !request->options.wire) route.via = TUTTI_VIA_STAGING;
    } else if (route.via == TUTTI_VIA_ENGINE) {
        TUTTI_TRY(tutti_route_host(request, &route));
    }
    *out = route;
    return TUTTI_OK;
}
