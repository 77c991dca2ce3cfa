/* SPDX-License-Identifier: BSD-3-Clause */

/* The TCP store's server: one thread, one epoll set. A request is answered when it comes, or its connection is parked
 * at the key that it waits for. What a client sends before it has proved that it knows the secret is bounded to a few
 * hundred bytes and a few seconds; what does not verify is refused and logged, and nobody else notices. */

#include "store/store_server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPENING_NS (10 * TUTTI_NS_PER_S)      /* that a connection may take to prove itself */
#define ACCEPT_PAUSE_NS (TUTTI_NS_PER_S / 10) /* when there are no descriptors left */
#define OPENING_BYTES 512
#define STRANGERS 2048 /* connections that have proved nothing; then the oldest of them makes room */
#define EVENTS 64
#define BACKLOG 4096

/* ---- clients ---- */

/* Whether one was told to go: it goes at the end of this round. */
static bool stranger_refuse(struct tutti_store_server *s)
{
    struct tutti_store_client *oldest = NULL;
    for (struct tutti_store_client *c = s->clients; c; c = c->next)
        if (c->state != TUTTI_CLIENT_TRUSTED && !c->doomed) oldest = c;
    if (!oldest) return false;
    tutti_fail(TUTTI_ERR_PROTOCOL, "too many connections wait to prove themselves");
    tutti_store_client_refuse(s, oldest);
    return true;
}

static void client_accept(struct tutti_store_server *s)
{
    int on = 1, fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;
        if (stranger_refuse(s)) return;
        tutti_log(TUTTI_LOG_WARN, "the store's server has no descriptors left; raise `ulimit -n`");
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen_fd, NULL);
        s->accepting = false;
        tutti_store_server_look_by(s, tutti_deadline_ns(ACCEPT_PAUSE_NS));
        return;
    }
    struct tutti_store_client *c = tutti_alloc(sizeof *c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (c) c->in = tutti_alloc(OPENING_BYTES);
    if (!c || !c->in || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        if (c) tutti_free(c->in);
        tutti_free(c);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->fd = fd;
    c->events = EPOLLIN;
    c->max_in = OPENING_BYTES;
    c->until_ns = tutti_deadline_ns(OPENING_NS);
    c->session.server = true;
    c->session.secret = s->secret;
    c->next = s->clients;
    if (c->next) c->next->previous = c;
    s->clients = c;
    tutti_store_server_look_by(s, c->until_ns);
    if (++s->n_strangers > STRANGERS) stranger_refuse(s);
}

/* ---- events ---- */

static void client_read(struct tutti_store_server *s, struct tutti_store_client *c)
{
    if (!tutti_store_client_room(c)) {
        tutti_fail(TUTTI_ERR_PROTOCOL, "a frame that is too long for a connection that has not proved itself");
        tutti_store_client_refuse(s, c);
        return;
    }
    ssize_t k = recv(c->fd, c->in + c->n_in, c->max_in - c->n_in, 0);
    if (k > 0) {
        c->n_in += (size_t)k;
        tutti_store_client_frames(s, c);
    } else if (k == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        c->doomed = true;
    }
}

static void client_serve(struct tutti_store_server *s, struct tutti_store_client *c, uint32_t events)
{
    if (c->doomed) return;
    if (c->n_out && (events & EPOLLOUT)) {
        tutti_store_client_flush(c);
        if (!c->n_out) tutti_store_client_frames(s, c);
    } else if (c->waiter.entry && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
        c->doomed = true; /* a client that is gone does not wait any more */
    } else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        client_read(s, c);
    }
    tutti_store_client_watch(s, c);
}

/* Ends waits whose time is up, closes who did not prove itself, and finds the next time to look. */
static void clients_look(struct tutti_store_server *s, uint64_t now)
{
    if (now < s->next_look_ns) return;
    s->next_look_ns = TUTTI_NEVER;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &s->listen_fd};
    if (!s->accepting) s->accepting = epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &event) == 0;
    for (struct tutti_store_client *c = s->clients; c; c = c->next) {
        if (c->until_ns > now) {
            tutti_store_server_look_by(s, c->until_ns);
        } else if (c->waiter.entry) {
            tutti_fail(TUTTI_ERR_TIMEOUT, "key %.*s did not appear: " TUTTI_SAYS_TIMED_OUT,
                       (int)c->waiter.entry->key_bytes, c->waiter.entry->key, tutti_says_ms(c->wait_ns));
            tutti_store_waiter_remove(&s->table, &c->waiter);
            c->until_ns = TUTTI_NEVER;
            tutti_store_client_error(s, c);
            tutti_store_client_frames(s, c);
            tutti_store_client_watch(s, c);
        } else {
            c->doomed = true;
        }
    }
}

