/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_FLIGHT_CALL_H
#define TUTTI_ENGINE_FLIGHT_CALL_H

/* Inside src/engine: the lanes of a team, which carry out the calls of its schedules (call.c). Owner only. */

#include "engine/core.h"

/* A lane, and the call that it carries out. */
struct tutti_calling {
    struct tutti_lane group;
    struct tutti_slice *slice; /* whose call it is; NULL: none */
    uint32_t call;             /* in its schedule's calls */
    bool blocked;              /* it waits for the peer that it awaits */
    _Alignas(16) unsigned char room[TUTTI_RUNNER_BYTES];
};
static inline struct tutti_runner *tutti_calling_runner(struct tutti_calling *calling)
{
    return (struct tutti_runner *)(void *)calling->room;
}

/* Begins and advances calls; whether anything happened. The team may be broken afterwards. */
bool tutti_team_call(struct tutti_team *team);
bool tutti_team_is_calling(const struct tutti_team *team);
/* The peer (a slot of the team) that the lane waits for; -1: none. */
int32_t tutti_calling_awaits(const struct tutti_calling *calling);
/* The lane that carries out this step of the slice now; NULL: none. */
const struct tutti_calling *tutti_calling_find(const struct tutti_team *team, const struct tutti_slice *slice,
                                               uint32_t step);
/* The team has failed, and its slices still are. */
void tutti_team_cancel_calls(struct tutti_team *team);

#endif
