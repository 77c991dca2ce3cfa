/* SPDX-License-Identifier: BSD-3-Clause */

/* Where the store's server listens: at one port of one host, or of all addresses of this one. */

#include "base/config.h"
#include "store/store_codec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096

/* At the first address of the list that can be had. False: errno says why none. */
static bool socket_listen(const struct addrinfo *list, uint16_t port, int *out)
{
    int saved = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        struct sockaddr_storage at;
        const int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        memcpy(&at, a->ai_addr, a->ai_addrlen);
        if (a->ai_family == AF_INET6)
            ((struct sockaddr_in6 *)&at)->sin6_port = htons(port);
        else
            ((struct sockaddr_in *)&at)->sin_port = htons(port);
        if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && bind(fd, (const struct sockaddr *)&at, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
            *out = fd;
            return true;
        }
        saved = errno;
        if (fd >= 0) close(fd);
    }
    errno = saved;
    return false;
}

enum tutti_status tutti_store_listen(const char *host, uint16_t port, int *fd, uint16_t *bound_port)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    char text[32];
    uint64_t range = 0;
    if (port == 0) TUTTI_TRY(tutti_option_get("port_range", text, sizeof text, &range));
    int rc = getaddrinfo(host, host ? NULL : "0", &hints, &list);
    if (rc != 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the store's host \"%.200s\" is not known: %s", host ? host : "*",
                          gai_strerror(rc));
    bool used = true;
    *fd = -1;
    for (uint32_t i = 0; i < tutti_ports_n(range) && used && *fd < 0; i++)
        used = !socket_listen(list, range ? tutti_ports_try(range, i) : port, fd) && errno == EADDRINUSE;
    const int why = errno;
    freeaddrinfo(list);
    errno = why;
    if (*fd < 0 && range && used) return tutti_ports_used_up(range);
    if (*fd < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "a store can not be served on %.200s port %u", host ? host : "*",
                                port);
    if (getsockname(*fd, (struct sockaddr *)&bound, &n) != 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the port of the store's server can not be told");
    *bound_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                    : ((struct sockaddr_in *)&bound)->sin_port);
    return TUTTI_OK;
}