static void *server_thread(void *arg)
{
    struct tutti_store_server *s = arg;
    struct epoll_event events[EVENTS];
    for (;;) {
        uint64_t now = tutti_now_ns(), rest = s->next_look_ns > now ? s->next_look_ns - now : 0;
        if (rest > 3600 * TUTTI_NS_PER_S) rest = 3600 * TUTTI_NS_PER_S;
        int n = epoll_wait(s->epoll_fd, events, EVENTS, (int)((rest + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS));
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &s->stop_fd) return NULL;
            if (events[i].data.ptr == &s->listen_fd)
                client_accept(s);
            else
                client_serve(s, events[i].data.ptr, events[i].events);
        }
        clients_look(s, tutti_now_ns());
        for (struct tutti_store_client *c = s->clients, *next; c; c = next) {
            next = c->next;
            if (c->doomed) tutti_store_client_close(s, c);
        }
    }
}

/* ---- open and close ---- */

static enum tutti_status server_listen(struct tutti_store_server *s, const char *host, uint16_t port)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list;
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    char text[8], bound_port[8];
    int on = 1, saved = 0;
    snprintf(text, sizeof text, "%u", port);
    int rc = getaddrinfo(host, text, &hints, &list);
    if (rc != 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the store's host \"%.200s\" is not known: %s", host ? host : "*",
                          gai_strerror(rc));
    for (struct addrinfo *a = list; a && s->listen_fd < 0; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
            s->listen_fd = fd;
        else
            saved = errno;
        if (fd >= 0 && s->listen_fd < 0) close(fd);
    }
    freeaddrinfo(list);
    errno = saved;
    if (s->listen_fd < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "a store can not be served on %.200s port %u", host ? host : "*",
                                port);
    if (getsockname(s->listen_fd, (struct sockaddr *)&bound, &n) != 0 ||
        getnameinfo((struct sockaddr *)&bound, n, NULL, 0, bound_port, sizeof bound_port, NI_NUMERICSERV) != 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the port of the store's server can not be told");
    s->port = 0;
    for (const char *p = bound_port; *p; p++) s->port = (uint16_t)(s->port * 10 + (*p - '0'));
    return TUTTI_OK;
}

static enum tutti_status server_start(struct tutti_store_server *s)
{
    struct epoll_event listen = {.events = EPOLLIN, .data.ptr = &s->listen_fd};
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = &s->stop_fd};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll_fd < 0 || s->stop_fd < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &listen) != 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->stop_fd, &stop) != 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no descriptors for the store's server");
    s->accepting = true;
    errno = tutti_thread_start(&s->thread, 0, server_thread, s);
    return errno == 0 ? TUTTI_OK : tutti_fail_errno(TUTTI_ERR_SYSTEM, "no thread for the store's server");
}

/* Whatever of it is there; the thread is not. */
static void server_free(struct tutti_store_server *s)
{
    while (s->clients) tutti_store_client_close(s, s->clients);
    tutti_store_table_fini(&s->table);
    if (s->stop_fd >= 0) close(s->stop_fd);
    if (s->epoll_fd >= 0) close(s->epoll_fd);
    if (s->listen_fd >= 0) close(s->listen_fd);
    tutti_store_secret_free(s->secret);
    tutti_free(s);
}

enum tutti_status tutti_store_server_open(const char *host, uint16_t port, const char *secret,
                                          struct tutti_store_server **out)
{
    enum tutti_status status;
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "store_server_open: out is NULL");
    struct tutti_store_server *s = tutti_alloc(sizeof *s);
    if (!s) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store's server");
    s->listen_fd = s->epoll_fd = s->stop_fd = -1;
    s->next_look_ns = TUTTI_NEVER;
    TUTTI_TRY_GOTO(status, tutti_store_secret_copy(secret, &s->secret), err_free);
    TUTTI_TRY_GOTO(status, server_listen(s, host, port), err_free);
    TUTTI_TRY_GOTO(status, server_start(s), err_free);
    *out = s;
    return TUTTI_OK;
err_free:
    server_free(s);
    return status;
}

uint16_t tutti_store_server_port(const struct tutti_store_server *server)
{
    return server ? server->port : 0;
}

void tutti_store_server_close(struct tutti_store_server *server)
{
    if (!server) return;
    eventfd_write(server->stop_fd, 1);
    pthread_join(server->thread, NULL);
    server_free(server);
}
