/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that outnumber their CPUs: nobody who sleeps is forgotten, though nothing but a wake-up ends a sleep here; and
 * who waits for a late rank burns no CPU meanwhile. */
#include "test.h"

#include "backend/flat/flat.h"
#include "flat/support/calls.h"

#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define FOREVER_NS (30 * TUTTI_NS_PER_S)
#define LATE_NS (150 * TUTTI_NS_PER_MS)

/* ---- sleeps that nothing but a wake-up ends ---- */

static _Atomic bool prolonged;
static _Atomic uint64_t n_sleeps, n_lost;

void __real_tutti_futex_wait_any(_Atomic uint32_t *const *words, const uint32_t *expected, uint32_t n,
                                 uint64_t deadline_ns);
void __wrap_tutti_futex_wait_any(_Atomic uint32_t *const *words, const uint32_t *expected, uint32_t n,
                                 uint64_t deadline_ns);
void __wrap_tutti_futex_wait_any(_Atomic uint32_t *const *words, const uint32_t *expected, uint32_t n,
                                 uint64_t deadline_ns)
{
    if (!atomic_load(&prolonged)) {
        __real_tutti_futex_wait_any(words, expected, n, deadline_ns);
        return;
    }
    deadline_ns = tutti_deadline_ns(FOREVER_NS);
    atomic_fetch_add(&n_sleeps, 1);
    __real_tutti_futex_wait_any(words, expected, n, deadline_ns);
    if (tutti_now_ns() >= deadline_ns) atomic_fetch_add(&n_lost, 1);
}

/* Nor do turns that are given up help: with others on the CPUs that may take as long as a late rank does. */
int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    return atomic_load(&prolonged) ? 0 : __real_sched_yield();
}

/* On two CPUs, whatever the machine has; ranks inherit it. */
static cpu_set_t allowed;

static int take_two_cpus(void **state)
{
    (void)state;
    cpu_set_t two;
    CPU_ZERO(&two);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &two);
    return sched_setaffinity(0, sizeof two, &two);
}

static int give_cpus_back(void **state)
{
    (void)state;
    return sched_setaffinity(0, sizeof allowed, &allowed);
}

/* ---- nobody is forgotten ---- */

struct crowd {
    uint32_t n_calls;
};

static void call_in_crowd(struct rank *rank)
{
    const struct crowd *crowd = rank->arg;
    struct mark_mix mix = {.n = (uint32_t)rank->n, .chunk = calls_chunk(rank), .words_most = 4096, .named = true};
    struct mark_sheet sheet;
    struct mark_plan plan;
    uint64_t random = test_seed() + (uint64_t)rank->n;
    RANK_CHECK(rank, calls_open(rank, mix.words_most + 2 * mix.n, &sheet));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    atomic_store(&prolonged, true);
    for (uint32_t i = 0; i < crowd->n_calls && !rank->failure[0]; i++) {
        mark_draw(&random, &mix, &plan);
        plan.kind = plan.algorithm[0] ? plan.kind : (enum tutti_kind)(i % TUTTI_N_KINDS); /* each of them, too */
        if (plan.kind == TUTTI_BARRIER) plan.count = 0;
        while (mark_words(plan.kind, mix.n, plan.count) > mix.words_most) plan.count /= 2;
        plan.v &= mark_has_v(plan.kind);
        if ((uint32_t)rank->index == i * 5 % mix.n) nanosleep(&(struct timespec){.tv_nsec = 4000000}, NULL);
        calls_make(rank, &plan, &sheet);
    }
    if (!rank->failure[0]) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    atomic_store(&prolonged, false);
    calls_close(rank, &sheet);
    RANK_CHECK(rank, atomic_load(&n_lost) == 0);
    RANK_CHECK(rank, atomic_load(&n_sleeps) > 0);
}

static void run_crowd(uint32_t n, bool forked, uint32_t n_calls)
{
    struct crowd crowd = {n_calls};
    struct ranks_config config = {
        .n = n, .forked = forked, .deadline_s = 100, .timeout_ns = UINT64_C(90000000000), .arg = &crowd};
    assert_int_equal(ranks_run(&config, call_in_crowd), 0);
}

static void crowds(void **state)
{
    (void)state;
    run_crowd(3, true, 150);
    run_crowd(8, true, 150);
    run_crowd(8, false, 150);
    run_crowd(16, true, 80);
    run_crowd(64, false, 40);
}

/* ---- who waits sleeps ---- */

static uint64_t cpu_ns(long *n_switches)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    *n_switches = usage.ru_nvcsw;
    return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * TUTTI_NS_PER_S +
           ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000;
}

/* Calls in which rank 0 is late and all others need it: as root of what comes from there, as the lowest rank of
 * prefixes; where the root is who waits, the others send to rank 1. */
static void wait_for_late(struct rank *rank)
{
    struct mark_sheet sheet;
    size_t large = calls_chunk(rank) / 4;
    uint64_t random = test_seed(), slept_ns = 0, used_ns = 0;
    long n_switches = 0, before = 0, after = 0;
    RANK_CHECK(rank, calls_open(rank, mark_words(TUTTI_ALL_TO_ALL, (uint32_t)rank->n, large), &sheet));
    for (size_t i = 0; i < flat_n_methods && !rank->failure[0]; i++) {
        struct mark_plan plan;
        const struct flat_method *m = &flat_methods[i];
        if ((strcmp(m->name, "line") != 0 && strcmp(m->name, "stage") != 0) || (i + (size_t)rank->n) % 3) continue;
        mark_suit(&random, m, (uint32_t)rank->n, m->reads == FLAT_NONE ? 4 : large, &plan);
        bool to_root = plan.kind == TUTTI_REDUCE || plan.kind == TUTTI_GATHER;
        plan.root = to_root ? 1 : 0;
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        uint64_t began_ns = cpu_ns(&before);
        if (rank->index == 0) nanosleep(&(struct timespec){.tv_nsec = (long)LATE_NS}, NULL);
        calls_make(rank, &plan, &sheet);
        used_ns += cpu_ns(&after) - began_ns;
        n_switches += after - before;
        slept_ns += LATE_NS;
    }
    if (!rank->failure[0]) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    calls_close(rank, &sheet);
    if (rank->failure[0] || (used_ns < slept_ns / 5 && (uint64_t)n_switches < slept_ns / (5 * TUTTI_NS_PER_MS))) return;
    rank_fail(rank, __FILE__, __LINE__, "%llu of %llu ms on a CPU, %ld switches, while a rank was late",
              (unsigned long long)used_ns / TUTTI_NS_PER_MS, (unsigned long long)slept_ns / TUTTI_NS_PER_MS,
              n_switches);
}

static void late_ranks(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* ranks are threads here, whose time is told together */
    static const uint32_t worlds[] = {2, 3, 7};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct ranks_config config = {.n = worlds[w], .forked = true};
        assert_int_equal(ranks_run(&config, wait_for_late), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(crowds), cmocka_unit_test(late_ranks)};
    return cmocka_run_group_tests_name("flat sleep", tests, take_two_cpus, give_cpus_back);
}
