/* SPDX-License-Identifier: BSD-3-Clause */

/* The machine of a group beside a second, simple one in random histories: the same answers to the same events, each
 * request ended once; and what torchft's gets wrong. */

#include "test.h"

#include "ft/manager/manager.h"

#include <tutti/ft.h>

#include <stdio.h>
#include <string.h>

#define MOST 5
#define MS TUTTI_NS_PER_MS

/* ---- what comes out, as text; order within one event does not matter, so each line is added up ---- */
struct heard {
    char text[8192];
};
static uint64_t digest(const struct heard *heard)
{
    uint64_t sum = 0;
    const char *at = heard->text;

    while (*at) {
        const size_t n = strcspn(at, "\n");
        sum += tutti_hash64(at, n, 7);
        at += n + 1;
    }
    return sum;
}
#define SAY(arg, ...) tutti_append(((struct heard *)(arg))->text, sizeof(((struct heard *)(arg))->text), __VA_ARGS__)

static void on_ask(void *arg, const struct tutti_replica *group, uint64_t deadline)
{
    SAY(arg, "ask %lld %lld %d %u %llu\n", (long long)group->step, (long long)group->commit_failures,
        group->shrink_only, group->n_handles, (unsigned long long)deadline);
}
static void on_withdraw(void *arg)
{
    SAY(arg, "withdraw\n");
}
static void on_placed(void *arg, uint64_t request, uint32_t rank, const struct tutti_quorum *quorum,
                      const struct tutti_place *place)
{
    SAY(arg, "placed %llu %u %lld %u %d\n", (unsigned long long)request, rank, (long long)quorum->id, place->rank,
        place->heals);
}
static void on_decided(void *arg, uint64_t request, bool commit)
{
    SAY(arg, "decided %llu %d\n", (unsigned long long)request, commit);
}
static void on_refused(void *arg, uint64_t request, enum tutti_manager_why why, const char *text)
{
    assert_true(text[0] != '\0');
    SAY(arg, "refused %llu %d\n", (unsigned long long)request, (int)why);
}
static void on_beat(void *arg, const struct tutti_manager_progress *p)
{
    SAY(arg, "beat %u %u %lld %llu\n", p->n_ranks, p->rank, (long long)p->step, (unsigned long long)p->collective);
}
static void on_leave(void *arg, const char *why)
{
    assert_non_null(strstr(why, "is gone"));
    SAY(arg, "leave\n");
}
static struct tutti_manager_out out_to(struct heard *heard)
{
    return (struct tutti_manager_out){heard, on_ask, on_withdraw, on_placed, on_decided, on_refused, on_beat, on_leave};
}

/* ---- the second one: lists of what is open, looked through at every event ---- */
struct open {
    bool is_vote, vote;
    uint32_t rank;
    uint64_t request;
    struct tutti_manager_ask ask;
    int64_t step;
};
struct simple {
    uint32_t n, retries;
    struct open open[2 * MOST];
    uint32_t n_open;
    bool asks, dead[MOST], said[MOST], handle[MOST];
    uint64_t again, beat;
    uint32_t n_failed;
    int64_t step[MOST];
    uint64_t collective[MOST];
    struct heard heard;
};

static uint32_t open_of(const struct simple *s, bool is_vote)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_open; i++) n += s->open[i].is_vote == is_vote;
    return n;
}

static void drop(struct simple *s, uint32_t i)
{
    s->open[i] = s->open[--s->n_open];
}

static void stop_asking(struct simple *s)
{
    if (s->asks) SAY(&s->heard, "withdraw\n");
    s->asks = false;
    s->again = TUTTI_NEVER;
    s->n_failed = 0;
}

static void refuse_all(struct simple *s, bool is_vote, enum tutti_manager_why why)
{
    for (uint32_t i = 0; i < s->n_open;)
        if (s->open[i].is_vote == is_vote) {
            SAY(&s->heard, "refused %llu %d\n", (unsigned long long)s->open[i].request, (int)why);
            drop(s, i);
        } else {
            i++;
        }
}

