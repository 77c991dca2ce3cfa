/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls at a lighthouse that does not lead go to the one that does, and its answers back, so that a client may name any
 * of them. While nobody leads they wait; what was under way to one that is lost goes to the next. */
#include "ft/serve/jobs.h"

#include "ft/rpc/message.h"

#include <tutti.pb-c.h>

#include <string.h>

#define AGAIN_NS (20 * TUTTI_NS_PER_MS)
#define LEADERLESS_NS (3 * TUTTI_LEASE_NS) /* after that others may have a leader: the client had better ask them */
#define FORWARD "/tutti.CouncilService/Forward"
#define STREAM "/torchft.LighthouseService/SubscribeFailures"

struct serve_forward {
    struct serve_forward *next, **from;
    struct tutti_serve *serve;
    struct tutti_rpc_call *call; /* NULL: it is over, and goes when it is due */
    struct tutti_rpc_body *body;
    struct tutti_rpc_request *request; /* NULL: it waits for somebody to lead */
    bool streams, tells;               /* it has many answers; one is told now */
    uint64_t since_ns;                 /* it waits */
};

static void forget(struct serve_forward *forward)
{
    *forward->from = forward->next;
    if (forward->next) forward->next->from = forward->from;
    tutti_rpc_body_give(forward->body);
    tutti_free(forward);
}

static void refuse(struct serve_forward *forward, enum tutti_rpc_status status, const char *message)
{
    struct tutti_rpc_call *call = forward->call;

    forget(forward);
    tutti_rpc_set_note(call, 0);
    tutti_rpc_fail(call, status, message);
}

static void try_again_later(struct tutti_serve *serve)
{
    if (serve->forwarding.due_ns == 0) tutti_loop_at(serve->loop, &serve->forwarding, tutti_now_ns() + AGAIN_NS);
}

static void on_answer(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct serve_forward *forward = arg;

    forward->request = NULL;
    forward->since_ns = tutti_now_ns();
    if (!forward->call || status == TUTTI_RPC_UNAVAILABLE || (forward->streams && status == TUTTI_RPC_OK)) {
        try_again_later(forward->serve); /* it is gone, or leads no more */
        return;
    }
    struct tutti_rpc_body *body = status == TUTTI_RPC_OK ? tutti_rpc_body_new(n) : NULL;
    if (!body) {
        refuse(forward, status == TUTTI_RPC_OK ? TUTTI_RPC_RESOURCE_EXHAUSTED : status, message);
        return;
    }
    struct tutti_rpc_call *call = forward->call;
    serve_present_there(call, tutti_now_ns());
    forget(forward);
    tutti_rpc_set_note(call, 0);
    if (n > 0) memcpy(body->bytes, bytes, n);
    tutti_rpc_reply(call, body);
}

/* A stream's; telling it may end the call. */
static void on_each(void *arg, const uint8_t *bytes, size_t n)
{
    struct serve_forward *forward = arg;
    struct tutti_rpc_body *body = forward->call ? tutti_rpc_body_new(n) : NULL;

    if (!body) return;
    if (n > 0) memcpy(body->bytes, bytes, n);
    forward->tells = true;
    const bool told = tutti_rpc_push(forward->call, body);
    forward->tells = false;
    if (told || !forward->call) return;
    tutti_rpc_set_note(forward->call, 0);
    tutti_rpc_fail(forward->call, TUTTI_RPC_RESOURCE_EXHAUSTED, "this client does not read what it is told");
    forward->call = NULL;
    try_again_later(forward->serve);
}

static void pass_on(struct serve_forward *forward)
{
    struct tutti_rpc_channel *channel = serve_leader_channel(forward->serve);

    if (!channel) {
        try_again_later(forward->serve);
        return;
    }
    forward->body->refs++;
    const struct tutti_rpc_ask ask = {.path = FORWARD,
                                      .body = forward->body,
                                      .deadline_ns = tutti_rpc_deadline(forward->call),
                                      .done = on_answer,
                                      .each = forward->streams ? on_each : NULL,
                                      .arg = forward};
    forward->request = tutti_rpc_send(channel, &ask);
    if (!forward->request) try_again_later(forward->serve);
}

/* By now it leads itself: as if the call had just come. */
static void take_back(struct serve_forward *forward)
{
    struct tutti_serve *serve = forward->serve;
    struct tutti_rpc_call *call = forward->call;
    Tutti__ForwardRequest *request = tutti__forward_request__unpack(NULL, forward->body->n, forward->body->bytes);
    const struct tutti_rpc_method *method = request ? serve_forwarded(request->path) : NULL;

    forget(forward);
    tutti_rpc_set_note(call, 0);
    if (method)
        method->called(serve, call, request->message.data, request->message.len);
    else
        tutti_rpc_fail(call, TUTTI_RPC_RESOURCE_EXHAUSTED, "the lighthouse is out of memory");
    if (request) tutti__forward_request__free_unpacked(request, NULL);
}

static void let_go(struct serve_forward *forward)
{
    if (forward->request) tutti_rpc_withdraw(forward->request);
    forget(forward);
}

