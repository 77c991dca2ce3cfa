/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads that wait for calls, and those that make them progress: the helper, several threads of a rank, an owner that
 * sleeps for a call of its own. */

#include "engine/pass/rig_test.h"

/* ---- the helper progresses what nobody waits for ---- */
static void unwatched(struct rig_rank *rank)
{
    static int32_t data[4][50000];
    struct tutti_work *work;
    uint64_t deadline = tutti_deadline_ns(20 * TUTTI_NS_PER_S);

    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < 50000; i++) data[rank->me][i] = (int32_t)(rank->me + 1);
        struct rig_call call = rig_sum(data[rank->me], 50000, NULL);
        RIG_OK(rank, rig_start(rank, rank->team, &call, true, &work));
        while (tutti_work_test(work) == TUTTI_PENDING && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS / 5);
        RIG_OK(rank, tutti_work_finish(work));
        for (size_t i = 0; i < 50000; i++) RIG_CHECK(rank, data[rank->me][i] == rig_total(rank->n), "[%zu]", i);
        tutti_schedule_destroy(call.schedule);
        /* and a blocking call, for which the helper gives way */
        int32_t one = (int32_t)(rank->me + 1);
        call = rig_sum(&one, 1, NULL);
        RIG_OK(rank, rig_call(rank, rank->team, &call));
        RIG_CHECK(rank, one == rig_total(rank->n), "sum is %d", one);
    }
}

static void test_helper(void **state)
{
    (void)state;
    struct rig rig = {.n = 4, .main = unwatched};
    rig_run(&rig);
}

/* ---- several threads of a rank wait at once, each on a communicator of its own ---- */
struct waiter_arg {
    struct rig_rank *rank;
    struct tutti_team *team;
};

static void *waiter_main(void *arg)
{
    struct waiter_arg *w = arg;

    for (int i = 0; i < 200; i++) {
        int32_t x[100];
        for (int k = 0; k < 100; k++) x[k] = (int32_t)(w->rank->me + 1);
        struct rig_call call = rig_sum(x, 100, NULL);
        RIG_OK(w->rank, rig_call(w->rank, w->team, &call));
        for (int k = 0; k < 100; k++) RIG_CHECK(w->rank, x[k] == rig_total(w->rank->n), "call %d", i);
    }
    return NULL;
}

static void waiters(struct rig_rank *rank)
{
    enum { N = 4 };
    pthread_t threads[N];
    struct waiter_arg args[N];

    for (uint32_t i = 0; i < N; i++) args[i] = (struct waiter_arg){rank, rig_team(rank, RIG_TEAM + 1 + i, 0)};
    for (uint32_t i = 0; i < N; i++) pthread_create(&threads[i], NULL, waiter_main, &args[i]);
    for (uint32_t i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < N; i++) tutti_team_destroy(args[i].team);
}

static void test_waiters(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = waiters, .spin_ns = 20000};
    rig_run(&rig);
}

/* ---- nobody sleeps while there is something to do: the owner that sleeps for one call takes up another thread's at
 * once, and hands over when its own is complete ---- */
static void *patient_main(void *arg)
{
    struct waiter_arg *w = arg;
    struct tutti_work *work;
    uint32_t x = 0;

    RIG_OK(w->rank,
           tutti_engine_recv(w->team, &(struct tutti_p2p_message_info){.recv = &x, .bytes = 4, .peer = 1, .tag = 77},
                             false, &work));
    RIG_OK(w->rank, tutti_work_finish(work));
    RIG_CHECK(w->rank, x == 5, "got %u", x);
    return NULL;
}

static void prompt(struct rig_rank *rank)
{
    struct waiter_arg arg = {rank, rank->team};
    struct tutti_work *work;
    pthread_t thread;
    uint32_t x = 5;
    int32_t one = 1;

    if (rank->me == 0) {
        pthread_create(&thread, NULL, patient_main, &arg); /* the first to own, and asleep from then on */
        tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    }
    uint32_t n_late = 0;
    for (int i = 0; i < 30; i++) {
        uint64_t start = tutti_now_ns();
        struct rig_call call = rig_sum(&one, 1, NULL);
        RIG_OK(rank, rig_call(rank, rank->team, &call));
        n_late += tutti_now_ns() - start > 50 * TUTTI_NS_PER_MS;
    }
    /* Each call would last until the owner's next look at the clock, a tenth of a second. */
    RIG_CHECK(rank, n_late < 15, "%u calls took long", n_late);
    if (rank->me == 1) {
        RIG_OK(rank, tutti_engine_send(rank->team,
                                       &(struct tutti_p2p_message_info){.send = &x, .bytes = 4, .peer = 0, .tag = 77},
                                       false, &work));
        RIG_OK(rank, tutti_work_finish(work));
    } else {
        pthread_join(thread, NULL);
    }
}

static void test_prompt(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = prompt};
    rig_run(&rig);
}

/* A thread owns for a short call while another waits for a long one: who leaves hands over. */
static void *short_main(void *arg)
{
    struct waiter_arg *w = arg;
    struct tutti_work *work;
    uint32_t x;

    RIG_OK(w->rank,
           tutti_engine_recv(w->team, &(struct tutti_p2p_message_info){.recv = &x, .bytes = 4, .peer = 1, .tag = 1},
                             false, &work));
    RIG_OK(w->rank, tutti_work_finish(work));
    return NULL;
}

static void handed(struct rig_rank *rank)
{
    struct waiter_arg arg = {rank, rank->team};
    struct tutti_work *work;
    uint32_t n_late = 0;

    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        uint64_t x = 0;
        pthread_barrier_wait(&rank->rig->barrier);
        if (rank->me == 0) {
            pthread_create(&thread, NULL, short_main, &arg);
            tutti_sleep_ns(3 * TUTTI_NS_PER_MS); /* it owns */
            RIG_OK(rank, tutti_engine_recv(
                             rank->team, &(struct tutti_p2p_message_info){.recv = &x, .bytes = 8, .peer = 1, .tag = 2},
                             false, &work));
            RIG_OK(rank, tutti_work_finish(work));
            n_late += tutti_now_ns() - x > 500 * TUTTI_NS_PER_MS;
            pthread_join(thread, NULL);
        } else {
            for (int32_t tag = 1; tag <= 2; tag++) {
                tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
                x = tutti_now_ns();
                RIG_OK(rank, tutti_engine_send(rank->team,
                                               &(struct tutti_p2p_message_info){
                                                   .send = &x, .bytes = tag == 1 ? 4 : 8, .peer = 0, .tag = tag},
                                               false, &work));
                RIG_OK(rank, tutti_work_finish(work));
            }
        }
    }
    RIG_CHECK(rank, n_late < 5, "%u calls took long", n_late);
}

static void test_handed(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = handed};
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_helper),
        cmocka_unit_test(test_waiters),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_handed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
