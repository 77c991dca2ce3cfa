/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that blocks: it is posted to the loop, sent there, and waited for here. Its memory is the caller's stack. */
#include "ft/client/client.h"

#include "base/tls.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct waiting {
    struct tutti_loop_post post; /* first */
    struct tutti_rpc_request *request;
    struct client *client;
    const struct client_call *call;
    struct waiting *next;
    uint64_t deadline_ns;
    _Atomic uint32_t done;
    struct tutti_error error;
    enum tutti_rpc_status answer;
};

/* The names that torchft's clients see, and what they are here. */
static const struct {
    enum tutti_rpc_status answer;
    const char *name;
    enum tutti_status status;
} answers[] = {
    {TUTTI_RPC_CANCELLED, "Cancelled", TUTTI_ERR_TIMEOUT},
    {TUTTI_RPC_DEADLINE_EXCEEDED, "Cancelled", TUTTI_ERR_TIMEOUT}, /* as torchft's say it at either end */
    {TUTTI_RPC_INVALID_ARGUMENT, "InvalidArgument", TUTTI_ERR_ARGUMENT},
    {TUTTI_RPC_NOT_FOUND, "NotFound", TUTTI_ERR_ARGUMENT},
    {TUTTI_RPC_PERMISSION_DENIED, "PermissionDenied", TUTTI_ERR_AUTH},
    {TUTTI_RPC_UNAUTHENTICATED, "Unauthenticated", TUTTI_ERR_AUTH},
    {TUTTI_RPC_RESOURCE_EXHAUSTED, "ResourceExhausted", TUTTI_ERR_MEMORY},
    {TUTTI_RPC_ABORTED, "Aborted", TUTTI_ERR_SYSTEM},
    {TUTTI_RPC_UNIMPLEMENTED, "Unimplemented", TUTTI_ERR_UNSUPPORTED},
    {TUTTI_RPC_INTERNAL, "Internal", TUTTI_ERR_SYSTEM},
    {TUTTI_RPC_UNAVAILABLE, "Unavailable", TUTTI_ERR_SYSTEM},
};

static void describe(struct waiting *waiting, enum tutti_rpc_status answer, const char *message)
{
    const struct client_call *call = waiting->call;
    const char *name = "Unknown";
    enum tutti_status status = TUTTI_ERR_SYSTEM;

    for (size_t i = 0; i < TUTTI_ARRAY_LEN(answers); i++)
        if (answers[i].answer == answer) name = answers[i].name, status = answers[i].status;
    const char *at = tutti_rpc_channel_authority(waiting->client->channel);
    if (status == TUTTI_ERR_TIMEOUT)
        tutti_error_set(&waiting->error, status,
                        "%s " TUTTI_SAYS_TIMED_OUT ": status: Cancelled, message: \"Timeout expired\" (%s: %.600s)",
                        call->what, tutti_says_ms(call->timeout_ns), at, message);
    else
        tutti_error_set(&waiting->error, status, "%s at %s: status: %s, message: \"%.600s\"", call->what, at, name,
                        message);
}

static void wake(struct waiting *waiting)
{
    atomic_store(&waiting->done, 1);
    tutti_futex_wake(&waiting->done, 1); /* the caller may be gone: then nobody sleeps there */
}

/* ---- the loop's thread ---- */
static void leave(struct waiting *waiting)
{
    struct waiting **link = &waiting->client->waiting;

    while (*link != waiting) link = &(*link)->next;
    *link = waiting->next;
}

static void on_done(void *arg, enum tutti_rpc_status answer, const char *message, const uint8_t *bytes, size_t n)
{
    struct waiting *waiting = arg;
    const struct client_call *call = waiting->call;

    leave(waiting);
    waiting->answer = answer;
    if (answer == TUTTI_RPC_UNAVAILABLE && call->gone_is_done)
        waiting->error.status = TUTTI_OK;
    else if (answer != TUTTI_RPC_OK)
        describe(waiting, answer, message);
    else if (call->read && call->read(call->out, bytes, n) < 0)
        waiting->error = *tutti_last_error();
    wake(waiting);
}

static void withdrawn(struct waiting *waiting)
{
    tutti_error_set(&waiting->error, TUTTI_ERR_CANCELLED, "%s: the client was closed", waiting->call->what);
    wake(waiting);
}

