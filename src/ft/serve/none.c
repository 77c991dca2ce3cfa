/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without nghttp2 or protobuf-c: nothing can be opened, so the rest is never called. */
#include "ft/serve/serve.h"

#include <tutti/ft.h>

const char *tutti_serve_missing(void)
{
    return "this build has no nghttp2 or no protobuf-c: install libnghttp2-dev, libprotobuf-c-dev and "
           "protobuf-c-compiler, then build again";
}

const char *tutti_serve_page_missing(void)
{
    return tutti_serve_missing();
}

enum tutti_status tutti_serve_open(const struct tutti_serve_config *config, struct tutti_serve **out)
{
    (void)config, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no lighthouse: %s", tutti_serve_missing());
}

enum tutti_status tutti_serve_token(const char *secret, char out[TUTTI_SERVE_TOKEN])
{
    (void)secret, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no lighthouse: %s", tutti_serve_missing());
}

const char *tutti_serve_address(const struct tutti_serve *serve)
{
    (void)serve;
    return "";
}

void tutti_serve_close(struct tutti_serve *serve)
{
    (void)serve;
}

static enum tutti_status none(const char *call)
{
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s: %s", call, tutti_serve_missing());
}

void tutti_ft_quorum_free(struct tutti_ft_quorum *quorum)
{
    (void)quorum;
}

enum tutti_status tutti_ft_lighthouse_open(const struct tutti_ft_lighthouse_config *config,
                                           struct tutti_ft_lighthouse **out)
{
    (void)config, (void)out;
    return none("ft_lighthouse_open");
}

const char *tutti_ft_lighthouse_address(const struct tutti_ft_lighthouse *lighthouse)
{
    (void)lighthouse;
    return "";
}

void tutti_ft_lighthouse_close(struct tutti_ft_lighthouse *lighthouse)
{
    (void)lighthouse;
}

enum tutti_status tutti_ft_lighthouse_client_open(const char *addresses, uint64_t connect_timeout_ns,
                                                  struct tutti_ft_lighthouse_client **out)
{
    (void)addresses, (void)connect_timeout_ns, (void)out;
    return none("ft_lighthouse_client_open");
}

enum tutti_status tutti_ft_lighthouse_client_quorum(struct tutti_ft_lighthouse_client *client,
                                                    const struct tutti_ft_member *member, uint64_t timeout_ns,
                                                    struct tutti_ft_quorum **out)
{
    (void)client, (void)member, (void)timeout_ns, (void)out;
    return none("ft_lighthouse_client_quorum");
}

enum tutti_status tutti_ft_lighthouse_client_heartbeat(struct tutti_ft_lighthouse_client *client,
                                                       const char *replica_id, uint64_t timeout_ns)
{
    (void)client, (void)replica_id, (void)timeout_ns;
    return none("ft_lighthouse_client_heartbeat");
}

enum tutti_status tutti_ft_lighthouse_client_settings(struct tutti_ft_lighthouse_client *client, uint64_t timeout_ns,
                                                      struct tutti_ft_settings **out)
{
    (void)client, (void)timeout_ns, (void)out;
    return none("ft_lighthouse_client_settings");
}

void tutti_ft_settings_free(struct tutti_ft_settings *settings)
{
    (void)settings;
}

enum tutti_status tutti_ft_failures_open(struct tutti_ft_lighthouse_client *client, struct tutti_ft_failures **out)
{
    (void)client, (void)out;
    return none("ft_failures_open");
}

enum tutti_status tutti_ft_failures_next(struct tutti_ft_failures *failures, uint64_t timeout_ns, char **replica_id)
{
    (void)failures, (void)timeout_ns, (void)replica_id;
    return none("ft_failures_next");
}

void tutti_ft_failures_close(struct tutti_ft_failures *failures)
{
    (void)failures;
}

void tutti_ft_lighthouse_client_close(struct tutti_ft_lighthouse_client *client)
{
    (void)client;
}

enum tutti_status tutti_ft_manager_open(const struct tutti_ft_manager_config *config, struct tutti_ft_manager **out)
{
    (void)config, (void)out;
    return none("ft_manager_open");
}

const char *tutti_ft_manager_address(const struct tutti_ft_manager *manager)
{
    (void)manager;
    return "";
}

void tutti_ft_manager_close(struct tutti_ft_manager *manager)
{
    (void)manager;
}

enum tutti_status tutti_ft_client_open(const char *address, uint64_t connect_timeout_ns, struct tutti_ft_client **out)
{
    (void)address, (void)connect_timeout_ns, (void)out;
    return none("ft_client_open");
}

void tutti_ft_client_close(struct tutti_ft_client *client)
{
    (void)client;
}

void tutti_ft_place_free(struct tutti_ft_place *place)
{
    (void)place;
}

enum tutti_status tutti_ft_client_quorum(struct tutti_ft_client *client, const struct tutti_ft_request *request,
                                         uint64_t timeout_ns, struct tutti_ft_place **out)
{
    (void)client, (void)request, (void)timeout_ns, (void)out;
    return none("ft_client_quorum");
}

enum tutti_status tutti_ft_client_should_commit(struct tutti_ft_client *client, uint32_t group_rank, int64_t step,
                                                bool vote, uint64_t timeout_ns, bool *commit)
{
    (void)client, (void)group_rank, (void)step, (void)vote, (void)timeout_ns, (void)commit;
    return none("ft_client_should_commit");
}

enum tutti_status tutti_ft_client_checkpoint_metadata(struct tutti_ft_client *client, uint32_t group_rank,
                                                      uint64_t timeout_ns, char **out)
{
    (void)client, (void)group_rank, (void)timeout_ns, (void)out;
    return none("ft_client_checkpoint_metadata");
}

enum tutti_status tutti_ft_client_progress(struct tutti_ft_client *client, uint32_t group_rank, int64_t step,
                                           uint64_t collective)
{
    (void)client, (void)group_rank, (void)step, (void)collective;
    return none("ft_client_progress");
}

enum tutti_status tutti_ft_client_kill(struct tutti_ft_client *client, const char *why, uint64_t timeout_ns)
{
    (void)client, (void)why, (void)timeout_ns;
    return none("ft_client_kill");
}
