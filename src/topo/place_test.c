/* SPDX-License-Identifier: BSD-3-Clause */

/* Places and domains on hosts that are made up here: the bindings that launchers make, and random ones against the
 * definition. */

#include "test.h"
#include "topo/topo.h"

#include <string.h>

#define MAX_CPUS 256

static struct tutti_topo_cpu cpus[MAX_CPUS];
static struct tutti_topo topo;
static struct tutti_cpu_place places[MAX_CPUS];

/* A host of packages, each of which is one node of `n_l3` caches with `n_cores` cores each. */
static void host_make(uint32_t n_packages, uint32_t n_l3, uint32_t n_cores)
{
    topo = (struct tutti_topo){.cpus = cpus, .n_cpus = n_packages * n_l3 * n_cores};
    for (uint32_t i = 0; i < topo.n_cpus; i++) {
        const uint32_t l3 = i / n_cores, package = l3 / n_l3;
        cpus[i] = (struct tutti_topo_cpu){.id = i, .core = i, .l3 = l3, .node = package, .package = package};
    }
}

/* The rank may run on CPUs first to last. */
static void rank_bind(uint32_t rank, uint32_t first, uint32_t last)
{
    struct tutti_cpu_set set = {.words = {0}};
    for (uint32_t cpu = first; cpu <= last; cpu++) set.words[cpu / 64] |= UINT64_C(1) << cpu % 64;
    places[rank] = tutti_topo_place(&topo, &set);
}

static void expect_place(uint32_t first, uint32_t last, int package, int node, int l3)
{
    rank_bind(0, first, last);
    assert_int_equal(places[0].group[TUTTI_TOPO_PACKAGE], package);
    assert_int_equal(places[0].group[TUTTI_TOPO_NODE], node);
    assert_int_equal(places[0].group[TUTTI_TOPO_L3], l3);
}

static void expect_domains(uint32_t n_ranks, enum tutti_topo_level level, uint32_t n, uint32_t size, bool cyclic)
{
    const struct tutti_domains domains = tutti_topo_domains(places, NULL, n_ranks, level);
    if (domains.n != n || (n && (domains.size != size || domains.cyclic != cyclic)))
        fail_msg("%u ranks: %u domains of %u%s, not %u of %u", n_ranks, domains.n, domains.size,
                 domains.cyclic ? ", cyclic" : "", n, size);
}

static void expect_none(uint32_t n_ranks)
{
    for (enum tutti_topo_level level = 0; level < TUTTI_TOPO_N_LEVELS; level++)
        expect_domains(n_ranks, level, 0, 0, false);
}

static void test_places(void **state)
{
    (void)state;
    host_make(2, 2, 4);
    expect_place(5, 5, 0, 0, 1);
    expect_place(12, 15, 1, 1, 3);
    expect_place(8, 15, 1, 1, -1);
    expect_place(7, 8, -1, -1, -1);
    expect_place(0, 15, -1, -1, -1);
    expect_place(100, 120, -1, -1, -1); /* no such CPU here */
    expect_place(15, 40, 1, 1, 3);      /* those that are offline do not count */
    host_make(1, 1, 2);
    expect_place(0, 1, 0, 0, 0);
}

static void test_two_sockets(void **state)
{
    (void)state;
    host_make(2, 1, 32);
    for (uint32_t i = 0; i < 64; i++) rank_bind(i, i, i);
    expect_domains(64, TUTTI_TOPO_PACKAGE, 2, 32, false);
    expect_domains(64, TUTTI_TOPO_NODE, 2, 32, false);
    expect_domains(64, TUTTI_TOPO_L3, 2, 32, false);
    expect_none(63);                                                            /* uneven */
    expect_none(32);                                                            /* one socket alone */
    for (uint32_t i = 0; i < 8; i++) rank_bind(i, i / 4 * 32, i / 4 * 32 + 31); /* bound to sockets */
    expect_domains(8, TUTTI_TOPO_PACKAGE, 2, 4, false);
    for (uint32_t i = 0; i < 8; i++) rank_bind(i, i / 4 * 32 + i % 4 * 8, i / 4 * 32 + i % 4 * 8); /* sparse */
    expect_domains(8, TUTTI_TOPO_PACKAGE, 2, 4, false);
    rank_bind(5, 0, 63); /* one is free */
    expect_none(8);
    for (uint32_t i = 0; i < 8; i++) rank_bind(i, 0, 63);
    expect_none(8);
}

static void test_round_robin(void **state)
{
    (void)state;
    host_make(2, 1, 32);
    for (uint32_t i = 0; i < 64; i++) rank_bind(i, i % 2 * 32 + i / 2, i % 2 * 32 + i / 2);
    expect_domains(64, TUTTI_TOPO_PACKAGE, 2, 32, true);
    expect_none(2);  /* each alone */
    expect_none(63); /* uneven */
    const struct tutti_cpu_place swapped = places[4];
    places[4] = places[5], places[5] = swapped; /* no formula any more */
    expect_none(64);
    for (uint32_t i = 0; i < 16; i++) rank_bind(i, i / 2 % 2 * 32 + i, i / 2 % 2 * 32 + i); /* in pairs */
    expect_none(16);
}

