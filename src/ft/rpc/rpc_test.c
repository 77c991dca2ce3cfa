/* SPDX-License-Identifier: BSD-3-Clause */

/* A server and its clients over real sockets: answers of all sizes, at once and later, deadlines, withdrawals, servers
 * that go and come back, and strangers that flood, are silent, or speak something else. */

#include "ft/rpc/ask_test.h"

#include "base/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

static _Atomic int n_cancelled, n_http;

static void on_fail(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    (void)arg, (void)message, (void)n;
    assert_memory_equal(tutti_rpc_peer(call), "127.0.0.1:", 10);
    tutti_rpc_fail(call, TUTTI_RPC_NOT_FOUND, "100 % sure:\nnot here");
}

static void on_never(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    (void)arg, (void)call, (void)message, (void)n;
}

static void on_cancelled(void *arg, struct tutti_rpc_call *call)
{
    (void)arg, (void)call;
    atomic_fetch_add(&n_cancelled, 1);
}

static void on_http(void *arg, int fd)
{
    char first[4];

    (void)arg;
    assert_int_equal(recv(fd, first, 4, MSG_DONTWAIT), 4); /* they are still unread */
    assert_memory_equal(first, "GET ", 4);
    close(fd);
    atomic_fetch_add(&n_http, 1);
}

static const char *server_secret, *client_secret; /* for what is opened next */
static uint32_t server_rate;

static struct tutti_rpc_server *serve(uint16_t port, uint32_t max_connections)
{
    static const struct tutti_rpc_method methods[] = {
        {"/t/Echo", on_echo}, {"/t/Fail", on_fail}, {"/t/Never", on_never}};
    char bind[32];
    struct tutti_rpc_server *server;

    snprintf(bind, sizeof bind, "127.0.0.1:%u", port);
    const struct tutti_rpc_server_config config = {.loop = loop,
                                                   .bind = bind,
                                                   .methods = methods,
                                                   .n_methods = TUTTI_ARRAY_LEN(methods),
                                                   .cancelled = on_cancelled,
                                                   .http = on_http,
                                                   .max_connections = max_connections,
                                                   .max_calls = 300,
                                                   .max_message = MOST,
                                                   .secret = server_secret,
                                                   .rate = server_rate};
    if (tutti_rpc_server_open(&config, &server) < 0) fail_msg("%s", tutti_last_error()->text);
    return server;
}

static void withdraw_now(void *arg)
{
    tutti_rpc_withdraw(((struct asked *)arg)->request);
}

static void await_count(_Atomic int *count, int n)
{
    const uint64_t until = tutti_now_ns() + 60 * S;

    while (atomic_load(count) < n) {
        if (tutti_now_ns() > until) fail_msg("%d, and not %d, within a minute", atomic_load(count), n);
        usleep(200);
    }
}

/* ---- tests ---- */
static void test_answers(void **state)
{
    static const size_t sizes[] = {0, 1, 5, 4096, 16384, 65535, 65536, MOST};
    struct tutti_rpc_server *server = serve(0, 10);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), client_secret);

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
        const struct asked asked = ask(channel, "/t/Echo", sizes[i], 60 * S);
        assert_int_equal(asked.status, TUTTI_RPC_OK);
        assert_string_equal(asked.message, "");
        assert_true(asked.same);
    }
    struct asked asked = ask(channel, "/t/Fail", 3, 60 * S);
    assert_int_equal(asked.status, TUTTI_RPC_NOT_FOUND);
    assert_string_equal(asked.message, "100 % sure:\nnot here");
    asked = ask(channel, "/t/Nothing", 3, 60 * S);
    assert_int_equal(asked.status, TUTTI_RPC_UNIMPLEMENTED);
    asked = ask(channel, "/t/Echo", MOST + 1, 60 * S);
    assert_int_equal(asked.status, TUTTI_RPC_INVALID_ARGUMENT);
    assert_string_equal(asked.message, "the message is too long");
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
}

static void test_many_at_once(void **state)
{
    enum { N = 1000 };
    struct tutti_rpc_server *server = serve(0, 10);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), client_secret);
    struct asked *asked = calloc(N, sizeof *asked);

    (void)state;
    for (int i = 0; i < N; i++) {
        asked[i] =
            (struct asked){.channel = channel, .path = "/t/Echo", .n = (size_t)(i * 7 % 3000), .within_ns = 60 * S};
        begin(&asked[i]);
    }
    for (int i = 0; i < N; i++) {
        await(&asked[i].done);
        assert_int_equal(asked[i].status, TUTTI_RPC_OK);
        assert_true(asked[i].same);
    }
    free(asked);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
}

static void test_who_waits_no_more(void **state)
{
    struct tutti_rpc_server *server = serve(0, 10);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), client_secret);
    const int before = atomic_load(&n_cancelled);
    struct asked asked = ask(channel, "/t/Never", 8, 50 * MS); /* both sides look at the time */

    (void)state;
    assert_true(asked.status == TUTTI_RPC_CANCELLED || asked.status == TUTTI_RPC_DEADLINE_EXCEEDED);
    assert_true(strstr(asked.message, "Timeout expired") || strstr(asked.message, "in time"));
    await_count(&n_cancelled, before + 1);
    asked = (struct asked){.channel = channel, .path = "/t/Never", .within_ns = 60 * S};
    begin(&asked);
    const struct asked other = ask(channel, "/t/Echo", 8, 60 * S); /* by now the first one is there */
    assert_true(other.same);
    tutti_loop_run(loop, withdraw_now, &asked);
    await_count(&n_cancelled, before + 2);
    assert_false(asked.done);
    asked = (struct asked){.channel = channel, .path = "/t/Never", .within_ns = 60 * S};
    begin(&asked);
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    tutti_rpc_channel_close(channel); /* the connection goes with it */
    await_count(&n_cancelled, before + 3);
    tutti_rpc_server_close(server);
}

