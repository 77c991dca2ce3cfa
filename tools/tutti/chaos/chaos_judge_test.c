/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/test.h"

#include "chaos.h"

#include <string.h>

#define S TUTTI_NS_PER_S

#define ALL 7u /* bits of three groups */

static void note(struct chaos_record *r, uint64_t tenths, int64_t step, uint64_t groups, double samples)
{
    const struct chaos_step one = {tenths * S / 10, step, groups, 0, samples};
    assert_true(chaos_note(r, &one));
}

static void assert_near(double value, double wanted)
{
    if (value < wanted - 1e-6 || value > wanted + 1e-6) fail_msg("%.9f is not %.9f", value, wanted);
}

/* Three groups, ten steps a second, four samples each a step, for 10 s. Then group 1 is killed at 10.05 s and 20.05 s;
 * nothing happens until 12 s and 24 s. It is started again 1 s after each blow, and takes part from 15 s on, and never.
 */
static void a_run(struct chaos_record *r)
{
    int64_t step = 0;
    *r = (struct chaos_record){.n_groups = 3, .calm_ns = 100 * S, .begin_ns = 110 * S, .end_ns = 130 * S};
    for (size_t i = 0; i < 2; i++) {
        const uint64_t at = (110 + 10 * i) * S + S / 20;
        r->struck[r->n_struck++] = (struct chaos_struck){at, at + S, CHAOS_KILL, 1, 0};
    }
    for (uint64_t at = 1000; at <= 1300; at++) {
        const bool alone = at > 1100 && (at < 1150 || at > 1200);
        if ((at > 1170 && at < 1180) || (at > 1100 && at < 1120) || (at > 1200 && at < 1240)) continue;
        note(r, at, step, ALL & ~2u, 8);
        if (!alone) note(r, at, step, 2, 4); /* a group that tells it later adds what is its own */
        note(r, at + 1, step++, 1, 4);       /* told before */
    }
}

static void rates_and_stalls(void **state)
{
    (void)state;
    struct chaos_record r;
    a_run(&r);
    const struct chaos_verdict v = chaos_judge(&r);
    assert_near(v.calm_rate, 10);
    assert_near(v.chaos_rate, (200 - 9 - 19 - 39) / 20.0);
    assert_near(v.goodput, (200 - 9 - 19 - 39) / 200.0);
    assert_near(v.calm_gap_s, 0.1);
    assert_int_equal(v.stall_s.n, 2);
    assert_near(v.stall_s.median, (1.9 + 3.9) / 2);
    assert_near(v.stall_s.most_of_them, 3.9);
    assert_near(v.stall_s.worst, 3.9);
    assert_int_equal(v.rejoin_s.n, 2);
    assert_near(v.rejoin_s.worst, 0.9);
    assert_near(v.rejoin_s.median, 0.45);
    assert_near(v.still_s, 1.9 + 3.9 + 0.9);
    free(r.steps);
}

/* Group 1 is away for 4.95 s, then for the 9.95 s until the end. */
static void samples_of_the_living(void **state)
{
    (void)state;
    struct chaos_record r;
    a_run(&r);
    const struct chaos_verdict v = chaos_judge(&r);
    assert_near(v.calm_samples, 40);
    assert_near(v.samples, (30 + 61) * 8.0 + 42 * 12.0);
    assert_near(v.due, 40 * (3 * 20 - 4.95 - 9.95));
    assert_int_equal(v.away_s.n, 1);
    assert_near(v.away_s.median, 3.95);
    assert_int_equal(chaos_back(&r, 0), 115 * S);
    assert_int_equal(chaos_back(&r, 1), 130 * S);
    r.struck[1].kind = CHAOS_LIGHTHOUSE; /* no group is away */
    assert_near(chaos_judge(&r).due, 40 * (3 * 20 - 4.95));
    free(r.steps);
}

