/* SPDX-License-Identifier: BSD-3-Clause */

/* Addresses, connecting and listening. */

#include "base/config.h"
#include "control/net/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- addresses ---- */

static const uint8_t mapped_front[12] = {[10] = 0xff, [11] = 0xff}; /* the front of an IPv4 address on an IPv6 socket */

/* ---- as text ---- */

char *tutti_net_address_text(const struct tutti_net_address *address, char *out, size_t capacity)
{
    const int family = address->family == 4 ? AF_INET : AF_INET6;
    if (address->family == 0 || !inet_ntop(family, address->bytes, out, (socklen_t)capacity))
        snprintf(out, capacity, "no address");
    return out;
}

bool tutti_net_address_parse(const char *text, struct tutti_net_address *out)
{
    struct tutti_net_address parsed = {.family = strchr(text, ':') ? 6 : 4};
    if (inet_pton(parsed.family == 6 ? AF_INET6 : AF_INET, text, parsed.bytes) != 1) return false;
    *out = parsed;
    return true;
}

/* ---- as the system wants them ---- */

/* As the system wants it; returns its length, 0 for none. */
static socklen_t sockaddr_make(const struct tutti_net_address *address, uint32_t scope, uint16_t port,
                               struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET, in->sin_port = htons(port);
        memcpy(&in->sin_addr, address->bytes, sizeof in->sin_addr);
        return sizeof *in;
    }
    if (address->family != 6) return 0;
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)out;
    in->sin6_family = AF_INET6, in->sin6_port = htons(port), in->sin6_scope_id = scope;
    memcpy(&in->sin6_addr, address->bytes, sizeof in->sin6_addr);
    return sizeof *in;
}

static bool address_from(const struct sockaddr *from, struct tutti_net_address *out)
{
    struct tutti_net_address address = {.family = from->sa_family == AF_INET ? 4 : 6};
    if (from->sa_family == AF_INET) {
        memcpy(address.bytes, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        memcpy(address.bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
        if (memcmp(address.bytes, mapped_front, sizeof mapped_front) == 0) {
            memcpy(address.bytes, address.bytes + 12, 4);
            memset(address.bytes + 4, 0, 12);
            address.family = 4;
        }
    } else {
        return false;
    }
    *out = address;
    return true;
}

static uint16_t sockaddr_port(const struct sockaddr_storage *from)
{
    return ntohs(from->ss_family == AF_INET ? ((const struct sockaddr_in *)from)->sin_port
                                            : ((const struct sockaddr_in6 *)from)->sin6_port);
}

bool tutti_net_address_of(int fd, bool far_end, struct tutti_net_address *out)
{
    struct sockaddr_storage end;
    socklen_t n = sizeof end;
    const int failed =
        far_end ? getpeername(fd, (struct sockaddr *)&end, &n) : getsockname(fd, (struct sockaddr *)&end, &n);
    return failed == 0 && address_from((const struct sockaddr *)&end, out);
}

/* ---- those of this host ---- */

/* For IPv6: such an address needs a scope. */
static bool link_local(const struct tutti_net_address *address)
{
    const uint8_t *b = address->bytes;
    return address->family == 6 && b[0] == 0xfe && (b[1] & 0xc0) == 0x80;
}

static bool same_address(const struct tutti_net_address *a, const struct tutti_net_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static bool same_network(const struct tutti_net_address *a, const struct tutti_net_address *b, uint32_t bits)
{
    for (uint32_t i = 0; i < bits; i++)
        if ((a->bytes[i / 8] ^ b->bytes[i / 8]) >> (7 - i % 8) & 1) return false;
    return true;
}

/* The address from which packets to the world at large would come: the one that its administrator gave it for that. No
 * packet is sent. */
static void default_address(const char *far, struct tutti_net_address *out)
{
    struct tutti_net_address there;
    struct sockaddr_storage to;
    out->family = 0;
    if (!tutti_net_address_parse(far, &there)) return;
    const socklen_t n = sockaddr_make(&there, 0, 9, &to);
    const int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)&to, n) < 0 || !tutti_net_address_of(fd, false, out)) out->family = 0;
    close(fd);
}

/* Whether the option names this address: by its interface, itself, or its network. */
static bool is_named(const char *interface, const struct tutti_net_local *local)
{
    struct tutti_net_address given;
    char text[INET6_ADDRSTRLEN + IF_NAMESIZE];
    char *end;
    if (interface[0] == '\0' || strcmp(interface, local->interface) == 0) return true;
    const size_t n = strcspn(interface, "/%");
    snprintf(text, sizeof text, "%.*s", n < sizeof text ? (int)n : 0, interface);
    if (!tutti_net_address_parse(text, &given) || given.family != local->address.family) return false;
    if (interface[n] == '%' && strcmp(interface + n + 1, local->interface) != 0) return false;
    if (interface[n] != '/') return same_address(&given, &local->address);
    const unsigned long bits = strtoul(interface + n + 1, &end, 10);
    if (*end || end == interface + n + 1 || bits > (given.family == 4 ? 32u : 128u)) return false;
    return same_network(&given, &local->address, (uint32_t)bits);
}

