/* SPDX-License-Identifier: BSD-3-Clause */

/* The rules of quorums: cases by hand, then random lives of groups beside a second implementation, which looks through
 * all groups at every event and is as short as the rules. */

#include "test.h"

#include "ft/rules/lighthouse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS TUTTI_NS_PER_MS
#define HOUR (3600000 * MS)
#define MAX_ANSWERS 64

struct answers {
    uint32_t n;
    bool refuses; /* nothing can be made durable */
    uint64_t requests[MAX_ANSWERS];
    char text[MAX_ANSWERS][96]; /* "#3 a b" */
};

static void text_of(const struct tutti_quorum *quorum, char *out, size_t capacity)
{
    snprintf(out, capacity, "#%d", (int)quorum->id);
    for (uint32_t i = 0; i < quorum->n; i++) tutti_append(out, capacity, " %s", quorum->members[i]->replica_id);
}

static void on_answer(void *arg, uint64_t request, struct tutti_quorum *quorum)
{
    struct answers *answers = arg;

    assert_true(answers->n < MAX_ANSWERS);
    answers->requests[answers->n] = request;
    text_of(quorum, answers->text[answers->n++], sizeof answers->text[0]);
    tutti_quorum_give(quorum);
}

static bool on_commit(void *arg, const struct tutti_quorum *quorum)
{
    (void)quorum;
    return !((struct answers *)arg)->refuses;
}

static struct tutti_lighthouse *make(uint64_t min_replicas, uint64_t join_ns, struct answers *answers)
{
    const struct tutti_lighthouse_options options = {min_replicas, join_ns, 5000 * MS, 100 * MS, HOUR, 0};
    const struct tutti_lighthouse_out out = {.arg = answers, .answer = on_answer, .commit = on_commit};
    struct tutti_lighthouse *l;

    *answers = (struct answers){0};
    assert_int_equal(tutti_lighthouse_create(&options, &out, &l), TUTTI_OK);
    return l;
}

static struct tutti_replica replica(const char *name)
{
    return (struct tutti_replica){.replica_id = name, .address = "http://x", .store_address = "s", .data = "{}"};
}

static struct tutti_lighthouse_time at(uint64_t now)
{
    return (struct tutti_lighthouse_time){now, (int64_t)now};
}

static void ask(struct tutti_lighthouse *l, const char *name, uint64_t request, uint64_t now)
{
    const struct tutti_replica r = replica(name);
    assert_int_equal(tutti_lighthouse_ask(l, &r, request, at(now)), TUTTI_OK);
}

static void beat(struct tutti_lighthouse *l, const char *name, uint64_t now)
{
    assert_int_equal(tutti_lighthouse_beat(l, name, at(now)), TUTTI_OK);
}

static void expect(struct answers *answers, uint32_t n, const char *text)
{
    assert_int_equal(answers->n, n);
    for (uint32_t i = 0; i < n; i++) assert_string_equal(answers->text[i], text);
    answers->n = 0;
}

static void expect_reason(const struct tutti_lighthouse *l, uint64_t now, const char *words)
{
    char text[256];

    tutti_lighthouse_reason(l, now, text, sizeof text);
    if (!strstr(text, words)) fail_msg("\"%s\" is not in \"%s\"", words, text);
}

/* ---- cases ---- */
static void test_waits_for_stragglers(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(2, 1000 * MS, &answers);

    (void)state;
    beat(l, "c", 0);
    ask(l, "b", 1, 10 * MS);
    expect_reason(l, 10 * MS,
                  "only have 1 participants, need min_replicas 2 [1/1 participants healthy][2 heartbeating]");
    ask(l, "a", 2, 20 * MS);
    expect(&answers, 0, NULL);
    expect_reason(l, 20 * MS, "waiting for 1 healthy but not participating stragglers");
    assert_int_equal(tutti_lighthouse_due(l), 1010 * MS); /* the first one has waited long enough */
    tutti_lighthouse_tick(l, at(1009 * MS));
    expect(&answers, 0, NULL);
    tutti_lighthouse_tick(l, at(1010 * MS));
    expect(&answers, 2, "#1 a b");
    tutti_lighthouse_destroy(l);
}

