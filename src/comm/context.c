/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: one rank's library state. The struct lives as long as the user's handle or any communicator of it, so that
 * communicators left behind by tutti_context_destroy can still be destroyed. */
#include "backend/backend.h"
#include "comm/comm.h"

#include <limits.h>
#include <string.h>

enum tutti_status tutti_context_check(const struct tutti_context *context, const char *call)
{
    if (context->n_forks == tutti_n_forks) return TUTTI_OK;
    return tutti_fail(
        TUTTI_ERR_ARGUMENT,
        "%s: this process was forked off by the one that made the communicator or context, which alone may "
        "use it: make others here",
        call);
}

void tutti_context_close(struct tutti_context *context)
{
    tutti_engine_destroy(context->engine);
    tutti_cache_destroy(context->cache);
    tutti_config_fini(&context->config);
    tutti_free(context->ops);
    context->engine = NULL;
    context->cache = NULL;
    context->ops = NULL;
    context->n_ops = 0;
}

static void context_free(struct tutti_context *context)
{
    if (context->engine) tutti_context_close(context);
    pthread_mutex_destroy(&context->lock);
    tutti_free(context);
}

static void context_drop(struct tutti_context *context)
{
    pthread_mutex_lock(&context->lock);
    bool last = --context->refs == 0;
    pthread_mutex_unlock(&context->lock);
    if (last) context_free(context);
}

void tutti_context_release(struct tutti_context *context)
{
    context->held = false;
    context_drop(context);
}

void tutti_context_enlist(struct tutti_context *context, struct tutti_comm *comm)
{
    pthread_mutex_lock(&context->lock);
    comm->next = context->comms;
    if (comm->next) comm->next->previous = comm;
    context->comms = comm;
    context->refs++;
    pthread_mutex_unlock(&context->lock);
}

void tutti_context_delist(struct tutti_context *context, struct tutti_comm *comm)
{
    pthread_mutex_lock(&context->lock);
    if (comm->next) comm->next->previous = comm->previous;
    if (comm->previous)
        comm->previous->next = comm->next;
    else
        context->comms = comm->next;
    pthread_mutex_unlock(&context->lock);
    context_drop(context);
}

/* A family: one bootstrap's world, counted by the communicators that stem from it. The last one closes the transport.
 */

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

/* User-defined operations: a table of the context; a handle is TUTTI_N_OPS and the place in it. Calls copy the entry
 * when they start, so that the table may move. */

/* A free place, or SIZE_MAX when memory is out. Under the context's lock. */
static size_t op_place(struct tutti_context *context)
{
    for (size_t i = 0; i < context->n_ops; i++)
        if (!context->ops[i].function) return i;
    size_t n = context->n_ops ? 2 * context->n_ops : 8;
    if (n > INT_MAX / 2) return SIZE_MAX;
    struct tutti_user_op *ops = tutti_alloc_array(n, sizeof(*ops));
    if (!ops) return SIZE_MAX;
    if (context->n_ops) memcpy(ops, context->ops, context->n_ops * sizeof(*ops));
    tutti_free(context->ops);
    size_t place = context->n_ops;
    context->ops = ops;
    context->n_ops = n;
    return place;
}

enum tutti_status tutti_op_create(struct tutti_context *context, tutti_op_function function, void *arg, bool commutes,
                                  enum tutti_op *out)
{
    if (!context) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_create: context is NULL");
    TUTTI_TRY(tutti_context_check(context, "op_create"));
    if (!function) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_create: function is NULL");
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_create: out is NULL");
    pthread_mutex_lock(&context->lock);
    size_t place = op_place(context);
    if (place != SIZE_MAX)
        context->ops[place] = (struct tutti_user_op){.function = function, .arg = arg, .commutes = commutes};
    pthread_mutex_unlock(&context->lock);
    if (place == SIZE_MAX) return tutti_fail(TUTTI_ERR_MEMORY, "op_create: out of memory");
    *out = (enum tutti_op)((int)TUTTI_N_OPS + (int)place);
    return TUTTI_OK;
}

bool tutti_context_find_op(struct tutti_context *context, enum tutti_op op, struct tutti_user_op *out)
{
    if ((int)op < (int)TUTTI_N_OPS) return false;
    size_t place = (size_t)((int)op - (int)TUTTI_N_OPS);
    pthread_mutex_lock(&context->lock);
    bool found = place < context->n_ops && context->ops[place].function;
    if (found) *out = context->ops[place];
    pthread_mutex_unlock(&context->lock);
    return found;
}

enum tutti_status tutti_op_destroy(struct tutti_context *context, enum tutti_op op)
{
    if (!context) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_destroy: context is NULL");
    TUTTI_TRY(tutti_context_check(context, "op_destroy"));
    struct tutti_user_op found;
    if (!tutti_context_find_op(context, op, &found))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "op_destroy: %d is no user-defined operation of this context", (int)op);
    pthread_mutex_lock(&context->lock);
    context->ops[(int)op - (int)TUTTI_N_OPS].function = NULL;
    pthread_mutex_unlock(&context->lock);
    return TUTTI_OK;
}
