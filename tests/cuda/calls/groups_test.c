/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of calls on device memory: any calls in any order, the small ones that are alike fused, by what is chosen and
 * wherever it can be done; calls that use one another's results; replays of captured groups; how many exchanges a group
 * takes; ranks whose groups differ, and one that does not come. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/group_calls.h"

#include "backend/gpu/gpu_backend.h"
#include "comm/call/device.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct plan {
    uint64_t seed;
    uint32_t groups;
    size_t most_calls, most_bytes;
    bool depends, replays;
};

/* ---- groups against the reference ---- */

struct memory {
    unsigned char *device, *got;
};

/* For all groups to come: freeing memory in between would wait for the device, where others wait for this rank. */
static bool memory_open(struct gpu_rank *g, const struct plan *plan, const struct group_shape *shape, struct memory *m)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < plan->groups; i++) {
        struct group_plan group;
        if (!group_plan_draw(&group, shape, plan->seed + i)) return false;
        if (group.bytes > bytes) bytes = group.bytes;
        group_plan_free(&group);
    }
    m->device = (unsigned char *)gpu_rank_words(g, bytes / 4 + 1);
    m->got = rank_alloc(g->rank, bytes);
    return m->device != NULL;
}

static void memory_close(struct gpu_rank *g, struct memory *m)
{
    RANK_CHECK_OK(g->rank, tutti_comm_state(g->rank->comm, NULL));
    RANK_CHECK_OK(g->rank, tutti_barrier(g->rank->comm, NULL, NULL));
    tutti_cuda_free(g->gpu, m->device);
}

static void compare(struct gpu_rank *g, const struct group_plan *group, const struct memory *m, uint64_t seed)
{
    struct rank *rank = g->rank;
    char what[256];
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, m->got, m->device, group->bytes));
    if (!group_plan_differs(group, (uint32_t)rank->index, m->got, what, sizeof what)) return;
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    rank_fail(rank, __FILE__, __LINE__, "seed %llu, %d ranks: %s", (unsigned long long)seed, (int)rank->n, what);
}

/* With a work, which ends when the calls do, or without. */
static void make_and_compare(struct gpu_rank *g, struct group_plan *group, const struct memory *m, uint64_t seed)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work *work = NULL;
    uint32_t me = (uint32_t)rank->index;
    options.stream = g->stream;
    group_plan_fill(group, seed);
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, m->device, group->memory[me], group->bytes));
    GPU_CHECK_OK(g, group_plan_make(group, me, m->device, rank->comm, &options, seed % 2 ? &work : NULL));
    if (work) {
        RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
    } else {
        GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
    }
    group_plan_apply(group);
    compare(g, group, m, seed);
}

/* Captured once, replayed on other data, with ordinary calls in between. */
static void replay(struct gpu_rank *g, struct group_plan *group, const struct memory *m, uint64_t seed)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint32_t me = (uint32_t)rank->index;
    void *graph = NULL;
    options.stream = g->stream;
    GPU_CHECK_OK(g, tutti_cuda_graph_begin(g->gpu, g->stream));
    GPU_CHECK_OK(g, group_plan_make(group, me, m->device, rank->comm, &options, NULL));
    GPU_CHECK_OK(g, tutti_cuda_graph_end(g->gpu, g->stream, &graph));
    for (uint32_t round = 0; round < 6 && !rank->failure[0]; round++) {
        if (round == 3) make_and_compare(g, group, m, seed + round);
        group_plan_fill(group, seed + 100 + round);
        GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, m->device, group->memory[me], group->bytes));
        GPU_CHECK_OK(g, tutti_cuda_graph_launch(g->gpu, graph, g->stream));
        GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
        group_plan_apply(group);
        compare(g, group, m, seed + round);
    }
    tutti_cuda_graph_destroy(g->gpu, graph);
}

static void close_rank(struct gpu_rank *g)
{
    if (g->rank->failure[0]) return;
    tutti_comm_destroy(g->rank->comm);
    g->rank->comm = NULL;
    gpu_rank_close(g);
}

