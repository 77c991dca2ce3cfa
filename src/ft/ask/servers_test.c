/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that outlive servers: one that refuses, one that is silent, and one that answers. */
#include "test.h"

#include "ft/ask/servers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tutti_loop *loop;

static void on_echo(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct tutti_rpc_body *body = tutti_rpc_body_new(n);
    (void)arg;
    memcpy(body->bytes, message, n);
    tutti_rpc_reply(call, body);
}

static int bound(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* A listener whose queue is full: who dials it hears nothing. */
struct silent {
    int fd, fillers[8];
    uint16_t port;
};

static void silent_open(struct silent *silent)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    silent->fd = bound(&silent->port);
    assert_int_equal(listen(silent->fd, 0), 0);
    at.sin_port = htons(silent->port);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(silent->fillers); i++) {
        silent->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(silent->fillers[i], (struct sockaddr *)&at, sizeof at);
    }
}

static void silent_close(struct silent *silent)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(silent->fillers); i++) close(silent->fillers[i]);
    close(silent->fd);
}

struct request {
    struct tutti_asked asked;
    struct tutti_servers *servers;
    _Atomic bool done;
    enum tutti_rpc_status status;
};

static void on_done(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct request *request = arg;
    (void)message, (void)bytes, (void)n;
    request->status = status;
    atomic_store(&request->done, true);
}

static void ask_now(void *arg)
{
    struct request *request = arg;
    tutti_servers_ask(request->servers, &request->asked);
}

static void ask(struct tutti_servers *servers, struct request *request, uint64_t within_ns, bool probe)
{
    *request = (struct request){.servers = servers,
                                .asked = {.path = "/t/Echo",
                                          .body = tutti_rpc_body_new(3),
                                          .deadline_ns = tutti_now_ns() + within_ns,
                                          .reach_ns = within_ns,
                                          .probe = probe,
                                          .done = on_done,
                                          .arg = request}};
    memset(request->asked.body->bytes, 7, 3);
    tutti_loop_run(loop, ask_now, request);
}

static void await(struct request *request)
{
    uint64_t until = tutti_now_ns() + 60 * TUTTI_NS_PER_S;
    while (!atomic_load(&request->done)) {
        if (tutti_now_ns() > until) fail_msg("no end within a minute");
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
}

/* A probe that gives the silent server up moves on while a second request still dials it: that one follows when its
 * dial ends, and is not forgotten. */
static void test_second_request_of_a_silent_server(void **state)
{
    static const struct tutti_rpc_method methods[] = {{"/t/Echo", on_echo}};
    const struct tutti_rpc_server_config config = {.loop = loop,
                                                   .bind = "127.0.0.1:0",
                                                   .methods = methods,
                                                   .n_methods = 1,
                                                   .max_connections = 10,
                                                   .max_calls = 10,
                                                   .max_message = 100};
    struct tutti_rpc_server *server;
    struct tutti_servers *servers;
    struct silent silent;
    struct request probe, quorum, later;
    char list[128];
    uint16_t refuses;

    (void)state;
    close(bound(&refuses));
    silent_open(&silent);
    assert_int_equal(tutti_rpc_server_open(&config, &server), TUTTI_OK);
    snprintf(list, sizeof list, "http://127.0.0.1:%u,http://127.0.0.1:%u,http://127.0.0.1:%u", refuses, silent.port,
             tutti_rpc_server_port(server));
    assert_int_equal(tutti_servers_open(loop, list, "list", NULL, &servers), TUTTI_OK);
    ask(servers, &quorum, 50 * TUTTI_NS_PER_S, false);
    ask(servers, &probe, TUTTI_NS_PER_S, true);
    await(&probe);
    assert_int_equal(probe.status, TUTTI_RPC_DEADLINE_EXCEEDED);
    ask(servers, &later, 50 * TUTTI_NS_PER_S, false);
    await(&later);
    assert_int_equal(later.status, TUTTI_RPC_OK);
    await(&quorum);
    assert_int_equal(quorum.status, TUTTI_RPC_OK);
    tutti_servers_close(servers);
    tutti_rpc_server_close(server);
    silent_close(&silent);
}

static int start(void **state)
{
    (void)state;
    return tutti_loop_open("test", &loop) < 0 || tutti_loop_start(loop) < 0 ? -1 : 0;
}

static int stop(void **state)
{
    (void)state;
    tutti_loop_close(loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_second_request_of_a_silent_server)};
    return cmocka_run_group_tests(tests, start, stop);
}
