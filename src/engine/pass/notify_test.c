/* SPDX-License-Identifier: BSD-3-Clause */

/* Notices: once each, in the order of completion, of single and joined works, asked for before, after and while the
 * call ends; on a thread of their own, which may block, free and start calls; after failures; without memory. */

#include "engine/pass/rig_test.h"
#include "engine/team/team.h"

#define LONG_NS (20 * TUTTI_NS_PER_S)

struct journal { /* what functions leave behind */
    _Atomic uint32_t n;
    uint32_t of[4096];
};
struct entry {
    struct journal *journal;
    uint32_t number;
};

static void note(void *arg)
{
    const struct entry *entry = arg;
    uint32_t n = atomic_load(&entry->journal->n); /* one thread writes */
    entry->journal->of[n] = entry->number;
    atomic_store(&entry->journal->n, n + 1);
}

static void count(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

/* True once *n is at least `least`. */
static bool reaches(_Atomic uint32_t *n, uint32_t least)
{
    uint64_t deadline = tutti_deadline_ns(LONG_NS);
    while (atomic_load(n) < least && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS / 20);
    return atomic_load(n) >= least;
}

static struct rig_call sum_call(int32_t *data, size_t count, struct tutti_cache *cache)
{
    return (struct rig_call){.kind = TUTTI_ALL_REDUCE,
                             .dtype = TUTTI_INT32,
                             .op = TUTTI_SUM,
                             .count = count,
                             .input = data,
                             .output = data,
                             .cache = cache};
}

/* ---- the order of completion: receives that end in an order that the sender draws ---- */
static void order(struct rig_rank *rank)
{
    enum { N = 400, TWICE = 7 };
    static struct entry entries[N + N / TWICE + 1];
    static struct tutti_work *works[N];
    static uint32_t received[N];
    static struct journal journal; /* all of rank 0 */

    if (rank->me == 1) {
        uint32_t shuffled[N];
        struct tutti_work *work = NULL;
        for (uint32_t i = 0; i < N; i++) shuffled[i] = i;
        for (uint32_t i = N; i-- > 1;) {
            uint32_t k = (uint32_t)(tutti_random64(&rank->random) % (i + 1)), swap = shuffled[i];
            shuffled[i] = shuffled[k], shuffled[k] = swap;
        }
        pthread_barrier_wait(&rank->rig->barrier); /* all have asked */
        for (uint32_t i = 0; i < N; i++) {
            RIG_OK(rank,
                   tutti_engine_send(rank->team,
                                     &(struct tutti_p2p_message_info){
                                         .send = &shuffled[i], .bytes = 4, .peer = 0, .tag = (int32_t)shuffled[i]},
                                     i % 3 != 0, &work));
            RIG_OK(rank, tutti_work_finish(work));
        }
        return;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < N; i++) {
        RIG_OK(rank, tutti_engine_recv(rank->team,
                                       &(struct tutti_p2p_message_info){
                                           .recv = &received[i], .bytes = 4, .peer = 1, .tag = (int32_t)i},
                                       true, &works[i]));
        for (uint32_t k = 0; k < (i % TWICE ? 1 : 2); k++, n++) {
            entries[n] = (struct entry){&journal, i};
            RIG_OK(rank, tutti_work_notify(works[i], note, &entries[n]));
        }
    }
    RIG_CHECK(rank, atomic_load(&journal.n) == 0, "%u functions were called early", journal.n);
    pthread_barrier_wait(&rank->rig->barrier);
    RIG_CHECK(rank, reaches(&journal.n, n), "%u of %u", journal.n, n);
    uint64_t last_ns = 0;
    uint32_t calls[N] = {0};
    for (uint32_t i = 0; i < journal.n; i++) {
        uint32_t k = journal.of[i];
        calls[k]++;
        RIG_CHECK(rank, works[k]->end_ns >= last_ns, "function %u, of receive %u, came too late", i, k);
        RIG_CHECK(rank, received[k] == k, "receive %u got %u", k, received[k]);
        last_ns = works[k]->end_ns;
    }
    for (uint32_t i = 0; i < N; i++) {
        RIG_CHECK(rank, calls[i] == (i % TWICE ? 1 : 2), "receive %u: %u", i, calls[i]);
        RIG_OK(rank, tutti_work_finish(works[i]));
    }
}

static void test_order(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = order};
    rig_run(&rig);
}

