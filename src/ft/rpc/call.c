/* SPDX-License-Identifier: BSD-3-Clause */
/* One call at a server: its request, the handler, the answer or answers, the deadline. */
#include "ft/rpc/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls with many answers: what was pushed waits in a list until HTTP/2 may send it; the trailers follow the last
 * ---- */
static void take_first(struct rpc_stream *stream)
{
    struct rpc_pushed *first = stream->first;

    stream->first = first->next;
    if (!stream->first) stream->last = NULL;
    stream->n--;
    tutti_rpc_body_give(first->body);
    tutti_free(first);
}

static ssize_t read_pushed(nghttp2_session *session, int32_t id, uint8_t *out, size_t capacity, uint32_t *flags,
                           nghttp2_data_source *source, void *arg)
{
    struct rpc_stream *stream = ((struct tutti_rpc_call *)source->ptr)->pushed;
    struct rpc_pushed *first = stream->first;
    size_t n = 0;

    (void)arg;
    if (first) {
        n = rpc_message_give(first->body->bytes, first->body->n, &first->sent, out, capacity);
        if (first->sent == RPC_PREFIX + first->body->n) take_first(stream);
        return (ssize_t)n;
    }
    if (!stream->over) return NGHTTP2_ERR_DEFERRED;
    const nghttp2_nv trailers[] = {rpc_header("grpc-status", stream->status),
                                   rpc_header("grpc-message", stream->message)};
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return nghttp2_submit_trailer(session, id, trailers, TUTTI_ARRAY_LEN(trailers)) == 0
               ? 0
               : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* The headers go with the first answer. */
static bool begin(struct tutti_rpc_call *call)
{
    const nghttp2_nv headers[] = {rpc_header(":status", "200"), rpc_header("content-type", "application/grpc")};
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_pushed};

    call->pushed = tutti_alloc(sizeof(*call->pushed));
    if (!call->pushed) return false;
    if (nghttp2_submit_response(call->conn->link.session, call->stream, headers, TUTTI_ARRAY_LEN(headers), &provider) ==
        0)
        return true;
    tutti_free(call->pushed); /* the response has not begun: an end is to be told in another way */
    call->pushed = NULL;
    return false;
}

static void go_on(struct tutti_rpc_call *call)
{
    nghttp2_session_resume_data(call->conn->link.session, call->stream); /* nothing to resume is no error */
    rpc_link_flush(&call->conn->link);
}

bool tutti_rpc_push(struct tutti_rpc_call *call, struct tutti_rpc_body *body)
{
    struct rpc_pushed *pushed = body ? tutti_alloc(sizeof(*pushed)) : NULL;

    if (!body) {
        const bool begun = call->pushed || begin(call);
        rpc_link_flush(&call->conn->link);
        return begun;
    }
    if (!pushed || (!call->pushed && !begin(call)) || call->pushed->n >= RPC_PUSHED) {
        tutti_free(pushed);
        tutti_rpc_body_give(body);
        return false;
    }
    pushed->body = body;
    *(call->pushed->last ? &call->pushed->last->next : &call->pushed->first) = pushed;
    call->pushed->last = pushed;
    call->pushed->n++;
    go_on(call);
    return true;
}

static void push_end(struct tutti_rpc_call *call, enum tutti_rpc_status status, const char *message)
{
    struct rpc_stream *stream = call->pushed;

    stream->over = true;
    snprintf(stream->status, sizeof stream->status, "%d", (int)status);
    rpc_percent_encode(message, stream->message, sizeof stream->message);
    go_on(call);
}

static void push_free(struct rpc_stream *stream)
{
    while (stream && stream->first) take_first(stream);
    tutti_free(stream);
}

#define REQUEST_NS (10 * TUTTI_NS_PER_S) /* within which a request is whole */

static struct tutti_loop *loop_of(const struct tutti_rpc_call *call)
{
    return call->conn->server->config.loop;
}

static struct tutti_rpc_call *of_timer(struct tutti_loop_timer *timer)
{
    return (struct tutti_rpc_call *)((char *)timer - offsetof(struct tutti_rpc_call, timer));
}

/* Its request has not come to an end. */
static void too_slow(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_call *call = of_timer(timer);
    struct rpc_link *link = &call->conn->link;

    nghttp2_submit_rst_stream(link->session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_CANCEL);
    rpc_link_flush(link); /* the call goes with its stream */
}