/* Two packages of 4 L3s of 8 cores: each level by itself, and communicators that are parts of a world. */
static void test_eight_caches(void **state)
{
    (void)state;
    uint32_t members[64];
    host_make(2, 4, 8);
    for (uint32_t i = 0; i < 64; i++) rank_bind(i, i, i);
    expect_domains(64, TUTTI_TOPO_PACKAGE, 2, 32, false);
    expect_domains(64, TUTTI_TOPO_L3, 8, 8, false);
    expect_domains(32, TUTTI_TOPO_L3, 4, 8, false);
    expect_domains(32, TUTTI_TOPO_PACKAGE, 0, 0, false);
    expect_domains(12, TUTTI_TOPO_L3, 0, 0, false);
    for (uint32_t i = 0; i < 16; i++) members[i] = i * 4; /* every fourth */
    struct tutti_domains domains = tutti_topo_domains(places, members, 16, TUTTI_TOPO_L3);
    assert_int_equal(domains.n, 8);
    assert_int_equal(domains.size, 2);
    for (uint32_t i = 0; i < 8; i++) members[i] = i * 8; /* one of each */
    assert_int_equal(tutti_topo_domains(places, members, 8, TUTTI_TOPO_L3).n, 0);
    domains = tutti_topo_domains(places, members, 8, TUTTI_TOPO_PACKAGE);
    assert_int_equal(domains.n, 2);
    assert_int_equal(domains.size, 4);
    for (uint32_t i = 0; i < 16; i++) members[i] = i % 2 ? 63 - i / 2 : i / 2; /* by turns from both ends */
    domains = tutti_topo_domains(places, members, 16, TUTTI_TOPO_L3);
    assert_true(domains.cyclic);
    assert_int_equal(domains.n, 2);
    assert_int_equal(domains.size, 8);
}

static uint32_t domain_of(const struct tutti_domains *domains, uint32_t slot)
{
    return domains->cyclic ? slot % domains->n : slot / domains->size;
}

/* By definition: slots share a domain if and only if they share a place, and all are known. */
static bool is_right(const struct tutti_domains *domains, uint32_t n)
{
    if (domains->n < 2 || domains->size < 2 || domains->n * domains->size != n) return false;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++) {
            const int16_t x = places[a].group[0], y = places[b].group[0];
            if (x < 0 || (domain_of(domains, a) == domain_of(domains, b)) != (x == y)) return false;
        }
    return true;
}

static void test_random(void **state)
{
    (void)state;
    enum { TRIALS = 20000, MAX_RANKS = 12 };
    uint64_t random = 2;
    uint32_t n_found = 0;
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        const uint32_t n = 1 + (uint32_t)(tutti_random64(&random) % MAX_RANKS), shape = (uint32_t)(trial % 3);
        const uint32_t width = 1 + (uint32_t)(tutti_random64(&random) % 6);
        for (uint32_t i = 0; i < n; i++) /* random, in runs, by turns; here and there unknown */
            places[i].group[0] = (int16_t)(shape == 0   ? tutti_random64(&random) % 3
                                           : shape == 1 ? 40 - i / width
                                                        : i % width);
        if (trial % 7 == 0) places[tutti_random64(&random) % n].group[0] = -1;
        bool possible = false;
        for (uint32_t size = 2; size < n; size++)
            for (int cyclic = 0; cyclic < 2; cyclic++) {
                const struct tutti_domains tried = {.n = n / size, .size = size, .cyclic = cyclic};
                possible = possible || is_right(&tried, n);
            }
        const struct tutti_domains domains = tutti_topo_domains(places, NULL, n, 0);
        if (domains.n ? !is_right(&domains, n) : possible) fail_msg("trial %u: %u ranks", trial, n);
        n_found += domains.n > 0;
    }
    assert_in_range(n_found, TRIALS / 20, TRIALS * 19 / 20);
}

static void test_formulas(void **state)
{
    (void)state;
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        const struct tutti_domains domains = {.n = 3, .size = 5, .cyclic = cyclic};
        for (uint32_t slot = 0; slot < 15; slot++) {
            const uint32_t domain = domain_of(&domains, slot), index = cyclic ? slot / 3 : slot % 5;
            assert_true(domain < 3 && index < 5);
            assert_int_equal(tutti_domain_slot(&domains, domain, index), slot);
        }
    }
}

static void test_this_host(void **state)
{
    (void)state;
    const struct tutti_topo *first, *second;
    struct tutti_cpu_set here;
    assert_int_equal(tutti_topo_host(&first), TUTTI_OK);
    assert_int_equal(tutti_topo_host(&second), TUTTI_OK);
    assert_ptr_equal(first, second);
    assert_true(tutti_cpus_affinity(&here));
    const struct tutti_cpu_place place = tutti_topo_place(first, &here);
    if (first->n_packages == 1) assert_int_equal(place.group[TUTTI_TOPO_PACKAGE], 0);
    if (first->n_l3 == 1) assert_int_equal(place.group[TUTTI_TOPO_L3], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),       cmocka_unit_test(test_two_sockets), cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_eight_caches), cmocka_unit_test(test_random),      cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_this_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
