/* SPDX-License-Identifier: BSD-3-Clause */

/* What a manager asks of a lighthouse: by Step, in few bytes while nothing changes; all of it again where its
 * lighthouse does not know what it knows; by Quorum where it does not know Step. The lighthouse is the test's, and
 * notes it. */

#include "ft/client/groups_test.h"

#include "ft/rpc/message.h"
#include "ft/rpc/rpc.h"

#include <stdatomic.h>
#include <tutti.pb-c.h>

/* What is asked, one after another: "S EPOCH" for a Step, with "+" when it says what the group is; "Q" for a Quorum. */
static char said[1024];
static size_t n_short; /* bytes of the last Step without it */
static int64_t epoch;  /* the view's */
static enum { ANSWERS, FORGETS, BABBLES } what;
static _Atomic bool refuses; /* the next heartbeat: it came too late */
static _Atomic int n_beats;

static void reply(struct tutti_rpc_call *call, const ProtobufCMessage *message)
{
    tutti_rpc_reply(call, tutti_message_body(message));
}

static void on_heartbeat(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    (void)arg, (void)message, (void)n;
    n_beats++;
    if (atomic_exchange(&refuses, false))
        tutti_rpc_fail(call, TUTTI_RPC_DEADLINE_EXCEEDED, "too late");
    else
        tutti_rpc_reply(call, tutti_rpc_body_new(0));
}

static void on_quorum(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    Torchft__LighthouseQuorumRequest *request = torchft__lighthouse_quorum_request__unpack(NULL, n, message);
    Torchft__Quorum quorum = TORCHFT__QUORUM__INIT;
    Torchft__LighthouseQuorumResponse response = TORCHFT__LIGHTHOUSE_QUORUM_RESPONSE__INIT;
    uint8_t raw[256];
    ProtobufCBinaryData member = {torchft__quorum_member__pack(request->requester, raw), raw};

    (void)arg;
    tutti_append(said, sizeof said, "Q %lld\n", (long long)request->requester->step);
    quorum.quorum_id = 3;
    quorum.n_participants = 1, quorum.participants = &member;
    response.quorum = &quorum;
    reply(call, &response.base);
    torchft__lighthouse_quorum_request__free_unpacked(request, NULL);
}

static void answer_step(struct tutti_rpc_call *call, const Tutti__StepRequest *request)
{
    Tutti__StepResponse response = TUTTI__STEP_RESPONSE__INIT;
    Tutti__Change change = TUTTI__CHANGE__INIT, *all = &change;

    response.quorum_id = 3, response.epoch = epoch, response.n_members = 1, response.max_step = request->step;
    response.whole = request->known_epoch != epoch;
    change.member = request->member;
    if (request->member.len > 0) response.n_changes = 1, response.changes = &all;
    reply(call, &response.base);
}

static void on_step(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    Tutti__StepRequest *request = tutti__step_request__unpack(NULL, n, message);
    struct tutti_rpc_body *nonsense = tutti_rpc_body_new(1);

    (void)arg;
    tutti_append(said, sizeof said, "S %lld%s\n", (long long)request->known_epoch, request->member.len > 0 ? " +" : "");
    if (request->member.len == 0) n_short = n;
    if (what == FORGETS)
        tutti_rpc_fail(call, TUTTI_RPC_NOT_FOUND, "say what it is");
    else if (what == BABBLES)
        nonsense->bytes[0] = 0xff, tutti_rpc_reply(call, nonsense), nonsense = NULL;
    else
        answer_step(call, request);
    if (what != ANSWERS) what = ANSWERS, epoch = 20;
    tutti_rpc_body_give(nonsense);
    tutti__step_request__free_unpacked(request, NULL);
}

static const struct tutti_rpc_method methods[] = {{"/torchft.LighthouseService/Heartbeat", on_heartbeat},
                                                  {"/torchft.LighthouseService/Quorum", on_quorum},
                                                  {"/tutti.LighthouseService/Step", on_step}};

static struct tutti_rpc_server *serve(struct tutti_loop *loop, uint16_t port, size_t n_methods)
{
    char bind[32];
    struct tutti_rpc_server *server;

    snprintf(bind, sizeof bind, "127.0.0.1:%u", port);
    const struct tutti_rpc_server_config config = {.loop = loop,
                                                   .bind = bind,
                                                   .methods = methods,
                                                   .n_methods = n_methods,
                                                   .max_connections = 100,
                                                   .max_calls = 100,
                                                   .max_message = 1 << 20};
    OK(tutti_rpc_server_open(&config, &server));
    return server;
}

/* One step, in which just this is asked. */
static void expect(struct tutti_ft_client *client, int64_t step, const char *handle, const char *asked)
{
    const struct tutti_ft_request request = {.step = step, .checkpoint_metadata = "", .reconfigure_handle = handle};
    struct tutti_ft_place *place;

    said[0] = '\0';
    OK(tutti_ft_client_quorum(client, &request, 20 * S, &place));
    assert_string_equal(said, asked);
    assert_int_equal(place->quorum_id, 3);
    assert_int_equal(place->replica_world_size, 1);
    assert_int_equal(place->max_step, step);
    tutti_ft_place_free(place);
}

static void test_asks_by_step(void **state)
{
    struct tutti_loop *loop;
    struct tutti_ft_client *client;
    char address[40];

    (void)state;
    OK(tutti_loop_open("test", &loop));
    OK(tutti_loop_start(loop));
    struct tutti_rpc_server *server = serve(loop, 0, 3);
    const uint16_t port = tutti_rpc_server_port(server);
    snprintf(address, sizeof address, "http://127.0.0.1:%u", port);
    struct tutti_ft_manager *m = manager_of("a", address, 1);
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &client));
    epoch = 10;
    expect(client, 1, "h", "S 0 +\n");
    expect(client, 2, "h", "S 10\n");
    assert_true(n_short < 16);
    epoch = 11; /* it is another one */
    expect(client, 3, "moved", "S 10 +\n");
    what = FORGETS;
    expect(client, 4, "moved", "S 11\nS 0 +\n");
    epoch = 21, what = BABBLES;
    expect(client, 5, "h", "S 20 +\nS 0 +\n");
    tutti_rpc_server_close(server);
    server = serve(loop, port, 2); /* as torchft's is */
    expect(client, 6, "h", "Q 6\n");
    expect(client, 7, "h", "Q 7\n");
    atomic_store(&refuses, true); /* the manager lets go of the connection, and makes another */
    while (atomic_load(&refuses)) usleep(1000);
    for (const int n = n_beats; n_beats < n + 2;) usleep(1000);
    expect(client, 8, "h", "Q 8\n");
    tutti_ft_client_close(client);
    tutti_ft_manager_close(m);
    tutti_rpc_server_close(server);
    tutti_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_asks_by_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
