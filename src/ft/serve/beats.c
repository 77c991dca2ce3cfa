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

/* Notes whose heartbeat it is: should its connection end, the leader hears of it from here. */
static void note_presence(struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    const bool beats = strcmp(tutti_rpc_path(call), "/torchft.LighthouseService/Heartbeat") == 0;
    Torchft__LighthouseHeartbeatRequest *request =
        beats ? torchft__lighthouse_heartbeat_request__unpack(NULL, n, message) : NULL;

    if (!request) return;
    const char *job = tutti_rpc_job(call);
    if (strlen(request->replica_id) <= TUTTI_MESSAGE_TEXT)
        serve_present(job[0] ? job : SERVE_DEFAULT, call, request->replica_id, tutti_now_ns());
    torchft__lighthouse_heartbeat_request__free_unpacked(request, NULL);
}

struct serve_job *serve_job_of(struct tutti_serve *serve, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    const char *name = tutti_rpc_job(call);

    if (!serve_leads(serve)) {
        note_presence(call, message, n);
        serve_forward(serve, call, message, n);
        return NULL;
    }
    struct serve_job *job = serve_job(serve, name[0] ? name : SERVE_DEFAULT);
    if (!job) serve_refuse(call);
    return job;
}

/* ---- */
static enum tutti_status beat(struct serve_job *job, struct tutti_rpc_call *call,
                              const Torchft__LighthouseHeartbeatRequest *request)
{
    const struct tutti_lighthouse_time now = serve_job_now(job);
    const Torchft__Progress *told = request->progress;

    TUTTI_TRY(tutti_lighthouse_beat(job->machine, request->replica_id, now));
    serve_present(job->name, call, request->replica_id, now.now);
    if (!told) return TUTTI_OK;
    const struct tutti_progress progress = {
        .step = told->step, .collective = told->collective, .rank = told->rank, .n_ranks = told->n_ranks};
    tutti_lighthouse_progress(job->machine, request->replica_id, &progress, now.now);
    return TUTTI_OK;
}

void serve_on_heartbeat(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct serve_job *job = serve_job_of(arg, call, message, n);
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
    struct serve_job *job = serve_job_of(arg, call, message, n);
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
        const struct tutti_lighthouse_time now = serve_job_now(job);
        const uint64_t age = request->unless_heard_ms * TUTTI_NS_PER_MS;
        const uint64_t since = age > 0 ? now.now - (age < now.now ? age : 0) : UINT64_MAX;
        tutti_lighthouse_leave_unless(job->machine, request->replica_id, since, now);
    }
    if (request) torchft__leave_request__free_unpacked(request, NULL);
    serve_settle(job);
}