static uint64_t latest(const struct simple *s)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < s->n_open; i++)
        if (!s->open[i].is_vote && s->open[i].ask.deadline_ns > last) last = s->open[i].ask.deadline_ns;
    return last;
}

static void question(struct simple *s)
{
    int64_t step = INT64_MAX, failures = 0;
    bool shrink = false, handles = false;

    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct open *o = &s->open[i];
        if (o->is_vote) continue;
        if (o->ask.step < step) step = o->ask.step;
        if (o->ask.commit_failures > failures) failures = o->ask.commit_failures;
        shrink |= o->ask.shrink_only;
    }
    for (uint32_t i = 0; i < s->n; i++) handles |= s->handle[i];
    s->asks = true;
    s->again = TUTTI_NEVER;
    SAY(&s->heard, "ask %lld %lld %d %u %llu\n", (long long)step, (long long)failures, shrink, handles ? s->n : 0,
        (unsigned long long)latest(s));
}

static void comes(struct simple *s, struct open o)
{
    bool anyone_dead = false, other = false, commit = true;

    if (o.rank >= s->n) {
        SAY(&s->heard, "refused %llu %d\n", (unsigned long long)o.request, TUTTI_MANAGER_ARGUMENT);
        return;
    }
    s->dead[o.rank] = false;
    for (uint32_t i = 0; i < s->n; i++) anyone_dead |= s->dead[i];
    if (anyone_dead) {
        SAY(&s->heard, "refused %llu %d\n", (unsigned long long)o.request, TUTTI_MANAGER_DEAD);
        return;
    }
    for (uint32_t i = 0; i < s->n_open; i++)
        if (s->open[i].rank == o.rank && s->open[i].is_vote == o.is_vote) {
            SAY(&s->heard, "refused %llu %d\n", (unsigned long long)s->open[i].request, TUTTI_MANAGER_REPLACED);
            drop(s, i);
            if (!o.is_vote) stop_asking(s);
            break;
        }
    s->open[s->n_open++] = o;
    s->said[o.rank] = true;
    s->step[o.rank] = o.step;
    if (!o.is_vote) s->handle[o.rank] = o.ask.handle[0] != '\0';
    for (uint32_t i = 0; i < s->n_open; i++)
        if (s->open[i].is_vote) other |= o.is_vote && s->open[i].step != o.step, commit &= s->open[i].vote;
    if (other) {
        refuse_all(s, true, TUTTI_MANAGER_ARGUMENT);
    } else if (o.is_vote && open_of(s, true) == s->n) {
        for (uint32_t i = 0; i < s->n_open;)
            if (s->open[i].is_vote) {
                SAY(&s->heard, "decided %llu %d\n", (unsigned long long)s->open[i].request, commit);
                drop(s, i);
            } else {
                i++;
            }
    } else if (!o.is_vote && open_of(s, false) == s->n) {
        question(s);
    }
}

static void cancelled(struct simple *s, uint64_t request)
{
    for (uint32_t i = 0; i < s->n_open; i++)
        if (s->open[i].request == request) {
            const bool is_vote = s->open[i].is_vote;
            drop(s, i);
            if (!is_vote) stop_asking(s);
            return;
        }
}

static void answered(struct simple *s, int64_t id, uint32_t at)
{
    if (!s->asks) return;
    s->asks = false;
    s->n_failed = 0;
    for (uint32_t i = 0; i < s->n_open;)
        if (s->open[i].is_vote) {
            i++;
        } else {
            if (at == UINT32_MAX)
                SAY(&s->heard, "refused %llu %d\n", (unsigned long long)s->open[i].request, TUTTI_MANAGER_STRANGER);
            else
                SAY(&s->heard, "placed %llu %u %lld %u 0\n", (unsigned long long)s->open[i].request, s->open[i].rank,
                    (long long)id, at);
            drop(s, i);
        }
}

