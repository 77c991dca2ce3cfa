/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory that the wire has borrowed: a loan for each piece of a message that is not sent, or not in place, when the
 * call returns. The loan tells whose memory it is when the wire gives it back. The step or letter is not complete
 * while it has loans, and a team that fails takes its loans back before its works end: so a work is complete only
 * when nobody touches its buffers any more. A wire that completes at once never gets a loan. */

#include "engine/team/team.h"

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
