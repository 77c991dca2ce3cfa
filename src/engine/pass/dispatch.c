/* SPDX-License-Identifier: BSD-3-Clause */

/* Events of the wire: to the team, and to what in it they are for. */

#include "engine/flight/flight.h"
#include "engine/onesided/access.h"
#include "engine/p2p/p2p.h"
#include "engine/pass/pass.h"
#include "engine/report/report.h"

static void credit(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    (void)peer, (void)packet, (void)payload;
    team->retry = true;
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
    [TUTTI_PACKET_ONE] = tutti_ones_deliver,
    [TUTTI_PACKET_ONE_ANSWER] = tutti_ones_deliver,
};

/* Credits are cumulative, so that a lost, doubled or late packet does no harm. */
static void credits_take(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet)
{
    struct tutti_channel *channel = &team->channels[peer];
    uint8_t more = (uint8_t)(packet->credits - channel->returned);

    if (more > 0 && more <= (uint8_t)(channel->sent - channel->returned)) {
        channel->returned = packet->credits;
        team->retry = true;
    }
    if (tutti_packet_pays(packet)) tutti_letters_credit(team, channel, packet);
}

void tutti_team_deliver(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    credits_take(team, peer, packet);
    if (packet->type < TUTTI_ARRAY_LEN(handlers) && handlers[packet->type])
        handlers[packet->type](team, peer, packet, payload);
    else
        tutti_report_protocol(team, peer, NULL, "a packet of an unknown type");
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

/* Where the payload may go; false: into the transport's memory. */
static bool target_find(struct tutti_port *port, const struct tutti_packet *packet, struct tutti_target *target,
                        uint64_t *token)
{
    struct tutti_team *team = tutti_team_find(port, packet->comm, packet->epoch);
    uint32_t peer = packet->source < port->transport->n && team ? team->slots[packet->source] : TUTTI_NO_SLOT;
    struct tutti_loan what;
    bool placed = false;

    if (!team || team->halted || peer == TUTTI_NO_SLOT || port->n_loans == TUTTI_LOANS) return false;
    if (packet->type == TUTTI_PACKET_DATA) placed = tutti_flights_place(team, peer, packet, target, &what);
    if (packet->type == TUTTI_PACKET_P2P_DATA) placed = tutti_letters_place(team, peer, packet, target, &what);
    if (packet->type >= TUTTI_PACKET_ONE) placed = tutti_ones_place(team, peer, packet, target, &what);
    if (!placed) return false;
    credits_take(team, peer, packet);
    return tutti_loan_take(port, &what, token);
}

void tutti_port_place(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_packet *packet)
{
    struct tutti_transport *t = port->transport;
    struct tutti_target target;
    uint64_t token;

    if (!target_find(port, packet, &target, &token)) { /* it arrives, and what is wrong with it is told then */
        t->ops->place(t, NULL, 0, 0);
        return;
    }
    engine->stats.packets_received++;
    t->ops->place(t, &target, 1, token);
}

void tutti_port_back(struct tutti_port *port, uint64_t token, enum tutti_status status)
{
    struct tutti_loan loan;

    if (!tutti_loan_end(port, token, &loan) || loan.team->halted) return;
    if (status < 0)
        tutti_fail(status, "on communicator %" PRIx64 ", rank %u: the wire lost a message with rank %u", loan.team->id,
                   loan.team->slot, loan.peer);
    if (loan.step == TUTTI_NO_STEP)
        tutti_letters_back(loan.team, &loan, status);
    else
        (loan.step >= TUTTI_LOAN_PART ? tutti_ones_back : tutti_flights_back)(loan.team, &loan, status);
}
