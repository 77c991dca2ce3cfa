/* SPDX-License-Identifier: BSD-3-Clause */

/* A team's first failure ends it. Whoever decides one raises it and then takes what control gives back: of
 * several ranks that decide at once one is heard by all, so all end with one sentence. */

#include "engine/core.h"
#include "engine/work/follow.h"

#include <string.h>

static void apply_failure(struct tutti_team *team, const struct tutti_failure *failure)
{
    struct tutti_error error = failure->error;

    error.collective = tutti_flight_name(team, error.seq);
    if (failure->comm == 0)
        error.peer = failure->culprit < team->port->transport->n ? (int32_t)team->slots[failure->culprit] : -1;
    tutti_team_apply(team, &error);
}

static bool concerns(const struct tutti_team *team, const struct tutti_failure *failure)
{
    if (failure->comm != 0) return team->id == failure->comm && team->epoch == failure->epoch;
    return failure->culprit < team->port->transport->n && team->slots[failure->culprit] != TUTTI_NO_SLOT;
}

/* All are stopped before any is looked at: the driver may keep who asks of one waiting for another. */
static void each_concerned(struct tutti_port *port, const struct tutti_failure *failure, bool applies)
{
    for (uint32_t b = 0; b < TUTTI_TEAM_BUCKETS; b++)
        for (struct tutti_team *team = port->buckets[b]; team; team = team->hash_next) {
            if (team->failed || !concerns(team, failure)) continue;
            if (applies)
                apply_failure(team, failure);
            else
                tutti_follow_stop(team);
        }
}

bool tutti_port_failures(struct tutti_port *port)
{
    struct tutti_failure failure;
    bool any = false;

    while (port->control->ops->failure(port->control, &failure) == TUTTI_OK) {
        any = true;
        if (port->transport->ops->failed) port->transport->ops->failed(port->transport, failure.error.text);
        if (failure.error.status >= 0) continue; /* nonsense */
        each_concerned(port, &failure, false);
        each_concerned(port, &failure, true);
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

    if (team->failed) return;
    tutti_error_set(&error, status, "%s", text);
    error.peer = peer;
    error.step = step;
    error.seq = flight ? flight->work.seq : 0;
    error.collective = flight ? tutti_kind_name(flight->info.kind) : "";
    raise_failure(team, &error);
    if (!team->failed) tutti_team_apply(team, &error);
    if (strcmp(team->error.text, error.text) == 0) tutti_log(TUTTI_LOG_WARN, "%s", error.text);
}

void tutti_team_fail(struct tutti_team *team, const struct tutti_error *error, bool tell)
{
    tutti_owner_enter(team->engine);
    if (tell && !team->failed) raise_failure(team, error);
    if (!team->failed) tutti_team_apply(team, error);
    tutti_owner_leave(team->engine);
}

enum tutti_status tutti_team_state(struct tutti_team *team, struct tutti_error *error)
{
    /* A rank that waits for nothing has not listened for a while. */
    if (!team->failed && tutti_owner_try(team->engine)) {
        tutti_port_failures(team->port);
        tutti_owner_leave(team->engine);
    }
    if (!team->failed) return TUTTI_OK;
    if (error) *error = team->error;
    return team->error.status;
}
