/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_ASK_TEST_H
#define TUTTI_FT_RPC_ASK_TEST_H

/* Requests from a test's thread to servers over real sockets, on one loop: start and stop are the group's fixtures. */

#include "test.h"

#include "ft/rpc/rpc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS TUTTI_NS_PER_MS
#define S TUTTI_NS_PER_S
#define MOST ((size_t)1 << 20)

static struct tutti_loop *loop;

static inline int start(void **state)
{
    (void)state;
    return tutti_loop_open("test", &loop) < 0 || tutti_loop_start(loop) < 0 ? -1 : 0;
}

static inline int stop(void **state)
{
    (void)state;
    tutti_loop_close(loop);
    return 0;
}

/* ---- requests ---- */
/* What is asked, and what came. */
struct asked {
    struct tutti_rpc_channel *channel;
    const char *path;
    size_t n; /* bytes of a pattern, unless there is a body */
    struct tutti_rpc_body *body;
    uint64_t within_ns, reach_ns;
    bool probe;
    struct tutti_rpc_request *request;
    _Atomic bool done;
    enum tutti_rpc_status status;
    char message[256];
    bool same;                                                         /* the answer is what was asked */
    void (*read)(struct asked *asked, const uint8_t *bytes, size_t n); /* an answer's; NULL: nobody */
    int64_t id;                                                        /* what `read` found */
    size_t n_members;
};

static inline uint8_t byte_of(size_t i, size_t n)
{
    return (uint8_t)(i * 31 + n);
}

static inline void on_done(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct asked *asked = arg;

    asked->status = status;
    snprintf(asked->message, sizeof asked->message, "%s", message);
    asked->same = n == asked->n;
    for (size_t i = 0; asked->same && i < n; i++) asked->same = bytes[i] == byte_of(i, n);
    if (status == TUTTI_RPC_OK && asked->read) asked->read(asked, bytes, n);
    atomic_store(&asked->done, true);
}

static inline void ask_now(void *arg)
{
    struct asked *asked = arg;
    struct tutti_rpc_body *body = asked->body ? asked->body : tutti_rpc_body_new(asked->n);

    for (size_t i = 0; !asked->body && i < asked->n; i++) body->bytes[i] = byte_of(i, asked->n);
    const struct tutti_rpc_ask ask = {.path = asked->path,
                                      .body = body,
                                      .deadline_ns = tutti_now_ns() + asked->within_ns,
                                      .reach_ns = asked->reach_ns,
                                      .probe = asked->probe,
                                      .done = on_done,
                                      .arg = asked};
    asked->request = tutti_rpc_send(asked->channel, &ask);
    assert_non_null(asked->request);
}

static inline void await(_Atomic bool *done)
{
    const uint64_t until = tutti_now_ns() + 60 * S;

    while (!atomic_load(done)) {
        if (tutti_now_ns() > until) fail_msg("no end within a minute");
        usleep(200);
    }
}

static inline void begin(struct asked *asked)
{
    tutti_loop_run(loop, ask_now, asked);
}

/* It waits for a server as long as for its answer. */
static inline struct asked ask(struct tutti_rpc_channel *channel, const char *path, size_t n, uint64_t within_ns)
{
    struct asked asked = {.channel = channel, .path = path, .n = n, .within_ns = within_ns, .reach_ns = within_ns};

    begin(&asked);
    await(&asked.done);
    return asked;
}

static struct tutti_certificate *server_certificate, *client_certificate; /* for what is opened next */

static inline struct tutti_rpc_channel *dial_list(const char *addresses, const char *secret, uint64_t dial_ns)
{
    struct tutti_rpc_channel *channel;
    const struct tutti_rpc_channel_config config = {.loop = loop,
                                                    .addresses = addresses,
                                                    .max_message = MOST,
                                                    .secret = secret,
                                                    .certificate = client_certificate,
                                                    .dial_ns = dial_ns};

    if (tutti_rpc_channel_open(&config, &channel) < 0) fail_msg("%s", tutti_last_error()->text);
    return channel;
}

static inline struct tutti_rpc_channel *dial(uint16_t port, const char *secret)
{
    char address[40];

    snprintf(address, sizeof address, "http://localhost:%u", port);
    return dial_list(address, secret, 0);
}

/* ---- servers ---- */
static inline void on_echo(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct tutti_rpc_body *body = tutti_rpc_body_new(n);

    (void)arg;
    if (n > 0) memcpy(body->bytes, message, n);
    tutti_rpc_reply(call, body);
}

/* With one method, at a port of 127.0.0.1; 0: any. */
static inline struct tutti_rpc_server *serve_one(const struct tutti_rpc_method *method, uint16_t port,
                                                 const char *secret)
{
    char bind_at[32];
    struct tutti_rpc_server *server;
    const struct tutti_rpc_server_config config = {.loop = loop,
                                                   .bind = bind_at,
                                                   .methods = method,
                                                   .n_methods = 1,
                                                   .max_connections = 20,
                                                   .max_calls = 20,
                                                   .max_message = 4096,
                                                   .secret = secret,
                                                   .certificate = server_certificate};

    snprintf(bind_at, sizeof bind_at, "127.0.0.1:%u", port);
    if (tutti_rpc_server_open(&config, &server) < 0) fail_msg("%s", tutti_last_error()->text);
    return server;
}

/* A socket that has a port of 127.0.0.1, and does not listen: it refuses. */
static inline int bound(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (const struct sockaddr *)&at, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* ---- peers that speak what they like ---- */
static inline int connect_to(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval most = {20, 0};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

#endif