static void groups(struct rank *rank)
{
    const struct plan *plan = rank->arg;
    const struct group_shape shape = {.ranks = (uint32_t)rank->n,
                                      .most_calls = (uint32_t)plan->most_calls,
                                      .most_bytes = plan->most_bytes,
                                      .no_avg = gpu_ranks_by_nccl() && (rank->n & (rank->n - 1)) != 0,
                                      .depends = plan->depends};
    struct gpu_rank g;
    struct memory m;
    if (!gpu_rank_open(rank, &g)) return;
    RANK_CHECK(rank, memory_open(&g, plan, &shape, &m));
    for (uint32_t i = 0; i < plan->groups && !rank->failure[0]; i++) {
        struct group_plan group;
        RANK_CHECK(rank, group_plan_draw(&group, &shape, plan->seed + i));
        (plan->replays ? replay : make_and_compare)(&g, &group, &m, plan->seed + i);
        group_plan_free(&group);
    }
    if (!rank->failure[0]) memory_close(&g, &m);
    close_rank(&g);
}

static void run_world(uint32_t n, struct plan plan, bool forked, const char *method)
{
    const struct tutti_option options[] = {{"gpu", gpu_ranks_way(n)}, {"gpu_method", method}};
    struct ranks_config config = {.n = n,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = 2,
                                  .timeout_ns = UINT64_C(100000000000),
                                  .deadline_s = 300,
                                  .arg = &plan};
    assert_int_equal(ranks_run(&config, groups), 0);
}

static void run_groups(struct plan plan, bool forked, const char *method)
{
    static const uint32_t worlds[] = {1, 2, 3, 5, 8};
    plan.seed = test_seed() * 1000;
    for (uint32_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        if (forked && gpu_ranks_take_turns(worlds[w])) continue; /* what shares a device is left to threads */
        if ((plan.replays || plan.depends) && gpu_ranks_across(worlds[w])) continue; /* they run together there */
        if (test_is_sampled() && (w + plan.groups + plan.most_calls + test_seed()) % 3) continue;
        if (worlds[w] <= gpu_ranks_at_most(worlds[w])) run_world(worlds[w], plan, forked, method);
    }
}

/* Communicators of ranks that share devices, one after another, which all make their first calls at once, on streams
 * that are new: one in thirty hung while threads came to these at the same time (device/cuda/cuda_stream.c). */
static void first_calls_of_many(void)
{
    if (gpu_ranks_by_nccl()) return;
    const uint32_t n = gpu_ranks_stand_in() ? 2 : 200;
    for (uint32_t i = 0; i < n; i++)
        run_world(8,
                  (struct plan){.seed = test_seed() * 1000 + i,
                                .groups = 1,
                                .most_calls = 30,
                                .most_bytes = 400,
                                .depends = !gpu_ranks_across(8)},
                  false, i % 2 ? "batch" : "");
}

static uint32_t many(void)
{
    return !gpu_ranks_stand_in() ? 16 : test_is_sampled() ? 2 : 6;
}

/* By processes, or by threads. */
static void any_calls_of(bool forked)
{
    run_groups((struct plan){.groups = many(), .most_calls = 200, .most_bytes = 1500}, forked, "");
    run_groups((struct plan){.groups = many(), .most_calls = 200, .most_bytes = 1500}, forked, "batch");
}

static void larger_calls_of(bool forked)
{
    run_groups((struct plan){.groups = many(), .most_calls = 12, .most_bytes = 40000}, forked, "");
}

/* By nccl some calls go through the host: they run together, and none is captured. */
static void calls_that_depend_of(bool forked)
{
    if (gpu_ranks_by_nccl()) return;
    const struct plan plan = {.groups = 4 * many(), .most_calls = 30, .most_bytes = 400, .depends = true};
    run_groups(plan, forked, "");
    run_groups(plan, forked, "batch");
}

static void replays_of(bool forked)
{
    if (gpu_ranks_by_nccl()) return;
    run_groups((struct plan){.groups = 2, .most_calls = 40, .most_bytes = 900, .replays = true}, forked, "");
    run_groups((struct plan){.groups = 2, .most_calls = 20, .most_bytes = 300, .depends = true, .replays = true},
               forked, "");
}

