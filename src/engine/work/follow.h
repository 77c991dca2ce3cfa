/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_WORK_FOLLOW_H
#define TUTTI_ENGINE_WORK_FOLLOW_H

/* Works that the engine only follows (follow.c): what its other files need to know. All is the owner's. */

#include "engine/core.h"

struct tutti_followed {
    struct tutti_work work; /* first */
    struct tutti_followed *next;
    const struct tutti_followed_ops *ops;
    void *arg;
};
void tutti_follow_begin(struct tutti_team *team, struct tutti_followed *followed);
bool tutti_follow_run(struct tutti_team *team); /* whether anything happened */
/* Stops what is followed; the team need not have failed yet. */
void tutti_follow_stop(struct tutti_team *team);
void tutti_follow_fail(struct tutti_team *team, const struct tutti_error *error);

#endif
