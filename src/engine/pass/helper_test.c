/* SPDX-License-Identifier: BSD-3-Clause */

/* The helper: callers that wait at once do not wake it, a call that is left alone is taken up all the same, callers
 * that are late pass for prompt ones only after they have been for a while, and it sleeps when there is nothing to do.
 */

#include "engine/pass/rig_test.h"
#include "engine/team/team.h"

#include <sched.h>

#define LONG_NS (20 * TUTTI_NS_PER_S)

static struct rig_call sum_call(int32_t *data, size_t count, struct tutti_cache *cache)
{
    for (size_t i = 0; i < count; i++) data[i] = 1;
    return (struct rig_call){.kind = TUTTI_ALL_REDUCE,
                             .dtype = TUTTI_INT32,
                             .op = TUTTI_SUM,
                             .count = count,
                             .input = data,
                             .output = data,
                             .cache = cache};
}

/* Starts a sum of ones and waits at once. */
static void sum_at_once(struct rig_rank *rank, struct tutti_cache *cache)
{
    struct tutti_work *work = NULL;
    int32_t x;
    struct rig_call call = sum_call(&x, 1, cache);

    RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
    RIG_OK(rank, tutti_work_wait(work, 0));
    RIG_CHECK(rank, x == (int32_t)rank->n, "sum is %d", x);
    tutti_work_free(work);
}

/* Every rank gets here before one goes on, and the helper has no part in it. */
static void meet(struct rig_rank *rank)
{
    pthread_barrier_wait(&rank->rig->barrier);
}

/* Whether the next call relies on naps: its caller passes for prompt, and the helper is not asleep. */
static bool relied_on(struct tutti_helper *helper)
{
    return atomic_load(&helper->prompt) && atomic_load(&helper->naps);
}

/* ---- prompt callers do not wake it, and it sleeps when they stop ---- */
static void prompt(struct rig_rank *rank)
{
    enum { N = 2000 };
    struct tutti_helper *helper = &rank->engine->owner->helper;
    struct tutti_cache *cache;

    RIG_OK(rank, tutti_cache_create(8, &cache));
    uint32_t calls = 0, wakes = 0;
    for (int i = 0; i < N; i++) {
        uint32_t before = atomic_load(&helper->word);
        bool relied = relied_on(helper);
        sum_at_once(rank, cache);
        if (!relied || !relied_on(helper)) continue; /* where the scheduler makes callers late */
        calls++;
        wakes += atomic_load(&helper->word) != before;
    }
    /* It may have fallen asleep during a call, and been woken for it. */
    RIG_CHECK(rank, wakes <= 4 + calls / 10, "%u wakes for %u calls", wakes, calls);
    uint64_t deadline = tutti_deadline_ns(LONG_NS);
    while ((atomic_load(&helper->naps) || !atomic_load(&helper->sleeps)) && tutti_now_ns() < deadline)
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    RIG_CHECK(rank, !atomic_load(&helper->naps) && atomic_load(&helper->sleeps), "it still naps");
    meet(rank);
    sum_at_once(rank, cache); /* and wakes up again */
    tutti_cache_destroy(cache);
}

static void test_prompt(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = prompt, .spin_ns = 20000};
    rig_run(&rig);
}

/* ---- a call that is left alone ends, whatever callers did before; nobody touches the engine meanwhile ---- */
static void leave_alone(struct rig_rank *rank, struct tutti_cache *cache, size_t count)
{
    int32_t *data = malloc(count * sizeof(*data));
    struct tutti_work *work = NULL;
    struct rig_call call = sum_call(data, count, cache);
    uint64_t deadline = tutti_deadline_ns(LONG_NS);

    RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
    while (!atomic_load(&work->done) && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS / 10);
    RIG_CHECK(rank, atomic_load(&work->done), "%zu elements were left alone", count);
    RIG_OK(rank, tutti_work_finish(work));
    for (size_t i = 0; i < count; i++) RIG_CHECK(rank, data[i] == (int32_t)rank->n, "[%zu] is %d", i, data[i]);
    free(data);
}

