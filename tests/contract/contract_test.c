/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract suite: every pair of values of all dimensions on each transport, or, with the argument "product", every
 * combination (hours); the same by the engine alone; every algorithm for every call that it offers; and the decorators.
 */

#include "test.h"

#include "contract.h"

#include <stdio.h>
#include <string.h>

struct batch {
    const struct contract_case *cases;
    size_t n;
    uint32_t n_ranks;
};

static void run_batch(struct rank *rank)
{
    const struct batch *batch = rank->arg;
    for (size_t i = 0; i < batch->n && !rank->failure[0]; i++)
        if (batch->cases[i].at[RANKS] + 1 == batch->n_ranks) contract_run(rank, &batch->cases[i], NULL);
}

static uint32_t deadline_s = 300; /* for the cases of one number of ranks */

/* Small slices and staging, so that moderate sizes take many of both. */
static const struct tutti_option small[] = {{"slice", "16K"}, {"staging", "256K"}, {"eager", "512"}};

static unsigned run_cases(const struct contract_case *cases, size_t n, uint32_t n_ranks, bool forked,
                          const struct tutti_option *options, size_t n_options)
{
    struct batch batch = {cases, n, n_ranks};
    struct ranks_config config = {.n = n_ranks,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = n_options,
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = deadline_s,
                                  .arg = &batch};
    return ranks_run(&config, run_batch);
}

/* Worlds are threads and processes by turns; in pairs_engine the other way round. */
static void pairs(void **state)
{
    (void)state;
    size_t n;
    unsigned failed = 0;
    struct contract_case *cases = contract_pairs(test_seed(), &n);
    assert_non_null(cases);
    print_message("%zu cases cover every pair; seed %llu\n", n, (unsigned long long)test_seed());
    for (uint32_t n_ranks = 1; n_ranks <= contract_domain[RANKS]; n_ranks++)
        failed += run_cases(cases, n, n_ranks, n_ranks % 2 == 0, small, 3);
    free(cases);
    assert_int_equal(failed, 0);
}

/* The engine itself, where a back end would carry out the calls. */
static void pairs_engine(void **state)
{
    (void)state;
    const struct tutti_option options[] = {small[0], small[1], small[2], {"backends", "off"}};
    size_t n;
    unsigned failed = 0;
    struct contract_case *cases = contract_pairs(test_seed() + 4, &n);
    assert_non_null(cases);
    for (size_t i = 0; i < n; i++) cases[i].thrifty = true;
    for (uint32_t n_ranks = 1; n_ranks <= contract_domain[RANKS]; n_ranks++)
        failed += run_cases(cases, n, n_ranks, n_ranks % 2, options, 4);
    free(cases);
    assert_int_equal(failed, 0);
}

static void product(void **state)
{
    (void)state;
    deadline_s = 20000;
    for (uint32_t n_ranks = 1; n_ranks <= contract_domain[RANKS]; n_ranks++) {
        size_t n;
        struct contract_case *cases = contract_product(n_ranks, test_seed(), &n);
        assert_non_null(cases);
        unsigned failed = run_cases(cases, n, n_ranks, false, small, 3);
        free(cases);
        assert_int_equal(failed, 0);
    }
}

/* ---- every algorithm ---- */

static const char *const algorithms[] = {
    "ring",   "halving_doubling", "tree",         "tree:4",        "double_tree", "bruck", "pairwise",
    "direct", "direct_two_shot",  "hierarchical", "dissemination", NULL};

struct count {
    _Atomic size_t ran, refused;
};

static void run_algorithms(struct rank *rank)
{
    struct count *count = rank->arg;
    static const uint32_t sizes[] = {1, 4, 5};
    for (size_t a = 0; algorithms[a]; a++) {
        for (uint32_t call = 0; call < contract_n_calls(); call++) {
            for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
                bool refused = false;
                struct contract_case c = {.seed = 77 + size * 13 + call, .algorithm = algorithms[a]};
                c.at[CALL] = call, c.at[DTYPE] = TUTTI_UINT64, c.at[OP] = TUTTI_SUM;
                c.at[SIZE] = sizes[size], c.at[RANKS] = (uint32_t)rank->n - 1, c.at[PLACE] = size % 2, c.at[VALUES] = 1;
                if (strcmp(contract_call_name(&c), "sendrecv") == 0) continue; /* takes no algorithm */
                contract_run(rank, &c, &refused);
                if (rank->failure[0]) return;
                ++*(refused ? &count->refused : &count->ran);
            }
        }
    }
}

static void every_algorithm(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 5, 8, 17};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        char levels[32];
        struct count count = {0};
        struct tutti_option options[] = {{"slice", "16K"}, {"staging", "256K"}, {"levels", levels}};
        uint32_t n = worlds[i];
        snprintf(levels, sizeof levels, n > 3 ? "%u,%u" : "%u", n > 3 ? n / 2 + 1 : n, n - n / 2 - 1);
        struct ranks_config config = {.n = n, .options = options, .n_options = 3, .deadline_s = 120, .arg = &count};
        assert_int_equal(ranks_run(&config, run_algorithms), 0);
        assert_true(count.ran / n >= 60); /* out of 11 x 16 x 3: each algorithm offers several calls */
    }
}

/* ---- around the transport ---- */

static void decorated(void **state)
{
    (void)state;
    static const struct tutti_option sets[][3] = {
        {{"decorators", "trace"}, {"slice", "16K"}, {"staging", "256K"}},
        {{"decorators", "delay"}, {"delay", "50us"}, {"staging", "256K"}},
        {{"decorators", "fault"}, {"fault", "seed=5,duplicate=0.2"}, {"staging", "256K"}},
        {{"decorators", "fault"}, {"fault", "seed=6,delay=0.1:200us"}, {"staging", "256K"}},
    };
    size_t n;
    struct contract_case *cases = contract_pairs(test_seed() + 1, &n);
    assert_non_null(cases);
    unsigned failed = 0;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) failed += run_cases(cases, n, 4, i % 2, sets[i], 3);
    free(cases);
    assert_int_equal(failed, 0);
}

/* With the argument "product": that alone. */
int main(int argc, char **argv)
{
    const struct CMUnitTest whole[] = {cmocka_unit_test(product)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs),
        cmocka_unit_test(pairs_engine),
        cmocka_unit_test(every_algorithm),
        cmocka_unit_test(decorated),
    };
    if (argc > 1 && strcmp(argv[1], "product") == 0)
        return cmocka_run_group_tests_name("contract product", whole, NULL, NULL);
    return cmocka_run_group_tests_name("contract", tests, NULL, NULL);
}