static void test_last_members_wait_for_nobody(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, HOUR, &answers);

    (void)state;
    ask(l, "a", 1, 0);
    expect(&answers, 1, "#1 a");
    beat(l, "b", 1 * MS);
    beat(l, "c", 1 * MS);
    ask(l, "a", 2, 2 * MS); /* alone, and a minority, but it was the last quorum */
    expect(&answers, 1, "#1 a");
    ask(l, "b", 3, 3 * MS);
    expect_reason(l, 3 * MS, "need at least half of 3 healthy workers");
    ask(l, "a", 4, 4 * MS); /* a group that asked meanwhile comes along */
    expect(&answers, 2, "#2 a b");
    tutti_lighthouse_destroy(l);
}

static void test_no_second_quorum_beside_a_majority(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, 0, &answers);

    (void)state;
    beat(l, "b", 0);
    ask(l, "a", 1, 0);
    expect(&answers, 0, NULL);
    expect_reason(l, 0, "only have 1 participants, need at least half of 2 healthy workers");
    assert_int_equal(tutti_lighthouse_due(l), 5000 * MS);
    beat(l, "a", 4999 * MS);
    tutti_lighthouse_tick(l, at(5000 * MS)); /* b is not heard any more */
    expect(&answers, 1, "#1 a");
    tutti_lighthouse_destroy(l);
}

static void test_shrink_only(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, 0, &answers);
    struct tutti_replica shrinking = replica("a");

    (void)state;
    ask(l, "a", 1, 0);
    expect(&answers, 1, "#1 a");
    ask(l, "b", 2, 0); /* the last quorum is a alone, which does not ask; b is no majority of a and b */
    expect(&answers, 0, NULL);
    shrinking.shrink_only = true;
    assert_int_equal(tutti_lighthouse_ask(l, &shrinking, 3, at(1 * MS)), TUTTI_OK);
    assert_int_equal(answers.n, 1);
    assert_int_equal(answers.requests[0], 3);
    expect(&answers, 1, "#1 a");
    assert_int_equal(tutti_lighthouse_due(l), 101 * MS); /* b still asks */
    ask(l, "a", 4, 2 * MS);
    expect(&answers, 2, "#2 a b");
    /* Only strangers ask, and to shrink only: nobody can be a member. */
    assert_int_equal(
        tutti_lighthouse_ask(l, &(struct tutti_replica){"z", "", "", "", .shrink_only = true}, 5, at(3 * MS)),
        TUTTI_OK);
    tutti_lighthouse_tick(l, at(9000 * MS));
    beat(l, "z", 9000 * MS);
    expect(&answers, 0, NULL);
    expect_reason(l, 9000 * MS, "nobody can be a member [1/1 participants healthy][1 heartbeating][shrink_only=true]");
    tutti_lighthouse_destroy(l);
}

static void test_numbers(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, 0, &answers);
    struct tutti_replica failed = replica("a");

    (void)state;
    ask(l, "a", 1, 0);
    expect(&answers, 1, "#1 a");
    failed.commit_failures = 1;
    assert_int_equal(tutti_lighthouse_ask(l, &failed, 2, at(0)), TUTTI_OK);
    expect(&answers, 1, "#2 a");
    failed.commit_failures = 0, failed.step = 7, failed.address = "elsewhere"; /* no reason for a new number */
    assert_int_equal(tutti_lighthouse_ask(l, &failed, 3, at(0)), TUTTI_OK);
    expect(&answers, 1, "#2 a");
    assert_int_equal(tutti_quorum_find(tutti_lighthouse_last(l), "a")->step, 7);
    assert_null(tutti_quorum_find(tutti_lighthouse_last(l), "b"));
    tutti_lighthouse_destroy(l);
}

