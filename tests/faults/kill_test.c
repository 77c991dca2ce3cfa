/* SPDX-License-Identifier: BSD-3-Clause */
/* SIGKILLs at random instants of random collectives. Every survivor must return within a second of the
 * death, but for the few that a busy machine keeps waiting, with a sentence that names the dead rank; every fourth time
 * the survivors go on in a smaller communicator. */

#include "test.h"

#include "base/base.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { KILLS = 30, RANKS = 4, ELEMENTS = 30000 };
#define LATE_NS UINT64_C(1000000000)
#define LIMIT_NS UINT64_C(10000000000) /* for those that are late; far from the communicator's timeout */

/* What the processes share. */
struct record {
    _Atomic uint64_t death_ns;
    _Atomic uint32_t n_told, n_late; /* survivors; of them after more than a second */
};
struct plan {
    uint64_t seed, delay_ns;
    int32_t victim;
    bool shrink; /* the survivors go on */
    bool leads;  /* the victim is the first at the meeting */
    struct record *record;
};

static void *die(void *arg)
{
    const struct plan *plan = arg;
    nanosleep(&(struct timespec){.tv_nsec = (long)plan->delay_ns}, NULL);
    atomic_store(&plan->record->death_ns, tutti_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

/* For how long the caller, a survivor, was not told. */
static uint64_t told_after_ns(struct record *record)
{
    uint64_t ns = tutti_now_ns() - atomic_load(&record->death_ns);
    atomic_fetch_add(&record->n_told, 1);
    if (ns > LATE_NS) atomic_fetch_add(&record->n_late, 1);
    return ns;
}

static struct record *record_open(void)
{
    struct record *record = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(record != MAP_FAILED);
    return record;
}

/* At most one in `share` was told late. */
static void record_close(struct record *record, uint32_t share)
{
    uint32_t n_told = atomic_load(&record->n_told), n_late = atomic_load(&record->n_late);
    munmap(record, sizeof *record);
    if (n_told == 0 || n_late > n_told / share) fail_msg("%u of %u survivors were told late", n_late, n_told);
}

/* The same sequence of calls on every rank, until one fails. */
static enum tutti_status random_call(struct tutti_comm *comm, uint64_t *random, float *a, float *b)
{
    uint64_t draw = *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    size_t n = (size_t)(draw >> 33) % (draw >> 60 ? 300 : ELEMENTS / RANKS), root = (size_t)(draw >> 40) % RANKS;
    struct tutti_work *work = NULL;
    enum tutti_status status;
    switch ((draw >> 20) % 10) {
    case 0:
        return tutti_all_reduce(a, b, n, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, NULL);
    case 1:
        return tutti_broadcast(a, n, TUTTI_FLOAT32, (int32_t)root, comm, NULL, NULL);
    case 2:
        return tutti_all_gather(a, b, n, TUTTI_FLOAT32, comm, NULL, NULL);
    case 3:
        return tutti_reduce_scatter(a, b, n, TUTTI_FLOAT32, TUTTI_MAX, comm, NULL, NULL);
    case 4:
        return tutti_all_to_all(a, b, n, TUTTI_FLOAT32, comm, NULL, NULL);
    case 5:
        return tutti_barrier(comm, NULL, NULL);
    case 6:
        return tutti_scan(a, b, n, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, NULL);
    case 7:
        return tutti_gather(a, b, n, TUTTI_FLOAT32, (int32_t)root, comm, NULL, NULL);
    case 8:
        status = tutti_all_reduce(a, b, n, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &work);
        if (status < 0) return status;
        status = tutti_work_wait(work, 0);
        tutti_work_free(work);
        return status;
    default: {
        int32_t me = tutti_comm_rank(comm), right = (me + 1) % RANKS, left = (me + RANKS - 1) % RANKS;
        return tutti_sendrecv(a, n, right, 1, b, n, left, 1, TUTTI_FLOAT32, comm, NULL, NULL, NULL);
    }
    }
}

static void go_on(struct rank *rank, const struct plan *plan)
{
    struct tutti_comm *survivors = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &plan->victim, 1, &survivors));
    int64_t one = 1, sum = 0;
    enum tutti_status status = tutti_all_reduce(&one, &sum, 1, TUTTI_INT64, TUTTI_SUM, survivors, NULL, NULL);
    tutti_comm_destroy(survivors);
    RANK_CHECK_OK(rank, status);
    RANK_CHECK(rank, sum == RANKS - 1);
}

