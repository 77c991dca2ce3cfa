/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without nghttp2 or protobuf-c: nothing can be opened, so the rest is never called. */
#include "ft/serve/serve.h"

#include <tutti/ft.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* for all below */

const char *tutti_serve_missing(void)
{
    return "this build has no nghttp2 or no protobuf-c: install libnghttp2-dev, libprotobuf-c-dev and "
           "protobuf-c-compiler, then build again";
}

const char *tutti_serve_page_missing(void)
{
    return tutti_serve_missing();
}

/* clang-format off */
#define NONE(call, ...) enum tutti_status call(__VA_ARGS__) \
    { return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s: %s", &#call[6], tutti_serve_missing()); } /* without "tutti_" */
#define ENDS(call, ...) void call(__VA_ARGS__) {}
#define TEXT(call, ...) const char *call(__VA_ARGS__) { return ""; }
NONE(tutti_serve_open, const struct tutti_serve_config *config, struct tutti_serve **out)
NONE(tutti_serve_token, const char *secret, char out[TUTTI_SERVE_TOKEN])
TEXT(tutti_serve_address, const struct tutti_serve *serve)
ENDS(tutti_serve_close, struct tutti_serve *serve)

NONE(tutti_ft_lighthouse_open, const struct tutti_ft_lighthouse_config *config, struct tutti_ft_lighthouse **out)
NONE(tutti_ft_lighthouse_client_open, const char *addresses, uint64_t connect_timeout_ns,
     struct tutti_ft_lighthouse_client **out)
NONE(tutti_ft_lighthouse_client_quorum, struct tutti_ft_lighthouse_client *client,
     const struct tutti_ft_member *member, uint64_t timeout_ns, struct tutti_ft_quorum **out)
NONE(tutti_ft_lighthouse_client_heartbeat, struct tutti_ft_lighthouse_client *client, const char *replica_id,
     uint64_t timeout_ns)
NONE(tutti_ft_lighthouse_client_settings, struct tutti_ft_lighthouse_client *client, uint64_t timeout_ns,
     struct tutti_ft_settings **out)
NONE(tutti_ft_failures_open, struct tutti_ft_lighthouse_client *client, struct tutti_ft_failures **out)
NONE(tutti_ft_failures_next, struct tutti_ft_failures *failures, uint64_t timeout_ns, char **replica_id)
NONE(tutti_ft_manager_open, const struct tutti_ft_manager_config *config, struct tutti_ft_manager **out)
NONE(tutti_ft_client_open, const char *address, uint64_t connect_timeout_ns, struct tutti_ft_client **out)
NONE(tutti_ft_client_quorum, struct tutti_ft_client *client, const struct tutti_ft_request *request,
     uint64_t timeout_ns, struct tutti_ft_place **out)
NONE(tutti_ft_client_should_commit, struct tutti_ft_client *client, uint32_t group_rank, int64_t step, bool vote,
     uint64_t timeout_ns, bool *commit)
NONE(tutti_ft_client_checkpoint_metadata, struct tutti_ft_client *client, uint32_t group_rank, uint64_t timeout_ns,
     char **out)
NONE(tutti_ft_client_progress, struct tutti_ft_client *client, uint32_t group_rank, int64_t step, uint64_t collective)
NONE(tutti_ft_client_kill, struct tutti_ft_client *client, const char *why, uint64_t timeout_ns)
NONE(tutti_ft_team_open, const struct tutti_ft_team_config *config, struct tutti_ft_team **out)
NONE(tutti_ft_team_begin, struct tutti_ft_team *team, int64_t step, struct tutti_ft_step *out)
NONE(tutti_ft_team_commit, struct tutti_ft_team *team, bool failed, bool *commit)

ENDS(tutti_ft_team_leave, struct tutti_ft_team *team)
ENDS(tutti_ft_team_close, struct tutti_ft_team *team)
ENDS(tutti_ft_quorum_free, struct tutti_ft_quorum *quorum)
ENDS(tutti_ft_lighthouse_close, struct tutti_ft_lighthouse *lighthouse)
ENDS(tutti_ft_settings_free, struct tutti_ft_settings *settings)
ENDS(tutti_ft_failures_close, struct tutti_ft_failures *failures)
ENDS(tutti_ft_lighthouse_client_close, struct tutti_ft_lighthouse_client *client)
ENDS(tutti_ft_manager_close, struct tutti_ft_manager *manager)
ENDS(tutti_ft_client_close, struct tutti_ft_client *client)
ENDS(tutti_ft_place_free, struct tutti_ft_place *place)

TEXT(tutti_ft_lighthouse_address, const struct tutti_ft_lighthouse *lighthouse)
TEXT(tutti_ft_manager_address, const struct tutti_ft_manager *manager)
