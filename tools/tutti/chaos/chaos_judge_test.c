/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/test.h"

#include "chaos.h"

#include <string.h>

#define S TUTTI_NS_PER_S

/* Ten steps a second for 10 s; then blows at 10 s and 20 s, after which nothing happens for 2 s and for 4 s. */
static void rates_and_stalls(void **state)
{
    (void)state;
    struct chaos_record r = {.calm_ns = 100 * S, .begin_ns = 110 * S, .end_ns = 130 * S, .n_blows = 2};
    int64_t step = 0;
    r.blows[0] = 110 * S, r.blows[1] = 120 * S;
    for (uint64_t at = 1000; at < 1300; at++) {
        if ((at > 1100 && at < 1120) || (at > 1200 && at < 1240)) continue;
        assert_true(chaos_note(&r, at * S / 10, step++));
        assert_true(chaos_note(&r, at * S / 10 + 1, step - 1)); /* not new */
    }
    const struct chaos_verdict v = chaos_judge(&r);
    assert_true(v.calm_rate > 9.9 && v.calm_rate < 10.1);
    assert_true(v.goodput > 0.68 && v.goodput < 0.72); /* 6 of 20 s are lost */
    assert_true(v.calm_gap_s > 0.099 && v.calm_gap_s < 0.101);
    assert_true(v.stall_s > 2.8 && v.stall_s < 3.0); /* between 1.9 and 3.9 */
    assert_true(v.worst_stall_s > 3.8 && v.worst_stall_s < 4.0);
    free(r.samples);
}

static void nothing_seen(void **state)
{
    (void)state;
    struct chaos_record r = {.begin_ns = S, .end_ns = 2 * S, .n_blows = 1};
    const struct chaos_verdict v = chaos_judge(&r);
    assert_true(v.goodput == 0 && v.calm_rate == 0);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_and_stalls), cmocka_unit_test(nothing_seen),
                                       cmocka_unit_test(blows)};
    return cmocka_run_group_tests_name("tools.chaos", tests, NULL, NULL);
}
