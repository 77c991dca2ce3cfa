/* SPDX-License-Identifier: BSD-3-Clause */

/* What this rank exposes, and takes back. Once there was something, somebody owns the engine until the team ends, to
 * carry out what peers send or to refuse it. */

#include "engine/onesided/access.h"

#define REMOVE_NS (2 * TUTTI_NS_PER_S) /* that peers have to take what is on its way out of a part */
#define LOOK_NS (10 * TUTTI_NS_PER_MS)

enum tutti_status tutti_exposed_add(struct tutti_team *team, uint32_t window, const struct tutti_exposed *exposed)
{
    struct tutti_owner *owner = team->engine->owner;
    struct tutti_part *part = tutti_alloc(sizeof(*part));

    if (!part) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a window");
    part->exposed = *exposed;
    part->window = window;
    enum tutti_status status = tutti_ones_need(team);
    if (status == TUTTI_OK) status = tutti_helper_start(owner);
    if (status < 0) {
        tutti_free(part);
        return status;
    }
    tutti_owner_enter(owner);
    struct tutti_ones *ones = team->ones;
    part->next = ones->parts[window % TUTTI_PART_BUCKETS];
    ones->parts[window % TUTTI_PART_BUCKETS] = part;
    if (!ones->serves) {
        ones->serves = true;
        tutti_team_begin_work(team);
        atomic_fetch_add(&owner->n_serving, 1);
    }
    tutti_owner_leave(owner);
    return TUTTI_OK;
}

struct leaving {
    struct tutti_team *team;
    const struct tutti_part *part;
};

static bool is_free(const void *arg)
{
    const struct leaving *leaving = arg;
    if (leaving->part->n_moving > 0) return false;
    return leaving->part->n_lent == 0 || atomic_load(&leaving->team->failed);
}

/* Until nobody touches the part, or until_ns; moves come back in any case. The owner's. */
static void await_free(struct tutti_team *team, const struct tutti_part *part)
{
    struct tutti_owner *owner = team->engine->owner;
    const uint64_t until_ns = tutti_owner_deadline(owner, REMOVE_NS);
    const struct leaving leaving = {team, part};

    for (;;) {
        tutti_moves_take(team); /* a pass does not, of a team that has failed */
        if (is_free(&leaving) || (part->n_moving == 0 && tutti_owner_now(owner) >= until_ns)) return;
        tutti_owner_own(owner, is_free, &leaving, tutti_owner_deadline(owner, LOOK_NS));
        tutti_owner_leave(owner); /* somebody else may want to own */
        tutti_owner_enter(owner);
    }
}

static void take_back(struct tutti_team *team, const struct tutti_part *part)
{
    struct tutti_port *port = team->port;
    struct tutti_loan loan;

    for (uint32_t i = 0; part->n_lent > 0 && i < TUTTI_LOANS; i++) {
        if (port->loans[i].team != team || port->loans[i].of != part) continue;
        const uint64_t token = tutti_loan_token(port, &port->loans[i]);
        port->transport->ops->cancel(port->transport, token);
        if (tutti_loan_end(port, token, &loan)) tutti_part_back(team, &loan, TUTTI_ERR_ABORTED);
    }
}

void tutti_exposed_remove(struct tutti_team *team, uint32_t window)
{
    struct tutti_owner *owner = team->engine->owner;

    tutti_owner_enter(owner);
    struct tutti_part **at = &team->ones->parts[window % TUTTI_PART_BUCKETS], *part;
    while (*at && (*at)->window != window) at = &(*at)->next;
    part = *at;
    if (part) *at = part->next;
    if (part) await_free(team, part);
    if (part && !team->failed) take_back(team, part);
    tutti_owner_leave(owner);
    tutti_free(part);
}

void tutti_ones_destroy(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;

    if (!ones) return;
    tutti_loans_cancel(team);
    if (ones->serves) {
        team->n_work--;
        atomic_fetch_sub(&team->engine->owner->n_serving, 1);
    }
    tutti_ones_free(ones);
    team->ones = NULL;
}
