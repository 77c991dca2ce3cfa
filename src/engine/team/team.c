/* SPDX-License-Identifier: BSD-3-Clause */

/* Works of a team, and what anybody asks of it. */

#include "engine/team/team.h"

/* ---- works ---- */

enum tutti_status tutti_team_submit(struct tutti_work *work, bool helper)
{
    struct tutti_team *team = work->team;

    if (team->failed) return tutti_fail_record(&team->error);
    atomic_fetch_add(&team->n_open, 1);
    enum tutti_status status = tutti_work_submit(work, tutti_work_flies(work->type) ? &team->seq : NULL, helper);
    if (status < 0) atomic_fetch_sub(&team->n_open, 1);
    return status;
}

void tutti_team_begin_work(struct tutti_team *team)
{
    struct tutti_engine *engine = team->engine;

    team->n_work++;
    if (team->busy) return;
    tutti_engine_watch_by(engine, tutti_owner_now(engine->owner) + engine->tick_ns);
    team->busy = true;
    team->port->n_busy++;
    team->next = engine->busy;
    team->previous = NULL;
    if (engine->busy) engine->busy->previous = team;
    engine->busy = team;
}

void tutti_team_complete(struct tutti_work *work, const struct tutti_error *error)
{
    struct tutti_team *team = work->team;

    team->n_work--;
    team->engine->stats.calls_completed++;
    tutti_work_complete(work, error);
    atomic_fetch_sub(&team->n_open, 1);
}

void tutti_team_rest(struct tutti_team *team)
{
    if (!team->busy) return;
    team->busy = false;
    team->port->n_busy--;
    if (team->next) team->next->previous = team->previous;
    *(team->previous ? &team->previous->next : &team->engine->busy) = team->next;
}

enum tutti_status tutti_work_past(struct tutti_team *team, uint64_t seq, uint64_t start_ns, struct tutti_work **out)
{
    return tutti_works_past(team->engine->works, team, seq, start_ns, out);
}

/* ---- where it is found ---- */

struct tutti_team **tutti_team_bucket(struct tutti_port *port, uint64_t id, uint32_t epoch)
{
    return &port->buckets[tutti_mix64(id ^ epoch) % TUTTI_TEAM_BUCKETS];
}

struct tutti_team *tutti_team_find(struct tutti_port *port, uint64_t id, uint32_t epoch)
{
    struct tutti_team *team = *tutti_team_bucket(port, id, epoch);

    while (team && (team->id != id || team->epoch != epoch)) team = team->hash_next;
    return team;
}

void tutti_team_list(struct tutti_team *team, uint32_t slot)
{
    struct tutti_channel *channel = &team->channels[slot];

    if (channel->listed) return;
    channel->listed = true;
    channel->next_listed = team->listed;
    team->listed = slot + 1;
}

/* ---- any thread ---- */

static bool team_idle(const void *arg)
{
    return atomic_load(&((const struct tutti_team *)arg)->n_open) == 0;
}

bool tutti_team_wait(struct tutti_team *team, uint64_t until_ns)
{
    tutti_owner_wait(team->engine->owner, team_idle, team, NULL, until_ns);
    return team_idle(team);
}

uint64_t tutti_team_next(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->seq, memory_order_relaxed) + 1;
}

void tutti_team_count(struct tutti_team *team)
{
    const uint64_t next = tutti_team_next(team);
    atomic_store_explicit(&team->seq, next, memory_order_relaxed);
    atomic_store_explicit(team->shown, team->shown_tag | next, memory_order_relaxed);
}

bool tutti_team_quiet(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->n_open, memory_order_acquire) == 0 &&
           !tutti_control_alarmed(team->port->control);
}

bool tutti_team_well(const struct tutti_team *team)
{
    return !atomic_load_explicit(&team->failed, memory_order_acquire) && !tutti_control_alarmed(team->port->control);
}

bool tutti_team_failed(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->failed, memory_order_acquire);
}

size_t tutti_team_slice_bytes(const struct tutti_team *team)
{
    return team->slice_bytes;
}

uint64_t tutti_team_timeout(const struct tutti_team *team)
{
    return team->timeout_ns;
}

void tutti_team_set_overlay(struct tutti_team *team, tutti_overlay overlay, void *arg)
{
    tutti_owner_enter(team->engine->owner);
    team->overlay = overlay, team->overlay_arg = arg;
    tutti_owner_leave(team->engine->owner);
}
