/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's own life, and the transports that it polls. */
#include "engine/flight/flight.h"
#include "engine/flight/onesided_access.h"
#include "engine/pass/pass.h"

#include <string.h>

/* Many ranks of one host must not keep it busy by looking around: from this many members on they look less often, but
 * often enough to see the death of a process within a second. Threads do not die alone. */
#define TICK_MEMBERS 64
#define ATTENTION 10
#define TICK_MOST_NS (250 * TUTTI_NS_PER_MS)
#define TICK_MOST_THREADS_NS TUTTI_NS_PER_S

enum tutti_status tutti_engine_create(const struct tutti_engine_config *config, struct tutti_engine **out)
{
    static const size_t work_bytes[TUTTI_N_WORK_TYPES] = {
        [TUTTI_WORK_FLIGHT] = sizeof(struct tutti_flight),
        [TUTTI_WORK_RUNNER] = sizeof(struct tutti_flight) + TUTTI_RUNNER_BYTES,
        [TUTTI_WORK_SEND] = sizeof(struct tutti_p2p_message),
        [TUTTI_WORK_RECV] = sizeof(struct tutti_p2p_message),
        [TUTTI_WORK_FOLLOWED] = sizeof(struct tutti_followed),
        [TUTTI_WORK_WAIT] = sizeof(struct tutti_word_wait),
        [TUTTI_WORK_ACCESS] = sizeof(struct tutti_one_access),
    };
    struct tutti_engine *engine = tutti_alloc(sizeof(*engine));

    if (!engine) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the engine");
    engine->stage = tutti_alloc(config->eager_bytes);
    engine->works = tutti_works_create(work_bytes, config->spin_ns);
    if (!engine->stage || !engine->works) {
        if (engine->works) tutti_works_unref(engine->works);
        tutti_free(engine->stage);
        tutti_free(engine);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the engine");
    }
    engine->owner = &engine->works->owner;
    engine->owner->ops = &tutti_pass_ops, engine->owner->arg = engine;
    engine->owner->clock = config->clock, engine->owner->poller = config->poller;
    engine->config = *config;
    engine->config.simd = NULL; /* borrowed, and not needed here */
    atomic_init(&engine->tick_ns, TUTTI_TICK_NS);
    engine->next_watch_ns = TUTTI_NEVER;
    *out = engine;
    return TUTTI_OK;
}

void tutti_engine_destroy(struct tutti_engine *engine)
{
    if (!engine) return;
    tutti_notifier_stop(engine->works);
    tutti_helper_stop(engine->owner);
    tutti_works_unref(engine->works); /* handles of works that are still held keep these */
    tutti_free(engine->stage);
    tutti_free(engine);
}

void tutti_engine_set_spin(struct tutti_engine *engine, uint64_t spin_ns)
{
    atomic_store(&engine->owner->spin_ns, spin_ns);
}

enum tutti_status tutti_work_join(struct tutti_engine *engine, struct tutti_work **children, size_t n,
                                  struct tutti_work **out)
{
    return tutti_works_join(engine->works, children, n, out);
}

static uint64_t tick_of(const struct tutti_transport *t)
{
    uint64_t tick = TUTTI_TICK_NS * (1 + t->n / TICK_MEMBERS);
    uint64_t most = tutti_memory_is_one(t->memory) ? TICK_MOST_THREADS_NS : TICK_MOST_NS;
    return tick < most ? tick : most;
}

static void ticks_update(struct tutti_engine *engine)
{
    uint64_t least = TICK_MOST_THREADS_NS;
    for (const struct tutti_port *port = engine->ports; port; port = port->next)
        if (tick_of(port->transport) < least) least = tick_of(port->transport);
    atomic_store(&engine->tick_ns, atomic_load(&engine->attentive) ? least / ATTENTION : least);
}

void tutti_engine_set_attentive(struct tutti_engine *engine)
{
    atomic_store(&engine->attentive, true);
}

static void wake(void *arg)
{
    struct tutti_transport *transport = arg;
    transport->ops->wake(transport);
}

enum tutti_status tutti_engine_attach(struct tutti_engine *engine, struct tutti_transport *transport,
                                      struct tutti_control *control)
{
    struct tutti_port *port = tutti_alloc(sizeof(*port));