static void live_until_a_death(struct rank *rank)
{
    struct plan *plan = rank->arg;
    static float a[ELEMENTS], b[ELEMENTS];
    uint64_t random = plan->seed;
    pthread_t killer;
    enum tutti_status status = tutti_barrier(rank->comm, NULL, NULL); /* the victim may be through with it, and dead */
    if (rank->index == plan->victim) RANK_CHECK(rank, pthread_create(&killer, NULL, die, plan) == 0);
    while (status == TUTTI_OK) status = random_call(rank->comm, &random, a, b);
    uint64_t late_ns = told_after_ns(plan->record);
    struct tutti_error error = *tutti_last_error();
    char name[16];
    snprintf(name, sizeof name, "rank %d", plan->victim);
    RANK_CHECK(rank, rank->index != plan->victim);
    if (status != TUTTI_ERR_PEER_DEAD || !strstr(error.text, name) || late_ns > LIMIT_NS)
        rank_fail(rank, __FILE__, __LINE__, "after the death of %s: %s after %llu ms: \"%s\"", name,
                  tutti_status_name(status), (unsigned long long)late_ns / 1000000, error.text);
    else if (plan->shrink)
        go_on(rank, plan);
}

static int n_kills = KILLS;

static void kills(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    uint64_t random = test_seed();
    struct plan plan = {.record = record_open()};
    unsigned failed = 0;
    for (int i = 0; i < n_kills; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        plan.seed = random;
        plan.victim = (int32_t)(random >> 40) % RANKS;
        plan.delay_ns = (random >> 17) % (random >> 60 < 4 ? 200000 : 20000000);
        plan.shrink = i % 4 == 0;
        struct ranks_config config = {.n = RANKS,
                                      .forked = true,
                                      .timeout_ns = UINT64_C(60000000000),
                                      .deadline_s = 30,
                                      .arg = &plan,
                                      .may_die = UINT64_C(1) << plan.victim};
        unsigned now = ranks_run(&config, live_until_a_death);
        if (now) print_message("kill %d (seed %llu) failed\n", i, (unsigned long long)plan.seed);
        failed += now;
    }
    record_close(plan.record, 20);
    assert_int_equal(failed, 0);
}

/* A rank that dies before its peers ever created a communicator is missed by name. */
static void die_before(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    if (rank->index == 1) kill(getpid(), SIGKILL);
    config.rank = rank->index, config.n_ranks = rank->n, config.name = rank->name;
    config.timeout_ns = UINT64_C(700000000);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "rank 1", tutti_comm_create(rank->context, &config, &rank->comm));
}

static void dead_before_creation(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    struct ranks_config config = {.n = 3, .forked = true, .no_comm = true, .may_die = 2, .deadline_s = 10};
    assert_int_equal(ranks_run(&config, die_before), 0);
}

/* Rank 2 never comes, and the victim dies while the others wait for it: the first to come, who leads the meeting, or a
 * later one. */
static void die_among_waiting(struct rank *rank)
{
    struct plan *plan = rank->arg;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    bool victim = rank->index == plan->victim;
    char name[16];
    pthread_t killer;
    snprintf(name, sizeof name, "rank %d ", plan->victim);
    if (rank->index == 2) return;
    if (victim != plan->leads) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    if (victim) RANK_CHECK(rank, pthread_create(&killer, NULL, die, plan) == 0);
    config.rank = rank->index, config.n_ranks = rank->n, config.name = rank->name;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_DEAD, name, tutti_comm_create(rank->context, &config, &rank->comm));
    uint64_t late_ns = told_after_ns(plan->record);
    if (late_ns > LIMIT_NS)
        rank_fail(rank, __FILE__, __LINE__, "told of %safter %llu ms", name, (unsigned long long)late_ns / 1000000);
}

static void dead_while_meeting(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    struct plan plan = {.record = record_open(), .delay_ns = 300000000};
    unsigned failed = 0;
    static const int32_t victims[] = {0, 1, 3};
    for (int i = 0; i < 6; i++) {
        plan.victim = victims[i % 3];
        plan.leads = i >= 3;
        struct ranks_config config = {.n = RANKS,
                                      .forked = true,
                                      .no_comm = true,
                                      .deadline_s = 30,
                                      .arg = &plan,
                                      .may_die = UINT64_C(1) << plan.victim};
        failed += ranks_run(&config, die_among_waiting);
    }
    record_close(plan.record, 4);
    assert_int_equal(failed, 0);
}

/* With the argument "engine": by the engine alone; with a number: so many. */
int main(int argc, char **argv)
{
    const struct CMUnitTest round[] = {cmocka_unit_test(kills)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(kills), cmocka_unit_test(dead_before_creation),
                                       cmocka_unit_test(dead_while_meeting)};
    if (argc > 1 && atoi(argv[1]) > 0) n_kills = atoi(argv[1]);
    if (argc < 2 || strcmp(argv[1], "engine") != 0)
        return cmocka_run_group_tests_name("faults.kill", tests, NULL, NULL);
    setenv("TUTTI_BACKENDS", "off", 1);
    return cmocka_run_group_tests_name("faults.kill engine", round, NULL, NULL);
}
