/* SPDX-License-Identifier: BSD-3-Clause */

/* Groups that come, go and change, and their clients, who know views of some time ago: what each makes of the changes
 * that it is told is the quorum. */

#include "test.h"

#include "ft/rules/lighthouse.h"
#include "ft/serve/view.h"

#include <torchft.pb-c.h>
#include <tutti.pb-c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS 12
#define MS TUTTI_NS_PER_MS

/* What a client makes of it. */
struct client {
    int64_t epoch;
    uint32_t n;
    struct {
        char name[16], address[32];
    } members[GROUPS];
};
static struct client clients[GROUPS];
static struct serve_view view;
static size_t n_same, n_whole, n_bytes_same;

static uint32_t place(const struct client *client, const char *name, bool *found)
{
    uint32_t i = 0;
    while (i < client->n && strcmp(client->members[i].name, name) < 0) i++;
    *found = i < client->n && strcmp(client->members[i].name, name) == 0;
    return i;
}

static void remove_member(struct client *client, const char *name)
{
    bool found;
    const uint32_t i = place(client, name, &found);
    assert_true(found);
    memmove(&client->members[i], &client->members[i + 1], (--client->n - i) * sizeof client->members[0]);
}

static void add_member(struct client *client, const Torchft__QuorumMember *member)
{
    bool found;
    const uint32_t i = place(client, member->replica_id, &found);
    if (!found) {
        assert_true(client->n < GROUPS);
        memmove(&client->members[i + 1], &client->members[i], (client->n++ - i) * sizeof client->members[0]);
    }
    snprintf(client->members[i].name, sizeof client->members[i].name, "%s", member->replica_id);
    snprintf(client->members[i].address, sizeof client->members[i].address, "%s", member->address);
}

static void apply(struct client *client, const struct tutti_rpc_body *body)
{
    Tutti__StepResponse *response = tutti__step_response__unpack(NULL, body->n, body->bytes);
    assert_non_null(response);
    if (response->whole) client->n = 0, n_whole++;
    if (response->epoch == client->epoch) n_same++, n_bytes_same += body->n;
    for (size_t i = 0; i < response->n_changes; i++) {
        const Tutti__Change *change = response->changes[i];
        Torchft__QuorumMember *member =
            change->member.len > 0 ? torchft__quorum_member__unpack(NULL, change->member.len, change->member.data)
                                   : NULL;
        if (member)
            add_member(client, member);
        else
            remove_member(client, change->gone);
        if (member) torchft__quorum_member__free_unpacked(member, NULL);
    }
    client->epoch = response->epoch;
    assert_int_equal(response->n_members, client->n);
    tutti__step_response__free_unpacked(response, NULL);
}

static void check(const struct client *client, const struct tutti_rpc_body *whole)
{
    Torchft__LighthouseQuorumResponse *response =
        torchft__lighthouse_quorum_response__unpack(NULL, whole->n, whole->bytes);
    assert_non_null(response);
    assert_int_equal(response->quorum->n_participants, client->n);
    for (uint32_t i = 0; i < client->n; i++) {
        const ProtobufCBinaryData *raw = &response->quorum->participants[i];
        Torchft__QuorumMember *member = torchft__quorum_member__unpack(NULL, raw->len, raw->data);
        assert_non_null(member);
        assert_string_equal(member->replica_id, client->members[i].name);
        assert_string_equal(member->address, client->members[i].address);
        torchft__quorum_member__free_unpacked(member, NULL);
    }
    torchft__lighthouse_quorum_response__free_unpacked(response, NULL);
}

static void on_answer(void *arg, uint64_t request, struct tutti_quorum *quorum)
{
    struct client *client = &clients[request % GROUPS];
    (void)arg;
    assert_true(serve_view_follow(&view, quorum));
    struct tutti_rpc_body *body = serve_view_since(&view, quorum, client->epoch);
    struct tutti_rpc_body *whole = serve_view_whole(quorum);
    assert_true(body && whole);
    apply(client, body);
    check(client, whole);
    tutti_rpc_body_give(body);
    tutti_rpc_body_give(whole);
    tutti_quorum_give(quorum);
}

/* With the address that it has in this life; its raw bytes as calls.c makes them. */
static void ask(struct tutti_lighthouse *machine, uint32_t i, uint32_t life, int64_t step, uint64_t number,
                uint64_t now)
{
    char name[16], address[32];
    uint8_t raw[128];
    Torchft__QuorumMember member = TORCHFT__QUORUM_MEMBER__INIT;
    snprintf(name, sizeof name, "g%02u", i);
    snprintf(address, sizeof address, "http://h%u:%u", i, life);
    member.replica_id = name, member.address = address;
    const struct tutti_replica replica = {.replica_id = name,
                                          .address = address,
                                          .store_address = "",
                                          .data = "",
                                          .raw = raw,
                                          .n_raw = torchft__quorum_member__pack(&member, raw),
                                          .step = step};
    assert_int_equal(
        tutti_lighthouse_ask(machine, &replica, number * GROUPS + i, (struct tutti_lighthouse_time){now, (int64_t)now}),
        TUTTI_OK);
}

static void live(uint64_t seed)
{
    const struct tutti_lighthouse_options options = {1, 0, 50 * MS, 1 * MS, 1000 * MS, 0};
    const struct tutti_lighthouse_out out = {.answer = on_answer};
    struct tutti_lighthouse *machine;
    uint64_t random = seed, number = 0, now = 0;
    uint32_t lives[GROUPS] = {0};
    bool runs[GROUPS] = {false};
    memset(clients, 0, sizeof clients);
    serve_view_init(&view, 1);
    assert_int_equal(tutti_lighthouse_create(&options, &out, &machine), TUTTI_OK);
    for (int step = 0; step < 200; step++, now += 10 * MS) {
        for (uint32_t i = 0; i < GROUPS; i++) {
            const uint64_t what = tutti_random64(&random) % 100;
            if (what < 3) runs[i] = !runs[i];
            if (what == 3) lives[i]++;                                /* it moves */
            if (what == 4) memset(&clients[i], 0, sizeof clients[i]); /* it knows nothing any more */
            if (runs[i]) ask(machine, i, lives[i], step - (what == 5), ++number, now);
        }
        for (int i = 0; i < 12; i++)
            tutti_lighthouse_tick(machine, (struct tutti_lighthouse_time){now + (uint64_t)i * 5 * MS, (int64_t)now});
        now += 60 * MS;
    }
    tutti_lighthouse_destroy(machine);
    serve_view_fini(&view);
}

static void test_clients_know_the_quorum(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) live(seed);
    assert_true(n_same > 10000 && n_whole > 1000);
    assert_true(n_bytes_same / n_same < 60); /* nothing has changed: few bytes, however many groups there are */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients_know_the_quorum)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
