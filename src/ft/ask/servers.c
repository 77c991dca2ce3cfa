/* SPDX-License-Identifier: BSD-3-Clause */
/* A list of servers, and requests that outlive one of them. */
#include "ft/ask/servers.h"

#include "ft/message/message.h"

#include <stdio.h>
#include <string.h>

#define MOST_SERVERS 64
#define ADDRESS_TEXT 320
#define DIAL_NS (2 * TUTTI_NS_PER_S)
#define DIALLED_NS (10 * TUTTI_NS_PER_S) /* a request that lived so long had reached somebody */
#define PAUSE_FIRST_NS (50 * TUTTI_NS_PER_MS)
#define PAUSE_MOST_NS TUTTI_NS_PER_S

struct tutti_servers {
    struct tutti_loop *loop;
    struct tutti_loop_timer timer; /* until what waits is sent */
    struct tutti_rpc_channel *channels[MOST_SERVERS];
    uint32_t n, now;   /* now: which one is asked */
    uint32_t turn;     /* changes when the one that is asked does */
    uint32_t n_failed; /* since one answered */
    uint64_t pause_ns;
    struct tutti_asked *asked;
};

static void on_time(struct tutti_loop_timer *timer);

static enum tutti_status add(struct tutti_servers *servers, const char *at, size_t n, const char *what,
                             const char *secret)
{
    char address[ADDRESS_TEXT];
    const struct tutti_rpc_channel_config config = {.loop = servers->loop,
                                                    .address = address,
                                                    .max_message = TUTTI_MESSAGE_BYTES,
                                                    .secret = secret,
                                                    .dial_ns = DIAL_NS,
                                                    .gives_up = true};

    if (servers->n == MOST_SERVERS) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: more than %d", what, MOST_SERVERS);
    if (n >= sizeof address) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: an address is too long", what);
    snprintf(address, sizeof address, "%.*s", (int)n, at);
    const enum tutti_status status = tutti_rpc_channel_open(&config, &servers->channels[servers->n]);
    if (status == TUTTI_ERR_ARGUMENT)
        return tutti_fail(status, "%s: \"%.200s\" is no address: write http://HOST:PORT", what, address);
    if (status < 0) return status;
    servers->n++;
    return TUTTI_OK;
}

enum tutti_status tutti_servers_open(struct tutti_loop *loop, const char *addresses, const char *what,
                                     const char *secret, struct tutti_servers **out)
{
    struct tutti_servers *servers = tutti_alloc(sizeof(*servers));
    enum tutti_status status = TUTTI_OK;

    if (!servers) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a client");
    servers->loop = loop;
    servers->timer.due = on_time;
    for (const char *at = addresses; status >= 0 && at[0];) {
        const size_t n = strcspn(at, ", ");
        if (n > 0) status = add(servers, at, n, what, secret);
        at += n + strspn(at + n, ", ");
    }
    if (status >= 0 && servers->n == 0) status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s: there is no address", what);
    if (status < 0)
        tutti_servers_close(servers);
    else
        *out = servers;
    return status;
}

const char *tutti_servers_authority(const struct tutti_servers *servers)
{
    return tutti_rpc_channel_authority(servers->channels[servers->now]);
}

uint32_t tutti_servers_n(const struct tutti_servers *servers)
{
    return servers->n;
}

/* ---- requests ---- */
static void forget(struct tutti_asked *asked)
{
    struct tutti_asked **link = &asked->servers->asked;

    while (*link && *link != asked) link = &(*link)->next;
    if (*link) *link = asked->next;
    tutti_rpc_body_give(asked->body);
    asked->body = NULL;
    asked->request = NULL;
    asked->servers = NULL;
}

static void finish(struct tutti_asked *asked, enum tutti_rpc_status status, const char *message, const uint8_t *bytes,
                   size_t n)
{
    forget(asked);
    asked->done(asked->arg, status, message, bytes, n);
}

static void wait_a_turn(struct tutti_servers *servers)
{
    uint64_t due = tutti_now_ns();

    if (servers->n_failed % servers->n == 0) {
        servers->pause_ns = servers->pause_ns ? servers->pause_ns + servers->pause_ns / 2 : PAUSE_FIRST_NS;
        if (servers->pause_ns > PAUSE_MOST_NS) servers->pause_ns = PAUSE_MOST_NS;
        due += servers->pause_ns;
    }
    for (const struct tutti_asked *asked = servers->asked; asked; asked = asked->next)
        if (asked->deadline_ns < due) due = asked->deadline_ns;
    tutti_loop_at(servers->loop, &servers->timer, due);
}

