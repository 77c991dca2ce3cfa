/* SPDX-License-Identifier: BSD-3-Clause */
/* A server: its listening socket, its connections, and HTTP/2 streams that become calls. */
#include "ft/rpc/server.h"

#include "base/config.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAY_NS (10 * TUTTI_NS_PER_S) /* within which it has to authenticate itself */
#define UNPROVEN(most) ((most) / 4)  /* of all connections may be unauthenticated; beyond that the oldest is closed */
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

/* ---- unauthenticated peers ---- */
static void unproven_add(struct rpc_conn *conn)
{
    struct tutti_rpc_server *server = conn->server;

    conn->unproven = true;
    conn->older = server->youngest_unproven;
    *(conn->older ? &conn->older->younger : &server->oldest_unproven) = conn;
    server->youngest_unproven = conn;
    server->n_unproven++;
}

static void unproven_remove(struct rpc_conn *conn)
{
    struct tutti_rpc_server *server = conn->server;

    if (!conn->unproven) return;
    conn->unproven = false;
    *(conn->older ? &conn->older->younger : &server->oldest_unproven) = conn->younger;
    *(conn->younger ? &conn->younger->older : &server->youngest_unproven) = conn->older;
    server->n_unproven--;
    tutti_loop_stop(server->config.loop, &conn->timer);
}

/* ---- what it speaks ---- */
static void on_rested(struct tutti_loop_timer *timer)
{
    rpc_link_pause(&((struct rpc_conn *)((char *)timer - offsetof(struct rpc_conn, timer)))->link, false);
}

/* Pauses a connection whose address asks for too much; an unauthenticated one is closed. True: it is over for now. */
static bool rests(struct rpc_conn *conn, uint32_t events)
{
    const uint64_t now = tutti_now_ns();
    const bool gone = events & (EPOLLHUP | EPOLLERR);

    if (conn->link.tls && !conn->unproven) return false; /* it knows the secret, and may speak for many */
    const uint64_t wait = rpc_limit_take(&conn->server->limit, conn->address, 1, now);
    if (wait == 0) return false;
    if (conn->unproven || gone) {
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
    if (conn->link.tls || !rpc_proves(&conn->server->proof)) unproven_remove(conn);
    conn->link.watch.ready = on_ready;
    return TUTTI_OK;
}

/* ---- life ---- */
/* Takes the connection off the loop and the lists, and frees it; its descriptor is returned. */
static int detach(struct rpc_conn *conn)
{
    const int fd = conn->link.watch.fd;

    unproven_remove(conn);
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

/* The TLS handshake, in which both ends prove themselves; then HTTP/2 begins. */
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

    if (!rpc_proves(&server->proof)) tutti_tls_refuse(conn->link.watch.fd);
    if (!rpc_proves(&server->proof) || rpc_link_secure(&conn->link, false, &server->proof) < 0) {
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
    unproven_add(conn);
    memcpy(conn->address, address, sizeof conn->address);
    memcpy(conn->peer, peer, strnlen(peer, sizeof conn->peer - 1));
    tutti_loop_at(loop, &conn->timer, tutti_now_ns() + SAY_NS);
    if (tutti_loop_watch(loop, &conn->link.watch, EPOLLIN) < 0)
        rpc_conn_close(conn);
    else if (server->n_unproven > UNPROVEN(server->config.max_connections))
        rpc_conn_close(server->oldest_unproven);
}

#define BATCH 64 /* connections accepted at once, before those that exist have their turn */
#define TELL_NS TUTTI_NS_PER_S
#define CONNECTION_UNITS 20
#define REST_NS (100 * TUTTI_NS_PER_MS) /* until accept is tried again, when no descriptor is left */

static int listen_at(const struct addrinfo *info)
{
    const int on = 1, off = 0;
    const int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* [::] takes IPv4, too; where the kernel has no IPv6, 0.0.0.0 stands for it. -1: errno says why. */
static enum tutti_status listen_once(const char *bind, const char *host, const char *port, int *fd)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const bool all = host[0] == '\0' || strcmp(host, "::") == 0;
    struct addrinfo *found;
    const int wrong = getaddrinfo(all ? "::" : host, port, &hints, &found);
    if (wrong != 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "can not listen at %s: %s", bind, gai_strerror(wrong));
    *fd = listen_at(found);
    freeaddrinfo(found);
    if (*fd < 0 && errno == EAFNOSUPPORT && all && getaddrinfo("0.0.0.0", port, &hints, &found) == 0) {
        *fd = listen_at(found);
        freeaddrinfo(found);
    }
    return TUTTI_OK;
}

/* Port 0: one of those that the user leaves. */
static enum tutti_status listen_on(const char *bind, int *fd)
{
    char host[RPC_HOST], port[RPC_PORT], text[32];
    uint64_t range = 0;
    if (!rpc_address_split(bind, strlen(bind), host, port))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "\"%s\" is no address to listen at: write HOST:PORT or [ADDRESS]:PORT",
                          bind);
    if (strcmp(port, "0") == 0) TUTTI_TRY(tutti_option_get("port_range", text, sizeof text, &range));
    *fd = -1, errno = EADDRINUSE;
    for (uint32_t i = 0; i < tutti_ports_n(range) && *fd < 0 && errno == EADDRINUSE; i++) {
        if (range) snprintf(port, sizeof port, "%u", tutti_ports_try(range, i));
        TUTTI_TRY(listen_once(bind, host, port, fd));
    }
    if (*fd < 0 && range && errno == EADDRINUSE) return tutti_ports_used_up(range);
    return *fd < 0 ? tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not listen at %s", bind) : TUTTI_OK;
}

static void address_text(const struct sockaddr_storage *from, socklen_t n, char out[RPC_ADDRESS_TEXT])
{
    char host[48] = "?", port[8] = "?";

    getnameinfo((const struct sockaddr *)from, n, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    const char *mapped = strncmp(host, "::ffff:", 7) == 0 ? host + 7 : host;
    snprintf(out, RPC_ADDRESS_TEXT, strchr(mapped, ':') ? "[%s]:%s" : "%s:%s", mapped, port);
}

/* Logs refused connections once a second at most, so that a flood of them is not one of the log. */
static void tell_refused(struct tutti_rpc_server *server, const char *peer)
{
    const uint64_t now = tutti_now_ns();

    server->n_untold++;
    if (now < server->told_ns + TELL_NS) return;
    tutti_log(TUTTI_LOG_WARN,
              "refused %u connections, the last one from %s: it makes too many, or there are too many (%u)",
              server->n_untold, peer, server->n_conns);
    server->told_ns = now;
    server->n_untold = 0;
}

static void on_accept_again(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_server *server =
        (struct tutti_rpc_server *)((char *)timer - offsetof(struct tutti_rpc_server, timer));

    tutti_loop_change(server->config.loop, &server->listener, EPOLLIN);
}

/* Frees a descriptor after accept has failed: the oldest unauthenticated peer is closed, or accept is tried later. */
static bool make_room(struct tutti_rpc_server *server)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno == EINTR || errno == ECONNABORTED) return true;
    if (server->oldest_unproven) {
        rpc_conn_close(server->oldest_unproven);
        return true;
    }
    tutti_loop_change(server->config.loop, &server->listener, 0);
    server->timer.due = on_accept_again;
    tutti_loop_at(server->config.loop, &server->timer, tutti_now_ns() + REST_NS);
    return false;
}

