/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of the public calls on device memory: by what is chosen, and by every method of the back end cuda; as
 * threads and as processes, more of them than devices. */

#include "test.h"

#include "contract/contract.h"
#include "cuda/support/gpu_ranks.h"

#include "backend/gpu/gpu_backend.h"
#include "backend/library/nccl.h"
#include "comm/call/staging.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t worlds[] = {1, 2, 3, 4, 8, 16};
enum { N_WORLDS = sizeof worlds / sizeof worlds[0], PARTS = 4, WINDOW = 16 << 20 }; /* bytes: longer than any buffer */

/* Sixteen that share devices would have too few blocks each. */
static uint32_t n_worlds(void)
{
    return gpu_ranks_devices() < worlds[N_WORLDS - 1] ? N_WORLDS - 1 : N_WORLDS;
}

struct suite {
    const struct contract_case *cases;
    size_t n;
    uint32_t first, step;  /* cases of each world: every step-th, from the first on */
    size_t most;           /* elements of a block; the stand-in is slow */
    _Atomic size_t *ran;   /* by rank 0; of threads alone */
    const char *method;    /* that is forced: */
    _Atomic size_t *by_it; /* calls after which it is among those that were chosen; NULL: none is */
    bool windows;          /* outputs are in them */
};

static bool is_mine(const struct suite *suite, const struct rank *rank, const struct contract_case *c, size_t *count)
{
    if (worlds[c->at[RANKS] % n_worlds()] != (uint32_t)rank->n || contract_sizes[c->at[SIZE]] > suite->most)
        return false;
    return (*count)++ % suite->step == suite->first;
}

/* Whether calls whose sizes all ranks know went by the method that is forced: others have no choice. */
static void count_method(const struct suite *suite, const struct rank *rank)
{
    if (!suite->by_it) return;
    const struct gpu_backend *backend = (const struct gpu_backend *)rank->comm->device->backends[0];
    for (uint32_t i = 0; i < GPU_CHOICES; i++) {
        const struct gpu_method *chosen = backend->choices[i].method;
        if (chosen && strcmp(chosen->name, suite->method) == 0) ++*suite->by_it;
    }
}

/* Devices did it all; NCCL, which lacks types and operations, most of it; across hosts none of it. */
static void check_ways(struct rank *rank, size_t count)
{
    const struct tutti_comm_device *device = rank->comm->device;
    if (gpu_ranks_across((uint32_t)rank->n))
        RANK_CHECK(rank, count == 0 || atomic_load(&device->staging->enqueued) > 0);
    else if (!gpu_ranks_by_nccl())
        RANK_CHECK(rank, atomic_load(&device->staging->enqueued) == 0);
    else
        RANK_CHECK(rank, count < 10 || atomic_load(&library_of(device->backends[0])->watched.n_enqueued) > count / 3);
}

static void run_suite(struct rank *rank)
{
    const struct suite *suite = rank->arg;
    struct contract_memory memory;
    struct gpu_rank g;
    size_t count = 0;
    if (!gpu_rank_open(rank, &g)) return;
    RANK_CHECK(rank, rank->comm->device && (rank->comm->device->n > 0) == !gpu_ranks_across((uint32_t)rank->n));
    contract_memory_init(&memory, g.gpu, g.stream);
    if (suite->windows) RANK_CHECK_OK(rank, contract_memory_windows(&memory, rank->comm, WINDOW));
    for (size_t i = 0; i < suite->n && !rank->failure[0]; i++) {
        struct contract_case c = suite->cases[i];
        if (!is_mine(suite, rank, &c, &count)) continue;
        c.memory = &memory;
        c.thrifty = true;
        c.mapped = suite->windows ? UINT64_MAX : c.seed >> 5;
        contract_run(rank, &c, NULL);
        if (suite->ran && rank->index == 0) ++*suite->ran;
        count_method(suite, rank);
    }
    if (rank->failure[0]) return;
    check_ways(rank, count);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    contract_memory_fini(&memory, rank->comm);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

static void run_worlds(struct suite *suite, bool forked, const char *method)
{
    for (uint32_t w = 0; w < n_worlds(); w++) {
        const struct tutti_option options[] = {{"gpu", gpu_ranks_way(worlds[w])}, {"gpu_method", method}};
        if (worlds[w] > gpu_ranks_at_most(worlds[w])) continue;
        if (test_is_sampled() && method[0] && (w + suite->first) % 2) continue;
        struct ranks_config config = {.n = worlds[w],
                                      .forked = forked,
                                      .options = options,
                                      .n_options = 2,
                                      .timeout_ns = 100 * TUTTI_NS_PER_S,
                                      .deadline_s = gpu_ranks_deadline_s(),
                                      .arg = suite};
        unsigned failed = ranks_run(&config, run_suite);
        if (failed)
            print_message("%u %s, gpu %s, method \"%s\"\n", worlds[w], forked ? "processes" : "threads",
                          gpu_ranks_way(worlds[w]), method);
        assert_int_equal(failed, 0);
    }
}

static size_t most(void)
{
    return gpu_ranks_stand_in() ? 4099 : SIZE_MAX;
}

/* Cases of worlds that there are devices for. */
static size_t within_reach(const struct contract_case *cases, size_t n)
{
    size_t within = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t n_ranks = worlds[cases[i].at[RANKS] % n_worlds()];
        within += n_ranks <= gpu_ranks_at_most(n_ranks);
    }
    return within;
}

