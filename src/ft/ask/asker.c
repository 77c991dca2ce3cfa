/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that blocks: posted to the loop, sent there, waited for here. Its memory is the caller's stack. */
#include "ft/ask/asker.h"

#include "ft/message/message.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct waiting {
    struct tutti_loop_post post; /* first */
    struct tutti_asked asked;
    struct asker *asker;
    const struct asker_call *call;
    struct waiting *next;
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
    const struct asker_call *call = waiting->call;
    const char *name = "Unknown";
    enum tutti_status status = TUTTI_ERR_SYSTEM;

    for (size_t i = 0; i < TUTTI_ARRAY_LEN(answers); i++)
        if (answers[i].answer == answer) name = answers[i].name, status = answers[i].status;
    const char *at = tutti_servers_authority(waiting->asker->servers);
    if (status == TUTTI_ERR_TIMEOUT)
        tutti_error_set(&waiting->error, status,
                        "%s " TUTTI_SAYS_TIMED_OUT ": status: Cancelled, message: \"Timeout expired\" (%s: %.200s)",
                        call->what, tutti_says_ms(call->timeout_ns), at, message);
    else
        tutti_error_set(&waiting->error, status, "%s at %s: status: %s, message: \"%.300s\"", call->what, at, name,
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
    struct waiting **link = &waiting->asker->waiting;

    while (*link != waiting) link = &(*link)->next;
    *link = waiting->next;
}

static void on_done(void *arg, enum tutti_rpc_status answer, const char *message, const uint8_t *bytes, size_t n)
{
    struct waiting *waiting = arg;
    const struct asker_call *call = waiting->call;

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
    struct asker *asker = waiting->asker;

    if (asker->closes) {
        tutti_rpc_body_give(waiting->asked.body);
        withdrawn(waiting);
        return;
    }
    waiting->next = asker->waiting;
    asker->waiting = waiting;
    tutti_servers_ask(asker->servers, &waiting->asked);
}

static void withdraw_all(void *arg)
{
    struct asker *asker = arg;

    asker->closes = true;
    while (asker->waiting) {
        struct waiting *waiting = asker->waiting;
        leave(waiting);
        tutti_servers_withdraw(&waiting->asked);
        withdrawn(waiting);
    }
}

/* ---- the callers' ---- */
static void count(struct asker *asker, int by)
{
    pthread_mutex_lock(&asker->mutex);
    asker->n_calls += (uint32_t)by;
    if (asker->n_calls == 0) pthread_cond_broadcast(&asker->none);
    pthread_mutex_unlock(&asker->mutex);
}

static enum tutti_status ask(struct asker *asker, const struct asker_call *call, enum tutti_rpc_status *answer)
{
    struct waiting waiting = {.post = {.call = send_now}, .asker = asker, .call = call};

    if (!call->body) return tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", call->what);
    waiting.asked = (struct tutti_asked){.path = call->path,
                                         .body = call->body,
                                         .deadline_ns = tutti_deadline_ns(call->timeout_ns),
                                         .reach_ns = call->persists ? TUTTI_NEVER : 0,
                                         .done = on_done,
                                         .arg = &waiting};
    count(asker, 1);
    tutti_loop_post(asker->loop, &waiting.post);
    while (!atomic_load(&waiting.done))
        tutti_futex_wait(&waiting.done, 0, TUTTI_NEVER); /* the loop minds the deadline */
    *answer = waiting.answer;
    count(asker, -1);
    return waiting.error.status < 0 ? tutti_fail_record(&waiting.error) : TUTTI_OK;
}

enum tutti_status asker_call(struct asker *asker, const struct asker_call *call)
{
    enum tutti_rpc_status answer;

    return ask(asker, call, &answer);
}

enum tutti_status asker_open(struct asker *asker, const char *addresses, const char *what, const char *hello,
                             uint64_t connect_timeout_ns, bool *is_ours)
{
    const struct asker_call call = {
        .what = what, .path = hello, .timeout_ns = connect_timeout_ns, .persists = true, .body = tutti_rpc_body_new(0)};
    enum tutti_rpc_status answer = TUTTI_RPC_UNAVAILABLE;
    char secret[TUTTI_MESSAGE_SECRET];

    pthread_mutex_init(&asker->mutex, NULL);
    pthread_cond_init(&asker->none, NULL);
    enum tutti_status status = tutti_message_secret(NULL, secret);
    if (status >= 0) status = tutti_loop_open("tutti-client", &asker->loop);
    if (status >= 0)
        status = tutti_servers_open(asker->loop, addresses, what, secret[0] ? secret : NULL, &asker->servers);
    explicit_bzero(secret, sizeof secret);
    if (status >= 0) status = tutti_loop_start(asker->loop);
    if (status < 0) {
        tutti_rpc_body_give(call.body);
        return status;
    }
    status = ask(asker, &call, &answer);
    *is_ours = status >= 0;
    return answer == TUTTI_RPC_UNIMPLEMENTED ? TUTTI_OK : status;
}

void asker_close(struct asker *asker)
{
    if (asker->servers) tutti_loop_run(asker->loop, withdraw_all, asker);
    pthread_mutex_lock(&asker->mutex);
    while (asker->n_calls > 0) pthread_cond_wait(&asker->none, &asker->mutex);
    pthread_mutex_unlock(&asker->mutex);
    tutti_servers_close(asker->servers);
    if (asker->loop) tutti_loop_close(asker->loop);
    pthread_cond_destroy(&asker->none);
    pthread_mutex_destroy(&asker->mutex);
}