static void unanswered(struct simple *s, uint64_t now)
{
    if (!s->asks) return;
    s->asks = false;
    if (s->n_failed == s->retries) {
        s->n_failed = 0;
        refuse_all(s, false, TUTTI_MANAGER_NO_ANSWER);
        return;
    }
    const uint64_t left = latest(s) > now ? latest(s) - now : 0, share = left / (s->retries - s->n_failed + 1);
    s->n_failed++;
    s->again = now + (share > 100 * MS ? share : 100 * MS);
}

static void died(struct simple *s, uint32_t rank)
{
    if (rank >= s->n || s->dead[rank]) return;
    s->dead[rank] = true;
    stop_asking(s);
    refuse_all(s, false, TUTTI_MANAGER_DEAD);
    refuse_all(s, true, TUTTI_MANAGER_DEAD);
    SAY(&s->heard, "leave\n");
}

static void ticks(struct simple *s, uint64_t now)
{
    struct tutti_manager_progress p = {0};
    bool anyone_dead = false;

    if (now >= s->again) question(s);
    if (now < s->beat) return;
    s->beat = now + 100 * MS;
    for (uint32_t i = 0; i < s->n; i++) {
        anyone_dead |= s->dead[i];
        if (!s->said[i]) continue;
        if (p.n_ranks++ == 0 || s->step[i] < p.step || (s->step[i] == p.step && s->collective[i] < p.collective))
            p.rank = i, p.step = s->step[i], p.collective = s->collective[i];
    }
    if (!anyone_dead)
        SAY(&s->heard, "beat %u %u %lld %llu\n", p.n_ranks, p.rank, (long long)p.step,
            (unsigned long long)p.collective);
}

/* ---- both, side by side ---- */
struct pair {
    struct tutti_manager *machine;
    struct heard heard;
    struct simple simple;
    uint64_t now, next, random;
};

static void pair_open(struct pair *p, uint64_t seed)
{
    *p = (struct pair){.now = 1, .next = 1, .random = seed};
    p->simple.n = 1 + (uint32_t)(tutti_random64(&p->random) % MOST);
    p->simple.retries = (uint32_t)(tutti_random64(&p->random) % 3);
    p->simple.again = TUTTI_NEVER;
    p->simple.beat = p->now;
    const struct tutti_manager_options options = {"me",        "http://me:1",     "store:1",
                                                  p->simple.n, p->simple.retries, 100 * MS};
    const struct tutti_manager_out out = out_to(&p->heard);
    assert_int_equal(tutti_manager_create(&options, &out, p->now, &p->machine), TUTTI_OK);
}

static void someone_asks(struct pair *p, uint32_t rank)
{
    const bool is_vote = tutti_random64(&p->random) % 2;
    const uint64_t request = p->next++;
    const int64_t step = (int64_t)(tutti_random64(&p->random) % 20 == 0);
    struct open o = {
        .is_vote = is_vote, .vote = tutti_random64(&p->random) % 3 > 0, .rank = rank, .request = request, .step = step};

    o.ask = (struct tutti_manager_ask){.step = step,
                                       .commit_failures = (int64_t)(tutti_random64(&p->random) % 3),
                                       .checkpoint_metadata = "there",
                                       .handle = tutti_random64(&p->random) % 2 ? "h" : "",
                                       .shrink_only = tutti_random64(&p->random) % 4 == 0,
                                       .deadline_ns = p->now + tutti_random64(&p->random) % (1000 * MS)};
    if (is_vote)
        tutti_manager_vote(p->machine, rank, step, o.vote, request);
    else
        tutti_manager_ask(p->machine, rank, &o.ask, request);
    comes(&p->simple, o);
}

