/* SPDX-License-Identifier: BSD-3-Clause */

/* Packets for teams that do not exist here yet: a peer was faster. They are kept until the team is created. */

#include "engine/onesided/access.h"
#include "engine/pass/pass.h"

#include <string.h>

#define STRAYS_LEAST 2048
#define STRAYS_A_MEMBER 8

enum tutti_status tutti_strays_create(struct tutti_engine *engine, struct tutti_port *port)
{
    size_t eager = engine->config.eager_bytes;

    if (eager > port->transport->max_payload) eager = port->transport->max_payload;
    port->stray_stride = (sizeof(struct tutti_stray) + eager + 63) & ~(size_t)63;
    port->stray_room = port->transport->n * STRAYS_A_MEMBER;
    if (port->stray_room < STRAYS_LEAST) port->stray_room = STRAYS_LEAST;
    port->stray_bytes = port->stray_stride * port->stray_room;
    port->strays = tutti_map_lazy(port->stray_bytes);
    return port->strays ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "out of address space for a transport");
}

void tutti_strays_destroy(struct tutti_port *port)
{
    tutti_unmap(port->strays, port->stray_bytes);
}

static struct tutti_stray *stray_at(const struct tutti_port *port, uint32_t i)
{
    return (struct tutti_stray *)(void *)(port->strays + i * port->stray_stride);
}

void tutti_stray_keep(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_packet *packet,
                      const void *payload)
{
    uint64_t gone = tutti_mix64(packet->comm) ^ packet->epoch;
    struct tutti_stray *oldest = NULL;

    /* Answers to what was never sent can only be late. */
    if (packet->type == TUTTI_PACKET_CREDIT || packet->type == TUTTI_PACKET_READ ||
        packet->type == TUTTI_PACKET_ONE_ANSWER)
        return;
    if (packet->bytes + sizeof(struct tutti_stray) > port->stray_stride) return;
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(engine->gone); i++) {
        if (engine->gone[i] != gone) continue;
        if (packet->type == TUTTI_PACKET_ONE) tutti_one_leave(port, packet);
        return;
    }
    for (uint32_t i = 0; i < port->stray_room; i++) {
        struct tutti_stray *stray = stray_at(port, i);
        if (!oldest || stray->used < oldest->used) oldest = stray;
        if (stray->used) continue;
        if (port->stray_top < i + 1) port->stray_top = i + 1;
        break;
    }
    if (!oldest) return;
    if (oldest->used) {
        tutti_log(TUTTI_LOG_WARN,
                  "too many packets for communicators that do not exist here: one of %" PRIx64 " is lost",
                  oldest->packet.comm);
    } else {
        port->n_strays++;
    }
    oldest->used = ++port->stray_clock;
    oldest->packet = *packet;
    if (packet->bytes > 0) memcpy(oldest->payload, payload, packet->bytes);
}

const struct tutti_stray *tutti_stray_take(struct tutti_team *team)
{
    struct tutti_port *port = team->port;
    struct tutti_stray *first = NULL;

    for (uint32_t i = 0; port->n_strays > 0 && i < port->stray_top; i++) { /* beyond it no page was ever touched */
        struct tutti_stray *stray = stray_at(port, i);
        if (!stray->used || stray->packet.comm != team->id || stray->packet.epoch != team->epoch) continue;
        if (!first || stray->used < first->used) first = stray;
    }
    if (!first) return NULL;
    first->used = 0;
    port->n_strays--;
    return first;
}
