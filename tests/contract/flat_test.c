/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract suite through the back end flat, by each of its methods: their names are taken from its table, so that a
 * new one is tried without being named here. By default the methods are dealt out among the cases, on threads and on
 * processes; with the argument "long" all cases run by each method, which then is the option's. */
#include "test.h"

#include "backend/flat/flat.h"
#include "contract.h"

#include <stdio.h>
#include <string.h>

static const char *names[64];   /* names of methods, each once, */
static char algorithms[64][32]; /* and as calls name them */
static size_t n_names;
static bool all;

static void find_names(void)
{
    for (size_t i = 0; i < flat_n_methods; i++) {
        bool seen = false;
        for (size_t k = 0; k < n_names; k++) seen |= strcmp(names[k], flat_methods[i].name) == 0;
        if (seen || n_names == TUTTI_ARRAY_LEN(names)) continue;
        snprintf(algorithms[n_names], sizeof algorithms[0], "flat:%s", flat_methods[i].name);
        names[n_names++] = flat_methods[i].name;
    }
}

struct batch {
    struct contract_case *cases;
    size_t n;
};

static void run_batch(struct rank *rank)
{
    const struct batch *batch = rank->arg;
    for (size_t i = 0; i < batch->n && !rank->failure[0]; i++)
        if (batch->cases[i].at[RANKS] + 1 == (uint32_t)rank->n) contract_run(rank, &batch->cases[i], NULL);
}

/* option: the method of all calls that do not name one, "" if each names its own. */
static unsigned run_world(struct batch batch, const char *option, uint32_t n_ranks, bool forked)
{
    const struct tutti_option options[] = {{"flat", option}, {"staging", "448K"}, {"slice", "16K"}};
    struct ranks_config config = {.n = n_ranks,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = TUTTI_ARRAY_LEN(options),
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = 300,
                                  .arg = &batch};
    unsigned failed = ranks_run(&config, run_batch);
    if (failed) print_message("flat \"%s\" on %u %s\n", option, n_ranks, forked ? "processes" : "threads");
    return failed;
}

/* Where buffers are: private, mapped, or as it comes. */
static void map_some(struct contract_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t draw = cases[i].seed >> 7;
        cases[i].thrifty = true;
        cases[i].mapped = draw % 3 == 0 ? 0 : draw % 3 == 1 ? UINT64_MAX : cases[i].seed;
    }
}

static void run(bool forked)
{
    size_t n;
    unsigned failed = 0;
    struct contract_case *cases = contract_pairs(test_seed() + 2 + forked, &n);
    assert_non_null(cases);
    map_some(cases, n);
    for (size_t i = 0; i < n && !all; i++)
        if (strcmp(contract_call_name(&cases[i]), "sendrecv") != 0) cases[i].algorithm = algorithms[i % n_names];
    for (uint32_t n_ranks = 1; n_ranks <= contract_domain[RANKS]; n_ranks++)
        for (size_t m = 0; m < (all ? n_names : 1); m++)
            failed += run_world((struct batch){cases, n}, all ? names[m] : "", n_ranks, forked);
    free(cases);
    assert_int_equal(failed, 0);
}

static void threads(void **state)
{
    (void)state, run(false);
}

static void processes(void **state)
{
    (void)state, run(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads), cmocka_unit_test(processes)};
    all = argc > 1 && strcmp(argv[1], "long") == 0;
    find_names();
    return cmocka_run_group_tests_name("contract flat", tests, NULL, NULL);
}
