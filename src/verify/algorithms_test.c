/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm of the table, proved for every kind it offers: sizes 1..64, or up to TUTTI_TEST_LAST_SIZE. */

#include "algo/algo.h"
#include "verify/sweep.h"

#include "test.h"

static uint32_t last_size(void)
{
    const char *text = getenv("TUTTI_TEST_LAST_SIZE");
    return text ? (uint32_t)strtoul(text, NULL, 10) : 64;
}

static void prove(void **state)
{
    const struct tutti_algorithm *algorithm = *state;
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        if (!algorithm->kinds[kind]) continue;
        struct tutti_sweep sweep;
        const struct tutti_sweep_depth depth = TUTTI_SWEEP_FULL;
        const enum tutti_status status =
            tutti_verify_sweep(algorithm, (enum tutti_kind)kind, 1, last_size(), &depth, &sweep);
        if (status < 0) fail_msg("%s", tutti_last_error()->text);
        if (!sweep.first.ok) fail_msg("%s", sweep.first.text);
        assert_true(sweep.n_shapes > 0);
        print_message("%s %s: %u shapes\n", algorithm->name, tutti_kind_name((enum tutti_kind)kind), sweep.n_shapes);
    }
}

int main(void)
{
    enum { MAX_TESTS = 64 };
    struct CMUnitTest tests[MAX_TESTS];
    size_t n = 0;
    tutti_algorithms_init();
    for (size_t i = 0; i < tutti_n_algorithms && n < MAX_TESTS; i++) {
        tests[n++] = (struct CMUnitTest){.name = tutti_algorithms[i]->name,
                                         .test_func = prove,
                                         .initial_state = (void *)(uintptr_t)tutti_algorithms[i]};
    }
    return _cmocka_run_group_tests("algorithms", tests, n, NULL, NULL);
}