static void test_who_waits_no_more_is_no_member(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(2, 0, &answers);

    (void)state;
    ask(l, "a", 1, 0);
    ask(l, "a", 2, 0); /* twice: one of them is enough */
    tutti_lighthouse_cancel(l, 1, at(0));
    tutti_lighthouse_cancel(l, 2, at(0));
    tutti_lighthouse_cancel(l, 77, at(0));
    ask(l, "b", 3, 0);
    expect(&answers, 0, NULL);
    ask(l, "a", 4, 0);
    ask(l, "c", 5, 0); /* a and b are the last quorum */
    expect(&answers, 2, "#1 a b");
    tutti_lighthouse_leave(l, "a", at(0));
    tutti_lighthouse_leave(l, "nobody", at(0));
    ask(l, "b", 6, 0);
    expect(&answers, 2, "#2 b c");
    tutti_lighthouse_destroy(l);
}

static void test_restart(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, HOUR, &answers);
    const char *const names[] = {"a", "b"};

    (void)state;
    assert_int_equal(tutti_lighthouse_restore(l, 41, names, 2, 0), TUTTI_OK);
    ask(l, "a", 1, 0);
    expect(&answers, 0, NULL);
    ask(l, "b", 2, 0); /* all of the last quorum are here again */
    expect(&answers, 2, "#41 a b");
    ask(l, "b", 3, 0);
    answers.refuses = true; /* a number that is not durable is told to nobody */
    tutti_lighthouse_leave(l, "a", at(0));
    expect(&answers, 0, NULL);
    assert_int_equal(tutti_lighthouse_due(l), 100 * MS);
    answers.refuses = false;
    tutti_lighthouse_tick(l, at(100 * MS));
    expect(&answers, 1, "#42 b");
    tutti_lighthouse_destroy(l);
}

/* After a stall the first heartbeat that is read says nothing of the others. */
static void test_who_was_away_waits(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, 0, &answers);

    (void)state;
    beat(l, "a", 1 * MS);
    beat(l, "b", 2 * MS);
    tutti_lighthouse_away(l, 9000 * MS);
    ask(l, "a", 1, 9000 * MS);
    expect(&answers, 0, NULL);
    tutti_lighthouse_tick(l, at(10249 * MS));
    expect(&answers, 0, NULL);
    assert_int_equal(tutti_lighthouse_due(l), 10250 * MS);
    tutti_lighthouse_tick(l, at(10250 * MS)); /* b is late nevertheless */
    expect(&answers, 1, "#1 a");
    beat(l, "c", 10251 * MS);
    beat(l, "a", 10252 * MS);
    tutti_lighthouse_leave(l, "a", at(10253 * MS)); /* it stays known as a member, and c is forgotten behind it */
    tutti_lighthouse_tick(l, at(15251 * MS));
    tutti_lighthouse_tick(l, at(10251 * MS + HOUR));
    assert_int_equal(tutti_lighthouse_due(l), UINT64_MAX);
    tutti_lighthouse_destroy(l);
}

static void test_forgets(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, 0, &answers);
    struct tutti_lighthouse_counts counts;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        ask(l, name, (uint64_t)i, (uint64_t)i * 10000 * MS);
        tutti_lighthouse_counts(l, &counts);
        assert_true(counts.n_known <= 362 && counts.n_heard == 1);
        expect(&answers, 1, answers.text[0]);
    }
    assert_int_equal(tutti_lighthouse_beat(l, "", at(10000000 * MS)), TUTTI_ERR_ARGUMENT);
    tutti_lighthouse_destroy(l);
}

/* ---- random lives beside the rules as they are written ---- */
#define GROUPS 6
struct model {
    uint64_t min, join_ns, now;
    int64_t id;
    uint32_t n_last;
    struct {
        bool known, asks, last, shrink;
        int64_t failures;
        uint64_t beat, joined;
        uint64_t requests[32];
        uint32_t n_requests;
    } g[GROUPS];
};

