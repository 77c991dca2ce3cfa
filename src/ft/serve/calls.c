/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls become events of a job's machine, its answers replies. A request's number is the address of its call, which
 * stays until it is answered or cancelled. */
#include "ft/serve/jobs.h"

#include <torchft.pb-c.h>

#include <string.h>

#define MAX_TEXT 4096 /* of a name or an address */

/* ---- answers ---- */
static void body_discard(void *body)
{
    tutti_rpc_body_give(body);
}

/* NULL: out of memory. */
static struct tutti_rpc_body *encode(const struct tutti_quorum *quorum)
{
    ProtobufCBinaryData *members = tutti_alloc_array(quorum->n, sizeof(*members));
    Torchft__Timestamp created = TORCHFT__TIMESTAMP__INIT;
    Torchft__Quorum packed = TORCHFT__QUORUM__INIT;
    Torchft__LighthouseQuorumResponse response = TORCHFT__LIGHTHOUSE_QUORUM_RESPONSE__INIT;

    if (!members) return NULL;
    for (uint32_t i = 0; i < quorum->n; i++) {
        const struct tutti_replica *replica = quorum->members[i];
        members[i] = (ProtobufCBinaryData){replica->n_raw, (uint8_t *)(uintptr_t)replica->raw};
    }
    created.seconds = quorum->created_ns / (int64_t)TUTTI_NS_PER_S;
    created.nanos = (int32_t)(quorum->created_ns % (int64_t)TUTTI_NS_PER_S);
    packed.quorum_id = quorum->id;
    packed.n_participants = quorum->n, packed.participants = members;
    packed.created = &created;
    response.quorum = &packed;
    struct tutti_rpc_body *body = tutti_rpc_body_new(torchft__lighthouse_quorum_response__get_packed_size(&response));
    if (body) torchft__lighthouse_quorum_response__pack(&response, body->bytes);
    tutti_free(members);
    return body;
}

void serve_answer(void *arg, uint64_t request, struct tutti_quorum *quorum)
{
    struct tutti_rpc_call *call = (struct tutti_rpc_call *)(uintptr_t)request;

    (void)arg;
    if (!quorum->encoded) quorum->encoded = encode(quorum), quorum->discard = body_discard;
    struct tutti_rpc_body *body = quorum->encoded;
    if (body) {
        body->refs++;
        tutti_rpc_reply(call, body);
    } else {
        tutti_rpc_fail(call, TUTTI_RPC_RESOURCE_EXHAUSTED, "the lighthouse is out of memory");
    }
    tutti_quorum_give(quorum);
}

/* ---- calls ---- */
static bool is_long(const char *text)
{
    return strlen(text) > MAX_TEXT;
}

static void refuse(struct tutti_rpc_call *call)
{
    tutti_rpc_fail(call,
                   tutti_last_error()->status == TUTTI_ERR_ARGUMENT ? TUTTI_RPC_INVALID_ARGUMENT
                                                                    : TUTTI_RPC_RESOURCE_EXHAUSTED,
                   tutti_last_error()->text);
}

static enum tutti_status ask(struct serve_job *job, struct tutti_rpc_call *call, const Torchft__QuorumMember *m)
{
    struct tutti_replica replica = {.replica_id = m->replica_id,
                                    .address = m->address,
                                    .store_address = m->store_address,
                                    .data = m->data,
                                    .n_raw = torchft__quorum_member__get_packed_size(m),
                                    .step = m->step,
                                    .commit_failures = m->commit_failures,
                                    .world_size = m->world_size,
                                    .shrink_only = m->shrink_only};

    if (is_long(m->replica_id) || is_long(m->address) || is_long(m->store_address))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a name or an address is longer than %d bytes", MAX_TEXT);
    uint8_t *raw = tutti_alloc(replica.n_raw);
    if (!raw) return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    torchft__quorum_member__pack(m, raw);
    replica.raw = raw;
    const enum tutti_status status = tutti_lighthouse_ask(job->machine, &replica, (uintptr_t)call, serve_now());
    tutti_free(raw);
    job->n_asks++;
    return status;
}

/* The job that the call is of; NULL: it is refused already. */
static struct serve_job *job_of(struct tutti_serve *serve, struct tutti_rpc_call *call)
{
    struct serve_job *job = serve_job(serve, "default");

    if (!job) refuse(call);
    return job;
}

static void on_quorum(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct serve_job *job = job_of(arg, call);
    Torchft__LighthouseQuorumRequest *request = torchft__lighthouse_quorum_request__unpack(NULL, n, message);

    if (!job) return;
    if (!request)
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    else if (!request->requester)
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "missing requester");
    else if (ask(job, call, request->requester) < 0)
        refuse(call);
    if (request) torchft__lighthouse_quorum_request__free_unpacked(request, NULL);
    serve_settle(job);
}

static void on_heartbeat(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct serve_job *job = job_of(arg, call);
    Torchft__LighthouseHeartbeatRequest *request = torchft__lighthouse_heartbeat_request__unpack(NULL, n, message);
    struct tutti_rpc_body *empty = tutti_rpc_body_new(0);

    if (!job) return;
    if (!request)
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    else if (is_long(request->replica_id))
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "replica_id is longer than 4096 bytes");
    else if (!empty || tutti_lighthouse_beat(job->machine, request->replica_id, serve_now()) < 0)
        refuse(call);
    else
        tutti_rpc_reply(call, empty), empty = NULL;
    tutti_rpc_body_give(empty);
    if (request) torchft__lighthouse_heartbeat_request__free_unpacked(request, NULL);
    job->n_beats++;
    serve_settle(job);
}

/* Its request is in one job's machine; the others do not know the number. */
void serve_cancelled(void *arg, struct tutti_rpc_call *call)
{
    const struct tutti_serve *serve = arg;

    for (struct serve_job *job = serve->jobs; job; job = job->next) {
        tutti_lighthouse_cancel(job->machine, (uintptr_t)call, serve_now());
        serve_settle(job);
    }
}

const struct tutti_rpc_method serve_methods[] = {{"/torchft.LighthouseService/Quorum", on_quorum},
                                                 {"/torchft.LighthouseService/Heartbeat", on_heartbeat}};
const size_t serve_n_methods = TUTTI_ARRAY_LEN(serve_methods);
