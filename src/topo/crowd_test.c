/* SPDX-License-Identifier: BSD-3-Clause */

/* Crowding: the cases that launchers make, and random ones against Hall's condition over all subsets of the ranks. */

#include "test.h"
#include "topo/topo.h"

#include <string.h>

#define MAX_RANKS 1100
#define FREE UINT32_MAX

static struct tutti_allowance ranks[MAX_RANKS];

static void cpus_set(struct tutti_allowance *allowance, uint32_t first, uint32_t last)
{
    for (uint32_t cpu = first; cpu <= last; cpu++) allowance->cpus.words[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

/* The next n ranks from `at` on may use CPUs first to last. */
static uint32_t ranks_add(uint32_t at, uint32_t n, uint32_t first, uint32_t last)
{
    for (uint32_t i = at; i < at + n; i++) {
        ranks[i] = (struct tutti_allowance){.quota = FREE};
        cpus_set(&ranks[i], first, last);
    }
    return at + n;
}

static bool crowded(uint32_t n)
{
    return tutti_topo_crowded(ranks, sizeof ranks[0], n);
}

static void test_free_ranks(void **state)
{
    (void)state;
    for (uint32_t n_cpus = 1; n_cpus <= 1024; n_cpus = n_cpus * 2 + 1) {
        ranks_add(0, n_cpus + 1, 0, n_cpus - 1);
        assert_false(crowded(n_cpus));
        assert_true(crowded(n_cpus + 1));
    }
    ranks_add(0, 1025, 0, 1023);
    assert_false(crowded(1024));
    assert_true(crowded(1025));
    ranks_add(0, 1, 0, 0);
    assert_false(crowded(1));
}

static void test_bound_ranks(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 1024; i++) ranks_add(i, 1, 1023 - i, 1023 - i); /* a CPU each */
    assert_false(crowded(1024));
    ranks_add(700, 1, 5, 5); /* two ranks on CPU 5 */
    assert_true(crowded(1024));
    assert_false(crowded(700));
    /* Two sockets of 32 ranks; then one of them gets a rank too many, though the other has room. */
    uint32_t n = ranks_add(0, 32, 0, 31);
    n = ranks_add(n, 31, 32, 63);
    assert_false(crowded(n));
    n = ranks_add(n, 1, 0, 31);
    assert_true(crowded(n));
}

/* What two looks (all masks together, equal masks) would miss. */
static void test_mixtures(void **state)
{
    (void)state;
    uint32_t n = ranks_add(0, 2, 0, 1);
    n = ranks_add(n, 1, 0, 0);
    n = ranks_add(n, 1, 0, 7);
    assert_true(crowded(n)); /* three within CPUs 0 and 1 */
    /* Each is one CPU off from the one before: everybody has to move for the last one. */
    n = ranks_add(0, 1, 0, 1);
    for (uint32_t i = 1; i < 500; i++) n = ranks_add(n, 1, i, i + 1);
    n = ranks_add(n, 1, 0, 0);
    assert_false(crowded(n));
    n = ranks_add(n, 1, 500, 500);
    assert_true(crowded(n));
}

static void test_quotas(void **state)
{
    (void)state;
    ranks_add(0, 8, 0, 15);
    for (uint32_t i = 0; i < 8; i++) ranks[i].quota = 8, ranks[i].payer = 77;
    assert_false(crowded(8));
    for (uint32_t i = 0; i < 8; i++) ranks[i].quota = 7;
    assert_true(crowded(8));
    assert_false(crowded(7));
    for (uint32_t i = 0; i < 8; i++) ranks[i].quota = 2, ranks[i].payer = i / 2; /* each pair lives on its own */
    assert_false(crowded(8));
    ranks[5].payer = 0;
    assert_true(crowded(8));
    for (uint32_t i = 0; i < 8; i++) ranks[i].quota = i ? FREE : 1, ranks[i].payer = i ? 0 : 5;
    assert_false(crowded(8));
}

/* Hall: each has its own CPU if and only if no subset of the ranks has fewer CPUs than ranks. */
static bool crowded_reference(uint32_t n)
{
    for (uint32_t subset = 1; subset < UINT32_C(1) << n; subset++) {
        uint64_t cpus = 0;
        for (uint32_t i = 0; i < n; i++)
            if (subset >> i & 1) cpus |= ranks[i].cpus.words[3];
        if (__builtin_popcountll(cpus) < __builtin_popcount(subset)) return true;
    }
    return false;
}

static void test_random(void **state)
{
    (void)state;
    uint64_t random = 1;
    uint32_t n_crowded = 0;
    enum { TRIALS = 4000 };
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        const uint32_t n = 1 + (uint32_t)(tutti_random64(&random) % 9), n_cpus = n + (uint32_t)(trial % 3);
        for (uint32_t i = 0; i < n; i++) {
            ranks[i] = (struct tutti_allowance){.quota = FREE};
            for (uint32_t k = 0; k < 1 + trial % 3; k++)
                ranks[i].cpus.words[3] |= UINT64_C(1) << (64 - n_cpus + tutti_random64(&random) % n_cpus);
        }
        const bool want = crowded_reference(n);
        if (crowded(n) != want) fail_msg("trial %u: %u ranks are %scrowded", trial, n, want ? "" : "not ");
        n_crowded += want;
    }
    assert_in_range(n_crowded, TRIALS / 5, TRIALS * 4 / 5); /* both answers were asked for */
}

/* Records inside larger ones. */
static void test_stride(void **state)
{
    (void)state;
    struct {
        uint64_t before[5];
        struct tutti_allowance allowance;
    } cards[3];
    memset(cards, 0xff, sizeof cards);
    for (uint32_t i = 0; i < 3; i++) {
        cards[i].allowance = (struct tutti_allowance){.quota = FREE};
        cpus_set(&cards[i].allowance, i, i);
    }
    assert_false(tutti_topo_crowded(&cards[0].allowance, sizeof cards[0], 3));
    cards[2].allowance.cpus = cards[0].allowance.cpus;
    assert_true(tutti_topo_crowded(&cards[0].allowance, sizeof cards[0], 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_ranks), cmocka_unit_test(test_bound_ranks), cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_quotas),     cmocka_unit_test(test_random),      cmocka_unit_test(test_stride),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
