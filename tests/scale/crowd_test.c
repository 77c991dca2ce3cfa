/* SPDX-License-Identifier: BSD-3-Clause */
/* Sixty-four ranks, as processes, on two processors: the sums are right, and no call hangs. How long an all_reduce of 8
 * bytes takes there is printed (2 ms in the median where nothing else runs), not judged: the machine may be shared. */

#include "test.h"

#include "base/base.h"
#include "ranks.h"

#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>

enum { RANKS = 64, CALLS = 201, ATTEMPTS = 5 };

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void sums(struct rank *rank)
{
    uint64_t *best = rank->arg, took[CALLS];
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        for (int i = 0; i < CALLS; i++) {
            int64_t in = rank->index + i, sum = 0;
            uint64_t start = tutti_now_ns();
            RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, NULL));
            took[i] = tutti_now_ns() - start;
            RANK_CHECK(rank, sum == RANKS * (RANKS - 1) / 2 + (int64_t)RANKS * i);
        }
        qsort(took, CALLS, sizeof took[0], compare);
        if (rank->index == 0 && (*best == 0 || took[CALLS / 2] < *best)) *best = took[CALLS / 2];
    }
}

static void crowd(void **state)
{
    (void)state;
    cpu_set_t allowed, two;
    CPU_ZERO(&two);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
    uint64_t *best = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ranks_config config = {.n = RANKS, .forked = true, .deadline_s = 100, .arg = best};
    assert_int_equal(ranks_run(&config, sums), 0);
    print_message("%d ranks on %d processors, all_reduce of 8 bytes: %.3f ms\n", RANKS, CPU_COUNT(&two),
                  (double)*best / 1e6);
    assert_int_not_equal(*best, 0);
    munmap(best, 4096);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(crowd)};
    return cmocka_run_group_tests_name("scale.crowd", tests, NULL, NULL);
}
