/* SPDX-License-Identifier: BSD-3-Clause */
/* How a context begins, from its options, and how it ends, with all its communicators. */
#include "algo/algo.h"
#include "comm/device/device.h"
#include "comm/life/life.h"
#include "transport/open.h"

#include <string.h>

#define SCHEDULES_CACHED 256

static enum tutti_status engine_open(struct tutti_context *context)
{
    const uint64_t *number = context->config.number;
    struct tutti_engine_config config = {
        .slice_bytes = (size_t)number[TUTTI_OPT_slice],
        .eager_bytes = (size_t)number[TUTTI_OPT_eager],
        .zero_copy_bytes = (size_t)number[TUTTI_OPT_zero_copy],
        .spin_ns = number[TUTTI_OPT_spin],
        .compare_after_ns = number[TUTTI_OPT_compare_after],
        .simd = context->config.text[TUTTI_OPT_simd],
    };
    return tutti_engine_create(&config, &context->engine);
}

/* Row 0 does not know the transports; a wrong name is refused here all the same, before any rank waits for it. */
static enum tutti_status transport_check(const char *name)
{
    const char *known;
    bool spans;
    return tutti_transport_choose(name, false, 1, &known, &spans);
}

static enum tutti_status devices_choose(const char *kind)
{
    const struct tutti_device_ops *ops;
    return strcmp(kind, "auto") == 0 ? TUTTI_OK : tutti_device_use(kind, &ops);
}

enum tutti_status tutti_context_create(const struct tutti_option *options, size_t n, struct tutti_context **out)
{
    tutti_forks_count();
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "context_create: out is NULL");
    if (n && !options) return tutti_fail(TUTTI_ERR_ARGUMENT, "context_create: options is NULL but n is %zu", n);
    struct tutti_context *context = tutti_alloc(sizeof(*context));
    if (!context) return tutti_fail(TUTTI_ERR_MEMORY, "context_create: out of memory");
    enum tutti_status status;
    tutti_algorithms_init();
    TUTTI_TRY_GOTO(status, tutti_config_init(&context->config, options, n), err_free);
    TUTTI_TRY_GOTO(status, transport_check(context->config.text[TUTTI_OPT_transport]), err_config);
    TUTTI_TRY_GOTO(status, tutti_backends_check(&context->config), err_config);
    TUTTI_TRY_GOTO(status, tutti_device_option_check(&context->config), err_config);
    TUTTI_TRY_GOTO(status, devices_choose(context->config.text[TUTTI_OPT_devices]), err_config);
    TUTTI_TRY_GOTO(status, tutti_overrides_check(context->config.text[TUTTI_OPT_algorithm]), err_config);
    TUTTI_TRY_GOTO(status, tutti_machine_load(&context->config, &context->machine), err_config);
    TUTTI_TRY_GOTO(status, tutti_cache_create(SCHEDULES_CACHED, &context->cache), err_config);
    TUTTI_TRY_GOTO(status, engine_open(context), err_cache);
    context->kernels = tutti_kernels_find(context->config.text[TUTTI_OPT_simd]);
    pthread_mutex_init(&context->lock, NULL);
    context->n_forks = tutti_n_forks;
    context->refs = 1;
    context->held = true;
    *out = context;
    return TUTTI_OK;
err_cache:
    tutti_cache_destroy(context->cache);
err_config:
    tutti_config_fini(&context->config);
err_free:
    tutti_free(context);
    return status;
}

void tutti_context_destroy(struct tutti_context *context)
{
    if (!context || context->n_forks != tutti_n_forks) return; /* its memory goes with this process */
    struct tutti_error error;
    tutti_error_set(&error, TUTTI_ERR_ABORTED, "the context of this communicator was destroyed");
    for (struct tutti_comm *comm = context->comms; comm; comm = comm->next) {
        tutti_comm_end_calls(comm, "its context was destroyed");
        tutti_comm_shut(comm, &error);
    }
    tutti_context_close(context);
    if (context->held) tutti_context_release(context); /* a private one is its communicators' */
}
