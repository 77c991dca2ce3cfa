/* SPDX-License-Identifier: BSD-3-Clause */
/* A family: one bootstrap's world, counted by the communicators that stem from it. The last one closes the transport.
 */
#include "backend/backend.h"
#include "comm/object/comm.h"

#define SPIN_NET 3 /* so many times as long a sleep lasts that a socket ends: see networks.md */

enum tutti_status tutti_family_open(struct tutti_context *context, const struct tutti_bootstrap *bootstrap,
                                    struct tutti_family **out)
{
    struct tutti_family *family = tutti_alloc(sizeof(*family));
    if (!family) return tutti_fail(TUTTI_ERR_MEMORY, "comm_create: out of memory");
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, tutti_world_open(bootstrap, &family->world), err_free);
    TUTTI_TRY_GOTO(status, tutti_engine_attach(context->engine, family->world.transport, family->world.control),
                   err_world);
    /* A rank that spins keeps another one, on the same CPU, from answering it. */
    if (family->world.crowded) {
        context->crowded = true;
        tutti_engine_set_spin(context->engine, 0);
    } else if (family->world.hosts && !context->crowded) {
        tutti_engine_set_spin(context->engine, SPIN_NET * context->config.number[TUTTI_OPT_spin]);
    }
    family->engine = context->engine;
    atomic_init(&family->refs, 1);
    pthread_mutex_init(&family->lock, NULL);
    pthread_mutex_init(&family->backends.lock, NULL);
    *out = family;
    return TUTTI_OK;
err_world:
    tutti_world_close(&family->world);
err_free:
    tutti_free(family);
    return status;
}

struct tutti_family *tutti_family_hold(struct tutti_family *family)
{
    atomic_fetch_add(&family->refs, 1);
    return family;
}

void tutti_family_drop(struct tutti_family *family)
{
    if (atomic_fetch_sub(&family->refs, 1) != 1) return;
    tutti_backend_sweep(&family->backends, true);
    tutti_device_sweep(&family->backends);
    tutti_block_give_all(family);
    tutti_pads_end(family);
    tutti_engine_detach(family->engine, family->world.transport);
    tutti_world_close(&family->world);
    pthread_mutex_destroy(&family->lock);
    pthread_mutex_destroy(&family->backends.lock);
    tutti_free(family);
}
