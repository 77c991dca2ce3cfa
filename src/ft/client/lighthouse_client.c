/* SPDX-License-Identifier: BSD-3-Clause */
/* Public calls: a group that asks lighthouses itself, their settings, and failures as they happen. */
#include "ft/client/client.h"

#include <tutti.pb-c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tutti_ft_lighthouse_client {
    struct client client;
};

enum tutti_status tutti_ft_lighthouse_client_open(const char *addresses, uint64_t connect_timeout_ns,
                                                  struct tutti_ft_lighthouse_client **out)
{
    bool is_ours;

    if (!addresses || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_client_open: %s is NULL", addresses ? "out" : "addresses");
    struct tutti_ft_lighthouse_client *client = tutti_alloc(sizeof(*client));
    if (!client) return tutti_fail(TUTTI_ERR_MEMORY, "ft_lighthouse_client_open: out of memory");
    const enum tutti_status status = client_open(&client->client, addresses, "connecting to the lighthouse",
                                                 "/tutti.LighthouseService/Hello", connect_timeout_ns, &is_ours);
    if (status >= 0)
        *out = client;
    else
        tutti_ft_lighthouse_client_close(client);
    return status;
}

void tutti_ft_lighthouse_client_close(struct tutti_ft_lighthouse_client *client)
{
    if (!client) return;
    const struct tutti_error why = *tutti_last_error();
    client_close(&client->client);
    tutti_free(client);
    if (why.status < 0) tutti_fail_record(&why);
}

/* ---- quorums ---- */
/* What a caller gets: the members, and behind them what they point into. */
struct given_quorum {
    struct tutti_ft_quorum quorum; /* first */
    struct tutti_quorum *read;
    struct tutti_ft_member members[];
};

void tutti_ft_quorum_free(struct tutti_ft_quorum *quorum)
{
    struct given_quorum *given = (struct given_quorum *)quorum;

    if (!given) return;
    tutti_quorum_give(given->read);
    tutti_free(given);
}

static enum tutti_status read_quorum(void *out, const uint8_t *bytes, size_t n)
{
    struct tutti_quorum *read;

    TUTTI_TRY(tutti_message_quorum(bytes, n, &read));
    struct given_quorum *given = tutti_alloc(sizeof(*given) + read->n * sizeof(given->members[0]));
    if (!given) {
        tutti_quorum_give(read);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a quorum");
    }
    given->read = read;
    given->quorum = (struct tutti_ft_quorum){
        .id = read->id, .created_ns = read->created_ns, .n_members = read->n, .members = given->members};
    for (uint32_t i = 0; i < read->n; i++) {
        const struct tutti_replica *r = read->members[i];
        given->members[i] = (struct tutti_ft_member){.replica_id = r->replica_id,
                                                     .address = r->address,
                                                     .store_address = r->store_address,
                                                     .data = r->data,
                                                     .step = r->step,
                                                     .commit_failures = r->commit_failures,
                                                     .world_size = r->world_size,
                                                     .shrink_only = r->shrink_only,
                                                     .n_handles = r->n_handles,
                                                     .handles = r->handles};
    }
    *(struct tutti_ft_quorum **)out = &given->quorum;
    return TUTTI_OK;
}

enum tutti_status tutti_ft_lighthouse_client_quorum(struct tutti_ft_lighthouse_client *client,
                                                    const struct tutti_ft_member *member, uint64_t timeout_ns,
                                                    struct tutti_ft_quorum **out)
{
    Torchft__QuorumMember packed = TORCHFT__QUORUM_MEMBER__INIT;
    Torchft__LighthouseQuorumRequest request = TORCHFT__LIGHTHOUSE_QUORUM_REQUEST__INIT;
    char what[200];

    if (!client || !member || !out || !member->replica_id)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "ft_lighthouse_client_quorum: client, member, its replica_id or out is NULL");
    packed.replica_id = client_text(member->replica_id);
    packed.address = client_text(member->address);
    packed.store_address = client_text(member->store_address);
    packed.data = client_text(member->data);
    packed.step = member->step;
    packed.commit_failures = member->commit_failures;
    packed.world_size = member->world_size;
    packed.shrink_only = member->shrink_only;
    packed.n_reconfigure_handles = member->n_handles;
    packed.reconfigure_handles = (char **)(uintptr_t)member->handles;
    request.requester = &packed;
    snprintf(what, sizeof what, "quorum of %.100s", member->replica_id);
    const struct client_call call = {.what = what,
                                     .path = "/torchft.LighthouseService/Quorum",
                                     .body = tutti_message_body(&request.base),
                                     .timeout_ns = timeout_ns,
                                     .persists = true,
                                     .read = read_quorum,
                                     .out = out};
    return client_call(&client->client, &call);
}

