/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine's own life, and the transports that it polls. */

#include "engine/flight/flight.h"
#include "engine/onesided/access.h"
#include "engine/pass/pass.h"

/* Many ranks of one host must not keep it busy by looking around: from this many members on they look less often, but
 * often enough to see the death of a process within a second. Threads do not die alone. */
#define TICK_MEMBERS 64
#define TICK_MOST_NS (250 * TUTTI_NS_PER_MS)
#define TICK_MOST_THREADS_NS TUTTI_NS_PER_S

enum tutti_status tutti_engine_create(const struct tutti_engine_config *config, struct tutti_engine **out)
{
    static const size_t work_bytes[TUTTI_N_WORK_TYPES] = {
        [TUTTI_WORK_FLIGHT] = sizeof(struct tutti_flight),
        [TUTTI_WORK_RUNNER] = sizeof(struct tutti_flight) + TUTTI_RUNNER_BYTES,
        [TUTTI_WORK_SEND] = sizeof(struct tutti_letter),
        [TUTTI_WORK_RECV] = sizeof(struct tutti_letter),
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
    atomic_store(&engine->tick_ns, least);
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
