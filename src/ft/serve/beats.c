/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls by which a group says that it lives, how far it is, and that it goes; and what all calls have in common. */
#include "ft/message/message.h"
#include "ft/serve/jobs.h"

#include <string.h>

bool serve_is_long(const char *text)
{
    return strlen(text) > TUTTI_MESSAGE_TEXT;
}

void serve_refuse(struct tutti_rpc_call *call)
{
    tutti_rpc_fail(call,
                   tutti_last_error()->status == TUTTI_ERR_ARGUMENT ? TUTTI_RPC_INVALID_ARGUMENT
                                                                    : TUTTI_RPC_RESOURCE_EXHAUSTED,
                   tutti_last_error()->text);
}

struct serve_job *serve_job_of(struct tutti_serve *serve, struct tutti_rpc_call *call)
{
    const char *name = tutti_rpc_job(call);
    struct serve_job *job = serve_job(serve, name[0] ? name : SERVE_DEFAULT);

    if (!job) serve_refuse(call);
    return job;
}

/* ---- */
static enum tutti_status beat(struct serve_job *job, struct tutti_rpc_call *call,
                              const Torchft__LighthouseHeartbeatRequest *request)
{
    const struct tutti_lighthouse_time now = serve_now();
    const Torchft__Progress *told = request->progress;

    TUTTI_TRY(tutti_lighthouse_beat(job->machine, request->replica_id, now));
    serve_present(job, call, request->replica_id, now.now);
    if (!told) return TUTTI_OK;
    const struct tutti_progress progress = {
        .step = told->step, .collective = told->collective, .rank = told->rank, .n_ranks = told->n_ranks};
    tutti_lighthouse_progress(job->machine, request->replica_id, &progress, now.now);
    return TUTTI_OK;
}

void serve_on_heartbeat(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct serve_job *job = serve_job_of(arg, call);
    Torchft__LighthouseHeartbeatRequest *request =
        job ? torchft__lighthouse_heartbeat_request__unpack(NULL, n, message) : NULL;
    struct tutti_rpc_body *empty = request ? tutti_rpc_body_new(0) : NULL;

    if (!job) return;
    if (!request)
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    else if (serve_is_long(request->replica_id))
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "replica_id is longer than 4096 bytes");
    else if (!empty || beat(job, call, request) < 0)
        serve_refuse(call);
    else
        tutti_rpc_reply(call, empty), empty = NULL;
    tutti_rpc_body_give(empty);
    if (request) torchft__lighthouse_heartbeat_request__free_unpacked(request, NULL);
    job->n_beats++;
    serve_settle(job);
}

void serve_on_leave(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct serve_job *job = serve_job_of(arg, call);
    Torchft__LeaveRequest *request = job ? torchft__leave_request__unpack(NULL, n, message) : NULL;
    struct tutti_rpc_body *empty = request ? tutti_rpc_body_new(0) : NULL;

    if (!job) return;
    if (!request) {
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    } else if (!empty) {
        tutti_rpc_fail(call, TUTTI_RPC_RESOURCE_EXHAUSTED, "the lighthouse is out of memory");
    } else {
        tutti_rpc_reply(call, empty);
        serve_note(job, "%.64s leaves: %.100s", request->replica_id, request->why);
        tutti_lighthouse_leave(job->machine, request->replica_id, serve_now());
    }
    if (request) torchft__leave_request__free_unpacked(request, NULL);
    serve_settle(job);
}
