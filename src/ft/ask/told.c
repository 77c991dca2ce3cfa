/* SPDX-License-Identifier: BSD-3-Clause */
/* Public calls: what lighthouses tell: their settings, and failures as they happen. */
#include "ft/ask/told.h"

#include "ft/message/message.h"

#include <tutti.pb-c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 4096 /* failures that nobody asked for yet; the oldest go first */

/* ---- settings ---- */
/* What a caller gets, and behind it what it points into. */
struct given {
    struct tutti_ft_settings settings; /* first */
    Tutti__ConfigResponse *read;
    struct tutti_ft_setting list[];
};

void tutti_ft_settings_free(struct tutti_ft_settings *settings)
{
    struct given *given = (struct given *)settings;

    if (!given) return;
    tutti__config_response__free_unpacked(given->read, NULL);
    tutti_free(given);
}

static enum tutti_status read_settings(void *out, const uint8_t *bytes, size_t n)
{
    Tutti__ConfigResponse *read = tutti__config_response__unpack(NULL, n, bytes);

    if (!read) return tutti_fail(TUTTI_ERR_PROTOCOL, "the lighthouse's settings can not be read");
    struct given *given = tutti_alloc(sizeof(*given) + read->n_config_data * sizeof(given->list[0]));
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
    const struct asker_call call = {.what = "the lighthouse's settings",
                                    .path = "/torchft.LighthouseService/GetConfig",
                                    .body = tutti_rpc_body_new(0),
                                    .timeout_ns = timeout_ns,
                                    .persists = true,
                                    .read = read_settings,
                                    .out = out};
    return asker_call(&client->asker, &call);
}

/* ---- failures ---- */
struct failure {
    struct failure *next;
    char *replica_id;
};
struct tutti_ft_failures {
    struct tutti_ft_lighthouse_client *client;
    struct tutti_asked asked; /* the loop's thread's */
    pthread_mutex_t mutex;    /* guards what follows */
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

    tutti_servers_ask(failures->client->asker.servers, &failures->asked);
}

enum tutti_status tutti_ft_failures_open(struct tutti_ft_lighthouse_client *client, struct tutti_ft_failures **out)
{
    pthread_condattr_t monotonic;

    if (!client || !out) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_failures_open: client or out is NULL");
    struct tutti_ft_failures *failures = tutti_alloc(sizeof(*failures));
    struct tutti_rpc_body *body = failures ? tutti_rpc_body_new(0) : NULL;
    if (!body) {
        tutti_free(failures);
        return tutti_fail(TUTTI_ERR_MEMORY, "ft_failures_open: out of memory");
    }
    failures->client = client;
    failures->last = &failures->first;
    failures->asked = (struct tutti_asked){.path = "/torchft.LighthouseService/SubscribeFailures",
                                           .body = body,
                                           .deadline_ns = TUTTI_NEVER,
                                           .reach_ns = TUTTI_NEVER,
                                           .each = on_each,
                                           .done = on_end,
                                           .arg = failures};
    pthread_mutex_init(&failures->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&failures->some, &monotonic);
    pthread_condattr_destroy(&monotonic);
    tutti_loop_run(client->asker.loop, subscribe, failures);
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

    if (tutti_asked_open(&failures->asked)) tutti_servers_withdraw(&failures->asked);
}

void tutti_ft_failures_close(struct tutti_ft_failures *failures)
{
    if (!failures) return;
    tutti_loop_run(failures->client->asker.loop, unsubscribe, failures);
    while (failures->first) drop(take_first(failures));
    pthread_cond_destroy(&failures->some);
    pthread_mutex_destroy(&failures->mutex);
    tutti_free(failures);
}