enum tutti_status tutti_ft_lighthouse_client_heartbeat(struct tutti_ft_lighthouse_client *client,
                                                       const char *replica_id, uint64_t timeout_ns)
{
    Torchft__LighthouseHeartbeatRequest request = TORCHFT__LIGHTHOUSE_HEARTBEAT_REQUEST__INIT;
    char what[200];

    if (!client || !replica_id)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_client_heartbeat: client or replica_id is NULL");
    request.replica_id = client_text(replica_id);
    snprintf(what, sizeof what, "heartbeat of %.100s", replica_id);
    const struct client_call call = {.what = what,
                                     .path = "/torchft.LighthouseService/Heartbeat",
                                     .body = tutti_message_body(&request.base),
                                     .timeout_ns = timeout_ns,
                                     .persists = true};
    return client_call(&client->client, &call);
}

#define KEPT 4096 /* failures that nobody asked for yet; the oldest go first */

/* ---- settings ---- */
/* What a caller gets, and behind it what it points into. */
struct given_settings {
    struct tutti_ft_settings settings; /* first */
    Tutti__ConfigResponse *read;
    struct tutti_ft_setting list[];
};

void tutti_ft_settings_free(struct tutti_ft_settings *settings)
{
    struct given_settings *given = (struct given_settings *)settings;

    if (!given) return;
    tutti__config_response__free_unpacked(given->read, NULL);
    tutti_free(given);
}

static enum tutti_status read_settings(void *out, const uint8_t *bytes, size_t n)
{
    Tutti__ConfigResponse *read = tutti__config_response__unpack(NULL, n, bytes);

    if (!read) return tutti_fail(TUTTI_ERR_PROTOCOL, "the lighthouse's settings can not be read");
    struct given_settings *given = tutti_alloc(sizeof(*given) + read->n_config_data * sizeof(given->list[0]));
    if (!given) {
        tutti__config_response__free_unpacked(read, NULL);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a lighthouse's settings");
    }
    given->read = read;
    given->settings = (struct tutti_ft_settings){.n = (uint32_t)read->n_config_data, .list = given->list};
    for (size_t i = 0; i < read->n_config_data; i++)
        given->list[i] = (struct tutti_ft_setting){read->config_data[i]->key, read->config_data[i]->value};
    *(struct tutti_ft_settings **)out = &given->settings;
    return TUTTI_OK;
}

enum tutti_status tutti_ft_lighthouse_client_settings(struct tutti_ft_lighthouse_client *client, uint64_t timeout_ns,
                                                      struct tutti_ft_settings **out)
{
    if (!client || !out) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_client_settings: client or out is NULL");
    const struct client_call call = {.what = "the lighthouse's settings",
                                     .path = "/torchft.LighthouseService/GetConfig",
                                     .body = tutti_rpc_body_new(0),
                                     .timeout_ns = timeout_ns,
                                     .persists = true,
                                     .read = read_settings,
                                     .out = out};
    return client_call(&client->client, &call);
}

/* ---- failures ---- */
struct failure {
    struct failure *next;
    char *replica_id;
};
struct tutti_ft_failures {
    struct tutti_ft_lighthouse_client *client;
    struct tutti_rpc_request *request; /* the loop's thread's; NULL: it is over */
    pthread_mutex_t mutex;             /* for what follows */
    pthread_cond_t some;
    struct failure *first, **last;
    uint32_t n;
    enum tutti_rpc_status ended; /* OK: it goes on */
    char why[TUTTI_ERROR_TEXT / 2];
};

static struct failure *take_first(struct tutti_ft_failures *failures)
{
    struct failure *first = failures->first;

    if (!first) return NULL;
    failures->first = first->next;
    if (!first->next) failures->last = &failures->first;
    failures->n--;
    return first;
}

static void drop(struct failure *failure)
{
    if (failure) free(failure->replica_id);
    tutti_free(failure);
}

