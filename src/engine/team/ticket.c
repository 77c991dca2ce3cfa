/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory that the wire has borrowed: a ticket for each piece of a message that is not sent, or not in place, when the
 * call returns. The ticket tells whose memory it is when the wire gives it back. The step or letter is not complete
 * while it has tickets, and a team that fails takes its tickets back before its works end: so a work is complete only
 * when nobody touches its buffers any more. A wire that completes at once never gets a ticket. */

#include "engine/team/team.h"

static uint64_t token_of(const struct tutti_port *port, const struct tutti_ticket *ticket)
{
    return (uint64_t)ticket->generation << 32 | (uint64_t)(ticket - port->tickets);
}

static void give_back(struct tutti_port *port, struct tutti_ticket *ticket)
{
    ticket->team = NULL;
    ticket->generation++;
    port->n_tickets--;
}

bool tutti_ticket_take(struct tutti_port *port, const struct tutti_ticket *what, uint64_t *token)
{
    if (port->n_tickets == TUTTI_TICKETS) return false;
    while (port->tickets[port->next_ticket].team) port->next_ticket = (port->next_ticket + 1) % TUTTI_TICKETS;
    struct tutti_ticket *ticket = &port->tickets[port->next_ticket];
    uint32_t generation = ticket->generation;
    *ticket = *what;
    ticket->generation = generation;
    port->n_tickets++;
    *token = token_of(port, ticket);
    return true;
}

bool tutti_ticket_end(struct tutti_port *port, uint64_t token, struct tutti_ticket *out)
{
    uint32_t index = (uint32_t)token;

    if (index >= TUTTI_TICKETS) return false;
    struct tutti_ticket *ticket = &port->tickets[index];
    if (!ticket->team || token_of(port, ticket) != token) return false;
    *out = *ticket;
    give_back(port, ticket);
    return true;
}

bool tutti_ticket_find(const struct tutti_port *port, const void *of, uint32_t step)
{
    for (uint32_t i = 0; i < TUTTI_TICKETS; i++) {
        const struct tutti_ticket *ticket = &port->tickets[i];
        if (ticket->team && ticket->of == of && ticket->step == step) return true;
    }
    return false;
}

void tutti_tickets_cancel(struct tutti_team *team)
{
    struct tutti_port *port = team->port;

    for (uint32_t i = 0; port->n_tickets > 0 && i < TUTTI_TICKETS; i++) {
        struct tutti_ticket *ticket = &port->tickets[i];
        if (ticket->team != team) continue;
        port->transport->ops->cancel(port->transport, token_of(port, ticket));
        give_back(port, ticket);
    }
}