/* The server that this was sent to is lost: the next one. The first of its requests that ends moves on. */
static void move_on(struct tutti_servers *servers, const struct tutti_asked *asked)
{
    if (asked->turn != servers->turn) return;
    servers->turn++;
    servers->n_failed++;
    servers->now = (servers->now + 1) % servers->n;
    wait_a_turn(servers);
}

static void on_done(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct tutti_asked *asked = arg;
    struct tutti_servers *servers = asked->servers;
    const uint64_t now = tutti_now_ns();

    asked->request = NULL;
    if (status != TUTTI_RPC_UNAVAILABLE && !(status == TUTTI_RPC_DEADLINE_EXCEEDED && asked->probe)) {
        if (status != TUTTI_RPC_DEADLINE_EXCEEDED && asked->turn == servers->turn)
            servers->n_failed = 0, servers->pause_ns = 0;
        finish(asked, status, message, bytes, n);
        return;
    }
    struct tutti_rpc_channel *silent =
        status == TUTTI_RPC_DEADLINE_EXCEEDED && asked->turn == servers->turn ? servers->channels[servers->now] : NULL;
    move_on(servers, asked);
    if (asked->lost_ns == 0 || now - asked->sent_ns > DIALLED_NS) asked->lost_ns = now;
    if (status == TUTTI_RPC_DEADLINE_EXCEEDED || asked->reach_ns == 0 || now - asked->lost_ns >= asked->reach_ns ||
        now >= asked->deadline_ns)
        finish(asked, status, message, NULL, 0);
    else if (servers->timer.due_ns == 0) /* another request has moved on already, and its pause is over */
        wait_a_turn(servers);
    if (silent) tutti_rpc_channel_drop(silent); /* what else was sent there goes on, too */
}

static void on_each(void *arg, const uint8_t *bytes, size_t n)
{
    struct tutti_asked *asked = arg;

    asked->each(asked->arg, bytes, n);
}

/* False: out of memory. */
static bool submit(struct tutti_servers *servers, struct tutti_asked *asked)
{
    asked->turn = servers->turn;
    asked->sent_ns = tutti_now_ns();
    asked->body->refs++;
    asked->request =
        tutti_rpc_send(servers->channels[servers->now], asked->path, asked->body, asked->deadline_ns, on_done, asked);
    if (asked->request && asked->each) tutti_rpc_set_each(asked->request, on_each);
    return asked->request != NULL;
}

static struct tutti_asked *next_waiting(const struct tutti_servers *servers)
{
    struct tutti_asked *asked = servers->asked;

    while (asked && asked->request) asked = asked->next;
    return asked;
}

static void on_time(struct tutti_loop_timer *timer)
{
    struct tutti_servers *servers = (struct tutti_servers *)((char *)timer - offsetof(struct tutti_servers, timer));
    struct tutti_asked *asked;

    while ((asked = next_waiting(servers)))
        if (!submit(servers, asked))
            finish(asked, TUTTI_RPC_RESOURCE_EXHAUSTED, "out of memory for a request", NULL, 0);
}

void tutti_servers_ask(struct tutti_servers *servers, struct tutti_asked *asked)
{
    asked->servers = servers;
    asked->request = NULL;
    asked->lost_ns = 0;
    asked->next = servers->asked;
    servers->asked = asked;
    const uint64_t due = servers->timer.due_ns;
    if (due == 0 && !submit(servers, asked)) tutti_loop_at(servers->loop, &servers->timer, tutti_now_ns());
    if (due > asked->deadline_ns) tutti_loop_at(servers->loop, &servers->timer, asked->deadline_ns);
}

void tutti_servers_withdraw(struct tutti_asked *asked)
{
    struct tutti_rpc_request *request = asked->request;

    forget(asked);
    if (request) tutti_rpc_withdraw(request);
}

bool tutti_asked_open(const struct tutti_asked *asked)
{
    return asked->servers != NULL;
}

static void end_all(void *arg)
{
    struct tutti_servers *servers = arg;

    while (servers->asked) tutti_servers_withdraw(servers->asked);
    tutti_loop_stop(servers->loop, &servers->timer);
}

void tutti_servers_close(struct tutti_servers *servers)
{
    if (!servers) return;
    tutti_loop_run(servers->loop, end_all, servers);
    for (uint32_t i = 0; i < servers->n; i++) tutti_rpc_channel_close(servers->channels[i]);
    tutti_free(servers);
}