static void on_newcomer(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_rpc_server *server =
        (struct tutti_rpc_server *)((char *)w - offsetof(struct tutti_rpc_server, listener));

    (void)events;
    for (int i = 0; i < BATCH; i++) {
        struct sockaddr_storage from = {0};
        socklen_t n = sizeof from;
        char peer[RPC_ADDRESS_TEXT];
        uint8_t address[16];
        const int fd = accept4(w->fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && make_room(server)) continue;
        if (fd < 0) return;
        address_text(&from, n, peer);
        rpc_limit_address((const struct sockaddr *)&from, address);
        const bool often = rpc_limit_take(&server->limit, address, CONNECTION_UNITS, tutti_now_ns()) > 0;
        if (often || server->n_conns >= server->config.max_connections) {
            tell_refused(server, peer);
            close(fd);
            continue;
        }
        rpc_link_tune(fd);
        rpc_conn_open(server, fd, peer, address);
    }
}

/* On the loop's thread, so that *out is set before the first connection comes. */
struct opening {
    struct tutti_rpc_server *server, **out;
    bool watched;
};
static void watch(void *arg)
{
    struct opening *opening = arg;
    struct tutti_rpc_server *server = opening->server;

    opening->watched = tutti_loop_watch(server->config.loop, &server->listener, EPOLLIN) >= 0;
    if (opening->watched) *opening->out = server;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;

    if (getsockname(fd, (struct sockaddr *)&at, &n) < 0) return 0;
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

enum tutti_status tutti_rpc_server_open(const struct tutti_rpc_server_config *config, struct tutti_rpc_server **out)
{
    struct tutti_rpc_server *server = tutti_alloc(sizeof(*server));

    if (!server) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a server");
    server->config = *config;
    server->config.secret = NULL;
    server->limit.rate = config->rate;
    server->listener = (struct tutti_loop_fd){.fd = -1, .ready = on_newcomer};
    enum tutti_status status = rpc_callbacks_new(&server->callbacks);
    if (status >= 0) status = tutti_random_bytes(&server->limit.seed, sizeof server->limit.seed);
    if (status >= 0) status = rpc_proof_init(config->secret, config->certificate, &server->proof);
    if (status >= 0) status = listen_on(config->bind, &server->listener.fd);
    if (status >= 0) {
        server->port = port_of(server->listener.fd);
        struct opening opening = {.server = server, .out = out};
        tutti_loop_run(config->loop, watch, &opening);
        if (!opening.watched) status = tutti_fail(TUTTI_ERR_SYSTEM, "can not watch the socket at %s", config->bind);
    }
    if (status < 0) {
        if (server->listener.fd >= 0) close(server->listener.fd);
        nghttp2_session_callbacks_del(server->callbacks);
        tutti_free(server);
        return status;
    }
    return TUTTI_OK;
}

static void end_all(void *arg)
{
    struct tutti_rpc_server *server = arg;

    tutti_loop_forget(server->config.loop, &server->listener);
    tutti_loop_stop(server->config.loop, &server->timer);
    while (server->conns) rpc_conn_close(server->conns);
}

void tutti_rpc_server_close(struct tutti_rpc_server *server)
{
    if (!server) return;
    tutti_loop_run(server->config.loop, end_all, server);
    close(server->listener.fd);
    nghttp2_session_callbacks_del(server->callbacks);
    explicit_bzero(&server->proof, sizeof server->proof);
    tutti_free(server);
}

uint16_t tutti_rpc_server_port(const struct tutti_rpc_server *server)
{
    return server->port;
}

bool tutti_rpc_server_allows(struct tutti_rpc_server *server, const struct sockaddr *from, uint32_t units)
{
    uint8_t address[16];

    rpc_limit_address(from, address);
    return rpc_limit_take(&server->limit, address, units, tutti_now_ns()) == 0;
}
