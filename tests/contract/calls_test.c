/* SPDX-License-Identifier: BSD-3-Clause */
/* Hierarchical schedules whose calls inside groups are carried out whole: the contract of every collective that they
 * offer, over groups of equal and unequal sizes, with back ends, with some of them missing, and without. What counts
 * the calls tells that they were carried out that way, or were not. */

#include "test.h"

#include "contract.h"

#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

/* Several slices of the longer cases; both ways of small messages. */
static const struct tutti_option usual[] = {{"slice", "16K"}, {"eager", "512"}};
enum { USUAL = 2 };

struct world {
    const char *levels;
    uint32_t n, alone; /* ranks; a mask of those that are in no group of several */
};
static const struct world worlds[] = {{"2,2", 4, 0},   {"4,4", 8, 0}, {"3,5", 8, 0},
                                      {"2,2,2", 6, 0}, {"1,3", 4, 1}, {"2,2,2,2;2,2", 8, 0}};

static uint64_t call_steps(const struct rank *rank)
{
    struct tutti_engine_stats stats;
    tutti_engine_stats(rank->context->engine, &stats);
    return stats.call_steps;
}

/* One case of each type for a call, or of every third; returns how many of them ran. */
static size_t run_types(struct rank *rank, uint32_t call, uint32_t step)
{
    size_t ran = 0;
    for (uint32_t dtype = (uint32_t)(test_seed() % step); dtype < TUTTI_N_DTYPES && !rank->failure[0]; dtype += step) {
        bool refused = false;
        uint64_t random = tutti_mix64(test_seed() + call * 100 + dtype);
        struct contract_case c = {.seed = random, .algorithm = "hierarchical"};
        c.at[CALL] = call, c.at[DTYPE] = dtype, c.at[OP] = (uint32_t)(random >> 8) % TUTTI_N_OPS;
        c.at[SIZE] = 1 + (uint32_t)(random >> 16) % (CONTRACT_N_SIZES - 1), c.at[RANKS] = (uint32_t)rank->n - 1;
        c.at[PLACE] = random >> 24 & 1, c.at[ALIGN] = random >> 25 & 1;
        c.at[FORM] = (uint32_t)(random >> 32) % N_FORMS, c.at[VALUES] = random >> 26 & 1;
        contract_run(rank, &c, &refused);
        ran += !refused; /* it is not offered, or the type has not the operation */
    }
    return ran;
}

static bool is_collective(uint32_t call)
{
    struct contract_case c = {.at = {[CALL] = call}};
    return strcmp(contract_call_name(&c), "sendrecv") != 0;
}

struct run {
    const struct world *world;
    uint32_t step; /* between types */
};

static void every_call(struct rank *rank)
{
    const struct run *run = rank->arg;
    const struct world *world = run->world;
    bool alone = world->alone >> rank->index & 1;
    size_t offered = 0;
    for (uint32_t call = 0; call < contract_n_calls() && !rank->failure[0]; call++) {
        uint64_t before = call_steps(rank);
        if (!is_collective(call) || run_types(rank, call, run->step) == 0 || rank->failure[0]) continue;
        offered++;
        if ((call_steps(rank) > before) != alone) continue;
        rank_fail(rank, __FILE__, __LINE__, "call %u: %d calls on lanes", call, (int)(call_steps(rank) - before));
    }
    RANK_CHECK(rank, offered == 10); /* eight kinds, two of them as v forms, too */
}

static void no_call_steps(struct rank *rank)
{
    size_t ran = 0;
    for (uint32_t call = 0; call < contract_n_calls() && !rank->failure[0]; call++)
        if (is_collective(call)) ran += run_types(rank, call, 3);
    RANK_CHECK(rank, ran > 0 && call_steps(rank) == 0);
}

static unsigned run_world(const struct world *world, bool forked, uint32_t step, const struct tutti_option *more,
                          rank_function function)
{
    struct run run = {world, step};
    struct tutti_option options[USUAL + 2] = {usual[0], usual[1], {"levels", world->levels}};
    if (more) options[USUAL + 1] = *more;
    struct ranks_config config = {.n = world->n,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = USUAL + 1 + (more != NULL),
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = 300,
                                  .arg = &run};
    return ranks_run(&config, function);
}

/* Every so many types; their number has no such factor, so several seeds take all. */
static uint32_t types_step = 3;

static void on_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(worlds); i++)
        assert_int_equal(run_world(&worlds[i], false, types_step, NULL, every_call), 0);
}

static void on_processes(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(worlds); i++)
        assert_int_equal(run_world(&worlds[i], true, 3 * types_step, NULL, every_call), 0);
}

/* One method wherever it can be used. */
static void by_one_method(void **state)
{
    static const char *const methods[] = {"line", "stage", "mapped", "attach"};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(methods); i++) {
        const struct tutti_option method = {"flat", methods[i]};
        assert_int_equal(run_world(&worlds[2], i % 2, 2 + types_step, &method, every_call), 0);
    }
}

static void expanded(void **state)
{
    static const struct tutti_option reasons[] = {{"backends", "off"}, {"staging", "128K"}, {"decorators", "trace"}};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(reasons); i++)
        assert_int_equal(run_world(&worlds[2], i % 2, 3, &reasons[i], no_call_steps), 0);
}

/* The first ranks have no memory left that they could share, so their group has no lane, while the other one has. */
static void one_group_has_none(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    void *taken[64];
    size_t n = 0;
    bool first = rank->index < 3;
    for (size_t bytes = (size_t)1 << 30; first && bytes >= 4096 && n < TUTTI_ARRAY_LEN(taken);)
        if (tutti_mem_alloc(rank->comm, bytes, &taken[n]) == TUTTI_OK)
            n++;
        else
            bytes /= 2;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    while (n > 0) tutti_mem_free(rank->comm, taken[--n]);
    RANK_CHECK(rank, (comm->lanes.n > 0) == !first);
    tutti_comm_destroy(rank->comm);
    rank->comm = comm;
    uint64_t before = call_steps(rank);
    for (uint32_t call = 0; call < contract_n_calls() && !rank->failure[0]; call++)
        if (is_collective(call)) run_types(rank, call, 3);
    RANK_CHECK(rank, (call_steps(rank) > before) == !first);
}

static void missing(void **state)
{
    const struct tutti_option heap = {"heap", "64M"};
    (void)state;
    if (!ranks_can_fork()) skip(); /* threads share all memory */
    assert_int_equal(run_world(&worlds[2], true, 3, &heap, one_group_has_none), 0);
}

/* With the argument "long": all types. */
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "long") == 0) types_step = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_threads), cmocka_unit_test(on_processes), cmocka_unit_test(by_one_method),
        cmocka_unit_test(expanded),   cmocka_unit_test(missing),
    };
    return cmocka_run_group_tests_name("contract calls", tests, NULL, NULL);
}
