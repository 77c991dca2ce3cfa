/* SPDX-License-Identifier: BSD-3-Clause */

/* A client follows random quorums by what the lighthouse says of changes, also after it has missed some; answers that
 * can not be are refused, and nothing is known then. */

#include "test.h"

#include "ft/client/quorum_cache.h"
#include "ft/rpc/message.h"
#include "ft/serve/view.h"

#include <tutti.pb-c.h>

#include <stdio.h>
#include <string.h>

#define GROUPS 12
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) < 0) fail_msg("%s: %s", #call, tutti_last_error()->text);                                           \
    } while (0)

/* What a lighthouse has of a group; its handles are a part of the raw bytes alone. */
static struct tutti_replica *member_of(uint32_t number, uint32_t life, int64_t step)
{
    char name[16], address[32], handle[16];
    char *handles[] = {handle};
    uint8_t raw[128];
    Torchft__QuorumMember member = TORCHFT__QUORUM_MEMBER__INIT;

    snprintf(name, sizeof name, "g%02u", number);
    snprintf(address, sizeof address, "http://h%u:%u", number, life);
    snprintf(handle, sizeof handle, "h%u", life);
    member.replica_id = name, member.address = address;
    member.n_reconfigure_handles = 1, member.reconfigure_handles = handles;
    const size_t n = torchft__quorum_member__pack(&member, raw);
    char *texts = tutti_alloc(sizeof(struct tutti_replica) + sizeof name + sizeof raw);
    struct tutti_replica *replica = (struct tutti_replica *)(void *)texts;
    texts += sizeof *replica;
    *replica = (struct tutti_replica){.replica_id = memcpy(texts, name, sizeof name),
                                      .address = "",
                                      .store_address = "",
                                      .data = "",
                                      .raw = memcpy(texts + sizeof name, raw, n),
                                      .n_raw = n,
                                      .step = step,
                                      .commit_failures = number == 3};
    return replica;
}

static struct tutti_quorum *quorum_of(const uint32_t *lives, const int64_t *steps, int64_t id)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < GROUPS; i++) n += lives[i] > 0;
    struct tutti_quorum *quorum = tutti_quorum_new(n);
    quorum->id = id, quorum->created_ns = id * 7;
    for (uint32_t i = 0, at = 0; i < GROUPS; i++)
        if (lives[i] > 0) quorum->members[at++] = member_of(i, lives[i], steps[i]);
    return quorum;
}

static void check(const struct tutti_quorum_cache *known, const uint32_t *lives, const int64_t *steps, int64_t id)
{
    uint32_t at = 0;

    assert_int_equal(known->quorum.id, id);
    assert_int_equal(known->quorum.created_ns, id * 7);
    for (uint32_t i = 0; i < GROUPS; i++) {
        char name[16], address[32], handle[16];
        if (lives[i] == 0) continue;
        const struct tutti_replica *replica = known->quorum.members[at++];
        snprintf(name, sizeof name, "g%02u", i);
        snprintf(address, sizeof address, "http://h%u:%u", i, lives[i]);
        snprintf(handle, sizeof handle, "h%u", lives[i]);
        assert_string_equal(replica->replica_id, name);
        assert_string_equal(replica->address, address);
        assert_int_equal(replica->n_handles, 1);
        assert_string_equal(replica->handles[0], handle);
        assert_int_equal(replica->step, steps[i]);
        assert_int_equal(replica->commit_failures, lives[3] > 0);
        struct tutti_replica *said = member_of(i, lives[i], 0), *moved = member_of(i, lives[i] + 1, 0);
        struct tutti_rpc_body *body = tutti_rpc_body_new(said->n_raw), *other = tutti_rpc_body_new(moved->n_raw);
        memcpy(body->bytes, said->raw, said->n_raw), memcpy(other->bytes, moved->raw, moved->n_raw);
        assert_true(tutti_quorum_cache_has(known, name, body));
        assert_false(tutti_quorum_cache_has(known, name, other));
        assert_false(tutti_quorum_cache_has(known, "nobody", body));
        tutti_rpc_body_give(body), tutti_rpc_body_give(other);
        tutti_free(said), tutti_free(moved);
    }
    assert_int_equal(known->quorum.n, at);
}

