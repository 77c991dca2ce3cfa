/* SPDX-License-Identifier: BSD-3-Clause */

/* A team's first failure ends it. Whoever decides one tells all members through the transport and then listens before
 * applying its own, so that two ranks that decide at once end with one sentence whenever they can see one another's. */

#include "engine/core.h"

static void apply_failure(struct tutti_team *team, const struct tutti_failure *failure)
{
    struct tutti_error error = failure->error;

    error.collective = "";
    if (failure->comm == 0)
        error.peer = failure->culprit < team->port->transport->n ? (int32_t)team->slots[failure->culprit] : -1;
    tutti_team_apply(team, &error);
}

static bool concerns(const struct tutti_team *team, const struct tutti_failure *failure)
{
    if (failure->comm != 0) return team->id == failure->comm && team->epoch == failure->epoch;
    return failure->culprit < team->port->transport->n && team->slots[failure->culprit] != TUTTI_NO_SLOT;
}

bool tutti_port_failures(struct tutti_engine *engine, struct tutti_port *port)
{
    struct tutti_failure failure;
    bool any = false;

    (void)engine;
    while (port->transport->ops->failure(port->transport, &failure) == TUTTI_OK) {
        any = true;
        if (failure.error.status >= 0) continue; /* nonsense */
        for (uint32_t b = 0; b < TUTTI_TEAM_BUCKETS; b++)
            for (struct tutti_team *team = port->buckets[b]; team; team = team->hash_next)
                if (!team->failed && concerns(team, &failure)) apply_failure(team, &failure);
    }
    return any;
}

void tutti_team_break(struct tutti_team *team, enum tutti_status status, int32_t peer,
                      const struct tutti_flight *flight, uint32_t step, const char *text)
{
    struct tutti_port *port = team->port;
    struct tutti_failure failure = {.comm = team->id, .epoch = team->epoch, .culprit = UINT32_MAX};

    if (team->failed) return;
    tutti_error_set(&failure.error, status, "%s", text);
    failure.error.peer = peer;
    failure.error.step = step;
    failure.error.seq = flight ? flight->work.seq : 0;
    failure.error.collective = flight ? tutti_kind_name(flight->info.kind) : "";
    if (peer >= 0 && (uint32_t)peer < team->size) failure.culprit = team->members[peer];
    tutti_port_failures(team->engine, port); /* another member may have been faster */
    if (team->failed) return;
    tutti_log(TUTTI_LOG_WARN, "%s", failure.error.text);
    port->transport->ops->raise(port->transport, &failure);
    tutti_port_failures(team->engine, port);
    if (!team->failed) tutti_team_apply(team, &failure.error);
}

void tutti_team_fail(struct tutti_team *team, const struct tutti_error *error, bool tell)
{
    struct tutti_engine *engine = team->engine;
    struct tutti_transport *t = team->port->transport;

    tutti_owner_enter(engine);
    if (!team->failed) {
        struct tutti_failure failure = {.comm = team->id, .epoch = team->epoch, .culprit = UINT32_MAX, .error = *error};
        if (error->peer >= 0 && (uint32_t)error->peer < team->size) failure.culprit = team->members[error->peer];
        if (tell) t->ops->raise(t, &failure);
        tutti_team_apply(team, error);
    }
    tutti_owner_leave(engine);
}

enum tutti_status tutti_team_state(struct tutti_team *team, struct tutti_error *error)
{
    if (!team->failed) return TUTTI_OK;
    if (error) *error = team->error;
    return team->error.status;
}
