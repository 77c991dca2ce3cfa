/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls with many answers: what was pushed waits in a list until HTTP/2 may send it; the trailers follow the last. */
#include "ft/rpc/server.h"

#include <stdio.h>

static void take_first(struct rpc_stream *stream)
{
    struct rpc_pushed *first = stream->first;

    stream->first = first->next;
    if (!stream->first) stream->last = NULL;
    stream->n--;
    tutti_rpc_body_give(first->body);
    tutti_free(first);
}

static ssize_t read_pushed(nghttp2_session *session, int32_t id, uint8_t *out, size_t room, uint32_t *flags,
                           nghttp2_data_source *source, void *arg)
{
    struct rpc_stream *stream = ((struct tutti_rpc_call *)source->ptr)->pushed;
    struct rpc_pushed *first = stream->first;
    size_t n = 0;

    (void)arg;
    if (first) {
        n = rpc_message_give(first->body->bytes, first->body->n, &first->sent, out, room);
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

void rpc_push_end(struct tutti_rpc_call *call, enum tutti_rpc_status status, const char *message)
{
    struct rpc_stream *stream = call->pushed;

    stream->over = true;
    snprintf(stream->status, sizeof stream->status, "%d", (int)status);
    rpc_percent_encode(message, stream->message, sizeof stream->message);
    go_on(call);
}

void rpc_push_free(struct rpc_stream *stream)
{
    while (stream && stream->first) take_first(stream);
    tutti_free(stream);
}
