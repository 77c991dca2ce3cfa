/* SPDX-License-Identifier: BSD-3-Clause */
/* One request of a channel: a stream, and what comes back on it. */
#include "ft/rpc/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTLED_NS (10 * TUTTI_NS_PER_S) /* a request that was out so long had reached a server */
#define SOONER_NS (500 * TUTTI_NS_PER_MS)

static struct tutti_rpc_request *of_stream(nghttp2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session, stream);
}

static void take_off(struct tutti_rpc_request *request)
{
    struct tutti_rpc_channel *channel = request->channel;
    struct tutti_rpc_request **link = &channel->requests;

    while (*link != request) link = &(*link)->next;
    *link = request->next;
    tutti_loop_stop(channel->config.loop, &request->timer);
    if (request->stream > 0 && channel->link.session) {
        nghttp2_session_set_stream_user_data(channel->link.session, request->stream, NULL);
        nghttp2_submit_rst_stream(channel->link.session, NGHTTP2_FLAG_NONE, request->stream, NGHTTP2_CANCEL);
    }
}

void rpc_request_end(struct tutti_rpc_request *request, enum tutti_rpc_status status, const char *message)
{
    const uint8_t *bytes = NULL;
    size_t n = 0;

    take_off(request);
    if (request->ask.discard)
        n = request->answer.n > RPC_PREFIX ? request->answer.n - RPC_PREFIX : 0;
    else if (status == TUTTI_RPC_OK && !request->ask.each &&
             !rpc_message(request->answer.at, request->answer.n, &bytes, &n))
        status = TUTTI_RPC_INTERNAL, message = "the answer is not one message";
    if (request->ask.done) request->ask.done(request->ask.arg, status, message, bytes, n);
    rpc_bytes_free(&request->answer);
    tutti_rpc_body_give(request->ask.body);
    tutti_free(request);
}

bool rpc_request_retry(struct tutti_rpc_request *request, uint64_t now)
{
    if (request->lost_ns == 0 || now - request->sent_ns > SETTLED_NS) request->lost_ns = now;
    if (request->ask.reach_ns == 0 || now - request->lost_ns >= request->ask.reach_ns ||
        now >= request->ask.deadline_ns)
        return false;
    rpc_bytes_free(&request->answer);
    request->stream = 0;
    request->sent = 0;
    request->wrong = NULL;
    request->as = TUTTI_RPC_INTERNAL;
    request->status = -1;
    request->message[0] = '\0';
    return true;
}

/* The server has ended it: with an answer, or by saying that another one may have it. */
static void answered(struct tutti_rpc_request *request, enum tutti_rpc_status status, const char *message)
{
    struct tutti_rpc_channel *channel = request->channel;
    const bool late = request->ask.probe && (status == TUTTI_RPC_CANCELLED || status == TUTTI_RPC_DEADLINE_EXCEEDED);

    if (status == TUTTI_RPC_UNAVAILABLE && rpc_request_retry(request, tutti_now_ns())) {
        rpc_give_up(channel, message);
        return;
    }
    if (late)
        rpc_give_up(channel, message);
    else if (status != TUTTI_RPC_UNAVAILABLE)
        channel->n_failed = channel->n_denied = 0, channel->pause_ns = 0;
    rpc_request_end(request, status, message);
}

/* ---- what comes ---- */
/* %XX becomes a byte. */
static void percent_decode(const char *text, size_t n, char out[RPC_SENTENCE])
{
    size_t at = 0;

    for (size_t i = 0; i < n && at + 1 < RPC_SENTENCE; i++) {
        char digits[3] = {0}, *end;
        if (text[i] == '%' && i + 2 < n) memcpy(digits, text + i + 1, 2);
        const long byte = digits[0] ? strtol(digits, &end, 16) : 0;
        if (byte > 0 && !*end)
            out[at++] = (char)byte, i += 2;
        else
            out[at++] = text[i];
    }
    out[at] = '\0';
}

/* What stands for it where gRPC says nothing ("HTTP to gRPC Status Code Mapping"). */
static enum tutti_rpc_status of_http(const char *text)
{
    static const struct {
        const char *text;
        enum tutti_rpc_status status;
    } rows[] = {{"400", TUTTI_RPC_INTERNAL},          {"401", TUTTI_RPC_UNAUTHENTICATED},
                {"403", TUTTI_RPC_PERMISSION_DENIED}, {"404", TUTTI_RPC_UNIMPLEMENTED},
                {"429", TUTTI_RPC_UNAVAILABLE},       {"502", TUTTI_RPC_UNAVAILABLE},
                {"503", TUTTI_RPC_UNAVAILABLE},       {"504", TUTTI_RPC_UNAVAILABLE}};

    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].text, text) == 0) return rows[i].status;
    return TUTTI_RPC_UNKNOWN;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n, uint8_t flags, void *arg)
{
    struct tutti_rpc_request *request = of_stream(session, frame->hd.stream_id);
    const char *text = (const char *)value; /* ends with 0 */

    (void)flags, (void)arg, (void)n_name;
    if (!request) return 0;
    if (strcmp((const char *)name, ":status") == 0 && strcmp(text, "200") != 0)
        request->wrong = "HTTP's status is not 200", request->as = of_http(text);
    if (strcmp((const char *)name, "grpc-message") == 0) percent_decode(text, n, request->message);
    if (strcmp((const char *)name, "grpc-status") == 0)
        request->status = n > 0 && n <= 2 && strspn(text, "0123456789") == n ? atoi(text) : TUTTI_RPC_UNKNOWN;
    return 0;
}

