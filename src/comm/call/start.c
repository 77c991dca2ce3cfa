/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests on host memory: their route, their schedule, and their start, in the order of the calls. */
#include "comm/call/call.h"

#include <inttypes.h>
#include <math.h>

/* ---- the route ---- */

/* Whether the back end takes the call; NULL takes none. */
static bool is_taken(const struct tutti_request *request, struct tutti_backend *backend)
{
    struct tutti_request asked = *request;
    struct tutti_backend_call call;
    if (!backend) return false;
    asked.route.backend = backend;
    tutti_request_call(&asked, &call);
    return backend->ops->score(backend, &call) < HUGE_VAL;
}

static enum tutti_status route_named(const struct tutti_request *request, const struct tutti_backend_ops *named,
                                     struct tutti_route *out)
{
    const struct tutti_comm *comm = request->comm;
    const char *wanted = request->options.algorithm;
    struct tutti_backend *backend = named->is_library ? comm->library : comm->backend;
    if (!backend || backend->ops != named)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "algorithm \"%s\" is not available here", wanted);
    if (!is_taken(request, backend))
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "algorithm \"%s\" can not run this call", wanted);
    out->via = TUTTI_VIA_BACKEND;
    out->backend = backend;
    return TUTTI_OK;
}

/* AGAIN: no back end. */
static enum tutti_status route_backend(const struct tutti_request *request, struct tutti_route *out)
{
    const struct tutti_comm *comm = request->comm;
    const char *wanted = request->options.algorithm;
    const struct tutti_backend_ops *named = tutti_backend_find(wanted, false);
    if (named) return route_named(request, named, out);
    if (wanted) return TUTTI_AGAIN;
    bool overrides = comm->facts.overrides && comm->facts.overrides[0];
    if (overrides && tutti_overridden(&comm->facts, request->kind)) return TUTTI_AGAIN;
    if (comm->library_first && is_taken(request, comm->library))
        out->backend = comm->library;
    else if (is_taken(request, comm->backend))
        out->backend = comm->backend;
    else
        return TUTTI_AGAIN;
    out->via = TUTTI_VIA_BACKEND;
    return TUTTI_OK;
}

/* The algorithm and shape that the call, the options or the model choose. */
static enum tutti_status tutti_route_algorithm(const struct tutti_request *request, struct tutti_route *out)
{
    const struct tutti_comm *comm = request->comm;
    struct tutti_question question;
    tutti_request_question(request, &question);
    if (tutti_choose(&comm->facts, &question, &out->algorithm, &out->shape) < 0) {
        struct tutti_error why = *tutti_last_error();
        return tutti_request_fail(request, why.status, "%s", why.text);
    }
    out->shape.slot = (uint32_t)comm->rank;
    out->shape.root = tutti_kind_info(request->kind)->rooted ? (uint32_t)request->root : 0;
    return TUTTI_OK;
}

enum tutti_status tutti_route_host(const struct tutti_request *request, struct tutti_route *out)
{
    *out = (struct tutti_route){.via = TUTTI_VIA_ENGINE};
    if (request->type != TUTTI_REQUEST_COLLECTIVE) return TUTTI_OK;
    if (request->options.wire) {
        out->via = TUTTI_VIA_PACKED;
        return TUTTI_OK;
    }
    enum tutti_status status = request->purpose ? TUTTI_AGAIN : route_backend(request, out); /* steps have gates */
    if (status != TUTTI_AGAIN) return status;
    out->via = TUTTI_VIA_ENGINE;
    return tutti_route_algorithm(request, out);
}

/* ---- the schedule ---- */

/* Lanes carry out calls on host memory. */
enum tutti_status tutti_request_seal(struct tutti_request *request)
{
    struct tutti_cache *cache = request->comm->context->cache;
    const struct tutti_route *route = &request->route;
    bool lanes_serve = route->shape.n_levels > 0 && route->via == TUTTI_VIA_ENGINE;
    const struct tutti_lanes *lanes = lanes_serve ? &request->comm->lanes : NULL;
    TUTTI_TRY(tutti_cache_get(cache, route->algorithm, request->kind, &route->shape, lanes, &request->schedule));
    if (!request->schedule->defect) return TUTTI_OK;
    enum tutti_status status = tutti_request_fail(request, TUTTI_ERR_INTERNAL, "%s", request->schedule->defect);
    tutti_request_unseal(request);
    return status;
}