    if (!port) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a transport");
    port->transport = transport;
    port->control = control;
    enum tutti_status status = tutti_strays_create(engine, port);
    if (status < 0) {
        tutti_free(port);
        return status;
    }
    tutti_owner_enter(engine->owner);
    tutti_works_lock(engine->works);
    port->next = engine->ports;
    engine->ports = port;
    ticks_update(engine);
    tutti_works_unlock(engine->works);
    tutti_owner_leave(engine->owner);
    if (control->ops->listen) control->ops->listen(control, wake, transport);
    return TUTTI_OK;
}

void tutti_engine_detach(struct tutti_engine *engine, struct tutti_transport *transport)
{
    tutti_owner_enter(engine->owner);
    tutti_works_lock(engine->works);
    struct tutti_port **at = &engine->ports;
    while (*at && (*at)->transport != transport) at = &(*at)->next;
    struct tutti_port *port = *at;
    if (port) *at = port->next;
    ticks_update(engine);
    tutti_works_unlock(engine->works);
    tutti_owner_leave(engine->owner);
    if (!port) return;
    if (port->control->ops->listen) port->control->ops->listen(port->control, NULL, NULL);
    tutti_strays_destroy(port);
    tutti_free(port);
}

void tutti_engine_stats(struct tutti_engine *engine, struct tutti_engine_stats *out)
{
    tutti_owner_enter(engine->owner);
    *out = engine->stats;
    out->sleeps = atomic_load(&engine->owner->n_sleeps);
    tutti_owner_leave(engine->owner);
}

/* ---- The life of a team, from creation to destruction. The memory that grows with the number of members is mapped
 * lazily, so a rank pays for the peers that it talks to. ---- */

#define SHARE_MOST 1024 /* envelopes of one peer that may wait for a receive */
#define SHARE_LEAST 64
#define ENVELOPES 65536 /* of all peers together, but for SHARE_LEAST */

static enum tutti_status tables_create(struct tutti_team *team, const struct tutti_team_config *config)
{
    uint32_t n = config->transport->n;

    team->members = tutti_alloc_array(team->size, sizeof(*team->members));
    team->slots = tutti_alloc_array(n, sizeof(*team->slots));
    if (!team->members || !team->slots) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for %u members", team->size);
    memset(team->slots, 0xff, n * sizeof(*team->slots));
    for (uint32_t i = 0; i < team->size; i++) {
        if (config->members[i] >= n || team->slots[config->members[i]] != TUTTI_NO_SLOT)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u of slot %u is not one of %u, or there twice",
                              config->members[i], i, n);
        team->members[i] = config->members[i];
        team->slots[config->members[i]] = i;
    }
    return TUTTI_OK;
}

static enum tutti_status map_create(struct tutti_team *team)
{
    uint32_t share = ENVELOPES / team->size;

    team->envelope_share = share > SHARE_MOST ? SHARE_MOST : share < SHARE_LEAST ? SHARE_LEAST : share;
    size_t channels = (team->size * sizeof(struct tutti_channel) + 63) & ~(size_t)63;
    size_t holds = team->size * team->hold_stride, p2p_holds = team->size * TUTTI_P2P_CREDITS * team->p2p_stride;
    size_t envelopes = ((size_t)team->size * team->envelope_share + 1) * sizeof(struct tutti_envelope);
    team->map_bytes = channels + holds + p2p_holds + envelopes;
    team->map = tutti_map_lazy(team->map_bytes);
    if (!team->map) return tutti_fail(TUTTI_ERR_MEMORY, "out of address space for a communicator of %u", team->size);
    team->channels = (struct tutti_channel *)(void *)team->map;
    team->hold = team->map + channels;
    team->p2p_hold = team->hold + holds;
    team->envelopes = (struct tutti_envelope *)(void *)(team->p2p_hold + p2p_holds);
    return TUTTI_OK;
}

static void team_free(struct tutti_team *team)
{
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(team->spare); i++) tutti_unmap(team->spare[i].base, team->spare[i].bytes);
    tutti_unmap(team->map, team->map_bytes);
    tutti_free(team->lanes);
    tutti_free(team->slots);
    tutti_free(team->members);
    tutti_free(team);
}

static struct tutti_port *port_find(struct tutti_engine *engine, const struct tutti_transport *transport)
{
    struct tutti_port *port = engine->ports;
    while (port && port->transport != transport) port = port->next;
    return port;
}

