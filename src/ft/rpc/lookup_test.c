/* SPDX-License-Identifier: BSD-3-Clause */

/* A resolver that takes its time: only who asks for that host waits, and no longer than he likes. This program's
 * getaddrinfo stands before the system's. */

#include "test.h"

#include "ft/rpc/rpc.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MS TUTTI_NS_PER_MS
#define S TUTTI_NS_PER_S

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

static void on_echo(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    (void)arg, (void)message, (void)n;
    tutti_rpc_reply(call, tutti_rpc_body_new(0));
}

static struct tutti_loop *loop;
static struct tutti_rpc_server *server;

static struct tutti_rpc_channel *dial(const char *host, bool gives_up)
{
    char address[64];
    struct tutti_rpc_channel *channel;

    snprintf(address, sizeof address, "http://%s:%u", host, tutti_rpc_server_port(server));
    const struct tutti_rpc_channel_config config = {
        .loop = loop, .address = address, .max_message = 4096, .dial_ns = 100 * MS, .gives_up = gives_up};
    assert_int_equal(tutti_rpc_channel_open(&config, &channel), TUTTI_OK);
    return channel;
}

struct asked {
    struct tutti_rpc_channel *channel;
    uint64_t within_ns;
    _Atomic bool done;
    enum tutti_rpc_status status;
    char message[256];
};

static void on_done(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct asked *asked = arg;

    (void)bytes, (void)n;
    asked->status = status;
    snprintf(asked->message, sizeof asked->message, "%s", message);
    atomic_store(&asked->done, true);
}

static void send_now(void *arg)
{
    struct asked *asked = arg;

    tutti_rpc_send(asked->channel, "/t/Echo", tutti_rpc_body_new(0), tutti_now_ns() + asked->within_ns, on_done, asked);
}

static void await(struct asked *asked)
{
    for (int i = 0; i < 60000 && !atomic_load(&asked->done); i++) usleep(1000);
    assert_true(atomic_load(&asked->done));
}

static void test_slow_names(void **state)
{
    static const struct tutti_rpc_method methods[] = {{"/t/Echo", on_echo}};
    const struct tutti_rpc_server_config config = {.bind = "127.0.0.1:0",
                                                   .methods = methods,
                                                   .n_methods = 1,
                                                   .max_connections = 10,
                                                   .max_calls = 10,
                                                   .max_message = 4096};
    struct tutti_rpc_server_config with_loop = config;

    (void)state;
    assert_int_equal(tutti_loop_open("test", &loop), TUTTI_OK);
    assert_int_equal(tutti_loop_start(loop), TUTTI_OK);
    with_loop.loop = loop;
    assert_int_equal(tutti_rpc_server_open(&with_loop, &server), TUTTI_OK);
    struct tutti_rpc_channel *channels[] = {dial("slow.invalid", false), dial("slow.invalid", true),
                                            dial("localhost", false), dial("slow.invalid", false)};
    struct asked late = {.channel = channels[0], .within_ns = 250 * MS},
                 gone = {.channel = channels[1], .within_ns = 20 * S},
                 quick = {.channel = channels[2], .within_ns = 20 * S},
                 closed = {.channel = channels[3], .within_ns = 20 * S};
    tutti_loop_run(loop, send_now, &late);
    tutti_loop_run(loop, send_now, &gone);
    tutti_loop_run(loop, send_now, &closed);
    tutti_loop_run(loop, send_now, &quick); /* another host is not waited for */
    await(&quick);
    assert_int_equal(quick.status, TUTTI_RPC_OK);
    await(&gone); /* the next server's turn */
    assert_int_equal(gone.status, TUTTI_RPC_UNAVAILABLE);
    assert_string_equal(gone.message, "its name is not found in time");
    await(&late);
    assert_int_equal(late.status, TUTTI_RPC_DEADLINE_EXCEEDED);
    assert_int_equal(atomic_load(&n_slow), 3); /* one thread for each host, however often it is dialled */
    tutti_rpc_channel_close(channels[3]);      /* while its name is looked for */
    assert_false(atomic_load(&closed.done));
    atomic_store(&may_end, 1);
    late = (struct asked){.channel = channels[0], .within_ns = 20 * S}; /* found by now, or soon */
    tutti_loop_run(loop, send_now, &late);
    await(&late);
    assert_int_equal(late.status, TUTTI_RPC_OK);
    for (int i = 0; i < 3; i++) tutti_rpc_channel_close(channels[i]);
    tutti_rpc_server_close(server);
    tutti_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slow_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
