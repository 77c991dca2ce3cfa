/* SPDX-License-Identifier: BSD-3-Clause */

/* A server and its clients over real sockets: answers of all sizes, at once and later, deadlines, withdrawals, servers
 * that go and come back, and strangers that flood, are silent, or speak something else. */

#include "test.h"

#include "control/net/tls.h"
#include "ft/rpc/rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS TUTTI_NS_PER_MS
#define S TUTTI_NS_PER_S
#define MOST ((size_t)1 << 20)

static struct tutti_loop *loop;
static _Atomic int n_cancelled, n_http;

static void on_echo(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct tutti_rpc_body *body = tutti_rpc_body_new(n);

    (void)arg;
    memcpy(body->bytes, message, n);
    tutti_rpc_reply(call, body);
}

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

/* ---- a request, from another thread ---- */
struct asked {
    struct tutti_rpc_channel *channel;
    const char *path;
    size_t n;
    uint64_t within_ns;
    struct tutti_rpc_request *request;
    _Atomic bool done;
    enum tutti_rpc_status status;
    char message[256];
    bool same; /* the answer is what was asked */
};

static uint8_t byte_of(size_t i, size_t n)
{
    return (uint8_t)(i * 31 + n);
}

static void on_done(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct asked *asked = arg;

    asked->status = status;
    snprintf(asked->message, sizeof asked->message, "%s", message);
    asked->same = n == asked->n;
    for (size_t i = 0; asked->same && i < n; i++) asked->same = bytes[i] == byte_of(i, n);
    atomic_store(&asked->done, true);
}

static void ask_now(void *arg)
{
    struct asked *asked = arg;
    struct tutti_rpc_body *body = tutti_rpc_body_new(asked->n);

    for (size_t i = 0; i < asked->n; i++) body->bytes[i] = byte_of(i, asked->n);
    asked->request =
        tutti_rpc_send(asked->channel, asked->path, body, tutti_now_ns() + asked->within_ns, on_done, asked);
}

static void withdraw_now(void *arg)
{
    tutti_rpc_withdraw(((struct asked *)arg)->request);
}

static void await(_Atomic bool *done)
{
    const uint64_t until = tutti_now_ns() + 60 * S;

    while (!atomic_load(done)) {
        if (tutti_now_ns() > until) fail_msg("no end within a minute");
        usleep(200);
    }
}

static void await_count(_Atomic int *count, int n)
{
    const uint64_t until = tutti_now_ns() + 60 * S;

    while (atomic_load(count) < n) {
        if (tutti_now_ns() > until) fail_msg("%d, and not %d, within a minute", atomic_load(count), n);
        usleep(200);
    }
}

static struct asked ask(struct tutti_rpc_channel *channel, const char *path, size_t n, uint64_t within_ns)
{
    struct asked asked = {.channel = channel, .path = path, .n = n, .within_ns = within_ns};

    tutti_loop_run(loop, ask_now, &asked);
    await(&asked.done);
    return asked;
}

static struct tutti_rpc_channel *dial(uint16_t port)
{
    char address[32];
    struct tutti_rpc_channel *channel;

    snprintf(address, sizeof address, "http://localhost:%u", port);
    const struct tutti_rpc_channel_config config = {
        .loop = loop, .address = address, .max_message = MOST, .secret = client_secret};
    assert_int_equal(tutti_rpc_channel_open(&config, &channel), TUTTI_OK);
    return channel;
}

/* ---- tests ---- */
static void test_answers(void **state)
{
    static const size_t sizes[] = {0, 1, 5, 4096, 16384, 65535, 65536, MOST};
    struct tutti_rpc_server *server = serve(0, 10);
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server));

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
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server));
    struct asked *asked = calloc(N, sizeof *asked);

    (void)state;
    for (int i = 0; i < N; i++) {
        asked[i] =
            (struct asked){.channel = channel, .path = "/t/Echo", .n = (size_t)(i * 7 % 3000), .within_ns = 60 * S};
        tutti_loop_run(loop, ask_now, &asked[i]);
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
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server));
    const int before = atomic_load(&n_cancelled);
    struct asked asked = ask(channel, "/t/Never", 8, 50 * MS); /* both sides look at the time */

    (void)state;
    assert_true(asked.status == TUTTI_RPC_CANCELLED || asked.status == TUTTI_RPC_DEADLINE_EXCEEDED);
    assert_true(strstr(asked.message, "Timeout expired") || strstr(asked.message, "in time"));
    await_count(&n_cancelled, before + 1);
    asked = (struct asked){.channel = channel, .path = "/t/Never", .within_ns = 60 * S};
    tutti_loop_run(loop, ask_now, &asked);
    const struct asked other = ask(channel, "/t/Echo", 8, 60 * S); /* by now the first one is there */
    assert_true(other.same);
    tutti_loop_run(loop, withdraw_now, &asked);
    await_count(&n_cancelled, before + 2);
    assert_false(asked.done);
    asked = (struct asked){.channel = channel, .path = "/t/Never", .within_ns = 60 * S};
    tutti_loop_run(loop, ask_now, &asked);
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    tutti_rpc_channel_close(channel); /* the connection goes with it */
    await_count(&n_cancelled, before + 3);
    tutti_rpc_server_close(server);
}

