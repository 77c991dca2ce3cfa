/* SPDX-License-Identifier: BSD-3-Clause */

/* Channels and what their servers do: refuse, are silent, speak something else, have another secret, are slow to be
 * found, go and come back. This program's getaddrinfo stands before the system's. */

#include "ft/rpc/ask_test.h"

#include "base/tls.h"
#include "certificates.h"

#include <dlfcn.h>
#include <netdb.h>

typedef int resolver(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
static _Atomic int n_slow, may_end;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    resolver *const system = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");
    const bool slow = strcmp(host, "slow.invalid") == 0, numeric = hints->ai_flags & AI_NUMERICHOST;

    if (slow && !numeric) {
        atomic_fetch_add(&n_slow, 1);
        for (int i = 0; i < 60000 && !atomic_load(&may_end); i++) usleep(1000);
    }
    return system(slow && !numeric ? "127.0.0.1" : host, port, hints, out);
}

static const struct tutti_rpc_method echo = {"/t/Echo", on_echo};

/* A listener whose queue is full: a client that dials it hears nothing. */
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

/* A probe that ends while the silent server is dialled takes no other request with it: all go to the one that answers.
 */
static void test_one_refuses_and_one_is_silent(void **state)
{
    struct tutti_rpc_server *server = serve_one(&echo, 0, NULL);
    struct silent silent;
    char list[128];
    uint16_t refuses;

    (void)state;
    close(bound(&refuses));
    silent_open(&silent);
    snprintf(list, sizeof list, "http://127.0.0.1:%u,http://127.0.0.1:%u, http://127.0.0.1:%u", refuses, silent.port,
             tutti_rpc_server_port(server));
    struct tutti_rpc_channel *channel = dial_list(list, NULL, 2 * S);
    assert_int_equal(tutti_rpc_channel_n(channel), 3);
    struct asked quorum = {.channel = channel, .path = "/t/Echo", .n = 3, .within_ns = 50 * S, .reach_ns = 50 * S},
                 probe = quorum;
    probe.within_ns = S, probe.probe = true;
    begin(&quorum);
    begin(&probe);
    await(&probe.done);
    assert_int_equal(probe.status, TUTTI_RPC_DEADLINE_EXCEEDED);
    assert_true(ask(channel, "/t/Echo", 3, 50 * S).same);
    await(&quorum.done);
    assert_true(quorum.same);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
    silent_close(&silent);
}

static _Atomic bool silent_now;
static void on_maybe(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    if (!atomic_load(&silent_now)) on_echo(arg, call, message, n);
}

/* A server that does not answer a probe is lost: what was sent there goes to the next one. */
static void test_a_probe_finds_the_silent(void **state)
{
    static const struct tutti_rpc_method maybe = {"/t/Echo", on_maybe};
    struct tutti_rpc_server *first = serve_one(&maybe, 0, NULL), *second = serve_one(&echo, 0, NULL);
    char list[128];

    (void)state;
    snprintf(list, sizeof list, "127.0.0.1:%u,127.0.0.1:%u", tutti_rpc_server_port(first),
             tutti_rpc_server_port(second));
    struct tutti_rpc_channel *channel = dial_list(list, NULL, 0);
    assert_true(ask(channel, "/t/Echo", 3, 50 * S).same);
    atomic_store(&silent_now, true);
    struct asked quorum = {.channel = channel, .path = "/t/Echo", .n = 3, .within_ns = 50 * S, .reach_ns = 50 * S},
                 probe = quorum, ends = quorum;
    probe.within_ns = 200 * MS, probe.probe = true;
    ends.reach_ns = 0;
    begin(&quorum);
    begin(&ends);
    begin(&probe);
    await(&quorum.done);
    assert_true(quorum.same);
    await(&ends.done); /* it may have been done: it is not sent twice */
    assert_int_equal(ends.status, TUTTI_RPC_UNAVAILABLE);
    assert_string_equal(ends.message, tutti_rpc_connection_lost);
    atomic_store(&silent_now, false);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(first);
    tutti_rpc_server_close(second);
}

static void test_server_goes_and_comes_back(void **state)
{
    struct tutti_rpc_server *server = serve_one(&echo, 0, NULL);
    const uint16_t port = tutti_rpc_server_port(server);
    struct tutti_rpc_channel *channel = dial(port, NULL);
    struct asked waiting = {.channel = channel, .path = "/t/Echo", .n = 8, .within_ns = 60 * S, .reach_ns = 60 * S};

    (void)state;
    assert_true(ask(channel, "/t/Echo", 8, 60 * S).same);
    tutti_rpc_server_close(server);
    const struct asked none = ask(channel, "/t/Echo", 8, 300 * MS);
    assert_true(none.status == TUTTI_RPC_DEADLINE_EXCEEDED || none.status == TUTTI_RPC_UNAVAILABLE);
    assert_non_null(strstr(none.message, "Connection refused"));
    struct asked once = {.channel = channel, .path = "/t/Echo", .n = 8, .within_ns = 60 * S};
    begin(&once);
    await(&once.done);
    assert_int_equal(once.status, TUTTI_RPC_UNAVAILABLE);
    begin(&waiting);
    server = serve_one(&echo, port, NULL);
    await(&waiting.done);
    assert_true(waiting.same);
    tutti_rpc_channel_close(channel);
    tutti_rpc_server_close(server);
}

