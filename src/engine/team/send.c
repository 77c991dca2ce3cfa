/* SPDX-License-Identifier: BSD-3-Clause */
/* What leaves for a peer: packets, and offers of memory. Whether the bytes of a granted message can be read by the
 * receiver in place is a local fact (design 2.3): the sender offers, the header says so, and the receiver reads and
 * answers READ. Until then the step is not complete, so nothing writes the bytes and the buffer is not given back. */
#include "engine/team/state.h"
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
        channel->credited = channel->consumed;
        if (pays) channel->p2p_paid_credited = channel->p2p_paid_freed, channel->p2p_credited = channel->p2p_freed;
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

/* ---- Memory that the wire has borrowed: a loan for each piece of a message that is not sent, or not in place, when
 * the call returns. The loan tells whose memory it is when the wire gives it back. The step or message is not complete
 * while it has loans, and a team that fails takes its loans back before its works end: so a work is complete only when
 * nobody touches its buffers any more. A wire that completes at once never gets a loan. ---- */

uint64_t tutti_loan_token(const struct tutti_port *port, const struct tutti_loan *loan)
{
    return (uint64_t)loan->generation << 32 | (uint64_t)(loan - port->loans);
}

static void give_back(struct tutti_port *port, struct tutti_loan *loan)
{
    loan->team = NULL;
    loan->generation++;
    port->n_loans--;
}

bool tutti_loan_take(struct tutti_port *port, const struct tutti_loan *what, uint64_t *token)
{
    if (port->n_loans == TUTTI_LOANS) return false;
    while (port->loans[port->next_loan].team) port->next_loan = (port->next_loan + 1) % TUTTI_LOANS;
    struct tutti_loan *loan = &port->loans[port->next_loan];
    uint32_t generation = loan->generation;
    *loan = *what;
    loan->generation = generation;
    port->n_loans++;
    *token = tutti_loan_token(port, loan);
    return true;
}

bool tutti_loan_end(struct tutti_port *port, uint64_t token, struct tutti_loan *out)
{
    uint32_t index = (uint32_t)token;

    if (index >= TUTTI_LOANS) return false;
    struct tutti_loan *loan = &port->loans[index];
    if (!loan->team || tutti_loan_token(port, loan) != token) return false;
    *out = *loan;
    give_back(port, loan);
    return true;
}

bool tutti_loan_find(const struct tutti_port *port, const void *of, uint32_t step)
{
    for (uint32_t i = 0; i < TUTTI_LOANS; i++) {
        const struct tutti_loan *loan = &port->loans[i];
        if (loan->team && loan->of == of && loan->step == step) return true;
    }
    return false;
}

void tutti_loans_cancel(struct tutti_team *team)
{
    struct tutti_port *port = team->port;

    for (uint32_t i = 0; port->n_loans > 0 && i < TUTTI_LOANS; i++) {
        struct tutti_loan *loan = &port->loans[i];
        if (loan->team != team) continue;
        port->transport->ops->cancel(port->transport, tutti_loan_token(port, loan));
        give_back(port, loan);
    }
}

/* ---- Which bytes of a message are here. Transports keep order and duplicate nothing, so one number says it. A
 * transport that does not (the fault decorator, on purpose) leaves gaps: each takes an interval, and there are a few at
 * most. ---- */

/* Takes the intervals that now touch the front. */
static void absorb(struct tutti_inflow *f)
{
    for (uint32_t i = 0; i < f->n_ahead;) {
        if (f->ahead[i].first > f->received) {
            i++;
            continue;
        }
        if (f->ahead[i].end > f->received) f->received = f->ahead[i].end;
        f->ahead[i] = f->ahead[--f->n_ahead];
        i = 0;
    }
}

bool tutti_inflow_add(struct tutti_inflow *f, uint64_t total, uint64_t offset, uint64_t bytes, bool *broken)
{
    uint64_t end = offset + bytes;

    *broken = bytes == 0 || end < offset || end > total;
    if (*broken || end <= f->received) return false;
    if (offset == f->received) {
        f->received = end;
        absorb(f);
        return true;
    }
    for (uint32_t i = 0; i < f->n_ahead; i++)
        if (offset >= f->ahead[i].first && end <= f->ahead[i].end) return false;
    for (uint32_t i = 0; i < f->n_ahead; i++) {
        if (offset == f->ahead[i].end) {
            f->ahead[i].end = end;
            return true;
        }
    }
    *broken = offset < f->received || f->n_ahead == TUTTI_INFLOW_GAPS;
    if (*broken) return false;
    f->ahead[f->n_ahead].first = offset;
    f->ahead[f->n_ahead++].end = end;
    return true;
}
