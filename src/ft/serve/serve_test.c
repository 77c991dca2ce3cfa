/* SPDX-License-Identifier: BSD-3-Clause */

/* A lighthouse with a secret, its groups and their managers, and strangers: who may what, and that a flood of them
 * stops nothing. */

#include "ft/rpc/ask_test.h"

#include "base/tls.h"
#include "ft/rpc/message.h"
#include "ft/serve/serve.h"

#include <stdlib.h>

#define SECRET "sesame"
#define QUORUM "/torchft.LighthouseService/Quorum"

static _Atomic int n_killed;

/* This program's fsync stands before the system's: a disk that waits until it is let go on. */
static _Atomic bool disk_waits, disk_waited;

int fsync(int fd)
{
    while (atomic_load(&disk_waits)) atomic_store(&disk_waited, true), usleep(1000);
    return fdatasync(fd);
}

static struct tutti_serve *serve(const char *secret, uint64_t min_replicas)
{
    const struct tutti_serve_config config = {
        .bind = "127.0.0.1:0", .secret = secret, .options = {min_replicas, 100 * MS, 60 * S, 100 * MS, 3600 * S, 0}};
    struct tutti_serve *served;

    if (tutti_serve_open(&config, &served) < 0) fail_msg("%s", tutti_last_error()->text);
    return served;
}

static uint16_t port_of(const struct tutti_serve *served)
{
    return (uint16_t)atoi(strrchr(tutti_serve_address(served), ':') + 1);
}

/* ---- a group ---- */
static void read_quorum(struct asked *asked, const uint8_t *bytes, size_t n)
{
    Torchft__LighthouseQuorumResponse *response = torchft__lighthouse_quorum_response__unpack(NULL, n, bytes);

    assert_non_null(response);
    asked->id = response->quorum->quorum_id;
    asked->n_members = response->quorum->n_participants;
    torchft__lighthouse_quorum_response__free_unpacked(response, NULL);
}

static struct asked group_of(struct tutti_rpc_channel *channel, const char *name, const char *address, int64_t step)
{
    Torchft__QuorumMember member = TORCHFT__QUORUM_MEMBER__INIT;
    Torchft__LighthouseQuorumRequest request = TORCHFT__LIGHTHOUSE_QUORUM_REQUEST__INIT;

    member.replica_id = (char *)(uintptr_t)name;
    member.address = (char *)(uintptr_t)address;
    member.step = step;
    request.requester = &member;
    return (struct asked){.channel = channel,
                          .path = QUORUM,
                          .body = tutti_message_body(&request.base),
                          .within_ns = 60 * S,
                          .reach_ns = 60 * S,
                          .read = read_quorum};
}

static struct asked join(struct tutti_rpc_channel *channel, const char *name, const char *address)
{
    struct asked asked = group_of(channel, name, address, 0);

    begin(&asked);
    await(&asked.done);
    return asked;
}

/* ---- its manager ---- */
static void on_kill(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    Torchft__KillRequest *request = torchft__kill_request__unpack(NULL, n, message);

    (void)arg;
    assert_non_null(request);
    assert_non_null(strstr(request->msg, "lighthouse"));
    torchft__kill_request__free_unpacked(request, NULL);
    atomic_fetch_add(&n_killed, 1);
    tutti_rpc_reply(call, tutti_rpc_body_new(0));
}

static const struct tutti_rpc_method kill_method = {"/torchft.ManagerService/Kill", on_kill};

/* ---- people ---- */
/* HTTP's status of POST /replica/NAME/kill. */
static int kill_it(uint16_t port, const char *name, const char *token)
{
    char text[512];
    const int fd = connect_to(port);
    size_t n = 0;

    snprintf(text, sizeof text,
             "POST /replica/%s/kill HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n", name,
             token);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    memset(text, 0, sizeof text);
    while (n < 12) {
        const ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        assert_true(got > 0);
        n += (size_t)got;
    }
    close(fd);
    return atoi(text + 9);
}

