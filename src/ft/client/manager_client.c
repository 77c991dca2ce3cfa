/* SPDX-License-Identifier: BSD-3-Clause */
/* Public calls: a rank that asks its group's manager. */
#include "ft/client/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How far a rank is, on its way. One message at a time; what came meanwhile goes after it. */
struct progress {
    struct tutti_loop_post post;
    struct tutti_rpc_request *request; /* NULL: none is under way */
    pthread_mutex_t mutex;
    uint32_t group_rank;
    int64_t step;
    uint64_t collective;
    bool fresh;
};
struct tutti_ft_client {
    struct client client;
    bool is_ours; /* the manager knows our calls */
    struct progress progress;
};

static void progress_send(struct tutti_loop_post *post);

enum tutti_status tutti_ft_client_open(const char *address, uint64_t connect_timeout_ns, struct tutti_ft_client **out)
{
    if (!address || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_client_open: %s is NULL", address ? "out" : "address");
    struct tutti_ft_client *client = tutti_alloc(sizeof(*client));
    if (!client) return tutti_fail(TUTTI_ERR_MEMORY, "ft_client_open: out of memory");
    pthread_mutex_init(&client->progress.mutex, NULL);
    client->progress.post.call = progress_send;
    const enum tutti_status status = client_open(&client->client, address, "connecting to the manager",
                                                 "/tutti.ManagerService/Hello", connect_timeout_ns, &client->is_ours);
    if (status >= 0)
        *out = client;
    else
        tutti_ft_client_close(client);
    return status;
}

void client_cancel(struct tutti_ft_client *client)
{
    client_withdraw(&client->client);
}

void tutti_ft_client_close(struct tutti_ft_client *client)
{
    if (!client) return;
    const struct tutti_error why = *tutti_last_error();
    client_close(&client->client);
    pthread_mutex_destroy(&client->progress.mutex);
    tutti_free(client);
    if (why.status < 0) tutti_fail_record(&why);
}

/* ---- quorum: what a caller gets, and behind it what it points into ---- */
struct given {
    struct tutti_ft_place place; /* first */
    Torchft__ManagerQuorumResponse *response;
    uint32_t targets[];
};

void tutti_ft_place_free(struct tutti_ft_place *place)
{
    struct given *given = (struct given *)place;

    if (!given) return;
    torchft__manager_quorum_response__free_unpacked(given->response, NULL);
    tutti_free(given);
}

static bool is_rank(int64_t rank, int64_t size)
{
    return rank >= 0 && rank < size;
}

/* Ranks are ranks. */
static bool is_sound(const Torchft__ManagerQuorumResponse *r)
{
    const bool has_source = r->source_case == TORCHFT__MANAGER_QUORUM_RESPONSE__SOURCE_RECOVER_SRC_REPLICA_RANK;
    const bool has_max = r->max_case == TORCHFT__MANAGER_QUORUM_RESPONSE__MAX_MAX_REPLICA_RANK;
    const int64_t n = r->replica_world_size;

    if (n < 1 || n > INT32_MAX || !is_rank(r->replica_rank, n) || r->max_world_size < 0 || r->max_world_size > n)
        return false;
    if ((has_source && !is_rank(r->recover_src_replica_rank, n)) || (has_max && !is_rank(r->max_replica_rank, n)))
        return false;
    if (r->n_recover_dst_replica_ranks > (size_t)n || r->n_source_addresses > (size_t)n ||
        (r->n_replica_ids > 0 && r->n_replica_ids != (size_t)n))
        return false;
    for (size_t i = 0; i < r->n_recover_dst_replica_ranks; i++)
        if (!is_rank(r->recover_dst_replica_ranks[i], n)) return false;
    return !r->heal || has_source;
}

static void fill(struct given *given)
{
    const Torchft__ManagerQuorumResponse *r = given->response;
    const bool has_source = r->source_case == TORCHFT__MANAGER_QUORUM_RESPONSE__SOURCE_RECOVER_SRC_REPLICA_RANK;
    const bool has_max = r->max_case == TORCHFT__MANAGER_QUORUM_RESPONSE__MAX_MAX_REPLICA_RANK;
    const bool has_handles = r->n_reconfigure_handles == (size_t)r->replica_world_size;

    for (size_t i = 0; i < r->n_recover_dst_replica_ranks; i++)
        given->targets[i] = (uint32_t)r->recover_dst_replica_ranks[i];
    given->place = (struct tutti_ft_place){
        .quorum_id = r->quorum_id,
        .replica_rank = (uint32_t)r->replica_rank,
        .replica_world_size = (uint32_t)r->replica_world_size,
        .max_replica_rank = has_max ? (uint32_t)r->max_replica_rank : UINT32_MAX,
        .max_world_size = (uint32_t)r->max_world_size,
        .max_step = r->max_step,
        .commit_failures = r->commit_failures,
        .store_address = r->store_address,
        .heal = r->heal,
        .source_rank = has_source ? (uint32_t)r->recover_src_replica_rank : UINT32_MAX,
        .source_manager_address = r->recover_src_manager_address,
        .n_sources = (uint32_t)r->n_source_addresses,
        .sources = (const char *const *)r->source_addresses,
        .offers = r->offers,
        .n_targets = (uint32_t)r->n_recover_dst_replica_ranks,
        .targets = given->targets,
        .n_replicas = (uint32_t)r->n_replica_ids,
        .replica_ids = (const char *const *)r->replica_ids,
        .handles = has_handles ? (const char *const *)r->reconfigure_handles : NULL,
    };
}

static enum tutti_status read_place(void *out, const uint8_t *bytes, size_t n)
{
    Torchft__ManagerQuorumResponse *response = torchft__manager_quorum_response__unpack(NULL, n, bytes);