struct tutti_rpc_call *rpc_call_new(struct rpc_conn *conn, int32_t stream)
{
    struct tutti_rpc_call *call = tutti_alloc(sizeof(*call));

    if (!call) return NULL;
    call->conn = conn;
    call->stream = stream;
    call->deadline_ns = UINT64_MAX;
    call->next = conn->calls;
    conn->calls = call;
    conn->n_calls++;
    call->timer.due = too_slow;
    tutti_loop_at(loop_of(call), &call->timer, tutti_now_ns() + REQUEST_NS);
    return call;
}

static void cancelled(struct tutti_rpc_call *call)
{
    const struct tutti_rpc_server_config *config = &call->conn->server->config;

    if (!call->called) return;
    call->called = false;
    if (config->cancelled) config->cancelled(config->arg, call);
}

void rpc_call_free(struct tutti_rpc_call *call)
{
    struct tutti_rpc_call **link = &call->conn->calls;

    cancelled(call);
    tutti_loop_stop(loop_of(call), &call->timer);
    while (*link != call) link = &(*link)->next;
    *link = call->next;
    call->conn->n_calls--;
    tutti_rpc_body_give(call->body);
    push_free(call->pushed);
    rpc_bytes_free(&call->request);
    tutti_free(call);
}

/* ---- the request ---- */
static void malformed(struct tutti_rpc_call *call, const char *why)
{
    if (!call->malformed) call->why = why;
    call->malformed = true;
}

static void take_path(struct tutti_rpc_call *call, const char *value, size_t n)
{
    const struct tutti_rpc_server_config *config = &call->conn->server->config;

    for (size_t i = 0; i < config->n_methods; i++)
        if (strlen(config->methods[i].path) == n && memcmp(config->methods[i].path, value, n) == 0)
            call->method = &config->methods[i];
}

static void take_timeout(struct tutti_rpc_call *call, const char *value, size_t n)
{
    uint64_t ns;

    if (!rpc_timeout_read(value, n, &ns)) {
        malformed(call, "invalid timeout");
        return;
    }
    const uint64_t now = tutti_now_ns();
    call->deadline_ns = ns < UINT64_MAX - now ? now + ns : UINT64_MAX;
    if (ns < REQUEST_NS) tutti_loop_at(loop_of(call), &call->timer, call->deadline_ns);
}

static void take_encoding(struct tutti_rpc_call *call, const char *value, size_t n)
{
    if (n != strlen("identity") || memcmp(value, "identity", n) != 0)
        malformed(call, "compressed messages are not read");
}

/* "JOB@host:port" */
static void take_authority(struct tutti_rpc_call *call, const char *value, size_t n)
{
    const char *at = memchr(value, '@', n);

    if (!at) return;
    if (at - value > RPC_JOB)
        malformed(call, "the job's name is longer than 64 characters");
    else
        memcpy(call->job, value, (size_t)(at - value)), call->job[at - value] = '\0';
}

static const struct {
    const char *name;
    void (*take)(struct tutti_rpc_call *call, const char *value, size_t n);
} headers[] = {{":path", take_path},
               {":authority", take_authority},
               {"grpc-timeout", take_timeout},
               {"grpc-encoding", take_encoding}};

void rpc_call_header(struct tutti_rpc_call *call, const char *name, const char *value, size_t n)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(headers); i++)
        if (strcmp(headers[i].name, name) == 0) headers[i].take(call, value, n);
}

void rpc_call_data(struct tutti_rpc_call *call, const uint8_t *bytes, size_t n)
{
    if (call->malformed || call->ended || call->conn->unproven || !call->method) return; /* refused whatever it says */
    const char *why = rpc_bytes_add(&call->request, bytes, n, call->conn->server->config.max_message + RPC_PREFIX);
    if (why) malformed(call, why);
}

static void too_late(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_call *call = of_timer(timer);
    const struct tutti_rpc_server_config *config = &call->conn->server->config;
    char why[RPC_SENTENCE / 2] = "", text[RPC_SENTENCE];

    if (config->expired && call->called) config->expired(config->arg, call, why, sizeof why);
    snprintf(text, sizeof text, "Timeout expired%s%s", why[0] ? ": " : "", why);
    cancelled(call);
    tutti_rpc_fail(call, TUTTI_RPC_CANCELLED, text);
}

