/* SPDX-License-Identifier: BSD-3-Clause */

/* Arrivals: to the team, and to what in it they are for. */

#include "engine/flight/flight.h"
#include "engine/p2p/p2p.h"
#include "engine/pass/pass.h"

static void credit(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    (void)payload;
    tutti_letters_credit(&team->channels[peer], packet);
    team->retry = true;
}

static void break_unknown(struct tutti_team *team, uint32_t peer)
{
    char text[TUTTI_ERROR_TEXT];

    snprintf(text, sizeof(text),
             "on communicator %" PRIx64 ", rank %u received from rank %u a packet of an unknown type", team->id,
             team->slot, peer);
    tutti_team_break(team, TUTTI_ERR_PROTOCOL, (int32_t)peer, NULL, TUTTI_NO_STEP, text);
}

typedef void (*packet_handler)(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet,
                               const void *payload);
static const packet_handler handlers[] = {
    [TUTTI_PACKET_DATA] = tutti_flights_data,
    [TUTTI_PACKET_GRANT] = tutti_flights_grant,
    [TUTTI_PACKET_CREDIT] = credit,
    [TUTTI_PACKET_READ] = tutti_flights_read,
    [TUTTI_PACKET_P2P] = tutti_letters_deliver,
    [TUTTI_PACKET_P2P_GRANT] = tutti_letters_deliver,
    [TUTTI_PACKET_P2P_DATA] = tutti_letters_deliver,
    [TUTTI_PACKET_P2P_READ] = tutti_letters_deliver,
};

void tutti_team_deliver(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    struct tutti_channel *channel = &team->channels[peer];
    /* Cumulative, so that a lost, doubled or late packet does no harm. */
    uint8_t more = (uint8_t)(packet->credits - channel->returned);

    if (more > 0 && more <= (uint8_t)(channel->sent - channel->returned)) {
        channel->returned = packet->credits;
        team->retry = true;
    }
    if (packet->type < TUTTI_ARRAY_LEN(handlers) && handlers[packet->type])
        handlers[packet->type](team, peer, packet, payload);
    else
        break_unknown(team, peer);
}

void tutti_port_deliver(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_event *arrival)
{
    const struct tutti_packet *packet = &arrival->packet;
    struct tutti_team *team = tutti_team_find(port, packet->comm, packet->epoch);

    engine->stats.packets_received++;
    if (!team) {
        tutti_stray_keep(engine, port, packet, arrival->payload);
        return;
    }
    if (team->halted) return;
    uint32_t peer = packet->source < port->transport->n ? team->slots[packet->source] : TUTTI_NO_SLOT;
    if (peer == TUTTI_NO_SLOT) {
        tutti_log(TUTTI_LOG_WARN, "member %u is not of communicator %" PRIx64 ": its packet is dropped", packet->source,
                  team->id);
        return;
    }
    tutti_team_deliver(team, peer, packet, arrival->payload);
}
