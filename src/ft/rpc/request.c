/* SPDX-License-Identifier: BSD-3-Clause */
/* One request of a client: a stream, and what comes back on it. */
#include "ft/rpc/client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static struct tutti_rpc_request *of_stream(nghttp2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session, stream);
}

void rpc_request_end(struct tutti_rpc_request *request, enum tutti_rpc_status status, const char *message)
{
    struct tutti_rpc_channel *channel = request->channel;
    struct tutti_rpc_request **link = &channel->requests;
    const uint8_t *bytes = NULL;
    size_t n = 0;

    while (*link != request) link = &(*link)->next;
    *link = request->next;
    tutti_loop_stop(channel->config.loop, &request->timer);
    if (request->stream > 0 && channel->link.session) {
        nghttp2_session_set_stream_user_data(channel->link.session, request->stream, NULL);
        nghttp2_submit_rst_stream(channel->link.session, NGHTTP2_FLAG_NONE, request->stream, NGHTTP2_CANCEL);
    }
    if (request->discards)
        n = request->answer.n > RPC_PREFIX ? request->answer.n - RPC_PREFIX : 0;
    else if (status == TUTTI_RPC_OK && !request->each &&
             !rpc_message(request->answer.at, request->answer.n, &bytes, &n))
        status = TUTTI_RPC_INTERNAL, message = "the answer is not one message";
    if (request->done) request->done(request->arg, status, message, bytes, n);
    rpc_bytes_free(&request->answer);
    tutti_rpc_body_give(request->body);
    tutti_free(request);
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
            request->each(request->arg, message, n);
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
    if (request->discards) {
        request->answer.n += n;
        return 0;
    }
    request->wrong = rpc_bytes_add(&request->answer, bytes, n, request->channel->config.max_message + RPC_PREFIX);
    if (request->each) give_each(request);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *arg)
{
    struct tutti_rpc_request *request = of_stream(session, stream);

    (void)arg;
    if (!request) return 0;
    request->stream = 0;
    if (request->wrong)
        rpc_request_end(request, request->as, request->wrong);
    else if (request->status < 0)
        rpc_request_end(request, code == NGHTTP2_CANCEL ? TUTTI_RPC_CANCELLED : TUTTI_RPC_UNAVAILABLE,
                        "the server ended the call without an answer");
    else
        rpc_request_end(request, (enum tutti_rpc_status)request->status, request->message);
    return 0;
}

enum tutti_status rpc_client_callbacks(nghttp2_session_callbacks **out)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for HTTP/2");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    *out = callbacks;
    return TUTTI_OK;
}

/* ---- what goes ---- */
static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room, uint32_t *flags,
                            nghttp2_data_source *source, void *arg)
{
    struct tutti_rpc_request *request = of_stream(session, stream);

    (void)source, (void)arg;
    if (!request) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* withdrawn */
    const size_t n = rpc_message_give(request->body->bytes, request->body->n, &request->sent, out, room);
    if (request->sent == RPC_PREFIX + request->body->n) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

bool rpc_request_submit(struct tutti_rpc_request *request)
{
    struct tutti_rpc_channel *channel = request->channel;
    const nghttp2_data_provider provider = {.read_callback = read_request};
    const uint64_t now = tutti_now_ns();
    char timeout[RPC_TIMEOUT_TEXT];

    rpc_timeout_write(request->deadline_ns > now ? request->deadline_ns - now : 1, timeout);
    const nghttp2_nv headers[] = {rpc_header(":method", "POST"),      rpc_header(":scheme", "http"),
                                  rpc_header(":path", request->path), rpc_header(":authority", channel->authority),
                                  rpc_header("te", "trailers"),       rpc_header("content-type", "application/grpc"),
                                  rpc_header("grpc-timeout", timeout)};
    const int32_t stream =
        nghttp2_submit_request(channel->link.session, NULL, headers, TUTTI_ARRAY_LEN(headers), &provider, request);
    if (stream < 0) { /* this connection has had its share: the next one takes it */
        shutdown(channel->link.watch.fd, SHUT_RDWR);
        return false;
    }
    request->stream = stream;
    return true;
}