/* ---- requests for what is complete come in their own order, after those that were due before ---- */
static void complete_ones(struct rig_rank *rank)
{
    enum { N = 50 };
    struct journal *journal = calloc(1, sizeof(*journal));
    struct entry entries[N];
    struct tutti_work *work = NULL;
    int32_t x = 1;
    struct rig_call call = sum_call(&x, 1, NULL);

    RIG_OK(rank, rig_start(rank, rank->team, &call, rank->me == 0, &work));
    RIG_OK(rank, tutti_work_wait(work, 0));
    for (uint32_t i = 0; i < N; i++) {
        entries[i] = (struct entry){journal, i};
        RIG_OK(rank, tutti_work_notify(work, note, &entries[i]));
    }
    tutti_work_free(work);
    RIG_CHECK(rank, reaches(&journal->n, N), "%u of %u", journal->n, N);
    for (uint32_t i = 0; i < N; i++) RIG_CHECK(rank, journal->of[i] == i, "%u at %u", journal->of[i], i);
    tutti_schedule_destroy(call.schedule);
    free(journal);
}

static void test_complete(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = complete_ones};
    rig_run(&rig);
}

/* ---- joined works: with the last part, whichever that is; joins of joins; of nothing ---- */
struct joined {
    struct tutti_work *work;
    enum tutti_status at; /* what the function saw */
    _Atomic uint32_t calls;
};

static void look(void *arg)
{
    struct joined *joined = arg;
    joined->at = tutti_work_test(joined->work);
    atomic_fetch_add(&joined->calls, 1);
}

static void joins(struct rig_rank *rank)
{
    enum { N = 3 };
    uint32_t x[4] = {0}, parting = 9;

    for (int32_t last = 0; last < N; last++) { /* the part that ends last */
        struct tutti_work *part;
        if (rank->me == 1) {
            pthread_barrier_wait(&rank->rig->barrier);
            for (int32_t i = 1; i <= N; i++) {
                if (i == N) pthread_barrier_wait(&rank->rig->barrier);
                RIG_OK(rank, tutti_engine_send(rank->team,
                                               &(struct tutti_p2p_message_info){
                                                   .send = &parting, .bytes = 4, .peer = 0, .tag = (last + i) % N},
                                               false, &part));
                RIG_OK(rank, tutti_work_finish(part));
            }
            continue;
        }
        struct tutti_work *parts[N], *none;
        struct joined joined = {.at = TUTTI_ERR_INTERNAL};
        _Atomic uint32_t empty = 0;
        for (int32_t i = 0; i < N; i++)
            RIG_OK(rank,
                   tutti_engine_recv(rank->team,
                                     &(struct tutti_p2p_message_info){.recv = &x[i], .bytes = 4, .peer = 1, .tag = i},
                                     true, &parts[i]));
        RIG_OK(rank, tutti_work_join(rank->engine, parts, 2, &parts[0]));
        parts[1] = parts[2];
        RIG_OK(rank, tutti_work_join(rank->engine, parts, 2, &joined.work));
        RIG_OK(rank, tutti_work_join(rank->engine, NULL, 0, &none));
        RIG_OK(rank, tutti_work_notify(joined.work, look, &joined));
        RIG_OK(rank, tutti_work_notify(none, count, &empty));
        tutti_work_free(none);
        pthread_barrier_wait(&rank->rig->barrier);
        RIG_CHECK(rank, reaches(&empty, 1), "an empty work does not notify");
        tutti_sleep_ns(2 * TUTTI_NS_PER_MS);
        RIG_CHECK(rank, atomic_load(&joined.calls) == 0, "called with part %d in progress", last);
        pthread_barrier_wait(&rank->rig->barrier);
        RIG_CHECK(rank, reaches(&joined.calls, 1), "never called, last part %d", last);
        RIG_CHECK(rank, joined.at == TUTTI_OK, "%s", tutti_status_name(joined.at));
        RIG_OK(rank, tutti_work_finish(joined.work));
    }
}

static void test_joins(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = joins};
    rig_run(&rig);
}

/* ---- several threads ask while the call ends, and the handle is freed at once ---- */
#define ASKERS 3
struct asker {
    struct rig_rank *rank;
    pthread_barrier_t *round;
    struct tutti_work **work;
    _Atomic uint32_t *calls;
};
#define ROUNDS 300

static void *asker_main(void *arg)
{
    struct asker *asker = arg;
    uint64_t random = (uint64_t)(uintptr_t)arg;

    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(asker->round);
        for (uint64_t k = tutti_random64(&random) % 2000; k > 0; k--) tutti_cpu_relax();
        RIG_OK(asker->rank, tutti_work_notify(*asker->work, count, asker->calls));
        pthread_barrier_wait(asker->round);
    }
    return NULL;
}

