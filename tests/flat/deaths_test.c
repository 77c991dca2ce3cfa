/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that are killed, or stopped until the deadline is over, at a random step inside each method of the back end
 * flat: the survivors get the sentence, shrink, and go on. A rank that is stopped for longer than its peers wait, and
 * goes on when their calls have failed, writes to no buffer of theirs, and takes nothing from them for a result. */
#include "test.h"

#include "backend/flat/flat.h"
#include "flat/support/calls.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, WARM = 2 };
#define LIMIT_NS UINT64_C(10000000000) /* far from the communicator's timeout */

enum event { DIES, STOPS, PAUSES }; /* PAUSES: it goes on when the others have failed */
static const char *const event_names[] = {"death", "stop", "pause"};

struct scene {
    const struct flat_method *method;
    uint64_t seed;
    int32_t victim;
    enum event event;
    struct shared *shared; /* by all processes */
};
struct shared {
    _Atomic uint64_t death_ns;
    _Atomic int pid;      /* the stopped one's */
    _Atomic int n_failed; /* ranks whose call has failed, and whose buffers were filled since */
    _Atomic bool went_on; /* the paused one's call has ended, too */
};

static void die(void *arg)
{
    struct shared *shared = arg;
    atomic_store(&shared->death_ns, calls_now_ns());
    kill(getpid(), SIGKILL);
}

static void stop(void *arg)
{
    struct shared *shared = arg;
    atomic_store(&shared->pid, getpid());
    raise(SIGSTOP);
}

static void go_on(struct rank *rank, const struct scene *scene)
{
    struct tutti_comm *survivors = NULL;
    int64_t one = 1, sum = 0;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &scene->victim, 1, &survivors));
    enum tutti_status status = tutti_all_reduce(&one, &sum, 1, TUTTI_INT64, TUTTI_SUM, survivors, NULL, NULL);
    tutti_comm_destroy(survivors);
    RANK_CHECK_OK(rank, status);
    RANK_CHECK(rank, sum == RANKS - 1);
}

/* Until one fails. */
static enum tutti_status call_on(struct rank *rank, const struct mark_plan *plan, struct mark_sheet *sheet)
{
    enum tutti_status status = TUTTI_OK;
    char why[512];
    while (status == TUTTI_OK && !rank->failure[0]) {
        mark_prepare(plan, (uint32_t)rank->index, sheet);
        status = mark_start(plan, sheet, rank->comm, NULL);
        if (status == TUTTI_OK && !mark_check(plan, (uint32_t)rank->index, sheet, why, sizeof why))
            rank_fail(rank, __FILE__, __LINE__, "%s", why);
    }
    return status;
}

static void tell(struct rank *rank, const struct mark_plan *plan, const char *what)
{
    char text[256];
    mark_print(plan, text, sizeof text);
    rank_fail(rank, __FILE__, __LINE__, "%s: %s: \"%.300s\"", text, what, tutti_last_error()->text);
}

static void survive(struct rank *rank, const struct scene *scene, const struct mark_plan *plan,
                    struct mark_sheet *sheet)
{
    char name[16];
    const bool dies = scene->event == DIES;
    enum tutti_status expected = dies ? TUTTI_ERR_PEER_DEAD : TUTTI_ERR_TIMEOUT;
    snprintf(name, sizeof name, "rank %d", scene->victim);
    enum tutti_status status = call_on(rank, plan, sheet);
    uint64_t now = calls_now_ns(), death = atomic_load(&scene->shared->death_ns);
    if (rank->failure[0]) return;
    if (status != expected) tell(rank, plan, tutti_status_name(status));
    if (!strstr(tutti_last_error()->text, name)) tell(rank, plan, name);
    if (!strstr(tutti_last_error()->text, tutti_kind_name(plan->kind))) tell(rank, plan, "which collective?");
    if (dies && now - death > LIMIT_NS) tell(rank, plan, "late");
}