/* All that are whole. */
static void give_each(struct tutti_rpc_request *request)
{
    struct rpc_bytes *answer = &request->answer;
    size_t at = 0, n;

    while (!request->wrong && rpc_message_length(answer->at + at, answer->n - at, &n)) {
        const uint8_t *message;
        if (rpc_message(answer->at + at, RPC_PREFIX + n, &message, &n))
            request->ask.each(request->ask.arg, message, n);
        else
            request->wrong = "an answer is compressed";
        at += RPC_PREFIX + n;
    }
    if (at > 0) memmove(answer->at, answer->at + at, answer->n -= at);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t n, void *arg)
{
    struct tutti_rpc_request *request = of_stream(session, stream);

    (void)flags, (void)arg;
    if (!request || request->wrong) return 0;
    if (request->ask.discard) {
        request->answer.n += n;
        return 0;
    }
    request->wrong = rpc_bytes_add(&request->answer, bytes, n, request->channel->config.max_message + RPC_PREFIX);
    if (request->ask.each) give_each(request);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *arg)
{
    struct tutti_rpc_request *request = of_stream(session, stream);

    (void)arg;
    if (!request) return 0;
    request->stream = 0;
    if (request->wrong)
        answered(request, request->as, request->wrong);
    else if (request->status < 0)
        answered(request, code == NGHTTP2_CANCEL ? TUTTI_RPC_CANCELLED : TUTTI_RPC_UNAVAILABLE,
                 "the server ended the call without an answer");
    else
        answered(request, (enum tutti_rpc_status)request->status, request->message);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    (void)session;
    if (frame->hd.type == NGHTTP2_SETTINGS) ((struct tutti_rpc_channel *)arg)->greeted = true;
    return 0;
}

enum tutti_status rpc_client_callbacks(nghttp2_session_callbacks **out)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for HTTP/2");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    *out = callbacks;
    return TUTTI_OK;
}

/* ---- what goes ---- */
static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *out, size_t capacity, uint32_t *flags,
                            nghttp2_data_source *source, void *arg)
{
    struct tutti_rpc_request *request = of_stream(session, stream);

    (void)source, (void)arg;
    if (!request) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* withdrawn */
    const size_t n = rpc_message_give(request->ask.body->bytes, request->ask.body->n, &request->sent, out, capacity);
    if (request->sent == RPC_PREFIX + request->ask.body->n) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

bool rpc_request_submit(struct tutti_rpc_request *request)
{
    struct tutti_rpc_channel *channel = request->channel;
    const nghttp2_data_provider provider = {.read_callback = read_request};
    const uint64_t now = tutti_now_ns(), until = tutti_rpc_sooner(request->ask.deadline_ns);
    char timeout[RPC_TIMEOUT_TEXT];

    rpc_timeout_write(until > now ? until - now : 1, timeout);
    const nghttp2_nv headers[] = {
        rpc_header(":method", "POST"),          rpc_header(":scheme", "http"),
        rpc_header(":path", request->ask.path), rpc_header(":authority", tutti_rpc_channel_authority(channel)),
        rpc_header("te", "trailers"),           rpc_header("content-type", "application/grpc"),
        rpc_header("grpc-timeout", timeout)};
    const int32_t stream =
        nghttp2_submit_request(channel->link.session, NULL, headers, TUTTI_ARRAY_LEN(headers), &provider, request);
    if (stream < 0) { /* this connection has had its share: the next one takes it */
        rpc_give_up(channel, "the connection has had its share of streams");
        return false;
    }
    request->stream = stream;
    request->sent_ns = now;
    return true;
}

uint64_t tutti_rpc_sooner(uint64_t deadline_ns)
{
    const uint64_t now = tutti_now_ns(), tenth = deadline_ns > now ? (deadline_ns - now) / 10 : 0;

    return deadline_ns == TUTTI_NEVER ? deadline_ns : deadline_ns - (tenth < SOONER_NS ? tenth : SOONER_NS);
}

static void too_late(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_request *request =
        (struct tutti_rpc_request *)((char *)timer - offsetof(struct tutti_rpc_request, timer));
    struct tutti_rpc_channel *channel = request->channel;
    const bool sent = request->stream > 0, lost = sent && request->ask.probe;
    char text[2 * RPC_SENTENCE];

    if (sent)
        snprintf(text, sizeof text, "no answer from %s in time", tutti_rpc_channel_authority(channel));
    else
        snprintf(text, sizeof text, "no connection to %s",
                 channel->why[0] ? channel->why : tutti_rpc_channel_authority(channel));
    rpc_request_end(request, TUTTI_RPC_DEADLINE_EXCEEDED, text);
    if (lost) rpc_give_up(channel, "it does not answer");
    rpc_link_flush(&channel->link);
}

struct tutti_rpc_request *tutti_rpc_send(struct tutti_rpc_channel *channel, const struct tutti_rpc_ask *ask)
{
    struct tutti_rpc_request *request = ask->body ? tutti_alloc(sizeof(*request)) : NULL;

    if (!request) {
        tutti_rpc_body_give(ask->body);
        return NULL;
    }
    *request = (struct tutti_rpc_request){.next = channel->requests,
                                          .channel = channel,
                                          .ask = *ask,
                                          .timer.due = too_late,
                                          .as = TUTTI_RPC_INTERNAL,
                                          .status = -1};
    channel->requests = request;
    tutti_loop_at(channel->config.loop, &request->timer, ask->deadline_ns);
    if (channel->state == RPC_OPEN) {
        rpc_request_submit(request);
        rpc_link_flush(&channel->link);
    } else {
        rpc_dial(channel);
    }
    return request;
}

void tutti_rpc_withdraw(struct tutti_rpc_request *request)
{
    struct tutti_rpc_channel *channel = request->channel;

    request->ask.done = NULL;
    rpc_request_end(request, TUTTI_RPC_CANCELLED, "");
    rpc_link_flush(&channel->link);
}
