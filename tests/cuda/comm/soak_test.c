/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls of the contract on device memory for as long as TUTTI_SOAK_SECONDS says (two minutes; ten seconds on the
 * stand-in), by processes, of which two share a device. Half of the calls name a method, those of large calls among
 * them, which some can not go by. Now and then the communicator is made anew; all buffers of every other one lie in
 * windows. */

#include "test.h"

#include "contract/contract.h"
#include "cuda/support/gpu_ranks.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RANKS_MOST = 4, A_COMMUNICATOR = 400, A_LOOK = 20, WINDOW = 16 << 20 }; /* bytes: longer than any buffer */

struct plan {
    uint64_t seed, seconds;
    const struct contract_case *cases;
    size_t n_cases, most; /* elements of a block */
};

static uint64_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec;
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* The same on all ranks. */
static bool is_over(struct rank *rank, uint64_t end_s)
{
    int32_t mine = now_s() >= end_s, all = 1;
    if (tutti_all_reduce(&mine, &all, 1, TUTTI_INT32, TUTTI_MAX, rank->comm, NULL, NULL) == TUTTI_OK) return all;
    rank_fail(rank, __FILE__, __LINE__, "%s", tutti_last_error()->text);
    return true;
}

/* NULL half of the time: what is chosen. */
static const char *draw_method(uint64_t *random)
{
    static const char *const methods[] = {"cuda:lines",  "cuda:sentinel", "cuda:sentinel2", "cuda:sentinels",
                                          "cuda:tiles",  "cuda:tiles2",   "cuda:relay",     "cuda:sentinel_relay",
                                          "cuda:direct", "cuda:engines"};
    const uint64_t drawn = draw(random) % (2 * TUTTI_ARRAY_LEN(methods));
    return drawn < TUTTI_ARRAY_LEN(methods) ? methods[drawn] : NULL;
}

/* Until the communicator is to be made anew (true), time is up, or something is wrong. */
static bool soak_one(struct rank *rank, const struct plan *plan, uint64_t *random, uint64_t end_s,
                     struct contract_memory *memory)
{
    for (uint32_t i = 0; i < A_COMMUNICATOR; i++) {
        if (i % A_LOOK == 0 && is_over(rank, end_s)) return false;
        struct contract_case c = plan->cases[draw(random) % plan->n_cases];
        c.seed = draw(random) << 31 | draw(random);
        if (contract_sizes[c.at[SIZE]] > plan->most) continue;
        c.mapped = memory->rooms[0].window ? UINT64_MAX : c.seed >> 7;
        c.algorithm = draw_method(random);
        c.memory = memory;
        c.thrifty = true;
        contract_run(rank, &c, NULL);
        if (rank->failure[0]) return false;
    }
    return true;
}

static void soak(struct rank *rank)
{
    const struct plan *plan = rank->arg;
    uint64_t random = plan->seed, end_s = now_s() + plan->seconds;
    struct contract_memory memory;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    contract_memory_init(&memory, g.gpu, g.stream);
    for (uint32_t i = 1; soak_one(rank, plan, &random, end_s, &memory); i++) {
        struct tutti_comm *next = NULL;
        contract_memory_fini(&memory, rank->comm);
        contract_memory_init(&memory, g.gpu, g.stream);
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &next));
        tutti_comm_destroy(rank->comm);
        rank->comm = next;
        if (i % 2) RANK_CHECK_OK(rank, contract_memory_windows(&memory, next, WINDOW));
    }
    if (rank->failure[0]) return;
    contract_memory_fini(&memory, rank->comm);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

static void random_calls(void **state)
{
    (void)state;
    const char *seconds = getenv("TUTTI_SOAK_SECONDS");
    /* Other calls each time, unless a seed is given: that of a run that failed. */
    const bool given = getenv("TUTTI_TEST_SEED") != NULL;
    struct plan plan = {.seed = given ? test_seed() : test_seed() + (uint64_t)time(NULL),
                        .seconds = seconds                ? strtoull(seconds, NULL, 10)
                                   : gpu_ranks_stand_in() ? (test_is_sampled() ? 3 : 10)
                                                          : 120,
                        .most = gpu_ranks_stand_in() ? 4099 : SIZE_MAX};
    uint32_t n = gpu_ranks_devices() + 1; /* two share a device */
    plan.cases = contract_pairs(plan.seed, &plan.n_cases);
    assert_non_null(plan.cases);
    print_message("seed %llu\n", (unsigned long long)plan.seed);
    struct ranks_config config = {.n = n > RANKS_MOST ? RANKS_MOST : n,
                                  .forked = true,
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = (uint32_t)plan.seconds + 100,
                                  .arg = &plan};
    assert_int_equal(ranks_run(&config, soak), 0);
    free((void *)(uintptr_t)plan.cases);
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
