/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection: bytes between its socket and nghttp2, and streams that become calls. */
#include "ft/rpc/server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAY_NS (10 * TUTTI_NS_PER_S) /* within which it is no stranger any more */
#define STRANGERS(most) ((most) / 4) /* of all connections; beyond that the oldest makes room */
#define TLS_HANDSHAKE 0x16           /* the first byte of a connection that is to be encrypted (RFC 8446, 5.1) */
#define HEADER_BYTES (16 << 10)

/* ---- what nghttp2 tells ---- */
static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct rpc_conn *conn = arg;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    struct tutti_rpc_call *call = rpc_call_new(conn, frame->hd.stream_id);
    if (!call) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *arg)
{
    struct tutti_rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    (void)flags, (void)arg, (void)n_name; /* name ends with 0 */
    if (call) rpc_call_header(call, (const char *)name, (const char *)value, n_value);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t n, void *arg)
{
    struct tutti_rpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)flags, (void)arg;
    if (call) rpc_call_data(call, bytes, n);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    (void)arg;
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct tutti_rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call && !call->ended && !call->called) rpc_call_run(call);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *arg)
{
    struct tutti_rpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)code, (void)arg;
    if (call) rpc_call_free(call);
    return 0;
}

enum tutti_status rpc_callbacks_new(nghttp2_session_callbacks **out)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for HTTP/2");
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    *out = callbacks;
    return TUTTI_OK;
}

/* ---- strangers ---- */
static void stranger_add(struct rpc_conn *conn)
{
    struct tutti_rpc_server *server = conn->server;

    conn->stranger = true;
    conn->older = server->youngest_stranger;
    *(conn->older ? &conn->older->younger : &server->oldest_stranger) = conn;
    server->youngest_stranger = conn;
    server->n_strangers++;
}

static void stranger_take(struct rpc_conn *conn)
{
    struct tutti_rpc_server *server = conn->server;

    if (!conn->stranger) return;
    conn->stranger = false;
    *(conn->older ? &conn->older->younger : &server->oldest_stranger) = conn->younger;
    *(conn->younger ? &conn->younger->older : &server->youngest_stranger) = conn->older;
    server->n_strangers--;
    tutti_loop_stop(server->config.loop, &conn->timer);
}

/* ---- what it speaks ---- */
static void on_rested(struct tutti_loop_timer *timer)
{
    rpc_link_pause(&((struct rpc_conn *)((char *)timer - offsetof(struct rpc_conn, timer)))->link, false);
}

/* A connection whose address asks for too much rests; an unauthenticated peer has had its time. True: it is over for
 * now. */
static bool rests(struct rpc_conn *conn, uint32_t events)
{
    const uint64_t now = tutti_now_ns();
    const bool gone = events & (EPOLLHUP | EPOLLERR);

    if (conn->link.tls && !conn->stranger) return false; /* it knows the secret, and may speak for many */
    const uint64_t wait = rpc_limit_take(&conn->server->limit, conn->address, 1, now);
    if (wait == 0) return false;
    if (conn->stranger || gone) {
        rpc_conn_close(conn);
    } else {
        rpc_link_pause(&conn->link, true);
        conn->timer.due = on_rested;
        tutti_loop_at(conn->server->config.loop, &conn->timer, now + wait);
    }
    return true;
}

static void on_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct rpc_conn *conn = (struct rpc_conn *)w;

    if ((events & ~(uint32_t)EPOLLOUT) && rests(conn, events)) return;
    if (!rpc_link_run(&conn->link, events)) rpc_conn_close(conn);
}

static enum tutti_status speak(struct rpc_conn *conn)
{
    const struct tutti_rpc_server_config *config = &conn->server->config;
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, config->max_calls},
                                               {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_BYTES}};

    if (nghttp2_session_server_new(&conn->link.session, conn->server->callbacks, conn) != 0) return TUTTI_ERR_MEMORY;
    if (nghttp2_submit_settings(conn->link.session, NGHTTP2_FLAG_NONE, settings, TUTTI_ARRAY_LEN(settings)) != 0)
        return TUTTI_ERR_MEMORY;
    if (conn->link.tls || !conn->server->has_key) stranger_take(conn);
    conn->link.watch.ready = on_ready;
    return TUTTI_OK;
}

/* ---- life ---- */
/* Takes the connection off the loop and the lists, and frees it; its descriptor is returned. */
static int detach(struct rpc_conn *conn)
{
    const int fd = conn->link.watch.fd;

    stranger_take(conn);
    tutti_loop_stop(conn->server->config.loop, &conn->timer);
    tutti_loop_forget(conn->server->config.loop, &conn->link.watch);
    *conn->from = conn->next;
    if (conn->next) conn->next->from = conn->from;
    conn->server->n_conns--;
    tutti_free(conn);
    return fd;
}