static void doze(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* All whose calls have failed use their buffers for something else; then the paused one goes on. */
static void let_go_on(struct rank *rank, const struct scene *scene, const struct mark_plan *plan,
                      struct mark_sheet *sheet)
{
    struct shared *shared = scene->shared;
    mark_scribble(sheet);
    if (atomic_fetch_add(&shared->n_failed, 1) == RANKS - 2) kill(atomic_load(&shared->pid), SIGCONT);
    while (!atomic_load(&shared->went_on)) doze();
    if (mark_touched(sheet)) tell(rank, plan, "a buffer was written to after its call had failed");
}

/* The paused one: its call is right, or fails. */
static void go_on_late(struct rank *rank, const struct scene *scene, const struct mark_plan *plan,
                       struct mark_sheet *sheet)
{
    (void)call_on(rank, plan, sheet);
    atomic_store(&scene->shared->went_on, true);
}

static void act(struct rank *rank)
{
    const struct scene *scene = rank->arg;
    struct mark_sheet sheet;
    struct mark_plan plan;
    uint64_t random = scene->seed;
    size_t count = calls_count(rank, scene->method->name);
    mark_suit(&random, scene->method, RANKS, count, &plan);
    RANK_CHECK(rank, calls_open(rank, mark_words(plan.kind, RANKS, count), &sheet));
    for (int i = 0; i < WARM && !rank->failure[0]; i++) calls_make(rank, &plan, &sheet);
    if (rank->failure[0]) return;
    calls_expect(rank, scene->victim, &plan, &sheet, scene->event == DIES ? die : stop, scene->shared);
    if (rank->failure[0]) return;
    if (scene->event != DIES) tutti_comm_set_timeout(rank->comm, UINT64_C(700000000));
    if (scene->event == PAUSES && rank->index == scene->victim) {
        go_on_late(rank, scene, &plan, &sheet);
        calls_close(rank, &sheet);
        return;
    }
    survive(rank, scene, &plan, &sheet);
    if (scene->event == PAUSES) let_go_on(rank, scene, &plan, &sheet);
    if (!rank->failure[0]) calls_check_left_alone(rank, &plan, &sheet);
    if (!rank->failure[0]) go_on(rank, scene);
    if (scene->event == STOPS && rank->index != scene->victim) kill(atomic_load(&scene->shared->pid), SIGKILL);
    calls_close(rank, &sheet);
}

static unsigned play(struct scene scene)
{
    scene.shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct tutti_option survives = {"survives", "1"};
    struct ranks_config config = {.n = RANKS,
                                  .forked = true,
                                  .options = &survives,
                                  .n_options = scene.event == PAUSES,
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = 30,
                                  .arg = &scene,
                                  .may_die = UINT64_C(1) << scene.victim};
    calls_gate_reset();
    unsigned failed = ranks_run(&config, act);
    munmap(scene.shared, 4096);
    if (failed)
        print_message("%s of rank %d in %s by %s, seed %llu\n", event_names[scene.event], scene.victim,
                      tutti_kind_name(scene.method->kind), scene.method->name, (unsigned long long)scene.seed);
    return failed;
}

/* In so many of the methods, evenly, each `times`. */
static void play_all(enum event event, size_t most, int times)
{
    uint64_t random = test_seed() + event;
    unsigned failed = 0;
    size_t step = flat_n_methods / most ? flat_n_methods / most : 1;
    for (size_t i = mark_random(&random) % step; i < flat_n_methods; i += step)
        for (int k = 0; k < times; k++) {
            struct scene scene = {.method = &flat_methods[i], .seed = mark_random(&random), .event = event};
            scene.victim = (int32_t)(mark_random(&random) % RANKS);
            failed += play(scene);
        }
    assert_int_equal(failed, 0);
}

static int times = 1;

static void deaths(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    play_all(DIES, times > 1 ? flat_n_methods : 14, times);
}

static void stops(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    play_all(STOPS, times > 1 ? flat_n_methods : 4, times);
}

static void pauses(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    play_all(PAUSES, times > 1 ? flat_n_methods : 7, times);
}

/* With the argument "long": many deaths and stops in each method. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(deaths), cmocka_unit_test(stops), cmocka_unit_test(pauses)};
    if (argc > 1 && strcmp(argv[1], "long") == 0) times = 10;
    return cmocka_run_group_tests_name("flat deaths", tests, NULL, NULL);
}