/* One of so many cases. */
static uint32_t sampled(void)
{
    return test_is_sampled() ? 7 : 1;
}

static void chosen(bool forked)
{
    size_t n;
    struct contract_case *cases = contract_pairs(test_seed() + 31 + forked, &n);
    assert_non_null(cases);
    _Atomic size_t ran = 0;
    struct suite suite = {.cases = cases, .n = n, .step = sampled(), .most = most(), .ran = forked ? NULL : &ran};
    run_worlds(&suite, forked, "");
    if (!forked) assert_true(ran > within_reach(cases, n) / 2 / sampled());
    free(cases);
}

static void chosen_threads(void **state)
{
    (void)state;
    if (gpu_ranks_by_nccl() && gpu_ranks_at_most(worlds[n_worlds() - 1]) > gpu_ranks_devices())
        skip(); /* threads that share a device kept one another waiting by NCCL */
    chosen(false);
}

static void chosen_processes(void **state)
{
    (void)state;
    chosen(true);
}

/* Calls by one method, where it can: all cases, on the stand-in a part of them, which is another each round. */
static void some_by(struct suite *suite, uint32_t round)
{
    suite->step = gpu_ranks_stand_in() ? PARTS : 1;
    suite->first = round % suite->step;
    struct contract_case *cases = contract_pairs(test_seed() + 33 + round / suite->step, &suite->n);
    assert_non_null(cases);
    suite->cases = cases;
    run_worlds(suite, false, suite->method);
    free(cases);
}

/* Each method has the calls that it can carry out, of which there are some; the others go where they would. */
static void every_method(void **state)
{
    (void)state;
    if (gpu_ranks_across(worlds[n_worlds() - 1])) skip(); /* all are on one host */
    static const char *const methods[] = {"lines",  "sentinel", "sentinel2",      "sentinels", "tiles",
                                          "tiles2", "relay",    "sentinel_relay", "direct",    "engines"};
    for (uint32_t m = 0; m < TUTTI_ARRAY_LEN(methods); m++) {
        _Atomic size_t by_it = 0;
        const bool windows = m >= 8;
        struct suite suite = {.most = most(), .method = methods[m], .windows = windows, .by_it = &by_it};
        for (uint32_t round = 0; by_it == 0 && round < 3 * PARTS; round++) some_by(&suite, m + round);
        if (by_it == 0) fail_msg("no call went by %s", methods[m]);
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest tests[] = {cmocka_unit_test(chosen_processes), /* a driver does not survive a fork */
                                       cmocka_unit_test(chosen_threads), cmocka_unit_test(every_method)};
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    if (gpu_ranks_by_nccl()) { /* its communicators are the process's devices': threads can do, too */
        const struct CMUnitTest by_nccl[] = {cmocka_unit_test(chosen_processes), cmocka_unit_test(chosen_threads)};
        return cmocka_run_group_tests(by_nccl, NULL, NULL);
    }
    const struct CMUnitTest by_threads[] = {cmocka_unit_test(chosen_threads)};
    if (argc > 1) return cmocka_run_group_tests(by_threads, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
