/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls become events of the machine, its answers replies. A request's number is the address of its call, which stays
 * until it is answered or cancelled. */
#include "ft/serve/serve.h"

#include "ft/rpc/rpc.h"
#include <torchft.pb-c.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 65536
#define MAX_CALLS 256                 /* of a connection */
#define MAX_MESSAGE ((size_t)1 << 20) /* of a request */
#define MAX_TEXT 4096                 /* of a name or an address */

struct tutti_serve {
    struct tutti_loop *loop;
    struct tutti_loop_timer timer;
    struct tutti_rpc_server *rpc;
    struct tutti_lighthouse *machine;
    int64_t told; /* the last quorum's number that the log has */
    char address[320];
};

const char *tutti_serve_missing(void)
{
    return "";
}

static struct tutti_lighthouse_time now(void)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return (struct tutti_lighthouse_time){tutti_now_ns(),
                                          (int64_t)wall.tv_sec * (int64_t)TUTTI_NS_PER_S + wall.tv_nsec};
}

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

static void on_answer(void *arg, uint64_t request, struct tutti_quorum *quorum)
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

/* After every event: one line for a quorum with a new number, and the time of the next look. */
static void settle(struct tutti_serve *serve)
{
    const struct tutti_quorum *last = tutti_lighthouse_last(serve->machine);
    const uint64_t due = tutti_lighthouse_due(serve->machine);

    if (last && last->id != serve->told) {
        tutti_log(TUTTI_LOG_INFO, "quorum %" PRId64 ": %" PRIu32 " groups, first %s", last->id, last->n,
                  last->members[0]->replica_id);
        serve->told = last->id;
    }
    if (due == UINT64_MAX)
        tutti_loop_stop(serve->loop, &serve->timer);
    else
        tutti_loop_at(serve->loop, &serve->timer, due);
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

static enum tutti_status ask(struct tutti_serve *serve, struct tutti_rpc_call *call, const Torchft__QuorumMember *m)
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
    const enum tutti_status status = tutti_lighthouse_ask(serve->machine, &replica, (uintptr_t)call, now());
    tutti_free(raw);
    return status;
}

static void on_quorum(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    Torchft__LighthouseQuorumRequest *request = torchft__lighthouse_quorum_request__unpack(NULL, n, message);

    if (!request)
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    else if (!request->requester)
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "missing requester");
    else if (ask(arg, call, request->requester) < 0)
        refuse(call);
    if (request) torchft__lighthouse_quorum_request__free_unpacked(request, NULL);
    settle(arg);
}

static void on_heartbeat(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct tutti_serve *serve = arg;
    Torchft__LighthouseHeartbeatRequest *request = torchft__lighthouse_heartbeat_request__unpack(NULL, n, message);
    struct tutti_rpc_body *empty = tutti_rpc_body_new(0);

    if (!request)
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    else if (is_long(request->replica_id))
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "replica_id is longer than 4096 bytes");
    else if (!empty || tutti_lighthouse_beat(serve->machine, request->replica_id, now()) < 0)
        refuse(call);
    else
        tutti_rpc_reply(call, empty), empty = NULL;
    tutti_rpc_body_give(empty);
    if (request) torchft__lighthouse_heartbeat_request__free_unpacked(request, NULL);
    settle(serve);
}

static void on_cancelled(void *arg, struct tutti_rpc_call *call)
{
    struct tutti_serve *serve = arg;

    tutti_lighthouse_cancel(serve->machine, (uintptr_t)call, now());
    settle(serve);
}

static void on_due(struct tutti_loop_timer *timer)
{
    struct tutti_serve *serve = (struct tutti_serve *)((char *)timer - offsetof(struct tutti_serve, timer));

    tutti_lighthouse_tick(serve->machine, now());
    settle(serve);
}

/* ---- life ---- */
static const struct tutti_rpc_method methods[] = {{"/torchft.LighthouseService/Quorum", on_quorum},
                                                  {"/torchft.LighthouseService/Heartbeat", on_heartbeat}};

static enum tutti_status open_parts(struct tutti_serve *serve, const struct tutti_serve_config *config)
{
    const struct tutti_lighthouse_out out = {.arg = serve, .answer = on_answer};
    char host[256] = "localhost";

    TUTTI_TRY(tutti_lighthouse_create(&config->options, &out, &serve->machine));
    TUTTI_TRY(tutti_loop_open("tutti-lighthouse", &serve->loop));
    TUTTI_TRY(tutti_loop_start(serve->loop));
    const struct tutti_rpc_server_config rpc = {.loop = serve->loop,
                                                .bind = config->bind,
                                                .methods = methods,
                                                .n_methods = TUTTI_ARRAY_LEN(methods),
                                                .arg = serve,
                                                .cancelled = on_cancelled,
                                                .max_connections = MAX_CONNECTIONS,
                                                .max_calls = MAX_CALLS,
                                                .max_message = MAX_MESSAGE};
    TUTTI_TRY(tutti_rpc_server_open(&rpc, &serve->rpc));
    gethostname(host, sizeof host - 1);
    snprintf(serve->address, sizeof serve->address, "http://%s:%u", host, (unsigned)tutti_rpc_server_port(serve->rpc));
    return TUTTI_OK;
}

enum tutti_status tutti_serve_open(const struct tutti_serve_config *config, struct tutti_serve **out)
{
    struct tutti_serve *serve = tutti_alloc(sizeof(*serve));

    if (!serve) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    serve->timer.due = on_due;
    const enum tutti_status status = open_parts(serve, config);
    if (status >= 0)
        *out = serve;
    else
        tutti_serve_close(serve);
    return status;
}

const char *tutti_serve_address(const struct tutti_serve *serve)
{
    return serve->address;
}

void tutti_serve_close(struct tutti_serve *serve)
{
    if (!serve) return;
    const struct tutti_error why = *tutti_last_error();
    tutti_rpc_server_close(serve->rpc);
    if (serve->loop) tutti_loop_close(serve->loop);
    tutti_lighthouse_destroy(serve->machine);
    tutti_free(serve);
    if (why.status < 0) tutti_fail_record(&why);
}