static void any_calls(void **state)
{
    (void)state;
    any_calls_of(true);
}

static void larger_calls(void **state)
{
    (void)state;
    larger_calls_of(true);
}

static void calls_that_depend(void **state)
{
    (void)state;
    calls_that_depend_of(true);
}

static void replays(void **state)
{
    (void)state;
    replays_of(true);
}

/* In one process: the last one, since a driver does not survive a fork. */
static void all_of_threads(void **state)
{
    (void)state;
    any_calls_of(false);
    larger_calls_of(false);
    calls_that_depend_of(false);
    replays_of(false);
    first_calls_of_many();
}

/* ---- how many exchanges ---- */

/* Calls by lines and sentinels that the first block has counted; kernels count one for all that they fuse. */
static uint32_t exchanges(struct gpu_rank *g)
{
    const struct gpu_backend *b = (const void *)g->rank->comm->device->backends[0];
    uint64_t called = 0;
    if (tutti_cuda_stream_sync(g->gpu, g->stream) < 0 ||
        tutti_cuda_copy_now(g->gpu, &called, b->scratch + b->site.layout.called, sizeof called) < 0)
        rank_fail(g->rank, __FILE__, __LINE__, "%s", tutti_last_error()->text);
    return (uint32_t)called;
}

struct uniform { /* calls of one type and size */
    enum tutti_dtype dtype;
    uint32_t n;
    size_t count;
};

static void make_uniform(struct gpu_rank *g, const struct uniform *parts, size_t n, unsigned char *base)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    GPU_CHECK_OK(g, tutti_group_start());
    for (size_t p = 0; p < n; p++) {
        for (uint32_t i = 0; i < parts[p].n; i++, base += 512)
            GPU_CHECK_OK(g, tutti_all_reduce(base, base, parts[p].count, parts[p].dtype, TUTTI_SUM, g->rank->comm,
                                             &options, NULL));
    }
    GPU_CHECK_OK(g, tutti_group_end(NULL));
}

static void count_exchanges(struct rank *rank)
{
    static const struct {
        struct uniform parts[3];
        uint32_t exchanges;
    } cases[] = {
        {{{TUTTI_BFLOAT16, 1, 100}}, 1},
        {{{TUTTI_BFLOAT16, 10, 100}}, 1},
        {{{TUTTI_INT32, 64, 3}}, 1},
        {{{TUTTI_FLOAT32, 65, 3}}, 2},
        {{{TUTTI_FLOAT32, 200, 100}}, 4},
        {{{TUTTI_FLOAT32, 7, 10}, {TUTTI_FLOAT16, 7, 10}, {TUTTI_FLOAT32, 7, 10}}, 3},
        {{{TUTTI_FLOAT32, 3, 10}, {TUTTI_FLOAT32, 70, 0}, {TUTTI_FLOAT32, 3, 10}}, 1},
        {{{TUTTI_FLOAT32, 70, 0}}, 0},
    };
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    unsigned char *base = (unsigned char *)gpu_rank_words(&g, 200 * 128);
    if (!base) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !rank->failure[0]; i++) {
        const uint32_t before = exchanges(&g);
        make_uniform(&g, cases[i].parts, 3, base);
        const uint32_t n = exchanges(&g) - before;
        if (n != cases[i].exchanges)
            rank_fail(rank, __FILE__, __LINE__, "case %zu: %u exchanges instead of %u", i, n, cases[i].exchanges);
    }
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_cuda_free(g.gpu, base);
    close_rank(&g);
}

static void alike_calls_are_one(void **state)
{
    (void)state;
    if (gpu_ranks_by_nccl() || gpu_ranks_across(2)) skip(); /* nothing is fused */
    for (uint32_t n = 2; n <= 3 && !gpu_ranks_across(n); n++) {
        struct ranks_config config = {.n = n, .forked = true};
        assert_int_equal(ranks_run(&config, count_exchanges), 0);
    }
}

/* ---- works ---- */

