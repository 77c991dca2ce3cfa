/* SPDX-License-Identifier: BSD-3-Clause */
/* One pass over all there is to do: what was submitted, what arrived, what the calls of each team can do now, what time
 * does; at the end, the works of teams that have failed. */
#include "engine/pass/pass.h"
#include "engine/flight/flight.h"
#include "engine/flight/onesided_access.h"
#include "engine/flight/p2p.h"
#include "engine/team/report.h"

#include <string.h>

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
        tutti_p2p_message_begin(team, (struct tutti_p2p_message *)work);
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
            tutti_p2p_messages_fail(team, &team->error);
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

enum tutti_status tutti_port_event(struct tutti_engine *engine, struct tutti_port *port)
{
    struct tutti_transport *t = port->transport;
    struct tutti_event event;
    enum tutti_status status = t->ops->poll(t, &event);

    if (status < 0) port_broken(port);
    if (status != TUTTI_OK) return status;
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
    return TUTTI_OK;
}

static bool port_poll(struct tutti_engine *engine, struct tutti_port *port)
{
    bool any = tutti_port_failures(port);

    for (uint32_t i = 0; i < POLLS_A_PASS; i++) {
        enum tutti_status status = tutti_port_event(engine, port);
        if (status == TUTTI_AGAIN) {
            port->drained = engine->pass;
            break;
        }
        any = true;
        if (status < 0) break;
    }
    return any;
}

/* ---- teams ---- */

/* Sends the credits that are due: once those and what messages held here keep are half of all, for with less the sender
 * has enough for any message. A packet of credits may have to wake its receiver, so none is sent in vain. */