static void send_now(struct tutti_loop_post *post)
{
    struct waiting *waiting = (struct waiting *)post;
    struct client *client = waiting->client;
    const struct client_call *call = waiting->call;
    const struct tutti_rpc_ask ask = {.path = call->path,
                                      .body = call->body,
                                      .deadline_ns = waiting->deadline_ns,
                                      .reach_ns = call->persists ? TUTTI_NEVER : 0,
                                      .done = on_done,
                                      .arg = waiting};

    if (client->closes) {
        tutti_rpc_body_give(call->body);
        withdrawn(waiting);
        return;
    }
    waiting->next = client->waiting;
    client->waiting = waiting;
    waiting->request = tutti_rpc_send(client->channel, &ask);
    if (!waiting->request) on_done(waiting, TUTTI_RPC_RESOURCE_EXHAUSTED, "out of memory for a request", NULL, 0);
}

static void withdraw_all(void *arg)
{
    struct client *client = arg;

    client->closes = true;
    while (client->waiting) {
        struct waiting *waiting = client->waiting;
        leave(waiting);
        tutti_rpc_withdraw(waiting->request);
        withdrawn(waiting);
    }
}

/* ---- the callers' ---- */
static void count(struct client *client, int by)
{
    pthread_mutex_lock(&client->mutex);
    client->n_calls += (uint32_t)by;
    if (client->n_calls == 0) pthread_cond_broadcast(&client->none);
    pthread_mutex_unlock(&client->mutex);
}

static enum tutti_status ask(struct client *client, const struct client_call *call, enum tutti_rpc_status *answer)
{
    struct waiting waiting = {
        .post = {.call = send_now}, .client = client, .call = call, .deadline_ns = tutti_deadline_ns(call->timeout_ns)};

    if (!call->body) return tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", call->what);
    count(client, 1);
    tutti_loop_post(client->loop, &waiting.post);
    while (!atomic_load(&waiting.done))
        tutti_futex_wait(&waiting.done, 0, TUTTI_NEVER); /* the loop minds the deadline */
    *answer = waiting.answer;
    count(client, -1);
    return waiting.error.status < 0 ? tutti_fail_record(&waiting.error) : TUTTI_OK;
}

enum tutti_status client_call(struct client *client, const struct client_call *call)
{
    enum tutti_rpc_status answer;

    return ask(client, call, &answer);
}

enum tutti_status client_open(struct client *client, const char *addresses, const char *what, const char *hello,
                              uint64_t connect_timeout_ns, bool *is_ours)
{
    const struct client_call call = {
        .what = what, .path = hello, .timeout_ns = connect_timeout_ns, .persists = true, .body = tutti_rpc_body_new(0)};
    enum tutti_rpc_status answer = TUTTI_RPC_UNAVAILABLE;
    char secret[TUTTI_MESSAGE_SECRET];
    struct tutti_certificate *certificate = NULL;

    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->none, NULL);
    enum tutti_status status = tutti_message_secret(NULL, secret);
    if (status >= 0) status = tutti_certificate_of(NULL, &certificate);
    if (status >= 0) status = tutti_loop_open("tutti-client", &client->loop);
    const struct tutti_rpc_channel_config config = {.loop = client->loop,
                                                    .addresses = addresses,
                                                    .what = what,
                                                    .max_message = TUTTI_MESSAGE_BYTES,
                                                    .secret = secret[0] ? secret : NULL,
                                                    .certificate = certificate,
                                                    .dial_ns = TUTTI_MESSAGE_DIAL_NS};
    if (status >= 0) status = tutti_rpc_channel_open(&config, &client->channel);
    explicit_bzero(secret, sizeof secret);
    if (status >= 0) status = tutti_loop_start(client->loop);
    if (status < 0) {
        tutti_rpc_body_give(call.body);
        return status;
    }
    status = ask(client, &call, &answer);
    *is_ours = status >= 0;
    return answer == TUTTI_RPC_UNIMPLEMENTED ? TUTTI_OK : status;
}

void client_withdraw(struct client *client)
{
    if (client->channel) tutti_loop_run(client->loop, withdraw_all, client);
}

void client_close(struct client *client)
{
    client_withdraw(client);
    pthread_mutex_lock(&client->mutex);
    while (client->n_calls > 0) pthread_cond_wait(&client->none, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
    tutti_rpc_channel_close(client->channel);
    if (client->loop) tutti_loop_close(client->loop);
    pthread_cond_destroy(&client->none);
    pthread_mutex_destroy(&client->mutex);
}