static void follow(uint64_t seed)
{
    struct serve_view view;
    struct tutti_quorum_cache known = {0};
    uint32_t lives[GROUPS] = {1, 1};
    int64_t steps[GROUPS] = {0};
    uint64_t random = seed;

    serve_view_init(&view, 1000000);
    for (int64_t id = 1; id < 300; id++) {
        for (uint32_t i = 0; i < GROUPS; i++) {
            const uint64_t what = tutti_random64(&random) % 60;
            if (what == 0 && i > 0) lives[i] = lives[i] ? 0 : (uint32_t)id;
            if (what == 1 && lives[i]) lives[i]++;
            steps[i] = id - (what == 2);
        }
        struct tutti_quorum *quorum = quorum_of(lives, steps, id);
        assert_true(serve_view_follow(&view, quorum));
        if (tutti_random64(&random) % 8 != 0) { /* else it hears of none for a while */
            struct tutti_rpc_body *body = serve_view_since(&view, quorum, known.epoch);
            OK(tutti_quorum_cache_update(&known, body->bytes, body->n));
            tutti_rpc_body_give(body);
            assert_int_equal(known.epoch, view.epoch);
            check(&known, lives, steps, id);
        }
        tutti_quorum_give(quorum);
        if (tutti_random64(&random) % 100 == 0) tutti_quorum_cache_clear(&known);
    }
    tutti_quorum_cache_clear(&known);
    serve_view_fini(&view);
}

static void test_follows(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) follow(seed);
}

/* ---- answers that can not be ---- */
static Tutti__StepResponse answer;
static Tutti__Change changes[2];
static Tutti__Behind behind;

static enum tutti_status take(struct tutti_quorum_cache *known)
{
    uint8_t bytes[512];

    return tutti_quorum_cache_update(known, bytes, tutti__step_response__pack(&answer, bytes));
}

/* With two members, a and b. */
static void begin(struct tutti_quorum_cache *known)
{
    static Tutti__Change *all[] = {&changes[0], &changes[1]};
    static Tutti__Behind *one[] = {&behind};
    static const uint8_t a[] = {10, 1, 'a'}, b[] = {10, 1, 'b'};

    tutti__step_response__init(&answer);
    tutti__change__init(&changes[0]), tutti__change__init(&changes[1]);
    tutti__behind__init(&behind);
    changes[0].member = (ProtobufCBinaryData){sizeof a, (uint8_t *)(uintptr_t)a};
    changes[1].member = (ProtobufCBinaryData){sizeof b, (uint8_t *)(uintptr_t)b};
    behind.index = 1;
    answer.n_behind = 1, answer.behind = one;
    answer.n_changes = 2, answer.changes = all;
    answer.epoch = 5, answer.n_members = 2, answer.whole = true;
    answer.max_step = 8;
    OK(take(known));
    assert_int_equal(known->quorum.members[0]->step, 8);
    assert_int_equal(known->quorum.members[1]->step, 0);
}

static void test_refuses(void **state)
{
    static const struct {
        const char *name, *text;
    } wrong[] = {{"order", "order of their names"}, {"behind", "member 2 of 2"}, {"gone", "was not there"},
                 {"number", "3 members"},           {"epoch", "no epoch"},       {"unknown", "nothing is known"},
                 {"member", "can not be read"},     {"nobody", "0 are known"}};
    struct tutti_quorum_cache known = {0};
    static const uint8_t nonsense[] = {0xff, 0xff};

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        const char *name = wrong[i].name;
        begin(&known);
        if (strcmp(name, "order") == 0) changes[1].member = changes[0].member;
        if (strcmp(name, "behind") == 0) behind.index = 2;
        if (strcmp(name, "gone") == 0) {
            changes[0].member.len = 0, changes[0].gone = (char *)(uintptr_t) "c";
            answer.whole = false;
        }
        if (strcmp(name, "number") == 0) answer.n_members = 3;
        if (strcmp(name, "epoch") == 0) answer.epoch = 0;
        if (strcmp(name, "unknown") == 0) tutti_quorum_cache_clear(&known), answer.whole = false;
        if (strcmp(name, "member") == 0)
            changes[0].member = (ProtobufCBinaryData){sizeof nonsense, (uint8_t *)(uintptr_t)nonsense};
        if (strcmp(name, "nobody") == 0) answer.n_changes = answer.n_behind = answer.n_members = 0;
        assert_int_equal(take(&known), TUTTI_ERR_PROTOCOL);
        if (!strstr(tutti_last_error()->text, wrong[i].text)) fail_msg("%s: %s", name, tutti_last_error()->text);
        assert_int_equal(known.epoch, 0);
        assert_int_equal(known.quorum.n, 0);
    }
    begin(&known);
    assert_int_equal(tutti_quorum_cache_update(&known, nonsense, sizeof nonsense), TUTTI_ERR_PROTOCOL);
    tutti_quorum_cache_clear(&known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows), cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
