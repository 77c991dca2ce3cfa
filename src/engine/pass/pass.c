/* SPDX-License-Identifier: BSD-3-Clause */

/* One pass over all there is to do: what was submitted, what arrived, what the calls of each team can do now, what time
 * does; at the end, the works of teams that have failed. */

#include "engine/pass/pass.h"
#include "engine/flight/flight.h"
#include "engine/onesided/access.h"
#include "engine/p2p/p2p.h"

#define POLLS_A_PASS 64

/* ---- works begin, and end with a failure ---- */

static void absorb_one(struct tutti_team *team, struct tutti_work *work)
{
    tutti_team_begin_work(team);
    if (work->type == TUTTI_WORK_FOLLOWED) {
        tutti_follow_begin(team, (struct tutti_followed *)work);
        if (team->failed) tutti_follow_fail(team, &team->error);
    } else if (tutti_work_flies(work->type)) {
        if (team->failed)
            tutti_flight_end(team, (struct tutti_flight *)work, &team->error);
        else
            tutti_flight_begin(team, (struct tutti_flight *)work);
    } else if (work->type == TUTTI_WORK_WAIT) {
        tutti_waits_begin(team, (struct tutti_word_wait *)work);
        if (team->failed) tutti_waits_fail(team, &team->error);
    } else if (work->type == TUTTI_WORK_ACCESS) {
        tutti_access_begin(team, (struct tutti_one_access *)work);
    } else if (team->failed) {
        tutti_team_complete(work, &team->error);
    } else {
        tutti_letter_begin(team, (struct tutti_letter *)work);
    }
}

static bool absorb(struct tutti_engine *engine)
{
    struct tutti_work *work = tutti_works_take(engine->works);
    bool any = work != NULL;

    while (work) {
        struct tutti_work *next = work->next;
        work->next = NULL;
        engine->stats.calls_started++;
        absorb_one(work->team, work);
        work = next;
    }
    return any;
}

/* Teams that have failed and have works are busy. */
static void failures_end(struct tutti_engine *engine)
{
    while (engine->failing) {
        engine->failing = false;
        for (struct tutti_team *team = engine->busy; team; team = team->next) {
            if (!team->failed) continue;
            tutti_flights_fail(team, &team->error);
            tutti_letters_fail(team, &team->error);
            tutti_ones_fail(team, &team->error);
            tutti_follow_fail(team, &team->error);
            tutti_waits_fail(team, &team->error);
        }
    }
}

/* ---- arrivals ---- */

/* A peer wrote nonsense: every team of the port ends. */
static void port_broken(struct tutti_port *port)
{
    struct tutti_error error = *tutti_last_error();

    for (uint32_t b = 0; b < TUTTI_TEAM_BUCKETS; b++)
        for (struct tutti_team *team = port->buckets[b]; team; team = team->hash_next)
            if (!team->halted) tutti_team_break(team, error.status, -1, NULL, TUTTI_NO_STEP, error.text);
}

static bool port_poll(struct tutti_engine *engine, struct tutti_port *port)
{
    struct tutti_transport *t = port->transport;
    struct tutti_event event;
    bool any = tutti_port_failures(port);

    for (uint32_t i = 0; i < POLLS_A_PASS; i++) {
        enum tutti_status status = t->ops->poll(t, &event);
        if (status == TUTTI_AGAIN) {
            port->drained = engine->pass;
            break;
        }
        any = true;
        if (status < 0) {
            port_broken(port);
            break;
        }
        switch (event.type) {
        case TUTTI_EVENT_ARRIVAL:
            tutti_port_deliver(engine, port, &event);
            t->ops->release(t);
            break;
        case TUTTI_EVENT_HEADER:
            tutti_port_place(engine, port, &event.packet);
            break;
        case TUTTI_EVENT_DONE:
            tutti_port_back(port, event.token, event.status);
            break;
        }
    }
    return any;
}

/* ---- teams ---- */

/* Sends the credits that are due: two, or one when messages held here keep so many others that the sender may need it.
 * A packet of credits may have to wake its receiver, so none is sent in vain. */
