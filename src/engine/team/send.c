/* SPDX-License-Identifier: BSD-3-Clause */

/* What leaves for a peer: packets, and offers of memory. Whether the bytes of a granted message can be read by the
 * receiver in place is a local fact (design 2.3): the sender offers, the header says so, and the receiver reads and
 * answers READ. Until then the step is not complete, so nothing writes the bytes and the buffer is not given back. */

#include "engine/team/team.h"

static enum tutti_status send_as(struct tutti_team *team, uint32_t peer, struct tutti_packet *packet,
                                 const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_transport *t = team->port->transport;
    struct tutti_channel *channel = &team->channels[peer];

    packet->version = TUTTI_WIRE_VERSION;
    packet->comm = team->id;
    packet->epoch = team->epoch;
    packet->credits = channel->consumed;
    const bool pays = tutti_packet_pays(packet);
    if (pays) packet->fifo = channel->p2p_paid_freed, packet->count = channel->p2p_freed;
    enum tutti_status status = t->ops->send(t, team->members[peer], packet, spans, n_spans, token);
    if (status == TUTTI_OK || status == TUTTI_PENDING) {
        channel->told = channel->consumed;
        if (pays) channel->p2p_paid_told = channel->p2p_paid_freed, channel->p2p_told = channel->p2p_freed;
        team->engine->stats.packets_sent++;
        team->engine->stats.bytes_sent += packet->bytes;
    } else if (status == TUTTI_AGAIN) {
        team->again = true;
    }
    return status;
}

enum tutti_status tutti_team_send(struct tutti_team *team, uint32_t peer, struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans)
{
    return send_as(team, peer, packet, spans, n_spans, 0);
}

enum tutti_status tutti_team_lend(struct tutti_team *team, uint32_t peer, struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, const struct tutti_loan *what)
{
    struct tutti_loan unused;
    uint64_t token;

    if (packet->bytes <= team->port->transport->copied) return send_as(team, peer, packet, spans, n_spans, 0);
    if (!tutti_loan_take(team->port, what, &token)) {
        team->again = true;
        return TUTTI_AGAIN;
    }
    enum tutti_status status = send_as(team, peer, packet, spans, n_spans, token);
    if (status != TUTTI_PENDING) tutti_loan_end(team->port, token, &unused);
    return status;
}

bool tutti_offer_locate(struct tutti_team *team, uint32_t peer, const void *pointer, size_t bytes, uint64_t *offset)
{
    struct tutti_memory *m = team->port->transport->memory;

    if (bytes < team->engine->config.zero_copy_bytes || !tutti_memory_reaches(m, team->members[peer])) return false;
    return m->ops->locate(m, pointer, bytes, offset);
}

const void *tutti_offer_map(struct tutti_team *team, uint32_t peer, uint64_t offset, size_t bytes)
{
    struct tutti_memory *m = team->port->transport->memory;

    if (!tutti_memory_reaches(m, team->members[peer])) return NULL;
    return m->ops->map(m, team->members[peer], offset, bytes);
}
