/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent collectives: a request that was checked and whose schedule was sealed once; each start binds and runs it.
 */
#include "comm/call/call.h"

struct tutti_persistent {
    struct tutti_attached attached; /* first: see gone() */
    struct tutti_request request;
    const struct tutti_schedule *kept; /* so that starts find it in the cache */
    struct tutti_cache *cache;
};

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
    tutti_request_release(request); /* what is not kept, each start takes anew */
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
    struct tutti_request recorded = {.tables = NULL};
    enum tutti_status status = tutti_record_take(&recorded);
    if (status >= 0 && !out) status = tutti_fail(TUTTI_ERR_ARGUMENT, "persistent_end: out is NULL");
    if (status >= 0) status = persistent_make(&recorded, out);
    if (status < 0) tutti_request_disown(&recorded);
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
        request.tables = NULL; /* the recording's */
        request.collected = tutti_collects() != TUTTI_COLLECTS_NOTHING;
        status = tutti_request_dispatch(&request); /* its route may be another one now: devices are changed */
        tutti_comm_leave(comm);
    }
    if (status < 0 && tutti_collects() == TUTTI_COLLECTS_GROUP) tutti_group_spoil();
    return status;
}

void tutti_persistent_destroy(struct tutti_persistent *persistent)
{
    if (!persistent || persistent->attached.n_forks != tutti_n_forks) return;
    tutti_comm_detach(&persistent->attached);
    tutti_request_disown(&persistent->request);
    tutti_free(persistent);
}