static void flush(struct tutti_team *team)
{
    uint32_t *at = &team->listed;

    team->owing = false;
    while (*at) {
        uint32_t peer = *at - 1;
        struct tutti_channel *channel = &team->channels[peer];
        uint8_t owed = (uint8_t)(channel->consumed - channel->told);
        bool letters = tutti_letters_owe(team, channel);
        if (owed >= 2 || (owed > 0 && owed + channel->n_held >= TUTTI_CREDITS - 1) || letters) {
            struct tutti_packet packet = {.type = TUTTI_PACKET_CREDIT};
            enum tutti_status status = tutti_team_send(team, peer, &packet, NULL, 0);
            if (status == TUTTI_AGAIN) {
                team->owing = true;
            } else { /* a peer that is gone needs none */
                channel->told = channel->consumed;
                channel->p2p_paid_told = channel->p2p_paid_freed, channel->p2p_told = channel->p2p_freed;
            }
        }
        if (channel->consumed == channel->told && channel->n_held == 0 && channel->n_grants == 0 &&
            channel->p2p_told == channel->p2p_freed) {
            *at = channel->next_listed;
            channel->listed = false;
        } else {
            at = &channel->next_listed;
        }
    }
}

static bool team_run(struct tutti_team *team)
{
    bool moved = false, retry;

    do {
        retry = team->retry || team->again;
        team->retry = team->again = false;
        moved |= tutti_flights_run(team, retry);
        if (team->halted) return true;
        moved |= tutti_letters_run(team, retry);
        if (team->halted) return true;
        moved |= tutti_ones_run(team, retry);
        if (team->followed) moved |= tutti_follow_run(team);
        if (team->waits) moved |= tutti_waits_run(team);
    } while (team->retry && !team->halted);
    if (team->owing && !team->halted) flush(team);
    return moved;
}

/* What a wire took, and could not write yet, must get there even when no call is in flight: somebody owns until then.
 */
static void count_owing(struct tutti_engine *engine)
{
    bool owes = false;

    for (struct tutti_port *port = engine->ports; port; port = port->next)
        owes |= port->transport->ops->owes && port->transport->ops->owes(port->transport);
    if (owes == engine->owes) return;
    engine->owes = owes;
    atomic_fetch_add(&engine->owner->n_inflight, owes ? 1 : UINT32_MAX);
    if (owes) tutti_helper_start(engine->owner);
}

static bool pass(void *arg)
{
    struct tutti_engine *engine = arg;
    bool any = absorb(engine);

    engine->pass++;
    for (struct tutti_port *port = engine->ports; port; port = port->next) any |= port_poll(engine, port);
    for (struct tutti_team *team = engine->busy, *next; team; team = next) {
        next = team->next;
        if (!team->halted) any |= team_run(team);
        if (team->n_work == 0) tutti_team_rest(team);
    }
    count_owing(engine);
    if (engine->busy) {
        uint64_t now = tutti_owner_now(engine->owner);
        if (now >= engine->next_watch_ns) tutti_engine_watch(engine, now);
    }
    if (engine->failing) {
        failures_end(engine);
        any = true;
    }
    return any;
}

/* ---- between passes ---- */

static bool look(void *arg, bool *worth)
{
    struct tutti_engine *engine = arg;

    for (struct tutti_team *team = engine->busy; team; team = team->next) {
        if (team->halted) continue;
        if (team->n_runners > 0 || team->waits) *worth = true;
        if (team->waits && tutti_waits_run(team)) return true;
        if (team->n_runners > 0 && tutti_team_run_runners(team)) return true;
        if (team->halted || !tutti_team_is_calling(team)) continue;
        *worth = true;
        if (tutti_team_call(team)) return true;
    }
    return false;
}

static bool is_calling(void *arg)
{
    const struct tutti_engine *engine = arg;

    for (const struct tutti_team *team = engine->busy; team; team = team->next)
        if (tutti_team_is_calling(team)) return true;
    return false;
}

/* ---- sleeping ---- */

