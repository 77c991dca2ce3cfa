/* SPDX-License-Identifier: BSD-3-Clause */
/* The recording of a persistent collective: one call of this thread is kept instead of started. */
#include "comm/call/call.h"

static _Thread_local struct recording {
    uint32_t n;
    struct tutti_error error; /* of the first call that failed */
    struct tutti_request request;
} recording;

void tutti_record_spoil(void)
{
    if (recording.error.status == TUTTI_OK) recording.error = *tutti_last_error();
}

enum tutti_status tutti_record_add(const struct tutti_request *request)
{
    if (request->type != TUTTI_REQUEST_COLLECTIVE)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "only a collective can be persistent");
    if (request->work)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT,
                                  "work must be NULL while a persistent collective is recorded");
    if (recording.n++)
        return tutti_request_fail(request, TUTTI_ERR_ARGUMENT, "a persistent collective was recorded already");
    recording.request = *request;
    recording.request.tables = NULL;
    return tutti_request_own(&recording.request);
}

enum tutti_status tutti_persistent_record(void)
{
    if (tutti_collects() == TUTTI_COLLECTS_RECORD)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_record: a recording is open on this thread already");
    if (tutti_collects() == TUTTI_COLLECTS_GROUP)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_record can not be called inside a group");
    recording = (struct recording){.n = 0};
    tutti_collect(TUTTI_COLLECTS_RECORD);
    return TUTTI_OK;
}

enum tutti_status tutti_record_take(struct tutti_request *out)
{
    if (tutti_collects() != TUTTI_COLLECTS_RECORD)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end without persistent_record");
    tutti_collect(TUTTI_COLLECTS_NOTHING);
    *out = recording.request;
    out->collected = false;
    if (recording.error.status < 0) return tutti_fail_record(&recording.error);
    if (recording.n > 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: no collective was called since persistent_record");
}