void tutti_request_unseal(struct tutti_request *request)
{
    if (request->schedule) tutti_cache_release(request->comm->context->cache, request->schedule);
    request->schedule = NULL;
}

/* ---- starting ---- */

static enum tutti_status start_backend(struct tutti_request *request, bool hurry, bool helper, struct tutti_work **work)
{
    union tutti_backend_storage room;
    struct tutti_comm *comm = request->comm;

    const struct tutti_backend_way way = {comm, request->route.backend, hurry, helper};

    tutti_request_call(request, &room.op.call);
    tutti_comm_turn_take(comm);
    enum tutti_status status = tutti_backend_start(&way, &room.op, work);
    tutti_comm_turn_give(comm);
    return status;
}

enum tutti_status tutti_request_start_hurried(struct tutti_request *request, struct tutti_work **work)
{
    return start_backend(request, true, false, work);
}

static enum tutti_status start_collective(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    struct tutti_comm *comm = request->comm;
    struct tutti_bind bind = {
        .schedule = request->schedule, .cache = comm->context->cache, .dtype = request->dtype, .divisor = 1};
    struct tutti_call_info info;
    if (request->route.via == TUTTI_VIA_BACKEND) return start_backend(request, false, helper, work);
    tutti_request_bind(request, &bind);
    tutti_request_info(request, &info);
    request->schedule = NULL; /* the engine's from here on */
    tutti_comm_turn_take(comm);
    enum tutti_status status = tutti_engine_start(comm->team, &bind, &info, helper, work);
    if (status >= 0) atomic_fetch_add(&comm->sequence, 1);
    tutti_comm_turn_give(comm);
    if (status >= 0)
        tutti_log(TUTTI_LOG_TRACE, "%s%s%s #%" PRIu64 " on communicator %016" PRIx64 ": %s, %zu x %s", request->name,
                  info.label ? " " : "", info.label ? info.label : "", tutti_work_sequence(*work), comm->id,
                  request->route.algorithm->name, request->count, tutti_dtype_name(request->dtype));
    return status;
}

static enum tutti_status start_send(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    const struct tutti_p2p_message_info info = {.send = request->send,
                                                .bytes = request->count * tutti_dtype_bytes(request->dtype),
                                                .peer = request->dest,
                                                .tag = request->send_tag,
                                                .timeout_ns = tutti_request_timeout(request)};
    return tutti_engine_send(request->comm->team, &info, helper, work);
}

static enum tutti_status start_recv(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    const struct tutti_p2p_message_info info = {.recv = request->recv,
                                                .bytes = request->recv_count * tutti_dtype_bytes(request->dtype),
                                                .peer = request->source,
                                                .tag = request->recv_tag,
                                                .timeout_ns = tutti_request_timeout(request),
                                                .message = request->message};
    return tutti_engine_recv(request->comm->team, &info, helper, work);
}

void tutti_request_give_up(const struct tutti_request *request, struct tutti_work **started, size_t n)
{
    struct tutti_error error = *tutti_last_error();
    tutti_comm_fail_in_part(request->comm, request->name);
    for (size_t i = 0; i < n; i++) tutti_work_finish(started[i]);
    tutti_fail_record(&error);
}

static enum tutti_status start_sendrecv(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    struct tutti_work *parts[2];
    TUTTI_TRY(start_recv(request, helper, &parts[0]));
    size_t n = 1;
    enum tutti_status status = start_send(request, helper, &parts[1]);
    if (status >= 0) {
        n = 2;
        status = tutti_work_join(request->comm->context->engine, parts, 2, work);
    }
    if (status < 0) tutti_request_give_up(request, parts, n);
    return status;
}

enum tutti_status tutti_request_start_one(struct tutti_request *request, bool helper, struct tutti_work **work)
{
    static enum tutti_status (*const starts[])(struct tutti_request *, bool, struct tutti_work **) = {
        [TUTTI_REQUEST_COLLECTIVE] = start_collective,
        [TUTTI_REQUEST_SEND] = start_send,
        [TUTTI_REQUEST_RECV] = start_recv,
        [TUTTI_REQUEST_SENDRECV] = start_sendrecv,
    };
    return starts[request->type](request, helper, work);
}