/* Requests that were under way when the server goes. */
static void test_server_goes(void **state)
{
    struct tutti_rpc_server *server = serve(0, 10);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), NULL);
    struct asked lost = {.channel = channel, .path = "/t/Never", .within_ns = 60 * S};

    (void)state;
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    begin(&lost);
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    tutti_rpc_server_close(server);
    await(&lost.done);
    assert_int_equal(lost.status, TUTTI_RPC_UNAVAILABLE);
    tutti_rpc_channel_close(channel);
}

static bool is_closed(int fd)
{
    char bytes[4096];
    const struct timeval most = {20, 0};
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) continue;
    return n == 0 || errno == ECONNRESET;
}

static void test_strangers(void **state)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    struct tutti_rpc_server *server = serve(0, 20);
    const uint16_t port = tutti_rpc_server_port(server);
    struct tutti_rpc_channel *channel = dial(port, client_secret);
    uint64_t random = 5;
    int fds[40];

    (void)state;
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    fds[0] = connect_to(port);
    assert_int_equal(send(fds[0], "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    await_count(&n_http, 1);
    assert_true(is_closed(fds[0]));
    close(fds[0]);
    for (int i = 0; i < 200; i++) { /* the preface, then nonsense */
        char bytes[600];
        const int fd = connect_to(port);
        const size_t n = sizeof preface - 1, more = tutti_random64(&random) % 500;
        memcpy(bytes, preface, n);
        for (size_t k = 0; k < more; k++) bytes[n + k] = (char)tutti_random64(&random);
        assert_true(send(fd, bytes, n + more, MSG_NOSIGNAL) > 0);
        shutdown(fd, SHUT_WR);
        assert_true(is_closed(fd));
        close(fd);
    }
    for (int i = 0; i < 40; i++) fds[i] = connect_to(port); /* more than may be */
    assert_true(is_closed(fds[39]));
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same); /* a client that was here goes on */
    for (int i = 0; i < 40; i++) close(fds[i]);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
}

static void test_secret(void **state)
{
    static const size_t sizes[] = {0, 16384, 65536, MOST};

    (void)state;
    if (!tutti_tls_available()) skip();
    server_secret = client_secret = "sesame";
    struct tutti_rpc_server *server = serve(0, 100);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), client_secret);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) assert_true(ask(channel, "/t/Echo", sizes[i], 60 * S).same);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
    server_secret = client_secret = NULL;
}

/* More strangers than may be, of all kinds, while a friend asks. */
static void test_flood_of_strangers(void **state)
{
    static const char *const words[] = {"", "PRI * HTTP/2.0\r\n", "\x16\x03\x01\x02\x00\x01",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    enum { N = 3000 };
    struct rlimit most;

    (void)state;
    if (!tutti_tls_available()) skip();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    if (most.rlim_cur < 2 * N) skip();
    int *fds = malloc(N * sizeof *fds);
    server_secret = client_secret = "sesame";
    struct tutti_rpc_server *server = serve(0, 4096);
    struct tutti_rpc_channel *friend = dial(tutti_rpc_server_port(server), client_secret);
    assert_true(ask(friend, "/t/Echo", 8, 60 * S).same);
    for (int i = 0; i < N; i++) {
        const char *word = words[i % 4];
        fds[i] = connect_to(tutti_rpc_server_port(server));
        send(fds[i], word, strlen(word), MSG_NOSIGNAL);
        if (i % 500 == 0) assert_true(ask(friend, "/t/Echo", 8, 60 * S).same);
    }
    assert_true(is_closed(fds[0])); /* the oldest made room */
    struct tutti_rpc_channel *late = dial(tutti_rpc_server_port(server), client_secret);
    assert_true(ask(late, "/t/Echo", 8, 60 * S).same);
    assert_true(ask(friend, "/t/Echo", 8, 60 * S).same);
    for (int i = 0; i < N; i++) close(fds[i]);
    free(fds);
    tutti_rpc_channel_close(late);
    tutti_rpc_channel_close(friend);
    tutti_rpc_server_close(server);
    server_secret = client_secret = NULL;
}

/* An address that asks for more than its share gets it later. */
static void test_rate(void **state)
{
    server_rate = 100;
    struct tutti_rpc_server *server = serve(0, 100);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), client_secret);
    const uint64_t before = tutti_now_ns();

    (void)state;
    for (int i = 0; i < 150; i++) assert_true(ask(channel, "/t/Echo", 8, 60 * S).same); /* two units each */
    assert_true(tutti_now_ns() - before > 500 * MS);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
    server_rate = 0;
}

/* No descriptor is left: who is here goes on, and who comes then is served when there is one again. */
static void test_no_descriptors(void **state)
{
    struct tutti_rpc_server *server = serve(0, 65536);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), client_secret);
    struct rlimit before, tight;
    int n = 0, fds[256];

    (void)state;
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before, tight.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    const int newcomer = connect_to(tutti_rpc_server_port(server));
    while (n < 256 && (fds[n] = dup(newcomer)) >= 0) n++;
    assert_true(n < 256);
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    while (n > 0) close(fds[--n]);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(send(newcomer, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    assert_true(is_closed(newcomer)); /* as on_http does it */
    close(newcomer);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_who_waits_no_more),
        cmocka_unit_test(test_server_goes),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_flood_of_strangers),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_no_descriptors),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
