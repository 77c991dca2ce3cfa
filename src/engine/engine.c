/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine's own life, and the transports that it polls. */

#include "engine/core.h"

/* Many ranks of one host must not keep it busy by looking around: from this many members on they look less often, but
 * often enough to see the death of a process within a second. Threads do not die alone. */
#define TICK_MEMBERS 64
#define TICK_MOST_NS (250 * TUTTI_NS_PER_MS)
#define TICK_MOST_THREADS_NS TUTTI_NS_PER_S
#define STRAYS_LEAST 2048
#define STRAYS_A_MEMBER 8

enum tutti_status tutti_engine_create(const struct tutti_engine_config *config, struct tutti_engine **out)
{
    struct tutti_engine *engine = tutti_alloc(sizeof(*engine));

    if (!engine) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the engine");
    engine->stage = tutti_alloc(config->eager_bytes);
    if (!engine->stage) {
        tutti_free(engine);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the engine");
    }
    engine->config = *config;
    engine->config.simd = NULL; /* borrowed, and not needed here */
    atomic_init(&engine->spin_ns, config->spin_ns);
    atomic_init(&engine->refs, 1);
    atomic_init(&engine->tick_ns, TUTTI_TICK_NS);
    engine->submitted_end = &engine->submitted;
    engine->next_watch_ns = TUTTI_NEVER;
    pthread_mutex_init(&engine->lock, NULL);
    atomic_init(&engine->helper.prompt, true); /* until they show otherwise */
    tutti_notifier_init(&engine->notifier);
    *out = engine;
    return TUTTI_OK;
}

void tutti_engine_unref(struct tutti_engine *engine)
{
    if (atomic_fetch_sub(&engine->refs, 1) != 1) return;
    for (uint32_t i = 0; i < TUTTI_N_WORK_TYPES; i++) {
        while (engine->pool[i]) {
            struct tutti_work *work = engine->pool[i];
            engine->pool[i] = work->next;
            tutti_free(work);
        }
    }
    tutti_notifier_fini(&engine->notifier);
    pthread_mutex_destroy(&engine->lock);
    tutti_free(engine->stage);
    tutti_free(engine);
}

void tutti_engine_destroy(struct tutti_engine *engine)
{
    if (!engine) return;
    tutti_notifier_stop(engine);
    tutti_helper_stop(engine);
    tutti_engine_unref(engine); /* handles of works that are still held keep the rest */
}

void tutti_engine_set_spin(struct tutti_engine *engine, uint64_t spin_ns)
{
    atomic_store(&engine->spin_ns, spin_ns);
}

static enum tutti_status strays_create(struct tutti_engine *engine, struct tutti_port *port)
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

static uint64_t tick_of(const struct tutti_transport *t)
{
    uint64_t tick = TUTTI_TICK_NS * (1 + t->n / TICK_MEMBERS);
    uint64_t most = t->caps & TUTTI_CAP_ADDRESSES ? TICK_MOST_THREADS_NS : TICK_MOST_NS;
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
    enum tutti_status status = strays_create(engine, port);
    if (status < 0) {
        tutti_free(port);
        return status;
    }
    tutti_owner_enter(engine);
    pthread_mutex_lock(&engine->lock);
    port->next = engine->ports;
    engine->ports = port;
    ticks_update(engine);
    pthread_mutex_unlock(&engine->lock);
    tutti_owner_leave(engine);
    if (control->ops->listen) control->ops->listen(control, wake, transport);
    return TUTTI_OK;
}

void tutti_engine_detach(struct tutti_engine *engine, struct tutti_transport *transport)
{
    tutti_owner_enter(engine);
    pthread_mutex_lock(&engine->lock);
    struct tutti_port **at = &engine->ports;
    while (*at && (*at)->transport != transport) at = &(*at)->next;
    struct tutti_port *port = *at;
    if (port) *at = port->next;
    ticks_update(engine);
    pthread_mutex_unlock(&engine->lock);
    tutti_owner_leave(engine);
    if (!port) return;
    if (port->control->ops->listen) port->control->ops->listen(port->control, NULL, NULL);
    tutti_unmap(port->strays, port->stray_bytes);
    tutti_free(port);
}

void tutti_engine_stats(struct tutti_engine *engine, struct tutti_engine_stats *out)
{
    tutti_owner_enter(engine);
    *out = engine->stats;
    tutti_owner_leave(engine);
}