static void races(struct rig_rank *rank)
{
    struct tutti_work *work = NULL;
    pthread_barrier_t round;
    pthread_t threads[ASKERS];
    _Atomic uint32_t calls = 0, own = 0;
    struct asker asker = {rank, &round, &work, &calls};
    struct tutti_cache *cache;
    int32_t data[60];

    RIG_OK(rank, tutti_cache_create(8, &cache));
    pthread_barrier_init(&round, NULL, ASKERS + 1);
    for (int i = 0; i < ASKERS; i++) pthread_create(&threads[i], NULL, asker_main, &asker);
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 60; k++) data[k] = (int32_t)rank->me;
        struct rig_call call = sum_call(data, 60, cache);
        RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
        pthread_barrier_wait(&round);
        RIG_OK(rank, tutti_work_notify(work, count, &own));
        if (i % 2) RIG_OK(rank, tutti_work_wait(work, 0));
        pthread_barrier_wait(&round);
        tutti_work_free(work);
        if (i % 2 == 0) RIG_CHECK(rank, reaches(&own, (uint32_t)i + 1), "round %d", i);
    }
    for (int i = 0; i < ASKERS; i++) pthread_join(threads[i], NULL);
    RIG_CHECK(rank, reaches(&calls, ASKERS * ROUNDS), "%u", calls);
    RIG_CHECK(rank, reaches(&own, ROUNDS), "%u", own);
    tutti_sleep_ns(TUTTI_NS_PER_MS);
    RIG_CHECK(rank, atomic_load(&calls) == ASKERS * ROUNDS && atomic_load(&own) == ROUNDS, "%u, %u", calls, own);
    pthread_barrier_destroy(&round);
    tutti_cache_destroy(cache);
}

static void test_races(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = races};
    rig_run(&rig);
}

/* ---- a function that blocks holds up nothing but the functions behind it ---- */
struct gate {
    _Atomic uint32_t entered, open;
};

static void block(void *arg)
{
    struct gate *gate = arg;
    atomic_store(&gate->entered, 1);
    reaches(&gate->open, 1);
}

static void blocked(struct rig_rank *rank)
{
    struct gate gate = {0};
    _Atomic uint32_t behind = 0;
    struct tutti_work *work = NULL;
    struct tutti_cache *cache;
    int32_t x = 0;

    RIG_OK(rank, tutti_cache_create(8, &cache));
    struct rig_call call = sum_call(&x, 1, cache);
    RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
    RIG_OK(rank, tutti_work_notify(work, block, &gate));
    RIG_OK(rank, tutti_work_notify(work, count, &behind));
    tutti_work_free(work);
    RIG_CHECK(rank, reaches(&gate.entered, 1), "never called");
    for (int i = 0; i < 200; i++) {
        x = (int32_t)rank->me;
        RIG_OK(rank, rig_start(rank, rank->team, &call, i % 2, &work));
        if (i % 10 == 0) RIG_OK(rank, tutti_work_notify(work, count, &behind));
        RIG_OK(rank, tutti_work_finish(work));
        RIG_CHECK(rank, x == 1, "sum %d is %d", i, x);
    }
    RIG_CHECK(rank, atomic_load(&behind) == 0, "a function overtook another");
    atomic_store(&gate.open, 1);
    RIG_CHECK(rank, reaches(&behind, 21), "%u of 21", behind);
    tutti_cache_destroy(cache);
}

static void test_blocked(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = blocked};
    rig_run(&rig);
}

/* ---- a chain: each function frees its work and starts the next call; nobody waits for any of them ---- */
struct chain {
    struct rig_rank *rank;
    struct tutti_work *work;
    struct rig_call call;
    pthread_t main_thread;
    _Atomic uint32_t links;
    int32_t x;
};

static void link_next(void *arg)
{
    struct chain *chain = arg;
    struct rig_rank *rank = chain->rank;

    if (chain->work) {
        RIG_CHECK(rank, !pthread_equal(pthread_self(), chain->main_thread), "on a thread of the user");
        RIG_OK(rank, tutti_work_test(chain->work));
        RIG_CHECK(rank, chain->x == 3, "link %u: sum is %d", chain->links, chain->x);
        tutti_work_free(chain->work);
    }
    if (atomic_fetch_add(&chain->links, 1) == 100) return;
    chain->x = (int32_t)rank->me + 1;
    RIG_OK(rank, rig_start(rank, rank->team, &chain->call, true, &chain->work));
    RIG_OK(rank, tutti_work_notify(chain->work, link_next, chain));
}