void tutti_team_flush(struct tutti_team *team)
{
    uint32_t *at = &team->listed;

    team->owing = false;
    while (*at) {
        uint32_t peer = *at - 1;
        struct tutti_channel *channel = &team->channels[peer];
        uint8_t owed = (uint8_t)(channel->consumed - channel->credited);
        bool msgs = tutti_p2p_messages_owe(team, channel);
        if ((owed > 0 && owed + channel->n_held >= TUTTI_CREDITS / 2) || msgs) {
            struct tutti_packet packet = {.type = TUTTI_PACKET_CREDIT};
            enum tutti_status status = tutti_team_send(team, peer, &packet, NULL, 0);
            if (status == TUTTI_AGAIN) {
                team->owing = true;
            } else { /* a peer that is gone needs none */
                channel->credited = channel->consumed;
                channel->p2p_paid_credited = channel->p2p_paid_freed, channel->p2p_credited = channel->p2p_freed;
            }
        }
        if (channel->consumed == channel->credited && channel->n_held == 0 && channel->n_grants == 0 &&
            channel->p2p_credited == channel->p2p_freed) {
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
        moved |= tutti_p2p_messages_run(team, retry);
        if (team->halted) return true;
        moved |= tutti_ones_run(team, retry);
        if (team->followed) moved |= tutti_follow_run(team);
        if (team->waits) moved |= tutti_waits_run(team);
    } while (team->retry && !team->halted);
    if (team->owing && !team->halted) tutti_team_flush(team);
    return moved;
}

/* What a wire took, and could not write yet, must get there even when no call is in flight: somebody owns until then.
 */
void tutti_engine_count_owing(struct tutti_engine *engine)
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
    tutti_engine_count_owing(engine);
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
static bool is_full(struct tutti_wake_set *wakes, uint32_t n)
{
    if (n < TUTTI_WAKE_SET_MOST) return false;
    wakes->sources.crowded = true;
    return true;
}

/* Whether there is nothing to do: also of the next ones. */
static bool ports_begin(const struct tutti_engine *engine, struct tutti_wake_set *wakes)
{
    bool quiet = true;

    for (struct tutti_port *port = engine->ports; port; port = port->next) {
        struct tutti_transport *t = port->transport;
        if (port->n_busy == 0 && engine->ports->next) continue;
        if (is_full(wakes, wakes->n_transports)) return quiet;
        quiet &= t->ops->sleep_begin(t, &wakes->sources) && !tutti_control_alarmed(port->control);
        wakes->transports[wakes->n_transports++] = t;
    }
    return quiet;
}

static bool runner_begin(struct tutti_runner *runner, struct tutti_wake_set *wakes)
{
    if (is_full(wakes, wakes->n_runners)) return true;
    _Atomic uint32_t *word;
    uint32_t expected;
    bool quiet = runner->ops->sleep_begin(runner, &word, &expected);
    wakes->runners[wakes->n_runners++] = runner;
    if (quiet) tutti_sources_add_word(&wakes->sources, word, expected);
    return quiet;
}

static bool runners_begin(const struct tutti_engine *engine, struct tutti_wake_set *wakes)
{
    for (const struct tutti_team *team = engine->busy; team; team = team->next) {
        if (team->followed) tutti_sources_until(&wakes->sources, team->look_ns);
        if (tutti_flights_may_begin(team)) return false;
        if (team->n_runners > 0 && !runner_begin(team->order[tutti_runner_oldest(team)]->flight->runner, wakes))
            return false;
        for (uint32_t l = 0; l < team->n_lanes; l++)
            if (team->lanes[l].slice && !runner_begin(tutti_calling_runner(&team->lanes[l]), wakes)) return false;
    }
    return true;
}

/* A thread that changes a word rings its bell, once it has seen that somebody listens; what it did not see is seen
 * here. */
static bool waits_begin(const struct tutti_engine *engine, struct tutti_wake_set *wakes)
{
    bool fence = false;

    for (const struct tutti_team *team = engine->busy; team; team = team->next)
        for (const struct tutti_word_wait *wait = team->waits; wait; wait = wait->next)
            if (!tutti_wait_listens(wait, wakes) && !is_full(wakes, wakes->n_bells))
                fence |= tutti_wait_listen(wait, wakes);
    if (fence) tutti_fence_all();
    for (const struct tutti_team *team = engine->busy; team; team = team->next)
        if (tutti_waits_any(team) || tutti_moves_any(team->ones)) return false;
    return true;
}

static bool sleep_begin(void *arg, struct tutti_wake_set *wakes)
{
    struct tutti_engine *engine = arg;

    tutti_sources_until(&wakes->sources, tutti_owner_deadline(engine->owner, engine->tick_ns));
    tutti_sources_until(&wakes->sources, engine->next_watch_ns);
    return ports_begin(engine, wakes) && runners_begin(engine, wakes) && waits_begin(engine, wakes) &&
           !atomic_load(&engine->works->has_submitted) && !engine->failing;
}

static void sleep_end(void *arg, struct tutti_wake_set *wakes)
{
    (void)arg;
    for (uint32_t i = 0; i < wakes->n_bells; i++) tutti_bell_leave(wakes->bells[i]);
    for (uint32_t i = 0; i < wakes->n_runners; i++) wakes->runners[i]->ops->sleep_end(wakes->runners[i]);
    for (uint32_t i = 0; i < wakes->n_transports; i++) wakes->transports[i]->ops->sleep_end(wakes->transports[i]);
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

/* ---- Events of the wire: to the team, and to what in it they are for. ---- */

static void credit(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    (void)peer, (void)packet, (void)payload;
    team->retry = true;
}

typedef void (*packet_handler)(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet,
                               const void *payload);
static const packet_handler handlers[] = {
    [TUTTI_PACKET_DATA] = tutti_flights_data,
    [TUTTI_PACKET_GRANT] = tutti_flights_grant,
    [TUTTI_PACKET_CREDIT] = credit,
    [TUTTI_PACKET_READ] = tutti_flights_read,
    [TUTTI_PACKET_P2P] = tutti_p2p_messages_deliver,
    [TUTTI_PACKET_P2P_GRANT] = tutti_p2p_messages_deliver,
    [TUTTI_PACKET_P2P_DATA] = tutti_p2p_messages_deliver,
    [TUTTI_PACKET_P2P_READ] = tutti_p2p_messages_deliver,
    [TUTTI_PACKET_ONE] = tutti_ones_deliver,
    [TUTTI_PACKET_ONE_ANSWER] = tutti_ones_deliver,
};

/* Credits are cumulative, so that a lost, doubled or late packet does no harm. */
static void credits_take(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet)
{
    struct tutti_channel *channel = &team->channels[peer];
    uint8_t more = (uint8_t)(packet->credits - channel->returned);

    if (more > 0 && more <= (uint8_t)(channel->sent - channel->returned)) {
        channel->returned = packet->credits;
        team->retry = true;
    }
    if (tutti_packet_pays(packet)) tutti_p2p_messages_credit(team, channel, packet);
}

void tutti_team_deliver(struct tutti_team *team, uint32_t peer, const struct tutti_packet *packet, const void *payload)
{
    credits_take(team, peer, packet);
    if (packet->type < TUTTI_ARRAY_LEN(handlers) && handlers[packet->type])
        handlers[packet->type](team, peer, packet, payload);
    else
        tutti_report_protocol(team, peer, NULL, "a packet of an unknown type");
}

void tutti_port_deliver(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_event *arrival)
{
    const struct tutti_packet *packet = &arrival->packet;
    struct tutti_team *team = tutti_team_find(port, packet->comm, packet->epoch);

    engine->stats.packets_received++;
    if (!team) {
        tutti_stray_keep(engine, port, packet, arrival->payload);
        return;
    }
    if (team->halted) return;
    uint32_t peer = packet->source < port->transport->n ? team->slots[packet->source] : TUTTI_NO_SLOT;
    if (peer == TUTTI_NO_SLOT) {
        tutti_log(TUTTI_LOG_WARN, "member %u is not of communicator %" PRIx64 ": its packet is dropped", packet->source,
                  team->id);
        return;
    }
    tutti_team_deliver(team, peer, packet, arrival->payload);
}

/* Where the payload may go; false: into the transport's memory. */
static bool target_find(struct tutti_port *port, const struct tutti_packet *packet, struct tutti_target *target,
                        uint64_t *token)
{
    struct tutti_team *team = tutti_team_find(port, packet->comm, packet->epoch);
    uint32_t peer = packet->source < port->transport->n && team ? team->slots[packet->source] : TUTTI_NO_SLOT;
    struct tutti_loan what;
    bool placed = false;

    if (!team || team->halted || peer == TUTTI_NO_SLOT || port->n_loans == TUTTI_LOANS) return false;
    if (packet->type == TUTTI_PACKET_DATA) placed = tutti_flights_place(team, peer, packet, target, &what);
    if (packet->type == TUTTI_PACKET_P2P_DATA) placed = tutti_p2p_messages_place(team, peer, packet, target, &what);
    if (packet->type >= TUTTI_PACKET_ONE) placed = tutti_ones_place(team, peer, packet, target, &what);
    if (!placed) return false;
    credits_take(team, peer, packet);
    return tutti_loan_take(port, &what, token);
}

void tutti_port_place(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_packet *packet)
{
    struct tutti_transport *t = port->transport;
    struct tutti_target target;
    uint64_t token;

    if (!target_find(port, packet, &target, &token)) { /* it arrives, and what is wrong with it is told then */
        t->ops->place(t, NULL, 0, 0);
        return;
    }
    engine->stats.packets_received++;
    t->ops->place(t, &target, 1, token);
}

void tutti_port_back(struct tutti_port *port, uint64_t token, enum tutti_status status)
{
    struct tutti_loan loan;

    if (!tutti_loan_end(port, token, &loan) || loan.team->halted) return;
    if (status < 0)
        tutti_fail(status, "on communicator %" PRIx64 ", rank %u: the wire lost a message with rank %u",
                   tutti_said_comm(loan.team), tutti_said_rank(loan.team, loan.team->slot),
                   tutti_said_rank(loan.team, loan.peer));
    if (loan.step == TUTTI_NO_STEP)
        tutti_p2p_messages_back(loan.team, &loan, status);
    else
        (loan.step >= TUTTI_LOAN_DIRECT ? tutti_ones_back : tutti_flights_back)(loan.team, &loan, status);
}

/* ---- Packets for teams that do not exist here yet: a peer was faster. They are kept until the team is created. ----
 */

#define STRAYS_LEAST 2048
#define STRAYS_A_MEMBER 8

enum tutti_status tutti_strays_create(struct tutti_engine *engine, struct tutti_port *port)
{
    size_t eager = engine->config.eager_bytes;

    if (eager > port->transport->max_payload) eager = port->transport->max_payload;
    port->stray_stride = (sizeof(struct tutti_stray) + eager + 63) & ~(size_t)63;
    port->stray_room = port->transport->n * STRAYS_A_MEMBER;
    if (port->stray_room < STRAYS_LEAST) port->stray_room = STRAYS_LEAST;
    port->stray_bytes = port->stray_stride * port->stray_room;
    port->strays = tutti_map_lazy(port->stray_bytes);
    return port->strays ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "out of address space for a transport");
}

void tutti_strays_destroy(struct tutti_port *port)
{
    tutti_unmap(port->strays, port->stray_bytes);
}

static struct tutti_stray *stray_at(const struct tutti_port *port, uint32_t i)
{
    return (struct tutti_stray *)(void *)(port->strays + i * port->stray_stride);
}

void tutti_stray_keep(struct tutti_engine *engine, struct tutti_port *port, const struct tutti_packet *packet,
                      const void *payload)
{
    uint64_t gone = tutti_mix64(packet->comm) ^ packet->epoch;
    struct tutti_stray *oldest = NULL;

    /* Answers to what was never sent can only be late. */
    if (packet->type == TUTTI_PACKET_CREDIT || packet->type == TUTTI_PACKET_READ ||
        packet->type == TUTTI_PACKET_ONE_ANSWER)
        return;
    if (packet->bytes + sizeof(struct tutti_stray) > port->stray_stride) return;
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(engine->gone); i++) {
        if (engine->gone[i] != gone) continue;
        if (packet->type == TUTTI_PACKET_ONE) tutti_one_leave(port, packet);
        return;
    }
    for (uint32_t i = 0; i < port->stray_room; i++) {
        struct tutti_stray *stray = stray_at(port, i);
        if (!oldest || stray->used < oldest->used) oldest = stray;
        if (stray->used) continue;
        if (port->stray_top < i + 1) port->stray_top = i + 1;
        break;
    }
    if (!oldest) return;
    if (oldest->used) {
        tutti_log(TUTTI_LOG_WARN,
                  "too many packets for communicators that do not exist here: one of %" PRIx64 " is lost",
                  oldest->packet.comm);
    } else {
        port->n_strays++;
    }
    oldest->used = ++port->stray_clock;
    oldest->packet = *packet;
    if (packet->bytes > 0) memcpy(oldest->payload, payload, packet->bytes);
}

const struct tutti_stray *tutti_stray_take(struct tutti_team *team)
{
    struct tutti_port *port = team->port;
    struct tutti_stray *first = NULL;

    for (uint32_t i = 0; port->n_strays > 0 && i < port->stray_top; i++) { /* beyond it no page was ever touched */
        struct tutti_stray *stray = stray_at(port, i);
        if (!stray->used || stray->packet.comm != team->id || stray->packet.epoch != team->epoch) continue;
        if (!first || stray->used < first->used) first = stray;
    }
    if (!first) return NULL;
    first->used = 0;
    port->n_strays--;
    return first;
}
