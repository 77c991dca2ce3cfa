/* SPDX-License-Identifier: BSD-3-Clause */
/* Mutants by rules over every algorithm and kind: all are caught but those that change nothing, and every rule has
 * some. The plain engine, which says what changes nothing, accepts the schedules as they are, and can refuse. */

#include "verify/mutants.h"

#include "algo/algo.h"
#include "verify/executor.h"

#include "test.h"

#include <string.h>

enum { SITES = 3, RUNS = 24 };

static void caught(void **state)
{
    struct tutti_mutants mutants;
    uint32_t n = 0;
    (void)state;
    assert_int_equal(tutti_mutants_run(tutti_algorithms, tutti_n_algorithms, SITES, 1, &mutants), TUTTI_OK);
    for (uint32_t rule = 0; rule < TUTTI_MUTANT_RULES; rule++) {
        const char *name = tutti_mutant_rule(rule)->name;
        if (mutants.rules[rule].n_missed > 0) fail_msg("%s: missed: %s", name, mutants.rules[rule].missed);
        if (mutants.rules[rule].n_caught == 0) fail_msg("%s: none was caught of %u", name, mutants.rules[rule].n);
        assert_int_equal(mutants.rules[rule].n_caught + mutants.rules[rule].n_same, mutants.rules[rule].n);
        n += mutants.rules[rule].n_caught;
    }
    assert_true(n > 1000);
}

/* The engine on the schedules of the table, as they are and without their hazards. */
static void engine(void **state)
{
    uint32_t n_wrong = 0, n = 0;
    (void)state;
    for (size_t i = 0; i < tutti_n_algorithms * TUTTI_N_KINDS; i++) {
        const struct tutti_algorithm *algorithm = tutti_algorithms[i / TUTTI_N_KINDS];
        const enum tutti_kind kind = (enum tutti_kind)(i % TUTTI_N_KINDS);
        const struct tutti_shape shape = {.size = 8};
        struct tutti_schedule *slots[8] = {0};
        const struct tutti_schedule *const *sealed = (const struct tutti_schedule *const *)slots;
        char why[128] = "";
        bool right;
        if (!tutti_algorithm_fits(algorithm, kind, &shape, NULL, 0)) continue;
        assert_int_equal(tutti_seal_all(algorithm, kind, &shape, true, slots), TUTTI_OK);
        assert_int_equal(tutti_execute(sealed, 8, RUNS, i, &right, why, sizeof why), TUTTI_OK);
        if (!right) fail_msg("%s %s: %s", algorithm->name, tutti_kind_name(kind), why);
        for (uint32_t s = 0; s < 8; s++)
            for (uint32_t k = 0; k < slots[s]->n_steps; k++) slots[s]->steps[k].wait = 0;
        assert_int_equal(tutti_execute(sealed, 8, RUNS, i, &right, why, sizeof why), TUTTI_OK);
        n_wrong += !right, n++;
        for (uint32_t s = 0; s < 8; s++) tutti_schedule_destroy(slots[s]);
    }
    assert_true(n_wrong > n / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(engine), cmocka_unit_test(caught)};
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