/* ---- tests ---- */
static void test_kill_takes_the_token(void **state)
{
    char token[TUTTI_SERVE_TOKEN], other[TUTTI_SERVE_TOKEN], address[40];

    (void)state;
    if (!tutti_tls_available() || tutti_serve_page_missing()[0]) skip();
    struct tutti_serve *served = serve(SECRET, 1);
    struct tutti_rpc_server *manager = serve_one(&kill_method, 0, SECRET);
    struct tutti_rpc_channel *channel = dial(port_of(served), SECRET), *stranger = dial(port_of(served), NULL);
    snprintf(address, sizeof address, "http://127.0.0.1:%u", tutti_rpc_server_port(manager));
    assert_int_equal(join(stranger, "stranger", "").status, TUTTI_RPC_UNAUTHENTICATED);
    assert_int_equal(join(channel, "a", address).id, 1);
    assert_int_equal(tutti_serve_token(SECRET, token), TUTTI_OK);
    assert_int_equal(tutti_serve_token("other", other), TUTTI_OK);
    assert_int_equal(strlen(token), 32);
    assert_int_equal(kill_it(port_of(served), "a", other), 403);
    assert_int_equal(kill_it(port_of(served), "a", ""), 403);
    assert_int_equal(kill_it(port_of(served), "b", token), 500);
    assert_int_equal(atomic_load(&n_killed), 0);
    assert_int_equal(kill_it(port_of(served), "a", token), 200);
    assert_int_equal(atomic_load(&n_killed), 1);
    uint16_t port;
    const int mute = bound(&port); /* a manager that does not answer */
    assert_int_equal(listen(mute, 16), 0);
    snprintf(address, sizeof address, "http://127.0.0.1:%u", port);
    assert_int_equal(join(channel, "a", address).id, 1);
    const int waits = connect_to(port_of(served)); /* a kill that is under way when the lighthouse ends */
    char text[256];
    snprintf(text, sizeof text, "POST /replica/a/kill HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", token);
    assert_true(send(waits, text, strlen(text), MSG_NOSIGNAL) > 0);
    usleep(100000);
    assert_int_equal(kill_it(port_of(served), "a", token), 503);
    tutti_serve_close(served);
    close(waits);
    served = serve(SECRET, 1); /* one that leaves meanwhile leaves no answer to the next */
    struct tutti_rpc_channel *anew = dial(port_of(served), SECRET);
    assert_int_equal(join(anew, "a", address).id, 1);
    const int leaves = connect_to(port_of(served));
    assert_true(send(leaves, text, strlen(text), MSG_NOSIGNAL) > 0);
    usleep(100000);
    close(leaves);
    usleep(100000);
    assert_int_equal(kill_it(port_of(served), "a", token), 503);
    tutti_serve_close(served);
    tutti_rpc_channel_close(anew);
    assert_int_equal(atomic_load(&n_killed), 1);
    tutti_rpc_channel_close(channel);
    tutti_rpc_channel_close(stranger);
    tutti_rpc_server_close(manager);
    close(mute);
}

static void test_nobody_kills_without_a_secret(void **state)
{
    (void)state;
    if (tutti_serve_page_missing()[0]) skip();
    struct tutti_serve *served = serve(NULL, 1);
    struct tutti_rpc_channel *channel = dial(port_of(served), NULL);
    assert_int_equal(join(channel, "a", "http://127.0.0.1:1").id, 1);
    assert_int_equal(kill_it(port_of(served), "a", ""), 403);
    tutti_rpc_channel_close(channel);
    tutti_serve_close(served);
}

/* 20 steps of two groups, while strangers come without end: silent ones, pages that nobody reads, nonsense. */
static void test_flood(void **state)
{
    static const char *const words[] = {"",         "GET /status.json HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "GET /",    "\x16\x03\x01",
                                        "\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxxxx"};
    enum { N = 400 };
    int fds[N];
    uint64_t n = 0;

    (void)state;
    if (!tutti_tls_available()) skip();
    struct tutti_serve *served = serve(SECRET, 2);
    struct tutti_rpc_channel *channels[2] = {dial(port_of(served), SECRET), dial(port_of(served), SECRET)};
    memset(fds, -1, sizeof fds);
    for (int step = 0; step < 20; step++) {
        struct asked asked[2] = {group_of(channels[0], "a", "", step), group_of(channels[1], "b", "", step)};
        for (int i = 0; i < 100; i++, n++) {
            if (fds[n % N] >= 0) close(fds[n % N]);
            fds[n % N] = connect_to(port_of(served));
            send(fds[n % N], words[n % 6], strlen(words[n % 6]), MSG_NOSIGNAL);
        }
        for (int i = 0; i < 2; i++) begin(&asked[i]);
        for (int i = 0; i < 2; i++) {
            await(&asked[i].done);
            assert_int_equal(asked[i].status, TUTTI_RPC_OK);
            assert_int_equal(asked[i].id, 1);
            assert_int_equal(asked[i].n_members, 2);
        }
    }
    for (int i = 0; i < N; i++) close(fds[i]);
    for (int i = 0; i < 2; i++) tutti_rpc_channel_close(channels[i]);
    tutti_serve_close(served);
}

