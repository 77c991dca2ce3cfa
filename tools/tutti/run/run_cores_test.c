/* SPDX-License-Identifier: BSD-3-Clause */

/* How CPUs are split among ranks. */

#include "run.h"
#include "test.h"

#include <stdio.h>

void run_say(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
}

static void test_every_cpu_goes_to_one_rank(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 130; n++)
        for (uint32_t ranks = 1; ranks <= n; ranks++) {
            size_t next = 0, least = SIZE_MAX, most = 0;
            for (uint32_t rank = 0; rank < ranks; rank++) {
                size_t first, count;
                run_cores_split(n, ranks, rank, &first, &count);
                assert_int_equal(first, next);
                next = first + count;
                least = count < least ? count : least;
                most = count > most ? count : most;
            }
            assert_int_equal(next, n);
            assert_in_range(most - least, 0, 1);
        }
}

static void test_more_ranks_than_cpus(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 16; n++)
        for (uint32_t ranks = (uint32_t)n; ranks <= 70; ranks++) {
            size_t users[16] = {0}, before = 0;
            for (uint32_t rank = 0; rank < ranks; rank++) {
                size_t first, count;
                run_cores_split(n, ranks, rank, &first, &count);
                assert_int_equal(count, 1);
                assert_true(first < n && first >= before); /* neighbours stay together */
                before = first;
                users[first]++;
            }
            for (size_t i = 0; i < n; i++) assert_in_range(users[i], ranks / n, ranks / n + 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cpu_goes_to_one_rank),
        cmocka_unit_test(test_more_ranks_than_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