static void test_server_goes_and_comes_back(void **state)
{
    struct tutti_rpc_server *server = serve(0, 10);
    const uint16_t port = tutti_rpc_server_port(server);
    struct tutti_rpc_channel *channel = dial(port);
    struct asked lost = {.channel = channel, .path = "/t/Never", .within_ns = 60 * S}, waiting;

    (void)state;
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    tutti_loop_run(loop, ask_now, &lost);
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    tutti_rpc_server_close(server);
    await(&lost.done);
    assert_int_equal(lost.status, TUTTI_RPC_UNAVAILABLE);
    const struct asked none = ask(channel, "/t/Echo", 8, 300 * MS);
    assert_int_equal(none.status, TUTTI_RPC_DEADLINE_EXCEEDED);
    assert_non_null(strstr(none.message, "Connection refused"));
    waiting = (struct asked){.channel = channel, .path = "/t/Echo", .n = 8, .within_ns = 60 * S};
    tutti_loop_run(loop, ask_now, &waiting);
    server = serve(port, 10);
    await(&waiting.done);
    assert_int_equal(waiting.status, TUTTI_RPC_OK);
    assert_true(waiting.same);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
}

static int stranger(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
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
    struct tutti_rpc_channel *channel = dial(port);
    uint64_t random = 5;
    int fds[40];

    (void)state;
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    fds[0] = stranger(port);
    assert_int_equal(send(fds[0], "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    await_count(&n_http, 1);
    assert_true(is_closed(fds[0]));
    close(fds[0]);
    for (int i = 0; i < 200; i++) { /* the preface, then nonsense */
        char bytes[600];
        const int fd = stranger(port);
        const size_t n = sizeof preface - 1, more = tutti_random64(&random) % 500;
        memcpy(bytes, preface, n);
        for (size_t k = 0; k < more; k++) bytes[n + k] = (char)tutti_random64(&random);
        assert_true(send(fd, bytes, n + more, MSG_NOSIGNAL) > 0);
        shutdown(fd, SHUT_WR);
        assert_true(is_closed(fd));
        close(fd);
    }
    for (int i = 0; i < 40; i++) fds[i] = stranger(port); /* more than may be */
    assert_true(is_closed(fds[39]));
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same); /* a client that was here goes on */
    for (int i = 0; i < 40; i++) close(fds[i]);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
}

static void test_secret(void **state)
{
    static const size_t sizes[] = {0, 16384, 65536, MOST};
    static const char *const others[] = {NULL, "another"};

    (void)state;
    if (!tutti_tls_available()) skip();
    server_secret = client_secret = "sesame";
    struct tutti_rpc_server *server = serve(0, 100);
    const uint16_t port = tutti_rpc_server_port(server);
    struct tutti_rpc_channel *friend = dial(port);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) assert_true(ask(friend, "/t/Echo", sizes[i], 60 * S).same);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(others); i++) {
        client_secret = others[i];
        struct tutti_rpc_channel *stranger = dial(port);
        const struct asked asked = ask(stranger, "/t/Echo", 8, 400 * MS);
        if (client_secret)
            assert_non_null(strstr(asked.message, "does not show that it knows this job's secret"));
        else
            assert_int_equal(asked.status, TUTTI_RPC_UNAUTHENTICATED);
        tutti_rpc_channel_close(stranger);
    }
    assert_true(ask(friend, "/t/Echo", 8, 60 * S).same);
    tutti_rpc_channel_close(friend);
    tutti_rpc_server_close(server);
    server_secret = NULL, client_secret = "sesame"; /* a server without a secret is none of ours */
    server = serve(0, 100);
    friend = dial(tutti_rpc_server_port(server));
    assert_int_equal(ask(friend, "/t/Echo", 8, 400 * MS).status, TUTTI_RPC_DEADLINE_EXCEEDED);
    tutti_rpc_channel_close(friend);
    tutti_rpc_server_close(server);
    client_secret = NULL;
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
    struct tutti_rpc_channel *friend = dial(tutti_rpc_server_port(server));
    assert_true(ask(friend, "/t/Echo", 8, 60 * S).same);
    for (int i = 0; i < N; i++) {
        const char *word = words[i % 4];
        fds[i] = stranger(tutti_rpc_server_port(server));
        send(fds[i], word, strlen(word), MSG_NOSIGNAL);
        if (i % 500 == 0) assert_true(ask(friend, "/t/Echo", 8, 60 * S).same);
    }
    assert_true(is_closed(fds[0])); /* the oldest made room */
    struct tutti_rpc_channel *late = dial(tutti_rpc_server_port(server));
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
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server));
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
    struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server));
    struct rlimit before, tight;
    int n = 0, fds[256];

    (void)state;
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before, tight.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    const int newcomer = stranger(tutti_rpc_server_port(server));
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

static void test_addresses(void **state)
{
    static const char *const wrong[] = {"",         "localhost", "localhost:", "http://:1",      "[::1]",
                                        "x:123456", "x:1y",      "x:65536",    "localhost:99999"};
    static const char *const binds[] = {"localhost", "localhost:65536", "localhost:99999"};
    struct tutti_rpc_channel *channel;
    struct tutti_rpc_server *server;

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        const struct tutti_rpc_channel_config config = {.loop = loop, .address = wrong[i]};
        assert_int_equal(tutti_rpc_channel_open(&config, &channel), TUTTI_ERR_ARGUMENT);
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(binds); i++) {
        const struct tutti_rpc_server_config config = {.loop = loop, .bind = binds[i], .max_connections = 1};
        assert_int_equal(tutti_rpc_server_open(&config, &server), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error()->text, "write HOST:PORT"));
    }
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_who_waits_no_more),
        cmocka_unit_test(test_server_goes_and_comes_back),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_flood_of_strangers),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