static bool heard(const struct model *m, int i)
{
    return m->g[i].known && m->now - m->g[i].beat < 5000 * MS;
}

/* The quorum that there would be now, as text; "" if there is none. in: its members. */
static void model_decide(const struct model *m, bool in[GROUPS], bool *any)
{
    uint64_t n_heard = 0, n_ready = 0, first = UINT64_MAX, n_in = 0;
    bool fast = m->n_last > 0, shrink = false;

    *any = false;
    for (int i = 0; i < GROUPS; i++) {
        const bool ready = heard(m, i) && m->g[i].asks;
        n_heard += heard(m, i), n_ready += ready;
        if (m->g[i].last && !ready) fast = false;
        if (ready && m->g[i].shrink) shrink = true;
        if (ready && m->g[i].joined < first) first = m->g[i].joined;
    }
    for (int i = 0; i < GROUPS; i++) {
        in[i] = heard(m, i) && m->g[i].asks && (m->g[i].last || !shrink || m->n_last == 0);
        n_in += in[i];
    }
    if (n_in == 0) return;
    if (!fast && n_ready < m->min) return;
    if (!fast && n_ready <= n_heard / 2) return;
    if (!fast && n_heard > n_ready && m->now - first < m->join_ns) return;
    *any = true;
}

static void model_publish(struct model *m, const bool in[GROUPS], struct answers *expected)
{
    bool changed = m->n_last == 0;
    char text[96];

    m->n_last = 0;
    for (int i = 0; i < GROUPS; i++) {
        changed = changed || in[i] != m->g[i].last || (in[i] && m->g[i].failures > 0);
        m->n_last += in[i];
    }
    m->id += changed;
    snprintf(text, sizeof text, "#%d", (int)m->id);
    for (int i = 0; i < GROUPS; i++)
        if (in[i]) tutti_append(text, sizeof text, " %c", 'a' + i);
    for (int i = 0; i < GROUPS; i++) {
        m->g[i].last = in[i];
        if (!in[i]) {
            if (m->g[i].asks) m->g[i].joined = m->now;
            continue;
        }
        for (uint32_t r = 0; r < m->g[i].n_requests; r++) {
            expected->requests[expected->n] = m->g[i].requests[r];
            strcpy(expected->text[expected->n++], text);
        }
        m->g[i].n_requests = 0;
        m->g[i].asks = false;
    }
}