/* Another secret, or none at either end, is a final answer, and comes at once. */
static void test_secret(void **state)
{
    static const struct {
        const char *server, *client, *sentence;
    } rows[] = {{"sesame", "another", "does not show that it knows this job's secret"},
                {NULL, "sesame", "does not show that it knows this job's secret"},
                {"sesame", NULL, "with the job's secret"}};

    (void)state;
    if (!tutti_tls_available()) skip();
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        struct tutti_rpc_server *server = serve_one(&echo, 0, rows[i].server);
        struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), rows[i].client);
        const struct asked asked = ask(channel, "/t/Echo", 8, 600 * S); /* await has a minute */
        assert_int_equal(asked.status, TUTTI_RPC_UNAUTHENTICATED);
        if (!strstr(asked.message, rows[i].sentence)) fail_msg("%s", asked.message);
        tutti_rpc_channel_close(channel);
        tutti_rpc_server_close(server);
    }
}

/* The same of certificates; with a good one calls are answered. */
static void test_certificates(void **state)
{
    static const struct {
        const char *server, *client, *sentence; /* NULL: it is answered */
    } rows[] = {{"ca.pem", "ca.pem", NULL},
                {"ca.pem", "both-ca.pem", "does not accept this process's certificate: it knows another CA"},
                {"both-ca.pem", "ca.pem", "is not good here"},
                {NULL, "ca.pem", "it has none itself"},
                {"ca.pem", NULL, "or certificate only"}};

    (void)state;
    if (!certificates_can_be()) skip();
    assert_int_equal(certificates_begin(NULL), 0);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        const char *const names[2] = {rows[i].server, rows[i].client};
        struct tutti_certificate **const out[2] = {&server_certificate, &client_certificate};
        for (int end = 0; end < 2; end++) {
            *out[end] = NULL;
            if (!names[end]) continue;
            const char *cert = strcmp(names[end], "ca.pem") == 0 ? "rank.pem" : "other.pem";
            assert_int_equal(certificate_find(names[end], cert, NULL, "", out[end]), TUTTI_OK);
        }
        struct tutti_rpc_server *server = serve_one(&echo, 0, NULL);
        struct tutti_rpc_channel *channel = dial(tutti_rpc_server_port(server), NULL);
        const struct asked asked = ask(channel, "/t/Echo", 8, 600 * S); /* await has a minute */
        assert_int_equal(asked.status, rows[i].sentence ? TUTTI_RPC_UNAUTHENTICATED : TUTTI_RPC_OK);
        if (rows[i].sentence && !strstr(asked.message, rows[i].sentence)) fail_msg("%s", asked.message);
        tutti_rpc_channel_close(channel);
        tutti_rpc_server_close(server);
    }
    server_certificate = client_certificate = NULL;
    assert_int_equal(own_folder_end(NULL), 0);
}

/* ---- servers that speak something else ---- */
static const struct {
    const char *text;
    uint8_t hpack[8]; /* ":status" and its value */
    uint8_t n;
    enum tutti_rpc_status status;
} rows[] = {{"", {0x8d}, 1, TUTTI_RPC_UNIMPLEMENTED},                 /* 404, as torchft's lighthouse says it */
            {"", {0x08, 3, '5', '0', '3'}, 5, TUTTI_RPC_UNAVAILABLE}, /* a proxy's */
            {"", {0x08, 3, '4', '1', '8'}, 5, TUTTI_RPC_UNKNOWN},
            {"HTTP/1.1 400 Bad Request\r\n\r\n", {0}, 0, TUTTI_RPC_UNAVAILABLE}};

/* Each connection has one call; the last row is for all that come. */
static void *serve_rows(void *arg)
{
    const int listener = *(int *)arg;
    size_t i = 0;
    int fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        static const uint8_t settings[9] = {0, 0, 0, 4};
        uint8_t got[4096], answer[9 + 8] = {0, 0, rows[i].n, 1, 5, 0, 0, 0, 1};
        assert_true(recv(fd, got, sizeof got, 0) > 0);
        if (rows[i].n == 0) {
            assert_true(send(fd, rows[i].text, strlen(rows[i].text), MSG_NOSIGNAL) > 0);
            shutdown(fd, SHUT_WR);
        } else {
            assert_int_equal(send(fd, settings, sizeof settings, MSG_NOSIGNAL), sizeof settings);
            usleep(50000); /* the call is here, too */
            memcpy(answer + 9, rows[i].hpack, rows[i].n);
            assert_int_equal(send(fd, answer, 9u + rows[i].n, MSG_NOSIGNAL), 9 + rows[i].n);
        }
        while (recv(fd, got, sizeof got, 0) > 0) continue;
        close(fd);
        i += i + 1 < TUTTI_ARRAY_LEN(rows);
    }
    return NULL;
}