static int better(const void *a, const void *b)
{
    const uint32_t x = ((const struct tutti_net_local *)a)->rank, y = ((const struct tutti_net_local *)b)->rank;
    return (x > y) - (x < y);
}

static uint32_t rank_of(const struct tutti_net_local *local, unsigned flags, const struct tutti_net_address *defaults,
                        uint32_t i)
{
    const bool is_default = same_address(&local->address, &defaults[local->address.family == 6]);
    return ((flags & IFF_LOOPBACK ? 8u : 0) + (link_local(&local->address) ? 4u : 0) + (is_default ? 0 : 2u) +
            (local->address.family == 6)) *
               TUTTI_NET_LOCALS +
           i; /* else as the system lists them */
}

static uint32_t prefix_of(const struct sockaddr *mask)
{
    struct tutti_net_address address;
    uint32_t bits = 0;
    if (!mask || !address_from(mask, &address)) return 0;
    while (bits < 128 && address.bytes[bits / 8] >> (7 - bits % 8) & 1) bits++;
    return bits;
}

bool tutti_net_local_near(const struct tutti_net_local *local, const struct tutti_net_address *address)
{
    return local->address.family == address->family && local->prefix > 0 &&
           same_network(&local->address, address, local->prefix);
}

/* All that the system lists, best first. */
static enum tutti_status locals_read(struct tutti_net_local *out, uint32_t *n)
{
    struct ifaddrs *list;
    struct tutti_net_address defaults[2];
    *n = 0;
    if (getifaddrs(&list) < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the system does not tell its network interfaces");
    default_address("198.51.100.1", &defaults[0]); /* an address for documentation: nobody has it */
    default_address("2001:db8::1", &defaults[1]);
    for (const struct ifaddrs *i = list; i && *n < TUTTI_NET_LOCALS; i = i->ifa_next) {
        struct tutti_net_local *local = &out[*n];
        if (!i->ifa_addr || !address_from(i->ifa_addr, &local->address)) continue;
        snprintf(local->interface, sizeof local->interface, "%s", i->ifa_name);
        local->prefix = prefix_of(i->ifa_netmask);
        local->scope = link_local(&local->address) ? if_nametoindex(i->ifa_name) : 0;
        local->up = (i->ifa_flags & IFF_UP) != 0;
        local->rank = rank_of(local, i->ifa_flags, defaults, *n);
        ++*n;
    }
    freeifaddrs(list);
    qsort(out, *n, sizeof *out, better);
    return TUTTI_OK;
}

static enum tutti_status locals_fail(const char *interface, const struct tutti_net_local *locals, uint32_t n)
{
    char list[300] = "", text[INET6_ADDRSTRLEN];
    size_t length = 0;
    const char *why = interface[0] == '\0'            ? "no interface is up"
                      : if_nametoindex(interface) > 0 ? "it is down or has no address"
                                                      : "there is no such interface or address";
    for (uint32_t i = 0; i < n && length < sizeof list; i++) {
        if (!locals[i].up) continue;
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s (%s)", length ? ", " : "",
                                   locals[i].interface, tutti_net_address_text(&locals[i].address, text, sizeof text));
    }
    return tutti_fail(TUTTI_ERR_CONFIG, "interface=%.64s: %s on this host; there are: %s", interface, why,
                      length ? list : "none");
}

enum tutti_status tutti_net_locals(const char *interface, struct tutti_net_local *out, uint32_t *n)
{
    struct tutti_net_local all[TUTTI_NET_LOCALS];
    bool taken[TUTTI_NET_LOCALS] = {false};
    uint32_t n_all;
    TUTTI_TRY(locals_read(all, &n_all));
    *n = 0;
    for (const char *at = interface, *end;; at = end + 1) {
        char name[64];
        uint32_t n_named = 0;
        end = strchrnul(at, ',');
        snprintf(name, sizeof name, "%.*s", end - at < (long)sizeof name ? (int)(end - at) : 0, at);
        for (uint32_t i = 0; i < n_all; i++) {
            if (!all[i].up || !is_named(name, &all[i])) continue;
            n_named++;
            if (!taken[i]) out[(*n)++] = all[i];
            taken[i] = true;
        }
        if (n_named == 0) return locals_fail(name, all, n_all);
        if (!*end) return TUTTI_OK;
    }
}

/* ---- connecting ---- */

/* Before it is connected, or listens: of BBR, which is the default of some systems, a socket that had it keeps that
 * each packet is paced, whatever it is told later; and that halves the rate of short links. */
static void congestion_set(int fd, const char *congestion)
{
    if (!congestion || congestion[0] == '\0' || strcmp(congestion, "system") == 0) return;
    const char *name = strcmp(congestion, "auto") == 0 ? "cubic" : congestion;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) < 0)
        tutti_log(TUTTI_LOG_INFO, "this kernel has no congestion control '%s'", name);
}

/* A stream socket that neither blocks nor delays, for addresses of this family. */
static int socket_make(sa_family_t family, const char *congestion)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    congestion_set(fd, congestion);
    return fd;
}

