/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the host of a rank that does not answer is there: its kernel takes a connection to where the rank listens,
 * also while the process is stopped. Nothing is sent. */

#include "doctor.h"

#include "control/net/net.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_MS 1000

static enum doctor_reach connect_try(const char *where)
{
    struct tutti_net_address address;
    struct pollfd wait = {.events = POLLOUT};
    char text[TUTTI_WHO_ADDRESS];
    unsigned port;
    int error = 0;
    socklen_t n = sizeof error;
    if (sscanf(where, "%63s %u", text, &port) != 2 || port == 0 || port > UINT16_MAX ||
        !tutti_net_address_parse(text, &address))
        return DOCTOR_NOT_TRIED;
    if (tutti_net_connect(&address, (uint16_t)port, "", "system", &wait.fd) < 0) return DOCTOR_NO_WAY;
    const bool decided = poll(&wait, 1, CONNECT_MS) > 0;
    if (decided) getsockopt(wait.fd, SOL_SOCKET, SO_ERROR, &error, &n);
    close(wait.fd);
    if (!decided) return DOCTOR_NO_WAY;
    return error == 0 ? DOCTOR_CONNECTS : error == ECONNREFUSED ? DOCTOR_REFUSES : DOCTOR_NO_WAY;
}

/* A rank before this one on the same host that was tried. */
static const struct doctor_rank *neighbour_of(const struct doctor_rank *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (ranks[i].reach != DOCTOR_NOT_TRIED && strcmp(ranks[i].host, ranks[rank].host) == 0) return &ranks[i];
    return NULL;
}

void doctor_reach(struct doctor_world *world)
{
    struct doctor_rank *ranks = world->looks[world->n_looks - 1];
    for (uint32_t i = 0; i < world->n; i++) {
        if (ranks[i].known || ranks[i].life != TUTTI_LIFE_ALIVE || !ranks[i].address[0]) continue;
        const struct doctor_rank *tried = neighbour_of(ranks, i);
        ranks[i].reach = tried ? tried->reach : connect_try(ranks[i].address);
    }
}