void rpc_call_run(struct tutti_rpc_call *call)
{
    const uint8_t *message;
    size_t n;

    if (!call->conn->link.tls) rpc_limit_charge(&call->conn->server->limit, call->conn->address, 1, tutti_now_ns());
    if (call->conn->unproven) {
        tutti_rpc_fail(call, TUTTI_RPC_UNAUTHENTICATED,
                       "this server takes calls over TLS with the job's secret (TUTTI_SECRET) or certificate only");
    } else if (!call->method) {
        tutti_rpc_fail(call, TUTTI_RPC_UNIMPLEMENTED, "there is no such method");
    } else if (call->malformed) {
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, call->why);
    } else if (!rpc_message(call->request.at, call->request.n, &message, &n)) {
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request is not one message");
    } else {
        call->called = true;
        tutti_loop_stop(loop_of(call), &call->timer);
        call->timer.due = too_late;
        if (call->deadline_ns != UINT64_MAX) tutti_loop_at(loop_of(call), &call->timer, call->deadline_ns);
        struct rpc_bytes request = call->request; /* the call may go in its handler */
        call->request = (struct rpc_bytes){0};
        call->method->called(call->conn->server->config.arg, call, message, n);
        rpc_bytes_free(&request);
    }
}

/* ---- the answer ---- */
/* The call takes no more part in anything but its sending. */
static void end(struct tutti_rpc_call *call)
{
    call->called = false;
    call->ended = true;
    tutti_loop_stop(loop_of(call), &call->timer);
}

/* The rest of the message; then the trailers. */
static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *out, size_t capacity, uint32_t *flags,
                           nghttp2_data_source *source, void *arg)
{
    struct tutti_rpc_call *call = source->ptr;
    const size_t n = rpc_message_give(call->body->bytes, call->body->n, &call->sent, out, capacity);

    (void)arg;
    if (call->sent == RPC_PREFIX + call->body->n) {
        const nghttp2_nv trailers[] = {rpc_header("grpc-status", "0")};
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, stream, trailers, TUTTI_ARRAY_LEN(trailers)) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)n;
}

void tutti_rpc_reply(struct tutti_rpc_call *call, struct tutti_rpc_body *body)
{
    const nghttp2_nv headers_ok[] = {rpc_header(":status", "200"), rpc_header("content-type", "application/grpc")};
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_answer};

    end(call);
    call->body = body;
    if (nghttp2_submit_response(call->conn->link.session, call->stream, headers_ok, TUTTI_ARRAY_LEN(headers_ok),
                                &provider) != 0)
        nghttp2_submit_rst_stream(call->conn->link.session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_INTERNAL_ERROR);
    rpc_link_flush(&call->conn->link);
}

void tutti_rpc_fail(struct tutti_rpc_call *call, enum tutti_rpc_status status, const char *message)
{
    char number[8], text[RPC_SENTENCE];

    end(call);
    if (call->pushed) {
        push_end(call, status, message);
        return;
    }
    snprintf(number, sizeof number, "%d", (int)status);
    rpc_percent_encode(message, text, sizeof text);
    const nghttp2_nv all[] = {rpc_header(":status", "200"), rpc_header("content-type", "application/grpc"),
                              rpc_header("grpc-status", number), rpc_header("grpc-message", text)};
    if (nghttp2_submit_response(call->conn->link.session, call->stream, all, TUTTI_ARRAY_LEN(all), NULL) != 0)
        nghttp2_submit_rst_stream(call->conn->link.session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_INTERNAL_ERROR);
    rpc_link_flush(&call->conn->link);
}

uint64_t tutti_rpc_deadline(const struct tutti_rpc_call *call)
{
    return call->deadline_ns;
}

void **tutti_rpc_kept(struct tutti_rpc_call *call)
{
    return &call->conn->kept;
}

const char *tutti_rpc_path(const struct tutti_rpc_call *call)
{
    return call->method->path;
}

void tutti_rpc_passed_on(struct tutti_rpc_call *call, const struct tutti_rpc_method *method, const char *job)
{
    call->method = method;
    snprintf(call->job, sizeof call->job, "%s", job);
    call->passed_on = true;
}

bool tutti_rpc_is_passed_on(const struct tutti_rpc_call *call)
{
    return call->passed_on;
}

void tutti_rpc_set_note(struct tutti_rpc_call *call, int64_t note)
{
    call->note = note;
}

int64_t tutti_rpc_note(const struct tutti_rpc_call *call)
{
    return call->note;
}

const char *tutti_rpc_job(const struct tutti_rpc_call *call)
{
    return call->job;
}

const char *tutti_rpc_peer(const struct tutti_rpc_call *call)
{
    return call->conn->peer;
}