/* Too many to be armed: what is left is looked at in short turns. */
static bool is_full(struct tutti_bed *bed, uint32_t n)
{
    if (n < TUTTI_BED_ARMED) return false;
    bed->sources.crowded = true;
    return true;
}

/* Whether there is nothing to do: also of the next ones. */
static bool ports_begin(const struct tutti_engine *engine, struct tutti_bed *bed)
{
    bool quiet = true;

    for (struct tutti_port *port = engine->ports; port; port = port->next) {
        struct tutti_transport *t = port->transport;
        if (port->n_busy == 0 && engine->ports->next) continue;
        if (is_full(bed, bed->n_transports)) return quiet;
        quiet &= t->ops->sleep_begin(t, &bed->sources) && !tutti_control_alarmed(port->control);
        bed->transports[bed->n_transports++] = t;
    }
    return quiet;
}

static bool runner_begin(struct tutti_runner *runner, struct tutti_bed *bed)
{
    if (is_full(bed, bed->n_runners)) return true;
    _Atomic uint32_t *word;
    uint32_t expected;
    bool quiet = runner->ops->sleep_begin(runner, &word, &expected);
    bed->runners[bed->n_runners++] = runner;
    if (quiet) tutti_sources_add_word(&bed->sources, word, expected);
    return quiet;
}

static bool runners_begin(const struct tutti_engine *engine, struct tutti_bed *bed)
{
    for (const struct tutti_team *team = engine->busy; team; team = team->next) {
        if (team->followed) tutti_sources_until(&bed->sources, team->look_ns);
        if (tutti_flights_may_begin(team)) return false;
        if (team->n_runners > 0 && !runner_begin(team->order[tutti_runner_oldest(team)]->flight->runner, bed))
            return false;
        for (uint32_t l = 0; l < team->n_lanes; l++)
            if (team->lanes[l].slice && !runner_begin(tutti_calling_runner(&team->lanes[l]), bed)) return false;
    }
    return true;
}

/* Who changes a word rings its bell, once it has seen that somebody listens; what it did not see is seen here. */
static bool waits_begin(const struct tutti_engine *engine, struct tutti_bed *bed)
{
    bool fence = false;

    for (const struct tutti_team *team = engine->busy; team; team = team->next)
        for (const struct tutti_word_wait *wait = team->waits; wait; wait = wait->next)
            if (!tutti_wait_listens(wait, bed) && !is_full(bed, bed->n_bells)) fence |= tutti_wait_listen(wait, bed);
    if (fence) tutti_fence_all();
    for (const struct tutti_team *team = engine->busy; team; team = team->next)
        if (tutti_waits_any(team) || tutti_moves_any(team->ones)) return false;
    return true;
}

static bool sleep_begin(void *arg, struct tutti_bed *bed)
{
    struct tutti_engine *engine = arg;

    tutti_sources_until(&bed->sources, tutti_owner_deadline(engine->owner, engine->tick_ns));
    tutti_sources_until(&bed->sources, engine->next_watch_ns);
    return ports_begin(engine, bed) && runners_begin(engine, bed) && waits_begin(engine, bed) &&
           !atomic_load(&engine->works->has_submitted) && !engine->failing;
}

static void sleep_end(void *arg, struct tutti_bed *bed)
{
    (void)arg;
    for (uint32_t i = 0; i < bed->n_bells; i++) tutti_bell_leave(bed->bells[i]);
    for (uint32_t i = 0; i < bed->n_runners; i++) bed->runners[i]->ops->sleep_end(bed->runners[i]);
    for (uint32_t i = 0; i < bed->n_transports; i++) bed->transports[i]->ops->sleep_end(bed->transports[i]);
}

static void kick(void *arg)
{
    const struct tutti_engine *engine = arg;

    for (struct tutti_port *port = engine->ports; port; port = port->next) port->transport->ops->wake(port->transport);
}

const struct tutti_owner_ops tutti_pass_ops = {
    .pass = pass,
    .look = look,
    .is_calling = is_calling,
    .sleep_begin = sleep_begin,
    .sleep_end = sleep_end,
    .kick = kick,
};
