/* SPDX-License-Identifier: BSD-3-Clause */

/* Where the leader of a meeting can be reached by ranks of other hosts: "port,address,address". A host has addresses
 * that others can not reach, or that are addresses of their own (a bridge of containers): they are tried in turn. */

#include "control/unix/meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES 8
#define TRY_NS TUTTI_NS_PER_S /* for an address to answer */

void tutti_far_text(const struct tutti_listener *listener, char out[TUTTI_FAR_TEXT])
{
    struct tutti_net_address addresses[ADDRESSES];
    const uint32_t n = tutti_listener_addresses(listener, addresses, ADDRESSES);
    int used = snprintf(out, TUTTI_FAR_TEXT, "%u", tutti_listener_port(listener));
    for (uint32_t i = 0; i < n; i++) {
        char text[64];
        tutti_net_address_text(&addresses[i], text, sizeof text);
        if ((size_t)used + strlen(text) + 2 > TUTTI_FAR_TEXT) return;
        used += snprintf(out + used, TUTTI_FAR_TEXT - (size_t)used, ",%s", text);
    }
}

/* OK, AGAIN when it is refused, PENDING when nothing answers in time. */
static enum tutti_status address_try(const struct tutti_net_address *address, uint16_t port,
                                     const struct tutti_meeting_request *request, int *out)
{
    uint64_t until = tutti_deadline_ns(TRY_NS);
    int fd = -1, error = 0;
    socklen_t bytes = sizeof error;
    if (tutti_net_connect(address, port, request->interface, NULL, &fd) < 0) return TUTTI_PENDING;
    if (until > request->deadline_ns) until = request->deadline_ns;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (tutti_now_ns() < until && !tutti_meeting_cancelled(request) && poll(&room, 1, 20) <= 0) continue;
    const bool decided = room.revents != 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0;
    if (decided && error == 0) {
        *out = fd;
        return TUTTI_OK;
    }
    close(fd);
    return decided && error == ECONNREFUSED ? TUTTI_AGAIN : TUTTI_PENDING;
}

enum tutti_status tutti_far_connect(const char *text, const struct tutti_meeting_request *request, int *fd)
{
    char copy[TUTTI_FAR_TEXT], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    const char *port = strsep(&rest, ",");
    const unsigned long number = strtoul(port, NULL, 10);
    enum tutti_status status = TUTTI_AGAIN;
    if (number == 0 || number > UINT16_MAX || !rest)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the store holds \"%.60s\", not the address of a meeting", text);
    for (const char *one; (one = strsep(&rest, ","));) {
        struct tutti_net_address address;
        if (!tutti_net_address_parse(one, &address))
            return tutti_fail(TUTTI_ERR_PROTOCOL, "the store holds the address \"%.60s\", which is none", one);
        TUTTI_TRY(tutti_meeting_time(request, "the rank that leads the meeting"));
        const enum tutti_status tried = address_try(&address, (uint16_t)number, request, fd);
        if (tried == TUTTI_OK) return tried;
        if (tried == TUTTI_PENDING) status = tried;
    }
    return status;
}
