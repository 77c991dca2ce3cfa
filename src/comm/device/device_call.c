/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way a call goes: by where its significant buffers are, what the communicator has, and what back ends can. All
 * but where the buffers are is equal on all members, so that they go one way together. */
#include "algo/algo.h"
#include "comm/device/device.h"

#include <math.h>
#include <string.h>

#define REFUSE(...) tutti_request_fail(request, TUTTI_ERR_ARGUMENT, __VA_ARGS__)

/* ---- where the buffers are ---- */

struct buffer {
    const char *name;
    const void *pointer;
    bool empty;
    int32_t device; /* -1: host memory */
};

static bool side_is_empty(const struct tutti_call_side *side, size_t count)
{
    if (!side->counts) return side->n_blocks == 0 || count == 0;
    for (size_t b = 0; b < side->n_blocks; b++)
        if (side->counts[b]) return false;
    return true;
}

/* What the call reads and writes here. */
static uint32_t buffers_of(const struct tutti_request *request, struct buffer out[2])
{
    bool both = request->type == TUTTI_REQUEST_SENDRECV;
    uint32_t n = 0;
    if (request->type == TUTTI_REQUEST_COLLECTIVE) {
        for (int sending = 1; sending >= 0; sending--) {
            struct tutti_call_side side = tutti_request_side(request, sending != 0);
            if (side.n_blocks == 0) continue;
            out[n++] = (struct buffer){side.name, side.base, side_is_empty(&side, request->count), -1};
        }
        return n;
    }
    if (request->type != TUTTI_REQUEST_RECV)
        out[n++] = (struct buffer){both ? "send" : "buffer", request->send, request->count == 0, -1};
    if (request->type != TUTTI_REQUEST_SEND)
        out[n++] = (struct buffer){both ? "recv" : "buffer", request->recv, request->recv_count == 0, -1};
    return n;
}

static enum tutti_status refuse_foreign(const struct tutti_request *request, const struct buffer *buffer)
{
    const struct tutti_comm_device *device = request->comm->device;
    struct tutti_error failure; /* on the way to a device, too */
    if (!device && tutti_team_state(request->comm->team, &failure) < 0) return tutti_fail_record(&failure);
    if (!device || !device->gpu)
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

/* A call without a byte of this rank. Where all ranks have the same counts it is so on all, and goes where no buffer is
 * needed to tell; else where its pointers are, if it has any. */
static enum tutti_route route_of_empty(const struct tutti_request *request, const struct buffer *buffers, uint32_t n)
{
    const struct tutti_comm_device *device = request->comm->device;
    bool told = false, here = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!buffers[i].pointer) continue;
        told = true;
        here |= device && device->gpu && tutti_gpu_of(buffers[i].pointer) == device->ordinal;
    }
    if (!device || !device->gpu || n == 0) return TUTTI_ROUTE_HOST;
    bool uneven = request->v || request->type != TUTTI_REQUEST_COLLECTIVE;
    if (device->n > 0 && (!uneven || !told)) return TUTTI_ROUTE_DEVICE;
    if (!here) return TUTTI_ROUTE_HOST;
    return device->n > 0 ? TUTTI_ROUTE_DEVICE : TUTTI_ROUTE_THROUGH;
}

enum tutti_status tutti_request_route(struct tutti_request *request)
{
    const struct tutti_comm_device *device = request->comm->device;
    struct buffer buffers[2] = {{NULL, NULL, true, -1}, {NULL, NULL, true, -1}};
    const struct buffer *first = NULL;
    request->route = TUTTI_ROUTE_HOST;
    if (request->staged || request->internal || !(device || request->comm->guarded)) return TUTTI_OK;
    uint32_t n = buffers_of(request, buffers);
    for (uint32_t i = 0; i < n; i++) {
        struct buffer *buffer = &buffers[i];
        if (buffer->empty) continue;
        buffer->device = tutti_gpu_of(buffer->pointer);
        if (first && (first->device < 0) != (buffer->device < 0)) return refuse_mixed(request, first, buffer);
        first = buffer;
    }
    for (uint32_t i = 0; i < n; i++)
        if (buffers[i].device >= 0 && (!device || buffers[i].device != device->ordinal))
            return refuse_foreign(request, &buffers[i]);
    if (!first)
        request->route = (int)route_of_empty(request, buffers, n);
    else if (first->device >= 0)
        request->route = device->n > 0 ? TUTTI_ROUTE_DEVICE : TUTTI_ROUTE_THROUGH;
    return TUTTI_OK;
}

/* ---- which back end ---- */