static void lighthouse_answers(struct pair *p)
{
    const uint32_t n = 1 + (uint32_t)(tutti_random64(&p->random) % 3);
    const bool is_member = tutti_random64(&p->random) % 8 > 0;
    static const char *const names[] = {"a", "me", "z"};
    struct tutti_replica replicas[3];
    struct tutti_replica *members[3];
    struct tutti_quorum quorum = {.n = 0, .id = (int64_t)p->next, .members = members};
    uint32_t at = UINT32_MAX;

    for (uint32_t i = 0; i < 3; i++) {
        const bool me = i == 1;
        if (me ? !is_member : i == 0 ? n < 2 && is_member : n < 3 && is_member) continue;
        if (me) at = quorum.n;
        replicas[i] = (struct tutti_replica){.replica_id = names[i], .address = "", .store_address = "", .data = ""};
        members[quorum.n++] = &replicas[i];
    }
    tutti_manager_answered(p->machine, &quorum);
    answered(&p->simple, quorum.id, at);
}

static void one_event(struct pair *p)
{
    const uint32_t rank =
        (uint32_t)(tutti_random64(&p->random) % (p->simple.n + (tutti_random64(&p->random) % 20 == 0)));
    const uint64_t what = tutti_random64(&p->random) % 100;

    if (what < 55) {
        someone_asks(p, rank);
    } else if (what < 65) {
        lighthouse_answers(p);
    } else if (what < 72) {
        tutti_manager_unanswered(p->machine, "no", p->now);
        unanswered(&p->simple, p->now);
    } else if (what < 80) {
        const uint64_t request = p->next - 1 - tutti_random64(&p->random) % 4;
        tutti_manager_cancel(p->machine, request);
        cancelled(&p->simple, request);
    } else if (what < 82) {
        tutti_manager_dead(p->machine, rank, "killed");
        died(&p->simple, rank);
    } else if (what < 88) {
        const uint64_t collective = tutti_random64(&p->random) % 9;
        assert_int_equal(tutti_manager_progress(p->machine, rank, 3, collective), rank < p->simple.n);
        if (rank < p->simple.n)
            p->simple.said[rank] = true, p->simple.step[rank] = 3, p->simple.collective[rank] = collective;
    } else {
        p->now += tutti_random64(&p->random) % (150 * MS);
        tutti_manager_tick(p->machine, p->now);
        ticks(&p->simple, p->now);
    }
}

static void test_beside_a_second_one(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct pair p;
        pair_open(&p, test_seed() + seed);
        for (int i = 0; i < 200; i++) {
            p.heard.text[0] = p.simple.heard.text[0] = '\0';
            one_event(&p);
            if (digest(&p.heard) != digest(&p.simple.heard))
                fail_msg("seed %llu, event %d: the machine says\n%sand the second one\n%s", (unsigned long long)seed, i,
                         p.heard.text, p.simple.heard.text);
            const uint64_t due = p.simple.again < p.simple.beat ? p.simple.again : p.simple.beat;
            assert_int_equal(tutti_manager_due(p.machine), due);
        }
        tutti_manager_destroy(p.machine);
    }
}

/* ---- by name ---- */
static struct tutti_manager *two(struct heard *heard, uint32_t retries)
{
    const struct tutti_manager_options options = {"me", "http://me:1", "store:1", 2, retries, 0};
    const struct tutti_manager_out out = out_to(heard);
    struct tutti_manager *m;

    *heard = (struct heard){{0}};
    assert_int_equal(tutti_manager_create(&options, &out, 1, &m), TUTTI_OK);
    return m;
}

static struct tutti_manager_ask at_step(int64_t step)
{
    return (struct tutti_manager_ask){.step = step, .checkpoint_metadata = "m", .handle = "", .deadline_ns = 1000};
}

static void test_the_group_is_at_its_smallest_step(void **state)
{
    struct heard heard;
    struct tutti_manager *m = two(&heard, 0);
    struct tutti_manager_ask ask = at_step(4);

    (void)state;
    assert_null(tutti_manager_metadata(m, 0));
    tutti_manager_ask(m, 0, &ask, 1);
    ask = at_step(5);
    ask.commit_failures = 2;
    ask.shrink_only = true;
    tutti_manager_ask(m, 1, &ask, 2);
    assert_string_equal(heard.text, "ask 4 2 1 0 1000\n");
    assert_string_equal(tutti_manager_metadata(m, 1), "m");
    assert_null(tutti_manager_metadata(m, 2));
    tutti_manager_destroy(m);
}

