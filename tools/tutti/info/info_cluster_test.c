/* SPDX-License-Identifier: BSD-3-Clause */
/* Each pair measures once, and no host is in two pairs of a round. */

#include "info_cluster.h"

#include "tests/test.h"

static void check(const uint32_t *hosts, uint32_t n, uint32_t n_rounds_most)
{
    uint32_t rounds[CLUSTER_MOST * CLUSTER_MOST];
    const uint32_t n_rounds = cluster_rounds(hosts, n, rounds);
    assert_true(n_rounds <= n_rounds_most);
    for (uint32_t round = 0; round < n_rounds; round++) {
        uint32_t uses[CLUSTER_MOST] = {0}, pairs = 0;
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = a + 1; b < n; b++) {
                assert_true(rounds[a * n + b] < n_rounds);
                if (rounds[a * n + b] != round) continue;
                pairs++;
                assert_int_equal(uses[hosts[a]]++, 0);
                if (hosts[a] != hosts[b]) assert_int_equal(uses[hosts[b]]++, 0);
            }
        assert_true(pairs > 0);
    }
}

static void test_rounds(void **state)
{
    (void)state;
    static const uint32_t one[] = {0, 0, 0, 0}, two[] = {0, 0, 1, 1}, ragged[] = {0, 1, 1, 2, 1, 2, 3};
    uint32_t each[CLUSTER_MOST];
    for (uint32_t i = 0; i < CLUSTER_MOST; i++) each[i] = i;
    check(one, 1, 0);
    check(one, 4, 6); /* one after the other */
    check(two, 4, 5); /* the pairs within hosts together */
    check(ragged, 7, 21);
    check(each, 8, 14);
    check(each, CLUSTER_MOST, 2 * CLUSTER_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