    if (!response || !is_sound(response)) {
        if (response) torchft__manager_quorum_response__free_unpacked(response, NULL);
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the manager's answer is no place in a quorum");
    }
    struct given *given =
        tutti_alloc(sizeof(*given) + response->n_recover_dst_replica_ranks * sizeof(given->targets[0]));
    if (!given) {
        torchft__manager_quorum_response__free_unpacked(response, NULL);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a place in a quorum");
    }
    given->response = response;
    fill(given);
    *(struct tutti_ft_place **)out = &given->place;
    return TUTTI_OK;
}

enum tutti_status tutti_ft_client_quorum(struct tutti_ft_client *client, const struct tutti_ft_request *request,
                                         uint64_t timeout_ns, struct tutti_ft_place **out)
{
    Torchft__ManagerQuorumRequest packed = TORCHFT__MANAGER_QUORUM_REQUEST__INIT;
    char what[64];

    if (!client || !request || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_client_quorum: client, request or out is NULL");
    packed.group_rank = request->group_rank;
    packed.step = request->step;
    packed.checkpoint_metadata = client_text(request->checkpoint_metadata);
    packed.shrink_only = request->shrink_only;
    packed.init_sync = request->init_sync;
    packed.commit_failures = request->commit_failures;
    packed.reconfigure_handle = client_text(request->reconfigure_handle);
    packed.pid = getpid();
    snprintf(what, sizeof what, "quorum of rank %" PRIu32, request->group_rank);
    const struct client_call call = {.what = what,
                                     .path = "/torchft.ManagerService/Quorum",
                                     .body = tutti_message_body(&packed.base),
                                     .timeout_ns = timeout_ns,
                                     .read = read_place,
                                     .out = out};
    return client_call(&client->client, &call);
}

/* ---- votes ---- */
static enum tutti_status read_commit(void *out, const uint8_t *bytes, size_t n)
{
    Torchft__ShouldCommitResponse *response = torchft__should_commit_response__unpack(NULL, n, bytes);

    if (!response) return tutti_fail(TUTTI_ERR_PROTOCOL, "the manager's answer to a vote can not be read");
    *(bool *)out = response->should_commit;
    torchft__should_commit_response__free_unpacked(response, NULL);
    return TUTTI_OK;
}

enum tutti_status tutti_ft_client_should_commit(struct tutti_ft_client *client, uint32_t group_rank, int64_t step,
                                                bool vote, uint64_t timeout_ns, bool *commit)
{
    Torchft__ShouldCommitRequest packed = TORCHFT__SHOULD_COMMIT_REQUEST__INIT;
    char what[80];

    if (!client || !commit)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_client_should_commit: %s is NULL", client ? "commit" : "client");
    packed.group_rank = group_rank;
    packed.step = step;
    packed.should_commit = vote;
    snprintf(what, sizeof what, "should_commit of rank %" PRIu32 ", step %" PRId64, group_rank, step);
    const struct client_call call = {.what = what,
                                     .path = "/torchft.ManagerService/ShouldCommit",
                                     .body = tutti_message_body(&packed.base),
                                     .timeout_ns = timeout_ns,
                                     .read = read_commit,
                                     .out = commit};
    return client_call(&client->client, &call);
}

/* ---- where the state is ---- */
static enum tutti_status read_metadata(void *out, const uint8_t *bytes, size_t n)
{
    Torchft__CheckpointMetadataResponse *response = torchft__checkpoint_metadata_response__unpack(NULL, n, bytes);

    if (!response) return tutti_fail(TUTTI_ERR_PROTOCOL, "the manager's answer is no checkpoint_metadata");
    char *text = strdup(response->checkpoint_metadata); /* by malloc: the caller frees it */
    torchft__checkpoint_metadata_response__free_unpacked(response, NULL);
    if (!text) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for checkpoint_metadata");
    *(char **)out = text;
    return TUTTI_OK;
}

enum tutti_status tutti_ft_client_checkpoint_metadata(struct tutti_ft_client *client, uint32_t group_rank,
                                                      uint64_t timeout_ns, char **out)
{
    Torchft__CheckpointMetadataRequest packed = TORCHFT__CHECKPOINT_METADATA_REQUEST__INIT;
    char what[64];

    if (!client || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_client_checkpoint_metadata: %s is NULL", client ? "out" : "client");
    packed.rank = group_rank;
    snprintf(what, sizeof what, "checkpoint_metadata of rank %" PRIu32, group_rank);
    const struct client_call call = {.what = what,
                                     .path = "/torchft.ManagerService/CheckpointMetadata",
                                     .body = tutti_message_body(&packed.base),
                                     .timeout_ns = timeout_ns,
                                     .read = read_metadata,
                                     .out = out};
    return client_call(&client->client, &call);
}

/* ---- progress ---- */
#define PROGRESS_NS (5 * TUTTI_NS_PER_S)

static void on_progress_sent(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes,
                             size_t n)
{
    struct progress *progress = arg;

    (void)status, (void)message, (void)bytes, (void)n; /* the next one says more */
    progress->request = NULL;
    pthread_mutex_lock(&progress->mutex);
    const bool fresh = progress->fresh;
    pthread_mutex_unlock(&progress->mutex);
    struct tutti_ft_client *client =
        (struct tutti_ft_client *)((char *)progress - offsetof(struct tutti_ft_client, progress));
    if (fresh) tutti_loop_post(client->client.loop, &progress->post);
}

static void progress_send(struct tutti_loop_post *post)
{
    struct progress *progress = (struct progress *)post;
    struct tutti_ft_client *client =
        (struct tutti_ft_client *)((char *)progress - offsetof(struct tutti_ft_client, progress));
    Torchft__ProgressRequest packed = TORCHFT__PROGRESS_REQUEST__INIT;

    if (client->client.closes || progress->request) return;
    pthread_mutex_lock(&progress->mutex);
    packed.group_rank = progress->group_rank;
    packed.step = progress->step;
    packed.collective = progress->collective;
    progress->fresh = false;
    pthread_mutex_unlock(&progress->mutex);
    const struct tutti_rpc_ask ask = {.path = "/tutti.ManagerService/Progress",
                                      .body = tutti_message_body(&packed.base),
                                      .deadline_ns = tutti_deadline_ns(PROGRESS_NS),
                                      .done = on_progress_sent,
                                      .arg = progress};
    progress->request = tutti_rpc_send(client->client.channel, &ask);
}

enum tutti_status tutti_ft_client_progress(struct tutti_ft_client *client, uint32_t group_rank, int64_t step,
                                           uint64_t collective)
{
    if (!client) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_client_progress: client is NULL");
    if (!client->is_ours)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "ft_client_progress: the manager is not tutti's, and knows no progress");
    pthread_mutex_lock(&client->progress.mutex);
    client->progress.group_rank = group_rank;
    client->progress.step = step;
    client->progress.collective = collective;
    client->progress.fresh = true;
    pthread_mutex_unlock(&client->progress.mutex);
    tutti_loop_post(client->client.loop, &client->progress.post);
    return TUTTI_OK;
}

/* ---- the end ---- */
enum tutti_status tutti_ft_client_kill(struct tutti_ft_client *client, const char *why, uint64_t timeout_ns)
{
    Torchft__KillRequest packed = TORCHFT__KILL_REQUEST__INIT;

    if (!client) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_client_kill: client is NULL");
    packed.msg = client_text(why);
    const struct client_call call = {.what = "kill",
                                     .path = "/torchft.ManagerService/Kill",
                                     .body = tutti_message_body(&packed.base),
                                     .timeout_ns = timeout_ns,
                                     .gone_is_done = true};
    return client_call(&client->client, &call);
}
