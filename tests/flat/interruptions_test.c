/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes between ranks inside each method of the back end flat: a rank that stops for a while, which nobody may
 * notice but by the time it takes; one that leaves; and an abort by another thread. */
#include "test.h"

#include "backend/flat/flat.h"
#include "flat/support/calls.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CALLS_MOST 200 /* in which somebody who left is missed */

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* The same call for all: where there are several, `salt` tells them apart. */
static void prepare(struct rank *rank, const struct flat_method *method, uint64_t salt, struct mark_plan *plan)
{
    uint64_t random = test_seed() * 31 + salt;
    mark_suit(&random, method, (uint32_t)rank->n, calls_count(rank, method->name), plan);
}

/* ---- stops that end in time ---- */

#define STOPS_MOST 64

/* Two ranks may have stopped at once, since some calls run ahead: each stop has a place of its own. */
struct stops {
    sem_t stopped; /* posted by a rank that is about to stop */
    _Atomic uint64_t n_stops;
    _Atomic bool over;
    struct {
        _Atomic int pid;
        _Atomic bool goes_on;
    } each[STOPS_MOST];
};

static void stop_a_while(void *arg)
{
    struct stops *stops = arg;
    uint64_t mine = atomic_fetch_add(&stops->n_stops, 1) % STOPS_MOST;
    atomic_store(&stops->each[mine].pid, getpid());
    sem_post(&stops->stopped);
    raise(SIGSTOP);
    atomic_store(&stops->each[mine].goes_on, true);
}

/* On rank 0, which never stops. */
static void *resume(void *arg)
{
    struct stops *stops = arg;
    for (uint64_t n = 0; sem_wait(&stops->stopped) == 0 && !atomic_load(&stops->over); n++)
        while (n < STOPS_MOST && !atomic_load(&stops->each[n].goes_on)) {
            nap();
            int pid = atomic_load(&stops->each[n].pid);
            if (pid) kill(pid, SIGCONT);
        }
    return NULL;
}

static void stop_in_each(struct rank *rank)
{
    struct stops *stops = rank->arg;
    struct mark_sheet sheet;
    struct mark_plan plan;
    pthread_t helper = 0;
    RANK_CHECK(rank, calls_open(rank, mark_words(TUTTI_ALL_TO_ALL, (uint32_t)rank->n, calls_count(rank, "")), &sheet));
    if (rank->index == 0) RANK_CHECK(rank, pthread_create(&helper, NULL, resume, stops) == 0);
    for (size_t i = 0; i < flat_n_methods && !rank->failure[0]; i++) {
        prepare(rank, &flat_methods[i], i, &plan);
        calls_expect(rank, 1 + (int32_t)(i % (size_t)(rank->n - 1)), &plan, &sheet, stop_a_while, stops);
        for (int k = 0; k < 2 && !rank->failure[0]; k++) calls_make(rank, &plan, &sheet);
        if (calls_is_due()) stop_a_while(stops); /* these calls had less steps */
        calls_watch(NULL, NULL, 0);
    }
    if (!rank->failure[0]) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == 0) {
        atomic_store(&stops->over, true);
        sem_post(&stops->stopped);
        pthread_join(helper, NULL);
    }
    calls_close(rank, &sheet);
}

static void stopped_a_while(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* ranks are threads here: the signal would stop the test */
    struct stops *stops = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_init(&stops->stopped, 1, 0);
    struct ranks_config config = {.n = 4, .forked = true, .deadline_s = 100, .arg = stops};
    calls_gate_reset();
    assert_int_equal(ranks_run(&config, stop_in_each), 0);
    assert_int_equal(atomic_load(&stops->n_stops), flat_n_methods);
    sem_destroy(&stops->stopped);
    munmap(stops, 4096);
}

/* ---- leaving ---- */

struct scene {
    const struct flat_method *method;
    uint64_t salt;
    int32_t who;
};