static void on_each(void *arg, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_failures *failures = arg;
    Tutti__FailureNotification *note = tutti__failure_notification__unpack(NULL, n, bytes);
    struct failure *failure = note ? tutti_alloc(sizeof(*failure)) : NULL;

    if (failure) failure->replica_id = strdup(note->replica_id);
    if (note) tutti__failure_notification__free_unpacked(note, NULL);
    if (!failure || !failure->replica_id) {
        drop(failure);
        return;
    }
    pthread_mutex_lock(&failures->mutex);
    if (failures->n == KEPT) drop(take_first(failures));
    *failures->last = failure;
    failures->last = &failure->next;
    failures->n++;
    pthread_cond_broadcast(&failures->some);
    pthread_mutex_unlock(&failures->mutex);
}

static void on_end(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_ft_failures *failures = arg;

    failures->request = NULL;
    (void)bytes, (void)n;
    pthread_mutex_lock(&failures->mutex);
    failures->ended = status == TUTTI_RPC_OK ? TUTTI_RPC_UNAVAILABLE : status;
    snprintf(failures->why, sizeof failures->why, "%s", message[0] ? message : "the lighthouse ended it");
    pthread_cond_broadcast(&failures->some);
    pthread_mutex_unlock(&failures->mutex);
}

static void subscribe(void *arg)
{
    struct tutti_ft_failures *failures = arg;
    const struct tutti_rpc_ask ask = {.path = "/torchft.LighthouseService/SubscribeFailures",
                                      .body = tutti_rpc_body_new(0),
                                      .deadline_ns = TUTTI_NEVER,
                                      .reach_ns = TUTTI_NEVER,
                                      .each = on_each,
                                      .done = on_end,
                                      .arg = failures};

    failures->request = tutti_rpc_send(failures->client->client.channel, &ask);
    if (!failures->request) on_end(failures, TUTTI_RPC_RESOURCE_EXHAUSTED, "out of memory", NULL, 0);
}

enum tutti_status tutti_ft_failures_open(struct tutti_ft_lighthouse_client *client, struct tutti_ft_failures **out)
{
    pthread_condattr_t monotonic;

    if (!client || !out) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_failures_open: client or out is NULL");
    struct tutti_ft_failures *failures = tutti_alloc(sizeof(*failures));
    if (!failures) return tutti_fail(TUTTI_ERR_MEMORY, "ft_failures_open: out of memory");
    failures->client = client;
    failures->last = &failures->first;
    pthread_mutex_init(&failures->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&failures->some, &monotonic);
    pthread_condattr_destroy(&monotonic);
    tutti_loop_run(client->client.loop, subscribe, failures);
    *out = failures;
    return TUTTI_OK;
}

/* Until there is one, it is over, or the time has passed; with the mutex. */
static void await(struct tutti_ft_failures *failures, uint64_t until)
{
    const struct timespec at = {(time_t)(until / TUTTI_NS_PER_S), (long)(until % TUTTI_NS_PER_S)};
    int wrong = 0;

    while (!failures->first && failures->ended == TUTTI_RPC_OK && wrong == 0)
        wrong = until == TUTTI_NEVER ? pthread_cond_wait(&failures->some, &failures->mutex)
                                     : pthread_cond_timedwait(&failures->some, &failures->mutex, &at);
}

enum tutti_status tutti_ft_failures_next(struct tutti_ft_failures *failures, uint64_t timeout_ns, char **replica_id)
{
    enum tutti_status status = TUTTI_OK;

    if (!failures || !replica_id)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_failures_next: failures or replica_id is NULL");
    pthread_mutex_lock(&failures->mutex);
    await(failures, tutti_deadline_ns(timeout_ns));
    struct failure *first = take_first(failures);
    if (first)
        *replica_id = first->replica_id;
    else if (failures->ended == TUTTI_RPC_OK)
        status = tutti_fail(TUTTI_ERR_TIMEOUT, "no failure was told within %llu ms", tutti_says_ms(timeout_ns));
    else
        status = tutti_fail(failures->ended == TUTTI_RPC_UNIMPLEMENTED ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_SYSTEM,
                            "failures are not told any more: %s", failures->why);
    pthread_mutex_unlock(&failures->mutex);
    tutti_free(first);
    return status;
}

static void unsubscribe(void *arg)
{
    struct tutti_ft_failures *failures = arg;

    if (failures->request) tutti_rpc_withdraw(failures->request);
}

void tutti_ft_failures_close(struct tutti_ft_failures *failures)
{
    if (!failures) return;
    tutti_loop_run(failures->client->client.loop, unsubscribe, failures);
    while (failures->first) drop(take_first(failures));
    pthread_cond_destroy(&failures->some);
    pthread_mutex_destroy(&failures->mutex);
    tutti_free(failures);
}
