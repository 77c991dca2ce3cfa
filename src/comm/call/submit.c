/* SPDX-License-Identifier: BSD-3-Clause */
/* The front door behind every public call: enter the communicator, check, then run the request, or hand it to the group
 * or the recording that is open on this thread. */
#include "comm/device/device.h"

enum tutti_status tutti_call_alone(const char *call)
{
    if (tutti_group_active())
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s can not be called between group_start and group_end", call);
    if (tutti_record_active())
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s can not be called between persistent_record and persistent_end",
                          call);
    return TUTTI_OK;
}

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

static enum tutti_status run(struct tutti_request *request)
{
    struct tutti_work *work = NULL;
    TUTTI_TRY(tutti_request_prepare(request));
    if (request->route != TUTTI_ROUTE_HOST) return enqueue(request);
    if (request->on_backend && !request->work) {
        TUTTI_TRY(tutti_device_before(request));
        TUTTI_TRY(tutti_request_start_backend(request, true, false, &work));
        return work ? tutti_work_finish(work) : TUTTI_OK;
    }
    TUTTI_TRY(tutti_request_start(request, request->work && !request->options.attended, &work));
    if (!request->work) return tutti_work_finish(work);
    *request->work = work;
    return TUTTI_OK;
}

enum tutti_status tutti_request_dispatch(struct tutti_request *request)
{
    if (tutti_record_active()) return tutti_record_add(request);
    if (tutti_group_active()) return tutti_group_add(request);
    return run(request);
}

enum tutti_status tutti_request_submit(struct tutti_request *request, const struct tutti_call_options *options)
{
    enum tutti_status status = tutti_comm_enter(request->comm, request->name);
    if (status >= 0) {
        status = tutti_request_options(request, options);
        if (status >= 0) status = tutti_request_check(request);
        if (status >= 0) status = tutti_request_route(request);
        if (status >= 0) status = tutti_request_dispatch(request);
        tutti_comm_leave(request->comm);
    }
    if (status < 0 && tutti_record_active())
        tutti_record_spoil();
    else if (status < 0 && tutti_group_active())
        tutti_group_spoil();
    return status;
}

enum tutti_status tutti_request_run(struct tutti_request *request, uint64_t *sequence)
{
    struct tutti_work *work = NULL;
    TUTTI_TRY(tutti_request_options(request, NULL));
    TUTTI_TRY(tutti_request_check(request));
    TUTTI_TRY(tutti_request_prepare(request));
    TUTTI_TRY(tutti_request_start(request, false, &work));
    if (sequence) *sequence = tutti_work_sequence(work);
    return tutti_work_finish(work);
}