static void chained(struct rig_rank *rank)
{
    struct tutti_cache *cache;
    struct chain chain = {.rank = rank, .main_thread = pthread_self()};

    RIG_OK(rank, tutti_cache_create(8, &cache));
    chain.call = sum_call(&chain.x, 1, cache);
    link_next(&chain);
    RIG_CHECK(rank, reaches(&chain.links, 101), "%u of 101", chain.links);
    tutti_cache_destroy(cache);
}

static void test_chain(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = chained};
    rig_run(&rig);
}

/* ---- failures notify like success, and the function sees them ---- */
static void failing(struct rig_rank *rank)
{
    enum { N = 20 };
    uint32_t x[N];
    struct joined seen[N];
    struct tutti_error error;

    for (int32_t i = 0; i < N; i++) {
        seen[i] = (struct joined){.at = TUTTI_OK};
        RIG_OK(rank, tutti_engine_recv(rank->team,
                                       &(struct tutti_p2p_message_info){
                                           .recv = &x[i], .bytes = 4, .peer = 1 - (int32_t)rank->me, .tag = i},
                                       true, &seen[i].work));
        if (i % 2) RIG_OK(rank, tutti_work_join(rank->engine, &seen[i].work, 1, &seen[i].work));
        RIG_OK(rank, tutti_work_notify(seen[i].work, look, &seen[i]));
    }
    pthread_barrier_wait(&rank->rig->barrier);
    tutti_error_set(&error, TUTTI_ERR_ABORTED, "enough");
    if (rank->me == 0) tutti_team_fail(rank->team, &error, true);
    for (int32_t i = 0; i < N; i++) {
        RIG_CHECK(rank, reaches(&seen[i].calls, 1), "receive %d", i);
        RIG_CHECK(rank, seen[i].at == TUTTI_ERR_ABORTED, "receive %d: %s", i, tutti_status_name(seen[i].at));
        tutti_work_free(seen[i].work);
    }
}

static void late(struct rig_rank *rank)
{
    struct joined seen = {.at = TUTTI_OK};
    uint32_t x;

    if (rank->me == 0) {
        RIG_OK(rank,
               tutti_engine_recv(rank->team,
                                 &(struct tutti_p2p_message_info){
                                     .recv = &x, .bytes = 4, .peer = 1, .tag = 0, .timeout_ns = 50 * TUTTI_NS_PER_MS},
                                 true, &seen.work));
        RIG_OK(rank, tutti_work_notify(seen.work, look, &seen));
        RIG_CHECK(rank, reaches(&seen.calls, 1), "never called");
        RIG_CHECK(rank, seen.at == TUTTI_ERR_TIMEOUT, "%s", tutti_status_name(seen.at));
        tutti_work_free(seen.work);
    }
    pthread_barrier_wait(&rank->rig->barrier);
}

static void test_failures(void **state)
{
    (void)state;
    struct rig aborted = {.n = 2, .main = failing}, overdue = {.n = 2, .main = late};
    rig_run(&aborted);
    rig_run(&overdue);
}

/* ---- what is refused is never called ---- */
static void refused(struct rig_rank *rank)
{
    _Atomic uint32_t calls = 0, other = 0;
    struct tutti_work *work = NULL;
    int32_t x = 0;
    struct rig_call call = sum_call(&x, 1, NULL);

    RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
    RIG_CHECK(rank, tutti_work_notify(NULL, count, &calls) == TUTTI_ERR_ARGUMENT, "no work");
    RIG_CHECK(rank, tutti_work_notify(work, NULL, &calls) == TUTTI_ERR_ARGUMENT, "no function");
    tutti_alloc_fail_at(1);
    RIG_CHECK(rank, tutti_work_notify(work, count, &calls) == TUTTI_ERR_MEMORY, "no memory");
    tutti_alloc_fail_at(0);
    RIG_OK(rank, tutti_work_notify(work, count, &other));
    RIG_CHECK(rank, reaches(&other, 1), "never called");
    RIG_CHECK(rank, atomic_load(&calls) == 0, "called all the same");
    RIG_OK(rank, tutti_work_finish(work));
    tutti_schedule_destroy(call.schedule);
}

static void test_refused(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = refused};
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),    cmocka_unit_test(test_complete), cmocka_unit_test(test_joins),
        cmocka_unit_test(test_races),    cmocka_unit_test(test_blocked),  cmocka_unit_test(test_chain),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