void serve_forwards_end(struct tutti_serve *serve)
{
    tutti_loop_stop(serve->loop, &serve->forwarding);
    while (serve->forwards) let_go(serve->forwards);
}

static bool gives_up(const struct serve_forward *forward)
{
    return !forward->request && tutti_now_ns() - forward->since_ns > LEADERLESS_NS;
}

/* NULL: all are under way. */
static struct serve_forward *first_waiting(const struct tutti_serve *serve)
{
    struct serve_forward *forward = serve->forwards;

    while (forward && forward->request) forward = forward->next;
    return forward;
}

static void on_due(struct tutti_loop_timer *timer)
{
    struct tutti_serve *serve = (struct tutti_serve *)((char *)timer - offsetof(struct tutti_serve, forwarding));
    struct serve_forward *forward;

    for (struct serve_forward *next = serve->forwards; (forward = next);) {
        next = forward->next;
        if (!forward->call) let_go(forward);
    }
    while (serve_leads(serve) && (forward = first_waiting(serve))) take_back(forward);
    for (struct serve_forward *next = serve->forwards; (forward = next);) {
        next = forward->next;
        if (gives_up(forward))
            refuse(forward, TUTTI_RPC_UNAVAILABLE, "nobody leads the lighthouses that this one hears");
        else if (!forward->request)
            pass_on(forward);
    }
}

static struct tutti_rpc_body *encode(const char *path, const char *job, const uint8_t *message, size_t n)
{
    Tutti__ForwardRequest request = TUTTI__FORWARD_REQUEST__INIT;

    request.path = (char *)(uintptr_t)path;
    request.job = (char *)(uintptr_t)job;
    request.message = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)message};
    return tutti_message_body(&request.base);
}

void serve_forward_leave(struct tutti_serve *serve, const char *job, const char *replica_id, uint64_t unless_heard_ms)
{
    struct tutti_rpc_channel *channel = serve_leader_channel(serve);
    Torchft__LeaveRequest request = TORCHFT__LEAVE_REQUEST__INIT;

    request.replica_id = (char *)(uintptr_t)replica_id;
    request.why = (char *)(uintptr_t) "its connection ended";
    request.unless_heard_ms = unless_heard_ms;
    struct tutti_rpc_body *leave = channel ? tutti_message_body(&request.base) : NULL;
    struct tutti_rpc_body *body = leave ? encode("/tutti.LighthouseService/Leave", job, leave->bytes, leave->n) : NULL;
    const struct tutti_rpc_ask ask = {.path = FORWARD, .body = body, .deadline_ns = tutti_now_ns() + TUTTI_NS_PER_S};
    if (body) tutti_rpc_send(channel, &ask);
    tutti_rpc_body_give(leave);
}

void serve_forward(struct tutti_serve *serve, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    const bool streams = strcmp(tutti_rpc_path(call), STREAM) == 0;
    struct serve_forward *forward = !streams || tutti_rpc_push(call, NULL) ? tutti_alloc(sizeof(*forward)) : NULL;
    struct tutti_rpc_body *body = forward ? encode(tutti_rpc_path(call), tutti_rpc_job(call), message, n) : NULL;

    if (!body) {
        tutti_free(forward);
        tutti_rpc_fail(call, TUTTI_RPC_RESOURCE_EXHAUSTED, "the lighthouse is out of memory");
        return;
    }
    *forward = (struct serve_forward){.next = serve->forwards,
                                      .from = &serve->forwards,
                                      .serve = serve,
                                      .call = call,
                                      .body = body,
                                      .streams = streams,
                                      .since_ns = tutti_now_ns()};
    if (forward->next) forward->next->from = &forward->next;
    serve->forwards = forward;
    serve->forwarding.due = on_due;
    tutti_rpc_set_note(call, -(int64_t)(uintptr_t)forward);
    pass_on(forward);
}

bool serve_forward_cancelled(struct tutti_rpc_call *call)
{
    const int64_t note = tutti_rpc_note(call);
    struct serve_forward *forward = note < 0 ? (struct serve_forward *)(uintptr_t)-note : NULL;

    if (!forward) return false;
    if (!forward->tells) {
        let_go(forward);
        return true;
    }
    forward->call = NULL;
    try_again_later(forward->serve);
    return true;
}

/* A call that another lighthouse has passed on: as if it were made here. */
void serve_on_forward(void *arg, struct tutti_rpc_call *call, const uint8_t *bytes, size_t n)
{
    struct tutti_serve *serve = arg;
    Tutti__ForwardRequest *request = tutti__forward_request__unpack(NULL, n, bytes);
    const struct tutti_rpc_method *method = request ? serve_forwarded(request->path) : NULL;

    if (!serve->council || !method || strlen(request->job) > JOB_NAME) {
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "this can not be passed on");
    } else if (!serve_leads(serve)) {
        tutti_rpc_fail(call, TUTTI_RPC_UNAVAILABLE, "this lighthouse does not lead");
    } else {
        tutti_rpc_passed_on(call, method, request->job);
        method->called(arg, call, request->message.data, request->message.len);
    }
    if (request) tutti__forward_request__free_unpacked(request, NULL);
}