static void alone(struct rig_rank *rank)
{
    static const size_t counts[] = {1, 1000, 100000};
    struct tutti_cache *cache;

    RIG_OK(rank, tutti_cache_create(8, &cache));
    for (uint32_t turn = 0; turn < 12; turn++) {
        for (uint32_t i = 0; i < turn * 5; i++) sum_at_once(rank, cache);
        if (turn % 3 == 0) tutti_sleep_ns(4 * TUTTI_NS_PER_MS); /* it sleeps, or nearly so */
        if (turn % 4 == rank->me) tutti_sleep_ns(TUTTI_NS_PER_MS);
        leave_alone(rank, cache, counts[turn % TUTTI_ARRAY_LEN(counts)]);
    }
    tutti_cache_destroy(cache);
}

static void test_alone(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++) {
        struct rig rig = {.n = n, .main = alone, .spin_ns = n == 2 ? 20000 : 0};
        rig_run(&rig);
    }
}

/* ---- nor does one end less surely where all compute on the CPU that the helper has ---- */
static void compute_until(const _Atomic uint32_t *done, uint64_t deadline_ns)
{
    while (!atomic_load(done) && tutti_now_ns() < deadline_ns)
        for (volatile int i = 0; i < 100000; i++) {
        }
}

/* This thread, and those that it starts. */
static void use_one_cpu(void)
{
    cpu_set_t cpus, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return;
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &cpus)) CPU_SET(i, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void crowded(struct rig_rank *rank)
{
    enum { N = 1 << 20 };
    int32_t *data = malloc(N * sizeof(*data));
    struct tutti_cache *cache;
    struct tutti_work *work = NULL;

    RIG_OK(rank, tutti_cache_create(8, &cache));
    use_one_cpu();
    for (int i = 0; i < 3; i++) {
        struct rig_call call = sum_call(data, N, cache);
        RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
        compute_until(&work->done, tutti_deadline_ns(LONG_NS));
        RIG_CHECK(rank, atomic_load(&work->done), "it was left alone");
        RIG_OK(rank, tutti_work_finish(work));
        for (size_t k = 0; k < N; k++) RIG_CHECK(rank, data[k] == (int32_t)rank->n, "[%zu] is %d", k, data[k]);
    }
    tutti_cache_destroy(cache);
    free(data);
}

static void test_crowded(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = crowded, .spin_ns = 20000};
    rig_run(&rig);
}

/* ---- who is late is not prompt, until he is again ---- */
static void late(struct rig_rank *rank)
{
    struct tutti_helper *helper = &rank->engine->owner->helper;
    struct tutti_cache *cache;
    struct tutti_work *work = NULL;
    int32_t x = 0;

    RIG_OK(rank, tutti_cache_create(8, &cache));
    RIG_CHECK(rank, atomic_load(&helper->prompt), "not prompt from the beginning");
    for (int i = 0; i < 20; i++) sum_at_once(rank, cache);
    meet(rank);
    for (int i = 0; i < 6; i++) { /* what rank 0 starts can not end before it is late */
        if (rank->me == 1) meet(rank);
        struct rig_call call = sum_call(&x, 1, cache);
        RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
        if (rank->me == 0) tutti_sleep_ns(TUTTI_NS_PER_MS);
        if (rank->me == 0) meet(rank);
        RIG_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
    }
    if (rank->me == 0) RIG_CHECK(rank, !atomic_load(&helper->prompt), "late callers pass for prompt ones");
    int32_t missing = 1; /* ranks that are not prompt */
    for (int turn = 0; turn < 2000 && missing > 0 && !rank->wrong[0]; turn++) {
        for (int i = 0; i < 20; i++) sum_at_once(rank, cache);
        struct rig_call call = sum_call(&missing, 1, cache);
        missing = !atomic_load(&helper->prompt);
        RIG_OK(rank, rig_call(rank, rank->team, &call));
    }
    RIG_CHECK(rank, missing == 0, "%d are never prompt again", missing);
    tutti_cache_destroy(cache);
}

static void test_late(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = late, .spin_ns = 20000};
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prompt), cmocka_unit_test(test_alone),
                                       cmocka_unit_test(test_crowded), cmocka_unit_test(test_late)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