/* ---- bounds ---- */
static struct tutti_serve *serve_bounded(const char *bind, const char *secret)
{
    const struct tutti_serve_config config = {
        .bind = bind, .secret = secret, .options = {1, 10 * MS, 100 * MS, 10 * MS, 200 * MS, 2}};
    struct tutti_serve *served;

    if (tutti_serve_open(&config, &served) < 0) fail_msg("%s", tutti_last_error()->text);
    return served;
}

/* HTTP's status of the job's page. */
static int page_of(uint16_t port, const char *job)
{
    char text[256];
    const int fd = connect_to(port);

    snprintf(text, sizeof text, "GET /status.json?job=%s HTTP/1.1\r\nHost: x\r\n\r\n", job);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    memset(text, 0, sizeof text);
    assert_true(recv(fd, text, sizeof text - 1, 0) > 12);
    close(fd);
    return atoi(text + 9);
}

/* A job of which nobody is heard any more is forgotten, but not which numbers it had. */
static void test_jobs_are_forgotten(void **state)
{
    char address[80];

    (void)state;
    if (tutti_serve_page_missing()[0]) skip();
    struct tutti_serve *served = serve_bounded("127.0.0.1:0", NULL);
    snprintf(address, sizeof address, "http://blue@127.0.0.1:%u", port_of(served));
    struct tutti_rpc_channel *channel = dial_list(address, NULL, 0);
    assert_int_equal(join(channel, "a", "").id, 1);
    assert_int_equal(page_of(port_of(served), "blue"), 200);
    for (int i = 0; i < 2000 && page_of(port_of(served), "blue") != 404; i++) usleep(10000);
    assert_int_equal(page_of(port_of(served), "blue"), 404);
    assert_int_equal(page_of(port_of(served), "default"), 200);
    assert_int_equal(join(channel, "a", "").id, 2);
    tutti_rpc_channel_close(channel);
    tutti_serve_close(served);
}

/* Without a secret this host alone, unless it is told otherwise. */
static void test_where_it_listens(void **state)
{
    (void)state;
    struct tutti_serve *served = serve_bounded("localhost:0", NULL);
    assert_memory_equal(tutti_serve_address(served), "http://localhost:", 17);
    tutti_serve_close(served);
    const struct tutti_serve_config config = {.options = {1, 10 * MS, 100 * MS, 10 * MS, 200 * MS, 2}};
    if (tutti_serve_open(&config, &served) < 0) { /* somebody has the port: it says where it was */
        assert_non_null(strstr(tutti_last_error()->text, "localhost:29510"));
        return;
    }
    assert_string_equal(tutti_serve_address(served), "http://localhost:29510");
    tutti_serve_close(served);
}

/* ---- what is kept ---- */
/* A lighthouse answers while its disk does not: only the quorum with a new number waits for it. */
static void test_slow_disk(void **state)
{
    char folder[] = "/tmp/tutti_disk_XXXXXX", command[64];
    struct tutti_serve *served;

    (void)state;
    assert_non_null(mkdtemp(folder));
    const struct tutti_serve_config config = {
        .bind = "127.0.0.1:0", .state = folder, .options = {1, 100 * MS, 60 * S, 100 * MS, 3600 * S, 0}};
    if (tutti_serve_open(&config, &served) < 0) fail_msg("%s", tutti_last_error()->text);
    struct tutti_rpc_channel *channel = dial(port_of(served), NULL);
    assert_int_equal(join(channel, "a", "").id, 1);
    atomic_store(&disk_waits, true);
    struct asked groups[2] = {group_of(channel, "b", "", 1), group_of(channel, "a", "", 1)}; /* the new one first */
    for (int i = 0; i < 2; i++) begin(&groups[i]);
    await(&disk_waited);
    assert_int_equal(ask(channel, "/torchft.LighthouseService/GetConfig", 0, 60 * S).status, TUTTI_RPC_OK);
    assert_false(atomic_load(&groups[1].done));
    atomic_store(&disk_waits, false);
    for (int i = 0; i < 2; i++) await(&groups[i].done);
    assert_true(groups[1].id >= 2);
    tutti_rpc_channel_close(channel);
    tutti_serve_close(served);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_takes_the_token),
        cmocka_unit_test(test_nobody_kills_without_a_secret),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_jobs_are_forgotten),
        cmocka_unit_test(test_where_it_listens),
        cmocka_unit_test(test_slow_disk),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
