/* SPDX-License-Identifier: BSD-3-Clause */

/* What ranks learn from one another's cards: whether they are crowded, as launchers bind them or not. */

#include "control/meet/acts_test.h"

static uint32_t cpus[TUTTI_CPU_SET_BITS], n_cpus, quota;

static int group_setup(void **state)
{
    struct tutti_cpu_set all;
    uint64_t payer;
    (void)state;
    if (!tutti_cpus_affinity(&all)) return -1;
    for (uint32_t cpu = 0; cpu < TUTTI_CPU_SET_BITS; cpu++)
        if (tutti_cpu_set_has(&all, cpu)) cpus[n_cpus++] = cpu;
    quota = tutti_cpus_quota(&payer);
    return 0;
}

/* The first n acts, as processes and as threads of one. */
static void expect_crowded(size_t n, bool crowded)
{
    for (int process = 0; process < 2; process++) {
        if (process)
            run_processes(n);
        else
            run_threads(0, n);
        expect_world(n, process ? "shm" : "self", false);
        if (acts[0].crowded != crowded)
            fail_msg("%zu ranks on %u CPUs are %scrowded", n, n_cpus, crowded ? "not " : "");
    }
}

static void test_free_ranks(void **state)
{
    (void)state;
    const uint32_t usable = n_cpus < quota ? n_cpus : quota;
    if (usable >= 64) skip(); /* too many CPUs to crowd them by processes */
    plan(usable + 1);
    expect_crowded(usable + 1, true);
    plan(usable);
    expect_crowded(usable, false);
}

static void test_bound_ranks(void **state)
{
    (void)state;
    const uint32_t n = n_cpus < 4 ? n_cpus : 4;
    if (quota < 5) skip(); /* the group of processes may not use so many CPUs at a time */
    plan(n);
    for (uint32_t i = 0; i < n; i++) acts[i].cpu = cpus[i] + 1;
    expect_crowded(n, false); /* each has but one CPU, its own */
    if (n < 2) skip();        /* there is no second CPU to be bound to */
    acts[1].cpu = acts[0].cpu;
    expect_crowded(n, true); /* though there are CPUs enough */
    acts[1].cpu = 0;
    expect_crowded(n, false); /* a free one finds room beside the bound */
}

static void test_crowded_elsewhere(void **state)
{
    (void)state;
    if (n_cpus < 2 || quota < 2) skip(); /* two ranks are crowded here */
    plan(2);
    expect_crowded(2, false);
    acts[1].was_crowded = true;
    expect_crowded(2, true);
}

int main(void)
{
#define ACT(test) cmocka_unit_test_setup_teardown(test, acts_setup, acts_teardown)
    const struct CMUnitTest tests[] = {ACT(test_free_ranks), ACT(test_bound_ranks), ACT(test_crowded_elsewhere)};
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