/* The address from which the connection shall come: of the interface that was named; of several, of one that is of the
 * same network, else of the first. A link-local address is one of many of its kind: where no interface was named, the
 * first that has one. */
static enum tutti_status source_find(const struct tutti_net_address *to, const char *interface,
                                     struct tutti_net_local *out)
{
    struct tutti_net_local locals[TUTTI_NET_LOCALS];
    uint32_t n;
    char text[INET6_ADDRSTRLEN];
    TUTTI_TRY(tutti_net_locals(interface, locals, &n));
    const struct tutti_net_local *found = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (locals[i].address.family != to->family || link_local(&locals[i].address) != link_local(to)) continue;
        if (!found || (!tutti_net_local_near(found, to) && tutti_net_local_near(&locals[i], to))) found = &locals[i];
    }
    if (found) {
        *out = *found;
        return TUTTI_OK;
    }
    errno = ENETUNREACH;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "interface=%.64s has no address from which %s can be reached", interface,
                            tutti_net_address_text(to, text, sizeof text));
}

enum tutti_status tutti_net_connect(const struct tutti_net_address *address, uint16_t port, const char *interface,
                                    const char *congestion, int *fd)
{
    struct sockaddr_storage to, from;
    struct tutti_net_local source = {.scope = 0};
    const bool named = interface[0] != '\0', on = true;
    char text[INET6_ADDRSTRLEN];
    if (named || link_local(address)) TUTTI_TRY(source_find(address, interface, &source));
    const socklen_t n = sockaddr_make(address, source.scope, port, &to);
    const int new_fd = n ? socket_make(to.ss_family, congestion) : -1;
    if (n == 0) errno = EADDRNOTAVAIL;
    if (new_fd < 0) goto fail;
    if (named) {
        const socklen_t n_from = sockaddr_make(&source.address, source.scope, 0, &from);
        setsockopt(new_fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){on}, sizeof(int));
        if (bind(new_fd, (const struct sockaddr *)&from, n_from) < 0) goto fail;
    }
    if (connect(new_fd, (const struct sockaddr *)&to, n) < 0 && errno != EINPROGRESS && errno != EINTR) goto fail;
    *fd = new_fd;
    return TUTTI_OK;
fail:
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not connect to %s port %u",
                     tutti_net_address_text(address, text, sizeof text), port);
    if (new_fd >= 0) close(new_fd);
    return TUTTI_ERR_SYSTEM;
}

/* ---- listening ---- */
/* Listening: one port, on a socket that takes IPv4 and IPv6, or on one for each address of the interface that was
 * named. Not by SO_BINDTODEVICE: a member of the same host comes by the loopback interface, whatever address it calls.
 */

#define SOCKETS 24
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
    socklen_t n = sockaddr_make(address, scope, l->port, &at);
    const int only_6 = address != &any[0], on = 1;
    const int fd = socket_make(at.ss_family, congestion);
    struct epoll_event event = {.events = EPOLLIN};
    char text[INET6_ADDRSTRLEN];
    if (fd >= 0 && l->port) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* what is left of the last job */
    if (fd >= 0 && at.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_6, sizeof only_6);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, n) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not listen at %s", tutti_net_address_text(address, text, sizeof text));
        if (fd >= 0) close(fd);
        return TUTTI_ERR_SYSTEM;
    }
    l->port = sockaddr_port(&at);
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

/* Where the kernel has no IPv6, IPv4 alone. */
static enum tutti_status sockets_open_any(struct tutti_listener *l, const char *congestion)
{
    const enum tutti_status status = socket_add(l, &any[0], 0, congestion);
    if (status == TUTTI_OK || tutti_last_error()->os_errno == EADDRINUSE) return status;
    return socket_add(l, &any[1], 0, congestion);
}

static enum tutti_status sockets_open(struct tutti_listener *l, const struct tutti_listener_config *config)
{
    const bool named = config->interface[0] != '\0';
    const uint32_t n = config->ports ? tutti_ports_n(config->ports) : named ? TRIES : 1;
    for (uint32_t i = 0; i < n; i++) {
        sockets_close(l);
        l->port = tutti_ports_try(config->ports, i);
        const enum tutti_status status =
            named ? sockets_open_named(l, config->congestion) : sockets_open_any(l, config->congestion);
        if (status == TUTTI_OK || tutti_last_error()->os_errno != EADDRINUSE) return status;
    }
    return config->ports ? tutti_ports_used_up(config->ports) : TUTTI_ERR_SYSTEM;
}

enum tutti_status tutti_listener_open(const struct tutti_listener_config *config, struct tutti_listener **out)
{
    enum tutti_status status;
    struct tutti_listener *l = tutti_alloc(sizeof *l);
    if (!l) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to listen on the network");
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    status = l->epoll_fd >= 0 ? TUTTI_OK : tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not listen on the network");
    if (status == TUTTI_OK) status = tutti_net_locals(config->interface, l->locals, &l->n_locals);
    if (status == TUTTI_OK) status = sockets_open(l, config);
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