/* Steps that come late, out of order, or twice. */
static void steps_by_number(void **state)
{
    (void)state;
    struct chaos_record r = {.n_groups = 3};
    note(&r, 30, 3, 1, 5);
    note(&r, 10, 1, 2, 5);
    note(&r, 20, 2, 1, 5);
    note(&r, 31, 3, 4, 5);
    note(&r, 29, 3, 2, 5);
    note(&r, 50, 1, 2, 5); /* done again: nothing new */
    assert_int_equal(r.n, 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(r.steps[i].step, i + 1);
    assert_int_equal(r.steps[2].groups, ALL);
    assert_near(r.steps[2].samples, 15);
    assert_int_equal(r.steps[2].at_ns, 29 * S / 10);
    assert_near(r.steps[0].samples, 5);
    free(r.steps);
}

/* The first two steps are of three and of two; the third is one of two, and another group's alone. */
static void steps_apart(void **state)
{
    (void)state;
    struct chaos_record r = {.n_groups = 3, .end_ns = S};
    const struct chaos_step steps[] = {{1, 1, 1, 3, 1}, {2, 1, 6, 3, 2}, {3, 2, 3, 2, 2}, {4, 3, 3, 2, 2}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(steps); i++) assert_true(chaos_note(&r, &steps[i]));
    assert_int_equal(chaos_judge(&r).apart, 0);
    assert_true(chaos_note(&r, &(struct chaos_step){5, 3, 4, 1, 1}));
    assert_int_equal(chaos_judge(&r).apart, 1);
    free(r.steps);
}

/* Three took part; group 1 is killed; two go on; it is started again, two go on; then three. */
static void guessed_groups(void **state)
{
    (void)state;
    struct chaos_record r = {.n_groups = 3};
    assert_int_equal(chaos_guess(&r, 3, S), ALL);
    assert_int_equal(chaos_guess(&r, 2, S), 3);
    r.struck[r.n_struck++] = (struct chaos_struck){2 * S, 0, CHAOS_STOP, 1, 0};
    assert_int_equal(chaos_guess(&r, 2, 3 * S), 5);
    assert_int_equal(chaos_guess(&r, 3, 3 * S), 5); /* it can not be */
    r.struck[0].again_ns = 4 * S;
    assert_int_equal(chaos_guess(&r, 2, 5 * S), 5);
    assert_int_equal(chaos_guess(&r, 3, 5 * S), ALL);
    note(&r, 60, 1, ALL, 3);
    assert_int_equal(chaos_guess(&r, 2, 7 * S), 3); /* it is one as any other again */
    free(r.steps);
}

static void nothing_seen(void **state)
{
    (void)state;
    struct chaos_record r = {.n_groups = 2, .begin_ns = S, .end_ns = 2 * S, .n_struck = 1};
    const struct chaos_verdict v = chaos_judge(&r);
    assert_true(v.goodput == 0 && v.calm_rate == 0 && v.due == 0);
}

/* The same seed gives the same blows; others give others. All members and kinds have their turn, none twice in a row,
 * and the time of a blow is near its multiple. */
static void blows(void **state)
{
    (void)state;
    struct chaos_options o = {.n_groups = 3, .n_lighthouses = 2, .n_kinds = 2, .every_ns = 8 * S, .seed = 7};
    o.kinds[0] = CHAOS_KILL, o.kinds[1] = CHAOS_LIGHTHOUSE;
    uint64_t one = o.seed, two = o.seed, other = 8;
    struct chaos_blow last[CHAOS_KINDS], a = {0}, b = {0}, c = {0};
    unsigned seen[CHAOS_KINDS][3] = {{0}}, differ = 0;
    memset(last, 0xff, sizeof last);
    for (uint32_t i = 0; i < 100; i++) {
        a = chaos_next(&o, &one, i > 0 ? &a : NULL, i);
        b = chaos_next(&o, &two, i > 0 ? &b : NULL, i);
        c = chaos_next(&o, &other, i > 0 ? &c : NULL, i);
        assert_true(a.at_ns == b.at_ns && a.kind == b.kind && a.member == b.member);
        assert_true(a.at_ns >= (i + 1) * 8 * S - 2 * S && a.at_ns < (i + 1) * 8 * S + 2 * S);
        assert_true(a.member < (a.kind == CHAOS_KILL ? 3u : 2u));
        seen[a.kind][a.member]++;
        differ += a.member != c.member || a.at_ns != c.at_ns;
    }
    for (uint32_t i = 0; i < 3; i++) assert_true(seen[CHAOS_KILL][i] > 5);
    for (uint32_t i = 0; i < 2; i++) assert_true(seen[CHAOS_LIGHTHOUSE][i] > 10);
    assert_true(differ > 50);
    o.kinds[1] = CHAOS_RANK_STOP, o.n_ranks = 4; /* one rank of a group, each in its turn */
    unsigned ranks = 0;
    for (uint32_t i = 0; i < 100; i++) {
        a = chaos_next(&o, &one, &a, i);
        assert_true(a.member < 3 && a.rank < (a.kind == CHAOS_RANK_STOP ? 4u : 1u));
        if (a.kind == CHAOS_RANK_STOP) ranks |= 1u << a.rank;
    }
    assert_int_equal(ranks, 15);
    o.n_kinds = 1;
    for (uint32_t i = 0; i < 100; i++) {
        const struct chaos_blow next = chaos_next(&o, &one, &a, i);
        assert_true(next.kind == CHAOS_KILL && (a.kind != CHAOS_KILL || next.member != a.member));
        a = next;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_and_stalls),
                                       cmocka_unit_test(samples_of_the_living),
                                       cmocka_unit_test(steps_by_number),
                                       cmocka_unit_test(guessed_groups),
                                       cmocka_unit_test(steps_apart),
                                       cmocka_unit_test(nothing_seen),
                                       cmocka_unit_test(blows)};
    return cmocka_run_group_tests_name("tools.chaos", tests, NULL, NULL);
}
