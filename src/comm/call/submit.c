/* SPDX-License-Identifier: BSD-3-Clause */
/* The front door behind every public call: enter the communicator, check, decide the route, then carry it out, or hand
 * the request to the group or the recording that is open on this thread. */
#include "comm/call/device.h"

/* Nothing waits, whether the caller wants a work or not. */
static enum tutti_status enqueue(struct tutti_request *request)
{
    struct tutti_work *work = NULL;
    size_t n_started;
    if (request->work) TUTTI_TRY(tutti_device_may_follow(request));
    TUTTI_TRY(tutti_device_start(request, 1, false, &work, &n_started));
    if (request->work) *request->work = work;
    return TUTTI_OK;
}

static enum tutti_status start(struct tutti_request *request)
{
    struct tutti_work *work = NULL;
    TUTTI_TRY(tutti_device_before(request));
    TUTTI_TRY(tutti_request_prepare(request));
    TUTTI_TRY(tutti_request_start(request, request->work && !request->options.attended, &work));
    if (!request->work) return tutti_work_finish(work);
    *request->work = work;
    return TUTTI_OK;
}

static enum tutti_status hurry(struct tutti_request *request)
{
    struct tutti_work *work = NULL;
    TUTTI_TRY(tutti_device_before(request));
    TUTTI_TRY(tutti_request_start_hurried(request, &work));
    return work ? tutti_work_finish(work) : TUTTI_OK;
}

/* The switch of all routes. */
static enum tutti_status carry_out(struct tutti_request *request)
{
    switch (request->route.via) {
    case TUTTI_VIA_DEVICE:
    case TUTTI_VIA_STAGING:
        return enqueue(request);
    case TUTTI_VIA_BACKEND:
        return request->work ? start(request) : hurry(request);
    case TUTTI_VIA_ENGINE:
    case TUTTI_VIA_PACKED:
        break;
    }
    return start(request);
}

enum tutti_status tutti_request_dispatch(struct tutti_request *request)
{
    TUTTI_TRY(tutti_route(request, &request->route));
    switch (tutti_collects()) {
    case TUTTI_COLLECTS_RECORD:
        return tutti_record_add(request);
    case TUTTI_COLLECTS_GROUP:
        return tutti_group_add(request);
    case TUTTI_COLLECTS_NOTHING:
        break;
    }
    return carry_out(request);
}

enum tutti_status tutti_request_submit(struct tutti_request *request, const struct tutti_call_options *options)
{
    enum tutti_status status = tutti_comm_enter(request->comm, request->name);
    if (status >= 0) {
        request->collected = tutti_collects() != TUTTI_COLLECTS_NOTHING;
        status = tutti_request_options(request, options);
        if (status >= 0) status = tutti_request_check(request);
        if (status >= 0) status = tutti_request_dispatch(request);
        tutti_comm_leave(request->comm);
    }
    if (status >= 0) return status;
    if (tutti_collects() == TUTTI_COLLECTS_RECORD) tutti_record_spoil();
    if (tutti_collects() == TUTTI_COLLECTS_GROUP) tutti_group_spoil();
    return status;
}