/* What came before the team. */
static void strays_deliver(struct tutti_team *team)
{
    const struct tutti_stray *stray;

    while (!team->halted && (stray = tutti_stray_take(team))) {
        uint32_t source = stray->packet.source;
        uint32_t peer = source < team->port->transport->n ? team->slots[source] : TUTTI_NO_SLOT;
        if (peer != TUTTI_NO_SLOT) tutti_team_deliver(team, peer, &stray->packet, stray->payload);
    }
}

static enum tutti_status team_enter(struct tutti_team *team, const struct tutti_team_config *config)
{
    struct tutti_engine *engine = team->engine;
    enum tutti_status status = TUTTI_OK;

    tutti_owner_enter(engine->owner);
    team->port = port_find(engine, config->transport);
    if (!team->port) {
        status = tutti_fail(TUTTI_ERR_INTERNAL, "a communicator over a transport that is not attached");
    } else if (tutti_team_find(team->port, team->id, team->epoch)) {
        status = tutti_fail(TUTTI_ERR_INTERNAL, "communicator %" PRIx64 " exists already", team->id);
    } else {
        struct tutti_team **bucket = tutti_team_bucket(team->port, team->id, team->epoch);
        team->hash_next = *bucket;
        *bucket = team;
        _Atomic uint64_t *counter = tutti_team_counter(team);
        if (counter) team->shown = counter;
        atomic_store_explicit(team->shown, team->shown_tag, memory_order_relaxed);
        tutti_team_publish(team);
        strays_deliver(team);
        if (engine->failing) tutti_owner_pass(engine->owner);
    }
    tutti_owner_leave(engine->owner);
    return status;
}

enum tutti_status tutti_team_create(struct tutti_engine *engine, const struct tutti_team_config *config,
                                    struct tutti_team **out)
{
    struct tutti_team *team = tutti_alloc(sizeof(*team));
    enum tutti_status status;

    if (!team) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a communicator");
    team->engine = engine;
    team->id = config->id, team->epoch = config->epoch;
    team->size = config->size, team->slot = config->slot;
    team->timeout_ns = config->timeout_ns;
    team->slice_bytes = config->slice_bytes ? config->slice_bytes : engine->config.slice_bytes;
    team->eager = engine->config.eager_bytes;
    if (team->eager > config->transport->copied) team->eager = config->transport->copied; /* never pending */
    team->p2p_stride = (team->eager + 63) & ~(size_t)63;
    team->credit_bytes = ((team->eager > 0 ? team->eager - 1 : 0) / TUTTI_CREDITS_LONG + 64) & ~(size_t)63;
    team->hold_stride = (TUTTI_CREDITS * (sizeof(struct tutti_held) + team->credit_bytes) + 4095) & ~(size_t)4095;
    team->pending_end = &team->pending;
    team->sends_end = &team->sends, team->recvs_end = &team->recvs;
    team->followed_end = &team->followed;
    team->waits_end = &team->waits;
    team->board = (struct tutti_board){.comm = team->id,
                                       .peer = -1,
                                       .root = -1,
                                       .epoch = team->epoch,
                                       .rank = team->slot,
                                       .size = team->size,
                                       .message_peer = -1,
                                       .state = TUTTI_BOARD_IN_USE};
    team->shown = &team->unseen, team->shown_tag = tutti_board_count(team->id, 0);
    TUTTI_TRY_GOTO(status, tables_create(team, config), err_team);
    TUTTI_TRY_GOTO(status, map_create(team), err_team);
    TUTTI_TRY_GOTO(status, team_enter(team, config), err_team);
    *out = team;
    return TUTTI_OK;
err_team:
    team_free(team);
    return status;
}

void tutti_team_destroy(struct tutti_team *team)
{
    struct tutti_engine *engine = team->engine;

    tutti_team_wait(team, TUTTI_NEVER);
    tutti_notifier_drain(engine->works, team);
    tutti_owner_enter(engine->owner);
    tutti_ones_destroy(team);
    tutti_team_rest(team);
    struct tutti_team **at = tutti_team_bucket(team->port, team->id, team->epoch);
    while (*at != team) at = &(*at)->hash_next;
    *at = team->hash_next;
    engine->gone[engine->n_gone++ % TUTTI_ARRAY_LEN(engine->gone)] = tutti_mix64(team->id) ^ team->epoch;
    team->board.state = TUTTI_BOARD_LEFT;
    tutti_team_publish(team);
    tutti_owner_leave(engine->owner);
    team_free(team);
}
