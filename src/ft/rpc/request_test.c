/* SPDX-License-Identifier: BSD-3-Clause */

/* A server that answers with a status of HTTP, as those do that know no gRPC, or no such call. */

#include "test.h"

#include "ft/rpc/rpc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct {
    uint8_t hpack[8]; /* ":status" and its value */
    uint8_t n;
    enum tutti_rpc_status status;
} rows[] = {{{0x8d}, 1, TUTTI_RPC_UNIMPLEMENTED},                 /* 404, as torchft's lighthouse says it */
            {{0x08, 3, '5', '0', '3'}, 5, TUTTI_RPC_UNAVAILABLE}, /* a proxy's */
            {{0x08, 3, '4', '1', '8'}, 5, TUTTI_RPC_UNKNOWN}};

/* Each connection has one call. */
static void *serve(void *arg)
{
    const int listener = *(int *)arg;

    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        static const uint8_t settings[9] = {0, 0, 0, 4};
        uint8_t got[4096], answer[9 + 8] = {0, 0, rows[i].n, 1, 5, 0, 0, 0, 1};
        const int fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0 && recv(fd, got, sizeof got, 0) > 0);
        assert_int_equal(send(fd, settings, sizeof settings, MSG_NOSIGNAL), sizeof settings);
        usleep(50000); /* the call is here, too */
        memcpy(answer + 9, rows[i].hpack, rows[i].n);
        assert_int_equal(send(fd, answer, 9u + rows[i].n, MSG_NOSIGNAL), 9 + rows[i].n);
        while (recv(fd, got, sizeof got, 0) > 0) continue;
        close(fd);
    }
    return NULL;
}

struct asked {
    struct tutti_rpc_channel *channel;
    _Atomic bool done;
    enum tutti_rpc_status status;
};

static void on_done(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct asked *asked = arg;

    (void)message, (void)bytes, (void)n;
    asked->status = status;
    atomic_store(&asked->done, true);
}

static void ask(void *arg)
{
    struct asked *asked = arg;

    tutti_rpc_send(asked->channel, "/t/Any", tutti_rpc_body_new(0), tutti_now_ns() + 20 * TUTTI_NS_PER_S, on_done,
                   asked);
}

static void test_statuses_of_http(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct tutti_loop *loop;
    pthread_t server;
    char address[40];

    (void)state;
    assert_int_equal(bind(listener, (const struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(pthread_create(&server, NULL, serve, &listener), 0);
    assert_int_equal(tutti_loop_open("test", &loop), TUTTI_OK);
    assert_int_equal(tutti_loop_start(loop), TUTTI_OK);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        const struct tutti_rpc_channel_config config = {.loop = loop, .address = address, .max_message = 4096};
        struct asked asked = {0};
        assert_int_equal(tutti_rpc_channel_open(&config, &asked.channel), TUTTI_OK);
        tutti_loop_run(loop, ask, &asked);
        for (int j = 0; j < 30000 && !atomic_load(&asked.done); j++) usleep(1000);
        assert_true(atomic_load(&asked.done));
        assert_int_equal(asked.status, rows[i].status);
        tutti_rpc_channel_close(asked.channel);
    }
    pthread_join(server, NULL);
    close(listener);
    tutti_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_statuses_of_http)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
