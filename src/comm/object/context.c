/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: one rank's library state. The struct lives as long as the user's handle or any communicator of it, so that
 * communicators left behind by tutti_context_destroy can still be destroyed. */
#include "comm/object/comm.h"

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
