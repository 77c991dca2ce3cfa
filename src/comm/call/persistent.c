/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent collectives: a request that was checked and whose schedule was sealed once; each start binds and runs it.
 */
#include "comm/device/device.h"

static _Thread_local struct recording {
    bool active;
    uint32_t n;
    struct tutti_error error; /* of the first call that failed */
    struct tutti_request request;
} recording;

struct tutti_persistent {
    struct tutti_attached attached; /* first: see gone() */
    struct tutti_request request;
    const struct tutti_schedule *kept; /* so that starts find it in the cache */
    struct tutti_cache *cache;
};

bool tutti_record_active(void)
{
    return recording.active;
}

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
    if (recording.active)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_record: a recording is open on this thread already");
    if (tutti_group_active())
        return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_record can not be called inside a group");
    recording = (struct recording){.active = true};
    tutti_collecting++;
    return TUTTI_OK;
}

/* The communicator goes, and its context's cache may follow. */
static void gone(struct tutti_attached *attached)
{
    struct tutti_persistent *persistent = (struct tutti_persistent *)(void *)attached;
    if (persistent->kept) tutti_cache_release(persistent->cache, persistent->kept);
    persistent->kept = NULL;
}

static enum tutti_status persistent_make(struct tutti_request *request, struct tutti_persistent **out)
{
    struct tutti_persistent *persistent = tutti_alloc(sizeof(*persistent));
    if (!persistent) return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for a persistent collective");
    enum tutti_status status = tutti_comm_enter(request->comm, request->name);
    if (status < 0) goto err_free;
    TUTTI_TRY_GOTO(status, tutti_request_prepare(request), err_leave);
    persistent->cache = request->comm->context->cache;
    persistent->kept = request->schedule;
    request->schedule = NULL;
    persistent->request = *request;
    persistent->attached.gone = gone;
    tutti_comm_attach(request->comm, &persistent->attached);
    tutti_comm_leave(request->comm);
    *out = persistent;
    return TUTTI_OK;
err_leave:
    tutti_comm_leave(request->comm);
err_free:
    tutti_free(persistent);
    return status;
}

enum tutti_status tutti_persistent_end(struct tutti_persistent **out)
{
    if (!recording.active) return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end without persistent_record");
    struct recording ended = recording;
    recording = (struct recording){.active = false};
    tutti_collecting--;
    enum tutti_status status = TUTTI_OK;
    if (ended.error.status < 0)
        status = tutti_fail_record(&ended.error);
    else if (ended.n == 0)
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: no collective was called since persistent_record");
    else if (!out)
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: out is NULL");
    if (status >= 0) status = persistent_make(&ended.request, out);
    if (status < 0) tutti_request_disown(&ended.request);
    return status;
}

enum tutti_status tutti_persistent_start(struct tutti_persistent *persistent, struct tutti_work **work)
{
    if (!persistent) return tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_start: persistent is NULL");
    struct tutti_comm *comm;
    enum tutti_status status = tutti_comm_enter_attached(&persistent->attached, "persistent_start", &comm);
    if (status >= 0) {
        struct tutti_request request = persistent->request;
        request.work = work;
        request.tables = NULL;                  /* the recording's */
        status = tutti_request_route(&request); /* the communicator may have another device by now */
        if (status >= 0) status = tutti_request_dispatch(&request);
        tutti_comm_leave(comm);
    }
    if (status < 0 && tutti_group_active()) tutti_group_spoil();
    return status;
}

void tutti_persistent_destroy(struct tutti_persistent *persistent)
{
    if (!persistent) return;
    tutti_comm_detach(&persistent->attached);
    tutti_request_disown(&persistent->request);
    tutti_free(persistent);
}