/* Calls until one fails: that is told with `expected`, and the sentence has this part. */
static void call_on(struct rank *rank, const struct mark_plan *plan, struct mark_sheet *sheet,
                    enum tutti_status expected, const char *part)
{
    enum tutti_status status = TUTTI_OK;
    char text[300];
    for (uint64_t i = 0; status == TUTTI_OK && i < (expected == TUTTI_ERR_PEER_LEFT ? CALLS_MOST : UINT64_MAX); i++) {
        mark_prepare(plan, (uint32_t)rank->index, sheet);
        status = mark_start(plan, sheet, rank->comm, NULL);
        if (status == TUTTI_OK && !mark_check(plan, (uint32_t)rank->index, sheet, text, sizeof text)) {
            rank_fail(rank, __FILE__, __LINE__, "%s", text);
            return;
        }
    }
    const char *said = status < 0 ? tutti_last_error()->text : "nothing";
    mark_print(plan, text, sizeof text);
    if (status != expected || !strstr(said, part))
        rank_fail(rank, __FILE__, __LINE__, "%s: %s: \"%s\"", text, tutti_status_name(status), said);
    else
        calls_check_left_alone(rank, plan, sheet);
}

static void leave_in_it(struct rank *rank)
{
    const struct scene *scene = rank->arg;
    struct mark_sheet sheet;
    struct mark_plan plan;
    char name[16];
    prepare(rank, scene->method, scene->salt, &plan);
    RANK_CHECK(rank, calls_open(rank, mark_words(plan.kind, plan.n, plan.count), &sheet));
    for (int i = 0; i < 2 && !rank->failure[0]; i++) calls_make(rank, &plan, &sheet);
    snprintf(name, sizeof name, "rank %d", scene->who);
    if (rank->index != scene->who && !rank->failure[0]) call_on(rank, &plan, &sheet, TUTTI_ERR_PEER_LEFT, name);
    calls_close(rank, &sheet);
}

static unsigned play(const struct flat_method *method, size_t i, bool forked, rank_function function)
{
    struct scene scene = {.method = method, .salt = i, .who = (int32_t)(i % 3)};
    struct ranks_config config = {
        .n = 3, .forked = forked, .deadline_s = 30, .timeout_ns = UINT64_C(60000000000), .arg = &scene};
    calls_gate_reset();
    unsigned failed = ranks_run(&config, function);
    if (failed) print_message("%s by %s, rank %d\n", tutti_kind_name(method->kind), method->name, scene.who);
    return failed;
}

/* Kinds share the walks of their methods, so a third of the methods is tried, another one each time; "long": all. */
static size_t every = 3;

static void leaving(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (size_t i = test_seed() % every; i < flat_n_methods; i += every)
        failed += play(&flat_methods[i], i, i % 4 == 0, leave_in_it);
    assert_int_equal(failed, 0);
}

/* ---- aborts ---- */

struct aborter {
    struct tutti_comm *comm;
    sem_t now;
};

static void *abort_it(void *arg)
{
    struct aborter *aborter = arg;
    sem_wait(&aborter->now);
    tutti_comm_abort(aborter->comm, "the user has seen enough");
    return NULL;
}

static void let_abort(void *arg)
{
    struct aborter *aborter = arg;
    sem_post(&aborter->now);
}

static void abort_in_it(struct rank *rank)
{
    const struct scene *scene = rank->arg;
    struct aborter aborter = {.comm = rank->comm};
    struct mark_sheet sheet;
    struct mark_plan plan;
    pthread_t thread;
    bool aborts = rank->index == scene->who;
    prepare(rank, scene->method, scene->salt, &plan);
    RANK_CHECK(rank, calls_open(rank, mark_words(plan.kind, plan.n, plan.count), &sheet));
    sem_init(&aborter.now, 0, 0);
    if (aborts) RANK_CHECK(rank, pthread_create(&thread, NULL, abort_it, &aborter) == 0);
    calls_expect(rank, scene->who, &plan, &sheet, let_abort, &aborter);
    if (!rank->failure[0]) call_on(rank, &plan, &sheet, TUTTI_ERR_ABORTED, "the user has seen enough");
    calls_watch(NULL, NULL, 0);
    if (aborts) pthread_join(thread, NULL);
    sem_destroy(&aborter.now);
    calls_close(rank, &sheet);
}

static void aborts(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (size_t i = (test_seed() + 1) % every; i < flat_n_methods; i += every)
        failed += play(&flat_methods[i], i, i % 4 == 1, abort_in_it);
    assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "long") == 0) every = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_a_while),
        cmocka_unit_test(leaving),
        cmocka_unit_test(aborts),
    };
    return cmocka_run_group_tests_name("flat interruptions", tests, NULL, NULL);
}