struct tutti_device_backend *tutti_device_choose(struct tutti_comm *comm, struct tutti_backend_call *call)
{
    struct tutti_comm_device *device = comm->device;
    struct tutti_device_choice *choice = &device->choices[call->info.signature % TUTTI_DEVICE_CHOICES];
    struct tutti_device_backend *best = NULL;
    double least = HUGE_VAL;
    if (choice->signature == call->info.signature && choice->backend) return choice->backend;
    for (uint32_t b = 0; b < device->n; b++) {
        double ns = device->backends[b]->ops->score(device->backends[b], call);
        if (ns < least) best = device->backends[b], least = ns;
    }
    *choice = (struct tutti_device_choice){call->info.signature, best};
    return best;
}

/* By the schedule that the call or the option `algorithm` names; where no device runs it nothing is chosen. */
static enum tutti_status choose_schedule(struct tutti_request *request)
{
    const struct tutti_comm *comm = request->comm;
    struct tutti_question question;
    struct tutti_backend_call call;
    tutti_request_question(request, &question);
    if (tutti_choose(&comm->facts, &question, &request->algorithm, &request->shape) < 0) {
        struct tutti_error why = *tutti_last_error();
        return tutti_request_fail(request, why.status, "%s", why.text);
    }
    request->shape.slot = (uint32_t)comm->rank;
    request->shape.root = tutti_kind_info(request->kind)->rooted ? (uint32_t)request->root : 0;
    for (uint32_t b = 0; b < comm->device->n && !request->device; b++) {
        struct tutti_device_backend *backend = comm->device->backends[b];
        if (!backend->ops->schedules) continue;
        TUTTI_TRY(tutti_request_seal(request));
        tutti_request_call(request, &call);
        if (backend->ops->score(backend, &call) < HUGE_VAL) request->device = backend;
        tutti_request_release(request);
    }
    if (!request->device) request->algorithm = NULL;
    return TUTTI_OK;
}

/* Messages have no score: the first back end carries them out, or the one that is named. */
static enum tutti_status choose_named(struct tutti_request *request)
{
    const struct tutti_comm_device *device = request->comm->device;
    const char *wanted = request->options.algorithm;
    struct tutti_backend_call call;
    const char *method = NULL;
    struct tutti_device_backend *named = NULL;
    for (uint32_t b = 0; b < device->n && !named; b++)
        if (tutti_names_backend(wanted, device->backends[b]->ops->name, &method)) named = device->backends[b];
    if (!named && request->type == TUTTI_REQUEST_COLLECTIVE && tutti_algorithm_find(wanted, NULL)) {
        TUTTI_TRY(choose_schedule(request));
        if (!request->device) request->route = TUTTI_ROUTE_THROUGH;
        return TUTTI_OK;
    }
    if (!named)
        return REFUSE(
            "algorithm \"%s\" is none for device memory here: cuda, cuda:METHOD or nccl, where they are open, "
            "or, for a collective, one of `tutti sched list`",
            wanted);
    request->device = named;
    if (request->type != TUTTI_REQUEST_COLLECTIVE) return TUTTI_OK;
    tutti_request_call(request, &call);
    call.method = method;
    if (named->ops->score(named, &call) < HUGE_VAL) return TUTTI_OK;
    return REFUSE("algorithm \"%s\" can not run this call", wanted);
}

enum tutti_status tutti_request_choose_device(struct tutti_request *request)
{
    struct tutti_comm *comm = request->comm;
    struct tutti_backend_call call;
    if (request->route != TUTTI_ROUTE_DEVICE) return TUTTI_OK;
    request->device = NULL; /* what a recorded call was once given */
    request->algorithm = NULL;
    if (request->type != TUTTI_REQUEST_SEND && request->source == TUTTI_ANY_SOURCE &&
        request->type != TUTTI_REQUEST_COLLECTIVE)
        return tutti_request_fail(request, TUTTI_ERR_UNSUPPORTED,
                                  "source is TUTTI_ANY_SOURCE: on device memory it must be a rank");
    if (request->user.function) {
        request->route = TUTTI_ROUTE_THROUGH;
        return TUTTI_OK;
    }
    if (request->options.algorithm) return choose_named(request);
    if (request->type != TUTTI_REQUEST_COLLECTIVE) {
        request->device = comm->device->backends[0];
        return TUTTI_OK;
    }
    if (comm->facts.overrides && tutti_overridden(&comm->facts, request->kind)) {
        TUTTI_TRY(choose_schedule(request));
        if (request->device) return TUTTI_OK;
    }
    tutti_request_call(request, &call);
    tutti_comm_turn_take(comm); /* the choices are its */
    request->device = tutti_device_choose(comm, &call);
    tutti_comm_turn_give(comm);
    if (!request->device) request->route = TUTTI_ROUTE_THROUGH;
    return TUTTI_OK;
}
