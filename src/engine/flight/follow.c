/* SPDX-License-Identifier: BSD-3-Clause */

/* Works that the engine only follows: what goes on elsewhere, on a device, and needs nobody here to go on. They have no
 * place in the order of the calls and no deadline: whoever carries them out sees to those. Of a team they are over one
 * after another, so only the oldest is looked at, ever less often. */

#include "engine/flight/flight.h"

/* A look costs about a microsecond. */
#define LOOK_FIRST_NS UINT64_C(5000)
#define LOOK_LONGEST_NS TUTTI_NS_PER_MS
#define LOOK_SHARE 8 /* so much of its age may be lost before its end is seen */
#define STOP_NS (100 * TUTTI_NS_PER_MS)

enum tutti_status tutti_engine_follow(struct tutti_team *team, const struct tutti_followed_ops *ops, void *arg,
                                      uint64_t seq, const char *label, struct tutti_work **work)
{
    struct tutti_followed *followed = tutti_work_new(team->engine->works, TUTTI_WORK_FOLLOWED);

    if (!followed) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the work of a call");
    followed->next = NULL;
    followed->ops = ops;
    followed->arg = arg;
    followed->work.team = team;
    followed->work.seq = seq;
    followed->work.label = label;
    followed->work.timeout_ns = TUTTI_NEVER;
    enum tutti_status status = tutti_team_submit(&followed->work, false);
    if (status < 0) {
        tutti_work_drop(&followed->work);
        return status;
    }
    *work = &followed->work;
    return TUTTI_OK;
}

/* ---- owner ---- */

static void look_later(struct tutti_team *team, uint64_t now)
{
    uint64_t age = now - team->followed->work.start_ns, ns = age / LOOK_SHARE;

    team->look_ns = now + (ns < LOOK_FIRST_NS ? LOOK_FIRST_NS : ns > LOOK_LONGEST_NS ? LOOK_LONGEST_NS : ns);
}

static void followed_end(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_followed *followed = team->followed;

    team->followed = followed->next;
    if (!followed->next) team->followed_end = &team->followed;
    followed->ops->end(followed->arg);
    tutti_team_complete(&followed->work, error);
}

void tutti_follow_begin(struct tutti_team *team, struct tutti_followed *followed)
{
    *team->followed_end = followed;
    team->followed_end = &followed->next;
    if (team->followed == followed) look_later(team, tutti_owner_now(team->engine->owner));
}

bool tutti_follow_run(struct tutti_team *team)
{
    bool any = false;

    while (team->followed && !team->halted) {
        uint64_t now = tutti_owner_now(team->engine->owner);
        if (!any && now < team->look_ns) return false;
        enum tutti_status status = team->followed->ops->look(team->followed->arg);
        if (status == TUTTI_PENDING) {
            look_later(team, now);
            return any;
        }
        any = true;
        if (status < 0)
            tutti_team_break(team, status, -1, NULL, TUTTI_NO_STEP, tutti_last_error()->text);
        else
            followed_end(team, NULL);
    }
    return any;
}

/* Whoever borrowed buffers has them back when this returns, unless the device hangs. */
void tutti_follow_fail(struct tutti_team *team, const struct tutti_error *error)
{
    uint64_t deadline = tutti_owner_deadline(team->engine->owner, STOP_NS);

    if (team->followed) team->followed->ops->stop(team->followed->arg);
    while (team->followed) {
        enum tutti_status status = team->followed->ops->look(team->followed->arg);
        if (status == TUTTI_PENDING && tutti_owner_now(team->engine->owner) < deadline)
            tutti_clock_sleep(team->engine->owner->clock, LOOK_FIRST_NS);
        else
            followed_end(team, error);
    }
}
