/* SPDX-License-Identifier: BSD-3-Clause */

/* Listening: one port, on a socket that takes IPv4 and IPv6, or on one for each address of the interface that was
 * named. Not by SO_BINDTODEVICE: a member of the same host comes by the loopback interface, whatever address it calls.
 */

#include "control/net/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SOCKETS 8
#define TRIES 16 /* of ports that must be free on all addresses */

struct tutti_listener {
    int epoll_fd; /* over the sockets: one descriptor to wait for */
    int fds[SOCKETS];
    uint32_t n_fds;
    uint16_t port;
    uint32_t n_locals;
    struct tutti_net_local locals[TUTTI_NET_LOCALS];
};

static const struct tutti_net_address any[] = {{.family = 6}, {.family = 4}};

/* One socket more; port 0 takes one. SYSTEM with its errno. */
static enum tutti_status socket_add(struct tutti_listener *l, const struct tutti_net_address *address, uint32_t scope,
                                    const char *congestion)
{
    struct sockaddr_storage at;
    socklen_t n = tutti_net_sockaddr(address, scope, l->port, &at);
    const int only_6 = address != &any[0];
    const int fd = tutti_net_socket(at.ss_family, congestion);
    struct epoll_event event = {.events = EPOLLIN};
    char text[INET6_ADDRSTRLEN];
    if (fd >= 0 && at.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_6, sizeof only_6);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, n) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not listen at %s", tutti_net_address_text(address, text, sizeof text));
        if (fd >= 0) close(fd);
        return TUTTI_ERR_SYSTEM;
    }
    l->port = tutti_net_sockaddr_port(&at);
    l->fds[l->n_fds++] = fd;
    return TUTTI_OK;
}

static void sockets_close(struct tutti_listener *l)
{
    while (l->n_fds > 0) close(l->fds[--l->n_fds]);
    l->port = 0;
}

/* Addresses that the system does not give (those of IPv6 that are still being tried out) are left out. */
static enum tutti_status sockets_open_named(struct tutti_listener *l, const char *congestion)
{
    enum tutti_status status = TUTTI_ERR_SYSTEM;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_locals && n < SOCKETS; i++) {
        const struct tutti_net_local *local = &l->locals[i];
        const enum tutti_status added = socket_add(l, &local->address, local->scope, congestion);
        if (added < 0 && tutti_last_error()->os_errno == EADDRINUSE) return added;
        if (added < 0) continue;
        l->locals[n++] = *local;
        status = TUTTI_OK;
    }
    if (status == TUTTI_OK) l->n_locals = n;
    return status;
}

static enum tutti_status sockets_open(struct tutti_listener *l, const char *interface, const char *congestion)
{
    enum tutti_status status = TUTTI_ERR_SYSTEM;
    if (interface[0] == '\0') {
        /* Where the kernel has no IPv6, IPv4 alone. */
        status = socket_add(l, &any[0], 0, congestion);
        return status < 0 ? socket_add(l, &any[1], 0, congestion) : status;
    }
    for (int i = 0; i < TRIES && status < 0; i++) {
        sockets_close(l);
        status = sockets_open_named(l, congestion);
        if (status < 0 && tutti_last_error()->os_errno != EADDRINUSE) break;
    }
    return status;
}

enum tutti_status tutti_listener_open(const struct tutti_listener_config *config, struct tutti_listener **out)
{
    enum tutti_status status;
    struct tutti_listener *l = tutti_alloc(sizeof *l);
    if (!l) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to listen on the network");
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    status = l->epoll_fd >= 0 ? TUTTI_OK : tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not listen on the network");
    if (status == TUTTI_OK) status = tutti_net_locals(config->interface, l->locals, &l->n_locals);
    if (status == TUTTI_OK) status = sockets_open(l, config->interface, config->congestion);
    if (status < 0)
        tutti_listener_close(l);
    else
        *out = l;
    return status;
}

uint16_t tutti_listener_port(const struct tutti_listener *listener)
{
    return listener->port;
}

uint32_t tutti_listener_addresses(const struct tutti_listener *listener, struct tutti_net_address *out,
                                  uint32_t capacity)
{
    uint32_t n = 0;
    for (; n < listener->n_locals && n < capacity; n++) out[n] = listener->locals[n].address;
    return n;
}

int tutti_listener_fd(const struct tutti_listener *listener)
{
    return listener->epoll_fd;
}

int tutti_listener_accept(struct tutti_listener *listener)
{
    const int on = 1;
    int why = EAGAIN;
    for (uint32_t i = 0; i < listener->n_fds; i++) {
        int fd;
        do fd = accept4(listener->fds[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
        if (fd >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return fd;
        }
        if (errno != EAGAIN) why = errno;
    }
    errno = why;
    return -1;
}

void tutti_listener_close(struct tutti_listener *listener)
{
    sockets_close(listener);
    if (listener->epoll_fd >= 0) close(listener->epoll_fd);
    tutti_free(listener);
}