/* Each call's own, of a group that is one launch: all are complete when that is over. */
static void own_works(struct rank *rank)
{
    enum { CALLS = 5 };
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work *works[CALLS] = {NULL};
    uint32_t got[CALLS * 4], mine[CALLS * 4], all = 0;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, CALLS * 4);
    if (!words) return;
    options.stream = g.stream;
    for (uint32_t i = 0; i < CALLS * 4; i++) mine[i] = i << (8 * rank->index);
    for (int32_t r = 0; r < rank->n; r++) all |= 1u << (8 * r);
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g.gpu, words, mine, sizeof mine));
    const bool fuses = !gpu_ranks_by_nccl() && !gpu_ranks_across((uint32_t)rank->n);
    const uint32_t before = fuses ? exchanges(&g) : 0;
    RANK_CHECK_OK(rank, tutti_group_start());
    for (uint32_t i = 0; i < CALLS; i++)
        RANK_CHECK_OK(rank, tutti_all_reduce(words + 4 * i, words + 4 * i, 4, TUTTI_UINT32, TUTTI_SUM, rank->comm,
                                             &options, i == 2 ? NULL : &works[i]));
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    for (uint32_t i = 0; i < CALLS; i++) {
        if (i == 2) continue;
        RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
        tutti_work_free(works[i]);
    }
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g.gpu, got, words, sizeof got));
    for (uint32_t i = 0; i < CALLS * 4; i++) RANK_CHECK(rank, got[i] == i * all);
    RANK_CHECK(rank, !fuses || exchanges(&g) == before + 1);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_cuda_free(g.gpu, words);
    close_rank(&g);
}

static void works_of_calls(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .forked = true};
    assert_int_equal(ranks_run(&config, own_works), 0);
}

/* ---- failures ---- */

struct wrong {
    bool stays_away; /* rank 1, which is told by the group's first call; else its fourth call has another count */
    enum tutti_status status;
    uint64_t timeout_ns;
};

static void go_wrong(struct rank *rank)
{
    const struct wrong *wrong = rank->arg;
    const struct timespec nap = {.tv_nsec = 1000000};
    struct uniform parts[] = {{TUTTI_FLOAT32, 3, 16}, {TUTTI_FLOAT32, 1, 16}, {TUTTI_FLOAT32, 4, 16}};
    struct tutti_error error = {0};
    struct gpu_rank g;
    char first[32];
    if (!gpu_rank_open(rank, &g)) return;
    unsigned char *base = (unsigned char *)gpu_rank_words(&g, 8 * 128);
    if (!base) return;
    make_uniform(&g, parts, 3, base);
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
    tutti_comm_set_timeout(rank->comm, wrong->timeout_ns);
    snprintf(first, sizeof first, "#%llu (", (unsigned long long)tutti_comm_sequence(rank->comm) + 1);
    if (rank->index == 1) parts[1].count = 17;
    if (rank->index != 1 || !wrong->stays_away) make_uniform(&g, parts, 3, base);
    while (tutti_comm_state(rank->comm, &error) == TUTTI_OK) nanosleep(&nap, NULL); /* until the run's deadline */
    if (error.status != wrong->status || !strstr(error.text, wrong->stays_away ? first : "17 elements"))
        rank_fail(rank, __FILE__, __LINE__, "%s: \"%s\"", tutti_status_name(error.status), error.text);
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream)); /* the device came to its end */
    close_rank(&g);
}

static void run_wrong(struct wrong wrong)
{
    struct ranks_config config = {.n = 2, .forked = true, .arg = &wrong};
    assert_int_equal(ranks_run(&config, go_wrong), 0);
}

static void groups_that_differ(void **state)
{
    (void)state;
    run_wrong((struct wrong){false, TUTTI_ERR_MISMATCH, UINT64_C(30000000000)});
}
static void who_does_not_come(void **state)
{
    (void)state;
    run_wrong((struct wrong){true, TUTTI_ERR_TIMEOUT, UINT64_C(1000000000)});
}

int main(void)
{
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_calls_are_one), cmocka_unit_test(any_calls),         cmocka_unit_test(larger_calls),
        cmocka_unit_test(calls_that_depend),   cmocka_unit_test(replays),           cmocka_unit_test(works_of_calls),
        cmocka_unit_test(groups_that_differ),  cmocka_unit_test(who_does_not_come), cmocka_unit_test(all_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