static int by_request(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void compare(struct answers *got, struct answers *expected, uint64_t seed, int event)
{
    if (got->n != expected->n)
        fail_msg("seed %" PRIu64 ", event %d: %u answers, and not %u", seed, event, got->n, expected->n);
    qsort(got->requests, got->n, sizeof got->requests[0], by_request);
    qsort(expected->requests, expected->n, sizeof expected->requests[0], by_request);
    for (uint32_t i = 0; i < got->n; i++) {
        if (got->requests[i] != expected->requests[i] || strcmp(got->text[i], expected->text[i]) != 0)
            fail_msg("seed %" PRIu64 ", event %d: request %" PRIu64 " got %s, and not %s", seed, event,
                     got->requests[i], got->text[i], expected->text[i]);
    }
    got->n = expected->n = 0;
}

static void live(uint64_t seed)
{
    uint64_t random = seed, number = 0;
    struct answers answers, expected = {0};
    struct model m = {.min = 1 + tutti_random64(&random) % 3, .join_ns = tutti_random64(&random) % 8000 * MS};
    struct tutti_lighthouse *l = make(m.min, m.join_ns, &answers);

    for (int event = 0; event < 60; event++) {
        const int i = (int)(tutti_random64(&random) % GROUPS);
        const uint64_t what = tutti_random64(&random) % 10;
        const uint64_t due = tutti_lighthouse_due(l), step = tutti_random64(&random) % 1500 * MS;
        const char name[2] = {(char)('a' + i), '\0'};
        bool in[GROUPS], any;
        if (what < 6 || due == UINT64_MAX || due < m.now)
            m.now += step; /* else exactly when it is due */
        else
            m.now = due;
        if (what < 5) {
            struct tutti_replica r = replica(name);
            m.g[i].known = m.g[i].asks = true;
            m.g[i].shrink = r.shrink_only = tutti_random64(&random) % 8 == 0;
            m.g[i].failures = r.commit_failures = tutti_random64(&random) % 6 == 0;
            m.g[i].beat = m.g[i].joined = m.now;
            m.g[i].requests[m.g[i].n_requests++] = ++number;
            assert_int_equal(tutti_lighthouse_ask(l, &r, number, at(m.now)), TUTTI_OK);
        } else if (what < 7) {
            m.g[i].known = true;
            m.g[i].beat = m.now;
            beat(l, name, m.now);
        } else if (what == 7 && m.g[i].n_requests > 0) {
            const uint64_t gone = m.g[i].requests[--m.g[i].n_requests];
            m.g[i].asks = m.g[i].n_requests > 0;
            tutti_lighthouse_cancel(l, gone, at(m.now));
        } else {
            tutti_lighthouse_tick(l, at(m.now));
        }
        model_decide(&m, in, &any);
        if (any) model_publish(&m, in, &expected);
        compare(&answers, &expected, seed, event);
        if (m.g[i].n_requests >= 30) break;
    }
    tutti_lighthouse_destroy(l);
}

static void test_random_lives(void **state)
{
    const uint64_t n = getenv("TUTTI_TEST_SAMPLE") ? 5000 : 100000;

    (void)state;
    for (uint64_t seed = 1; seed <= n; seed++) live(seed);
}

static void test_groups_have_a_bound(void **state)
{
    const struct tutti_lighthouse_options options = {1, 0, 5000 * MS, 100 * MS, HOUR, 2};
    const struct tutti_lighthouse_out out = {.answer = on_answer};
    struct tutti_lighthouse *l;

    (void)state;
    assert_int_equal(tutti_lighthouse_create(&options, &out, &l), TUTTI_OK);
    beat(l, "a", 0);
    beat(l, "b", 0);
    assert_int_equal(tutti_lighthouse_beat(l, "c", at(1000 * MS)), TUTTI_ERR_MEMORY);
    assert_string_equal(tutti_last_error()->text, "the job has 2 groups already");
    beat(l, "a", 4000 * MS);
    tutti_lighthouse_tick(l, at(6000 * MS));
    beat(l, "c", 6000 * MS); /* b is not heard any more */
    assert_int_equal(tutti_lighthouse_beat(l, "b", at(6000 * MS)), TUTTI_ERR_MEMORY);
    assert_int_equal(tutti_lighthouse_idle(l), UINT64_MAX);
    tutti_lighthouse_tick(l, at(20000 * MS));
    assert_int_equal(tutti_lighthouse_idle(l), 6000 * MS + HOUR);
    tutti_lighthouse_destroy(l);
}

/* Numbers go on above one that was said. */
static void test_numbers_begin_above(void **state)
{
    struct answers answers;
    struct tutti_lighthouse *l = make(1, 0, &answers);

    (void)state;
    assert_int_equal(tutti_lighthouse_restore(l, 41, NULL, 0, 1), TUTTI_OK);
    assert_null(tutti_lighthouse_last(l));
    ask(l, "a", 7, 2);
    assert_string_equal(answers.text[0], "#42 a");
    tutti_lighthouse_destroy(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_stragglers),
        cmocka_unit_test(test_last_members_wait_for_nobody),
        cmocka_unit_test(test_no_second_quorum_beside_a_majority),
        cmocka_unit_test(test_shrink_only),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_who_waits_no_more_is_no_member),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_who_was_away_waits),
        cmocka_unit_test(test_forgets),
        cmocka_unit_test(test_random_lives),
        cmocka_unit_test(test_groups_have_a_bound),
        cmocka_unit_test(test_numbers_begin_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
