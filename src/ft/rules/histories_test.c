/* SPDX-License-Identifier: BSD-3-Clause */

/* The machine of a group beside a second, simple one in random histories: the same answers to the same events, each
 * request ended once. */

#include "ft/rules/heard_test.h"

#include <stdio.h>
#include <string.h>

#define MOST 5

/* Order within one event does not matter, so each line is added up. */
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
                SAY(&s->heard, "refused %llu %d\n", (unsigned long long)s->open[i].request, TUTTI_MANAGER_NO_MEMBER);
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
        tutti_manager_unanswered(p->machine, TUTTI_MANAGER_NO_ANSWER, "no", p->now);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_beside_a_second_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