static void test_ranks_hear_at_once_that_there_is_no_quorum(void **state)
{
    struct heard heard;
    struct tutti_manager *m = two(&heard, 1);
    const struct tutti_manager_ask ask = at_step(1);

    (void)state;
    tutti_manager_ask(m, 0, &ask, 1);
    tutti_manager_ask(m, 1, &ask, 2);
    tutti_manager_unanswered(m, "no", 5);
    assert_int_equal(tutti_manager_due(m), 5 + 100 * MS);
    tutti_manager_tick(m, 5 + 100 * MS);
    tutti_manager_unanswered(m, "no", 6 + 100 * MS);
    assert_string_equal(heard.text, "ask 1 0 0 0 1000\nask 1 0 0 0 1000\nrefused 1 3\nrefused 2 3\n");
    tutti_manager_destroy(m);
}

static void test_other_steps_are_no_vote(void **state)
{
    struct heard heard;
    struct tutti_manager *m = two(&heard, 0);

    (void)state;
    tutti_manager_vote(m, 0, 4, true, 1);
    tutti_manager_vote(m, 1, 5, true, 2);
    tutti_manager_vote(m, 0, 5, true, 3);
    tutti_manager_vote(m, 1, 5, false, 4);
    assert_string_equal(heard.text, "refused 1 0\nrefused 2 0\ndecided 3 0\ndecided 4 0\n");
    tutti_manager_destroy(m);
}

static void test_options(void **state)
{
    const struct tutti_manager_out out = {0};
    struct tutti_manager_options options = {"", "", "", 1, 0, 0};
    struct tutti_manager *m;

    (void)state;
    assert_int_equal(tutti_manager_create(&options, &out, 1, &m), TUTTI_ERR_ARGUMENT);
    options.replica_id = "me", options.world_size = 0;
    assert_int_equal(tutti_manager_create(&options, &out, 1, &m), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "world_size of me is 0"));
}

/* ---- deadlines ---- */
static void test_timeouts(void **state)
{
    struct tutti_ft_timeouts t = TUTTI_FT_TIMEOUTS_INIT;

    (void)state;
    setenv("TUTTI_FT_TIMEOUT", "8s", 1);
    assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_OK);
    unsetenv("TUTTI_FT_TIMEOUT");
    assert_int_equal(t.timeout_ns, 8000 * MS);
    assert_int_equal(t.quorum_ns, 8000 * MS);
    assert_int_equal(t.connect_ns, 8000 * MS);
    assert_int_equal(t.join_ns, 4000 * MS);
    assert_int_equal(t.heartbeat_timeout_ns, 2000 * MS);
    assert_int_equal(t.heartbeat_interval_ns, 100 * MS);
    assert_int_equal(t.tick_ns, 100 * MS);
    for (uint64_t ns = 1; ns < UINT64_MAX / 1000; ns *= 3) { /* what is derived never contradicts itself */
        t = (struct tutti_ft_timeouts){.size = sizeof t, .timeout_ns = ns * 100};
        assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_OK);
    }
    t = (struct tutti_ft_timeouts){.size = sizeof t, .timeout_ns = 1000 * MS, .heartbeat_timeout_ns = 1500 * MS};
    assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "heartbeat_timeout_ns (1500 ms) and quorum_ns (1000 ms): groups"));
    assert_int_equal(t.quorum_ns, 0); /* nothing was written */
    t = (struct tutti_ft_timeouts){.size = sizeof t, .quorum_ns = 1000 * MS};
    assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "timeout_ns (60000 ms) and quorum_ns (1000 ms)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_a_second_one),
        cmocka_unit_test(test_the_group_is_at_its_smallest_step),
        cmocka_unit_test(test_ranks_hear_at_once_that_there_is_no_quorum),
        cmocka_unit_test(test_other_steps_are_no_vote),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_timeouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
