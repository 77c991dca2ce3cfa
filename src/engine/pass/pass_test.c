/* SPDX-License-Identifier: BSD-3-Clause */

/* Progress: many calls in flight, messages that come before their call, transports that disorder, nothing allocated. */

#include "engine/pass/rig_test.h"

/* ---- a thousand calls in flight ---- */
#define N_CALLS 1000
static void thousand(struct rig_rank *rank)
{
    struct tutti_cache *cache;
    struct tutti_work **works = calloc(N_CALLS, sizeof(struct tutti_work *));
    int32_t *data = calloc(N_CALLS * 300, sizeof(*data));

    RIG_OK(rank, tutti_cache_create(8, &cache));
    for (uint32_t i = 0; i < N_CALLS; i++) {
        size_t count = i % 50 == 49 ? 20000 : 1 + i % 300;
        int32_t *at = count > 300 ? calloc(count, sizeof(*data)) : data + i * 300;
        struct rig_call call = rig_sum(at, count, cache);
        for (size_t k = 0; k < count; k++) at[k] = (int32_t)(rank->me + 1);
        RIG_OK(rank, rig_start(rank, rank->team, &call, i % 2, &works[i]));
        if (count <= 300) continue;
        RIG_OK(rank, tutti_work_wait(works[i], 0));
        for (size_t k = 0; k < count; k++) RIG_CHECK(rank, at[k] == rig_total(rank->n), "large call %u [%zu]", i, k);
        free(at);
    }
    for (uint32_t i = N_CALLS; i-- > 0;) RIG_OK(rank, tutti_work_finish(works[i]));
    for (uint32_t i = 0; i < N_CALLS; i++)
        for (size_t k = 0; k < 1 + i % 300 && i % 50 != 49; k++)
            RIG_CHECK(rank, data[i * 300 + k] == rig_total(rank->n), "call %u [%zu] is %d", i, k, data[i * 300 + k]);
    struct tutti_engine_stats stats;
    tutti_engine_stats(rank->engine, &stats);
    RIG_CHECK(rank, stats.calls_started == N_CALLS && stats.calls_completed == N_CALLS, "%" PRIu64 " of %" PRIu64,
              stats.calls_completed, stats.calls_started);
    tutti_cache_destroy(cache);
    free(works);
    free(data);
}

static void test_thousand(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = thousand};
    rig_run(&rig);
}

/* ---- a root that is far ahead is held back by credits, not by errors ---- */
static void ahead(struct rig_rank *rank)
{
    enum { N = 100 };
    int32_t data[N][4] = {{0}};
    struct tutti_work *works[N];
    struct tutti_cache *cache;
    struct tutti_engine_stats stats;

    RIG_OK(rank, tutti_cache_create(8, &cache));
    if (rank->me == 1) pthread_barrier_wait(&rank->rig->barrier);
    for (int32_t i = 0; i < N; i++) {
        for (int32_t k = 0; k < 4 && rank->me == 0; k++) data[i][k] = i * 4 + k;
        struct rig_call call = {.kind = TUTTI_BROADCAST,
                                .dtype = TUTTI_INT32,
                                .op = -1,
                                .count = 4,
                                .input = rank->me == 0 ? data[i] : NULL,
                                .output = data[i],
                                .cache = cache};
        RIG_OK(rank, rig_start(rank, rank->team, &call, true, &works[i]));
        if (rank->me == 1 && i == 0) tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    }
    if (rank->me == 0) pthread_barrier_wait(&rank->rig->barrier); /* all are begun before rank 1 begins one */
    for (int32_t i = 0; i < N; i++) {
        RIG_OK(rank, tutti_work_finish(works[i]));
        for (int32_t k = 0; k < 4; k++) RIG_CHECK(rank, data[i][k] == i * 4 + k, "broadcast %d [%d]", i, k);
    }
    tutti_engine_stats(rank->engine, &stats);
    if (rank->me == 1) RIG_CHECK(rank, stats.held > 0, "nothing was held");
    tutti_cache_destroy(cache);
}

static void test_ahead(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = ahead};
    rig_run(&rig);
}

