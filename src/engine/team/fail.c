/* SPDX-License-Identifier: BSD-3-Clause */

/* A team's first failure ends it. The rank that finds a failure raises it to control, then takes what control gives
 * back. Several ranks may raise at once: control lets one of them count, so all ranks end with the same sentence. Here
 * the team is only marked; the pass ends its works. */

#include "engine/team/team.h"

#include <string.h>

#define VERDICT_NS (300 * TUTTI_NS_PER_MS) /* so long control may take to say whose failure counts */

/* Stops at once what the team only follows on a device. The pass looks at a team only after all failing teams were
 * stopped: its question about one team may wait in the driver for another team's work. */
void tutti_team_apply(struct tutti_team *team, const struct tutti_error *error)
{
    if (team->failed) return;
    team->error = *error;
    team->halted = true;
    atomic_store(&team->failed, true);
    team->engine->failing = true;
    tutti_loans_cancel(team);
    if (team->followed) team->followed->ops->stop(team->followed->arg);
}

static bool concerns(const struct tutti_team *team, const struct tutti_failure *failure)
{
    if (failure->comm != 0) return team->id == failure->comm && team->epoch == failure->epoch;
    return failure->culprit < team->port->transport->n && team->slots[failure->culprit] != TUTTI_NO_SLOT;
}

static void apply_failure(struct tutti_team *team, const struct tutti_failure *failure)
{
    struct tutti_error error = failure->error;

    if (!concerns(team, failure)) return;
    error.collective = tutti_flight_name(team, error.seq);
    if (failure->comm == 0) error.peer = (int32_t)team->slots[failure->culprit];
    tutti_team_apply(team, &error);
}

bool tutti_port_failures(struct tutti_port *port)
{
    struct tutti_failure failure;
    bool any = false;

    while (port->control->ops->failure(port->control, &failure) == TUTTI_OK) {
        any = true;
        if (port->transport->ops->failed) port->transport->ops->failed(port->transport, failure.error.text);
        if (failure.error.status >= 0) continue; /* nonsense */
        for (uint32_t b = 0; b < TUTTI_TEAM_BUCKETS; b++)
            for (struct tutti_team *team = port->buckets[b]; team; team = team->hash_next)
                apply_failure(team, &failure);
    }
    return any;
}

/* Tells all, then listens. */
static void raise_failure(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_port *port = team->port;
    struct tutti_failure failure = {.comm = team->id, .epoch = team->epoch, .culprit = UINT32_MAX, .error = *error};

    tutti_port_failures(port); /* another member may have been faster */
    if (team->failed) return;
    if (error->peer >= 0 && (uint32_t)error->peer < team->size) failure.culprit = team->members[error->peer];
    port->control->ops->raise(port->control, &failure);
    tutti_port_failures(port);
}

void tutti_team_break(struct tutti_team *team, enum tutti_status status, int32_t peer,
                      const struct tutti_flight *flight, uint32_t step, const char *text)
{
    struct tutti_error error;

    if (team->halted) return;
    tutti_error_set(&error, status, "%s", text);
    error.peer = peer;
    error.step = step;
    error.seq = flight ? flight->work.seq : 0;
    error.collective = flight ? tutti_kind_name(flight->info.kind) : "";
    raise_failure(team, &error);
    if (team->failed || team->port->control->answers_at_once || team->n_work == 0) {
        tutti_team_apply(team, &error);
    } else { /* of several that were raised at once one comes back to all; if none does, this one stands */
        team->error = error;
        team->halted = true;
        team->verdict_ns = tutti_owner_now(team->engine->owner) + VERDICT_NS;
        tutti_engine_watch_by(team->engine, team->verdict_ns);
    }
    if (strcmp(team->error.text, error.text) == 0) tutti_log(TUTTI_LOG_WARN, "%s", error.text);
}

void tutti_team_fail(struct tutti_team *team, const struct tutti_error *error, bool tell)
{
    struct tutti_owner *owner = team->engine->owner;

    tutti_owner_enter(owner);
    if (tell && !team->failed) raise_failure(team, error);
    tutti_team_apply(team, error);
    if (team->engine->failing) tutti_owner_pass(owner);
    tutti_owner_leave(owner);
}

enum tutti_status tutti_team_state(struct tutti_team *team, struct tutti_error *error)
{
    struct tutti_owner *owner = team->engine->owner;

    /* A rank that waits for nothing has not listened for a while. */
    if (!team->failed && tutti_owner_try(owner)) {
        tutti_port_failures(team->port);
        if (team->engine->failing) tutti_owner_pass(owner);
        tutti_owner_leave(owner);
    }
    if (!team->failed) return TUTTI_OK;
    if (error) *error = team->error;
    return team->error.status;
}
