/* SPDX-License-Identifier: BSD-3-Clause */
/* Public calls: a lighthouse in this process. */
#include "ft/serve/serve.h"

#include "ft/message/message.h"

#include <tutti/ft.h>

#include <string.h>

struct tutti_ft_lighthouse {
    struct tutti_serve *serve;
    char secret[TUTTI_MESSAGE_SECRET];
};

static void forget(struct tutti_ft_lighthouse *lighthouse)
{
    explicit_bzero(lighthouse->secret, sizeof lighthouse->secret);
    tutti_free(lighthouse);
}

enum tutti_status tutti_ft_lighthouse_open(const struct tutti_ft_lighthouse_config *config,
                                           struct tutti_ft_lighthouse **out)
{
    if (!config || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_open: %s is NULL", config ? "out" : "config");
    if (config->size != sizeof(*config))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_open: config.size is wrong: begin with "
                                              "TUTTI_FT_LIGHTHOUSE_CONFIG_INIT");
    struct tutti_ft_lighthouse *lighthouse = tutti_alloc(sizeof(*lighthouse));
    if (!lighthouse) return tutti_fail(TUTTI_ERR_MEMORY, "ft_lighthouse_open: out of memory");
    enum tutti_status status = tutti_message_secret(config->secret, lighthouse->secret);
    const struct tutti_serve_config serve = {
        .bind = config->bind,
        .secret = lighthouse->secret[0] ? lighthouse->secret : NULL,
        .rate = TUTTI_SERVE_RATE,
        .options = {.min_replicas = config->min_replicas,
                    .join_timeout_ns = config->join_timeout_ns,
                    .heartbeat_timeout_ns = config->heartbeat_timeout_ns,
                    .tick_ns = config->tick_ns,
                    .forget_ns = config->heartbeat_timeout_ns + TUTTI_SERVE_FORGET_NS,
                    .max_groups = TUTTI_SERVE_GROUPS}};
    if (status >= 0) status = tutti_serve_open(&serve, &lighthouse->serve);
    if (status >= 0)
        *out = lighthouse;
    else
        forget(lighthouse);
    return status;
}

const char *tutti_ft_lighthouse_address(const struct tutti_ft_lighthouse *lighthouse)
{
    return tutti_serve_address(lighthouse->serve);
}

void tutti_ft_lighthouse_close(struct tutti_ft_lighthouse *lighthouse)
{
    if (!lighthouse) return;
    tutti_serve_close(lighthouse->serve);
    forget(lighthouse);
}