/* ---- peers create a communicator and call before this rank has created it: it hears of that on another one ---- */
static void stray(struct rig_rank *rank)
{
    struct tutti_engine_stats before, after;
    struct tutti_work *works[4], *hint;
    int32_t *data = calloc(3000, sizeof(*data)), x = 0, go = 0;

    for (uint64_t round = 1; round <= 4; round++) {
        struct tutti_team *team = NULL;
        struct rig_call call = rig_sum(data, round % 2 ? 3000 : 30, NULL);
        for (size_t i = 0; i < 3000; i++) data[i] = (int32_t)(rank->me + 1);
        if (rank->me != 0) {
            team = rig_team(rank, RIG_TEAM + round, (uint32_t)round);
            RIG_OK(rank, tutti_engine_send(
                             team, &(struct tutti_p2p_message_info){.send = &rank->me, .bytes = 4, .peer = 0, .tag = 1},
                             true, &works[1]));
            RIG_OK(rank, rig_start(rank, team, &call, true, &works[0]));
            tutti_sleep_ns(5 * TUTTI_NS_PER_MS);
            RIG_OK(rank, tutti_engine_send(
                             rank->team, &(struct tutti_p2p_message_info){.send = &go, .bytes = 4, .peer = 0, .tag = 0},
                             false, &hint));
            RIG_OK(rank, tutti_work_finish(hint));
        } else {
            tutti_engine_stats(rank->engine, &before);
            for (uint32_t i = 1; i < rank->n; i++) {
                RIG_OK(rank, tutti_engine_recv(rank->team,
                                               &(struct tutti_p2p_message_info){
                                                   .recv = &go, .bytes = 4, .peer = (int32_t)i, .tag = 0},
                                               false, &hint));
                RIG_OK(rank, tutti_work_finish(hint));
            }
            tutti_engine_stats(rank->engine, &after);
            RIG_CHECK(rank, after.packets_received >= before.packets_received + 2 * (rank->n - 1),
                      "nothing came early");
            team = rig_team(rank, RIG_TEAM + round, (uint32_t)round);
            RIG_OK(rank, rig_start(rank, team, &call, true, &works[0]));
            for (uint32_t i = 1; i < rank->n; i++) {
                RIG_OK(rank,
                       tutti_engine_recv(
                           team, &(struct tutti_p2p_message_info){.recv = &x, .bytes = 4, .peer = (int32_t)i, .tag = 1},
                           false, &hint));
                RIG_OK(rank, tutti_work_finish(hint));
                RIG_CHECK(rank, x == (int32_t)i, "%d from rank %u", x, i);
            }
        }
        RIG_OK(rank, tutti_work_finish(works[0]));
        if (rank->me != 0) RIG_OK(rank, tutti_work_finish(works[1]));
        for (size_t i = 0; i < call.count; i++)
            RIG_CHECK(rank, data[i] == rig_total(rank->n), "[%zu] is %d", i, data[i]);
        tutti_team_destroy(team);
        tutti_schedule_destroy(call.schedule);
    }
    free(data);
}

static void test_stray(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = stray};
    rig_run(&rig);
}

/* ---- a transport that repeats and delays ---- */
static void disordered(struct rig_rank *rank)
{
    struct tutti_cache *cache;
    int32_t *data = calloc(30000, sizeof(*data));

    RIG_OK(rank, tutti_cache_create(8, &cache));
    for (int round = 0; round < 60 && !rank->wrong[0]; round++) {
        size_t count = round % 3 == 0 ? 30000 : round % 3 == 1 ? 2000 : 20;
        for (size_t i = 0; i < count; i++) data[i] = (int32_t)(rank->me + 1);
        struct rig_call call = rig_sum(data, count, cache);
        RIG_OK(rank, rig_call(rank, rank->team, &call));
        for (size_t i = 0; i < count; i++)
            RIG_CHECK(rank, data[i] == rig_total(rank->n), "round %d [%zu] is %d", round, i, data[i]);
    }
    tutti_cache_destroy(cache);
    free(data);
}

static void test_disordered(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 4; seed++) {
        char fault[64];
        snprintf(fault, sizeof(fault), "seed=%d,duplicate=0.1,delay=0.05:1ms", seed);
        struct rig rig = {.n = 3,
                          .main = disordered,
                          .decorators = "fault",
                          .fault = fault,
                          .slice_bytes = seed % 2 ? 1 << 17 : 4096,
                          .zero_copy_bytes = seed == 3 ? 4096 : SIZE_MAX};
        rig_run(&rig);
    }
}

/* ---- steady state allocates nothing, neither the start nor the progress ---- */
static void frugal(struct rig_rank *rank)
{
    enum tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL, TUTTI_EXSCAN};
    int32_t in[4000] = {0}, out[4000];
    struct tutti_cache *cache;

    RIG_OK(rank, tutti_cache_create(16, &cache));
    for (int round = 0; round < 40; round++) {
        struct rig_call call = {.kind = kinds[round % 5],
                                .dtype = TUTTI_INT32,
                                .op = kinds[round % 5] == TUTTI_ALL_TO_ALL ? -1 : TUTTI_SUM,
                                .count = round % 2 ? 1000 : 10,
                                .input = in,
                                .output = out,
                                .cache = cache};
        if (round == 20) tutti_alloc_fail_at(0);
        RIG_OK(rank, rig_call(rank, rank->team, &call));
    }
    RIG_CHECK(rank, tutti_alloc_fail_at(0) == 0, "something was allocated");
    tutti_cache_destroy(cache);
}

static void test_frugal(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = frugal};
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thousand),   cmocka_unit_test(test_ahead),  cmocka_unit_test(test_stray),
        cmocka_unit_test(test_disordered), cmocka_unit_test(test_frugal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