void rpc_conn_close(struct rpc_conn *conn)
{
    const struct tutti_rpc_server_config *config = &conn->server->config;

    conn->link.inside = true; /* nothing is sent any more */
    while (conn->calls) rpc_call_free(conn->calls);
    if (conn->kept && config->gone) config->gone(config->arg, conn->kept);
    nghttp2_session_del(conn->link.session);
    if (conn->link.tls) tutti_tls_close(conn->link.tls);
    close(detach(conn));
}

static void on_silence(struct tutti_loop_timer *timer)
{
    rpc_conn_close((struct rpc_conn *)((char *)timer - offsetof(struct rpc_conn, timer)));
}

/* TLS: both ends show that they know the secret; then it speaks. */
static void on_agree(struct tutti_loop_fd *w, uint32_t events)
{
    struct rpc_conn *conn = (struct rpc_conn *)w;
    const enum tutti_status status = rpc_link_agree(&conn->link);

    (void)events;
    if (status == TUTTI_PENDING) return;
    if (status < 0 || speak(conn) < 0)
        rpc_conn_close(conn);
    else
        on_ready(w, EPOLLIN);
}

static void begin_tls(struct rpc_conn *conn)
{
    const struct tutti_rpc_server *server = conn->server;

    if (!server->has_key || tutti_tls_open(conn->link.watch.fd, false, server->key, &conn->link.tls) < 0) {
        rpc_conn_close(conn);
        return;
    }
    conn->link.watch.ready = on_agree;
    on_agree(&conn->link.watch, EPOLLIN);
}

static void begin_http2(struct rpc_conn *conn)
{
    const int any = 1;

    setsockopt(conn->link.watch.fd, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
    if (speak(conn) < 0)
        rpc_conn_close(conn);
    else
        on_ready(&conn->link.watch, EPOLLIN);
}

/* The kernel tells of it again when all of the preface is here, or nothing more comes: then it is no preface. */
static void await_preface(struct rpc_conn *conn)
{
    const int all = NGHTTP2_CLIENT_MAGIC_LEN;

    if (conn->awaits || setsockopt(conn->link.watch.fd, SOL_SOCKET, SO_RCVLOWAT, &all, sizeof all) < 0)
        rpc_conn_close(conn);
    else
        conn->awaits = true;
}

/* The first bytes say what it speaks; they are not taken. */
static void on_first(struct tutti_loop_fd *w, uint32_t events)
{
    struct rpc_conn *conn = (struct rpc_conn *)w;
    const struct tutti_rpc_server_config *config = &conn->server->config;
    char first[NGHTTP2_CLIENT_MAGIC_LEN];
    const ssize_t n = recv(w->fd, first, sizeof first, MSG_PEEK | MSG_DONTWAIT);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n <= 0) {
        rpc_conn_close(conn);
    } else if (first[0] == TLS_HANDSHAKE) {
        begin_tls(conn);
    } else if (memcmp(first, NGHTTP2_CLIENT_MAGIC, (size_t)n) == 0) {
        if ((size_t)n < sizeof first)
            await_preface(conn);
        else
            begin_http2(conn);
    } else if (config->http) {
        config->http(config->arg, detach(conn));
    } else {
        rpc_conn_close(conn);
    }
}

void rpc_conn_open(struct tutti_rpc_server *server, int fd, const char *peer, const uint8_t address[16])
{
    struct tutti_loop *loop = server->config.loop;
    struct rpc_conn *conn = tutti_alloc(sizeof(*conn));

    if (!conn) {
        close(fd);
        return;
    }
    conn->link.watch = (struct tutti_loop_fd){.fd = fd, .ready = on_first};
    conn->link.loop = loop;
    conn->timer.due = on_silence;
    conn->server = server;
    conn->next = server->conns;
    conn->from = &server->conns;
    if (conn->next) conn->next->from = &conn->next;
    server->conns = conn;
    server->n_conns++;
    stranger_add(conn);
    memcpy(conn->address, address, sizeof conn->address);
    memcpy(conn->peer, peer, strnlen(peer, sizeof conn->peer - 1));
    tutti_loop_at(loop, &conn->timer, tutti_now_ns() + SAY_NS);
    if (tutti_loop_watch(loop, &conn->link.watch, EPOLLIN) < 0)
        rpc_conn_close(conn);
    else if (server->n_strangers > STRANGERS(server->config.max_connections))
        rpc_conn_close(server->oldest_stranger);
}
