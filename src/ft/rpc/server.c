/* SPDX-License-Identifier: BSD-3-Clause */
/* A server: its listening socket, and who comes. */
#include "ft/rpc/server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BATCH 64 /* newcomers at once, before those that are here have their turn */
#define TELL_NS TUTTI_NS_PER_S
#define CONNECTION_UNITS 20
#define REST_NS (100 * TUTTI_NS_PER_MS) /* without a descriptor to spare, and nobody to take one from */

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

/* [::] takes IPv4, too; where the kernel has no IPv6, 0.0.0.0 stands for it. */
static enum tutti_status listen_on(const char *bind, int *fd)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    char host[RPC_HOST], port[RPC_PORT];
    struct addrinfo *found;

    if (!rpc_address_split(bind, strlen(bind), host, port))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "\"%s\" is no address to listen at: write HOST:PORT or [ADDRESS]:PORT",
                          bind);
    const bool all = host[0] == '\0' || strcmp(host, "::") == 0;
    const int wrong = getaddrinfo(all ? "::" : host, port, &hints, &found);
    if (wrong != 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "can not listen at %s: %s", bind, gai_strerror(wrong));
    *fd = listen_at(found);
    freeaddrinfo(found);
    if (*fd < 0 && errno == EAFNOSUPPORT && all && getaddrinfo("0.0.0.0", port, &hints, &found) == 0) {
        *fd = listen_at(found);
        freeaddrinfo(found);
    }
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

/* Once a second at most: who floods the port does not flood the log. */
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

static void on_rested(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_server *server =
        (struct tutti_rpc_server *)((char *)timer - offsetof(struct tutti_rpc_server, timer));

    tutti_loop_change(server->config.loop, &server->listener, EPOLLIN);
}

/* Nobody could be accepted: the oldest stranger makes room, or it is tried again later. */
static bool make_room(struct tutti_rpc_server *server)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno == EINTR || errno == ECONNABORTED) return true;
    if (server->oldest_stranger) {
        rpc_conn_close(server->oldest_stranger);
        return true;
    }
    tutti_loop_change(server->config.loop, &server->listener, 0);
    server->timer.due = on_rested;
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

/* On the loop's thread: who comes finds the server where its owner will. */
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
    server->has_key = config->secret != NULL;
    server->limit.rate = config->rate;
    server->listener = (struct tutti_loop_fd){.fd = -1, .ready = on_newcomer};
    enum tutti_status status = rpc_callbacks_new(&server->callbacks);
    if (status >= 0) status = tutti_random_bytes(&server->limit.seed, sizeof server->limit.seed);
    if (status >= 0 && server->has_key) status = rpc_link_key(config->secret, server->key);
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
    explicit_bzero(server->key, sizeof server->key);
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