static void test_what_speaks_no_grpc(void **state)
{
    pthread_t server;
    uint16_t port;
    int listener = bound(&port);

    (void)state;
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(pthread_create(&server, NULL, serve_rows, &listener), 0);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        char address[40];
        snprintf(address, sizeof address, "127.0.0.1:%u", port);
        struct asked asked = {.channel = dial_list(address, NULL, 0), .path = "/t/Any", .within_ns = 20 * S};
        if (rows[i].n == 0) asked.within_ns = asked.reach_ns = S;
        begin(&asked);
        await(&asked.done);
        if (rows[i].n > 0)
            assert_int_equal(asked.status, rows[i].status);
        else if (!strstr(asked.message, "does not speak gRPC"))
            fail_msg("%s", asked.message);
        tutti_rpc_channel_close(asked.channel);
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(server, NULL);
    close(listener);
}

/* ---- a resolver that takes its time: a request waits for it alone, and no longer than it may ---- */
static void test_slow_names(void **state)
{
    struct tutti_rpc_server *server = serve_one(&echo, 0, NULL);
    char slow[64];

    (void)state;
    snprintf(slow, sizeof slow, "http://slow.invalid:%u", tutti_rpc_server_port(server));
    struct tutti_rpc_channel *channels[] = {dial_list(slow, NULL, 100 * MS), dial_list(slow, NULL, 100 * MS),
                                            dial(tutti_rpc_server_port(server), NULL), dial_list(slow, NULL, 100 * MS)};
    struct asked late = {.channel = channels[0], .path = "/t/Echo", .within_ns = 250 * MS, .reach_ns = S},
                 gone = {.channel = channels[1], .path = "/t/Echo", .within_ns = 20 * S},
                 quick = {.channel = channels[2], .path = "/t/Echo", .within_ns = 20 * S},
                 closed = {.channel = channels[3], .path = "/t/Echo", .within_ns = 20 * S, .reach_ns = 20 * S};
    begin(&late);
    begin(&gone);
    begin(&closed);
    begin(&quick); /* another host is not waited for */
    await(&quick.done);
    assert_int_equal(quick.status, TUTTI_RPC_OK);
    await(&gone.done);
    assert_int_equal(gone.status, TUTTI_RPC_UNAVAILABLE);
    assert_non_null(strstr(gone.message, "its name is not found in time"));
    await(&late.done);
    assert_int_equal(late.status, TUTTI_RPC_DEADLINE_EXCEEDED);
    assert_int_equal(atomic_load(&n_slow), 3); /* one thread for each host, however often it is dialled */
    tutti_rpc_channel_close(channels[3]);      /* while its name is looked up */
    assert_false(atomic_load(&closed.done));
    atomic_store(&may_end, 1);
    assert_int_equal(ask(channels[0], "/t/Echo", 0, 20 * S).status, TUTTI_RPC_OK); /* found by now, or soon */
    for (int i = 0; i < 3; i++) tutti_rpc_channel_close(channels[i]);
    tutti_rpc_server_close(server);
}

static void test_addresses(void **state)
{
    static const char *const wrong[] = {"",         "localhost", "localhost:", "http://:1",       "[::1]",
                                        "x:123456", "x:1y",      "x:65536",    "localhost:99999", "x:1,y"};
    static const char *const binds[] = {"localhost", "localhost:65536", "localhost:99999"};
    struct tutti_rpc_channel *channel;
    struct tutti_rpc_server *server;

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        const struct tutti_rpc_channel_config config = {.loop = loop, .addresses = wrong[i]};
        assert_int_equal(tutti_rpc_channel_open(&config, &channel), TUTTI_ERR_ARGUMENT);
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(binds); i++) {
        const struct tutti_rpc_server_config config = {.loop = loop, .bind = binds[i], .max_connections = 1};
        assert_int_equal(tutti_rpc_server_open(&config, &server), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error()->text, "write HOST:PORT"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_refuses_and_one_is_silent),
        cmocka_unit_test(test_a_probe_finds_the_silent),
        cmocka_unit_test(test_server_goes_and_comes_back),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_certificates),
        cmocka_unit_test(test_what_speaks_no_grpc),
        cmocka_unit_test(test_slow_names),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
