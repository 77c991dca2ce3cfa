/* SPDX-License-Identifier: BSD-3-Clause */
/* The back end oneccl over processes: the contract of all calls with it asked first; how it is chosen; and that every
 * call that oneCCL would wait in for ever, or take for another, ends with a sentence on all ranks, after which the
 * process goes on. By the stand-in, or by the library that TUTTI_TEST_ONECCL names. */
#include "test.h"

#include "backend/library/oneccl.h"
#include "base/base.h"
#include "comm/comm.h"
#include "contract/contract.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
enum { WORDS = 1000, RANKS_MOST = 4 };

static const char *library = TEST_ONECCL;
static bool real;

static unsigned run(const char *backends, uint32_t n, rank_function function, void *arg, uint64_t may_die)
{
    const struct tutti_option options[] = {{"backends", backends}, {"oneccl_library", library}};
    struct ranks_config config = {.n = n,
                                  .forked = true,
                                  .options = options,
                                  .n_options = 2,
                                  .timeout_ns = 60 * SECOND,
                                  .deadline_s = 200,
                                  .arg = arg,
                                  .may_die = may_die};
    return ranks_run(&config, function);
}

static uint64_t n_carried(const struct rank *rank)
{
    return rank->comm->library ? oneccl_of(rank->comm->library)->number : 0;
}

static enum tutti_status sum_by(struct rank *rank, const char *algorithm, uint64_t timeout_ns, uint64_t *words)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = algorithm;
    options.timeout_ns = timeout_ns;
    for (uint64_t i = 0; i < WORDS; i++) words[i] = i + (uint64_t)rank->index;
    return tutti_all_reduce(words, words, WORDS, TUTTI_UINT64, TUTTI_SUM, rank->comm, &options, NULL);
}

static bool is_sum(const uint64_t *words, uint64_t n)
{
    for (uint64_t i = 0; i < WORDS; i++)
        if (words[i] != n * i + n * (n - 1) / 2) return false;
    return true;
}

/* ---- all calls ---- */

struct batch {
    struct contract_case *cases;
    size_t n;
};

static void run_batch(struct rank *rank)
{
    const struct batch *batch = rank->arg;
    RANK_CHECK(rank, rank->comm->library && rank->comm->library_first);
    for (size_t i = 0; i < batch->n && !rank->failure[0]; i++)
        if (batch->cases[i].at[RANKS] + 1 == (uint32_t)rank->n) contract_run(rank, &batch->cases[i], NULL);
    RANK_CHECK(rank, n_carried(rank) > 10);
}

static void every_call(void **state)
{
    struct batch batch;
    (void)state;
    batch.cases = contract_pairs(test_seed() + 77, &batch.n);
    assert_non_null(batch.cases);
    for (size_t i = 0; i < batch.n; i++) batch.cases[i].thrifty = true;
    for (size_t i = 0; i < batch.n; i++) batch.cases[i].at[RANKS] = 1 + (uint32_t)(i % (RANKS_MOST - 1));
    for (uint32_t n = 2; n <= RANKS_MOST; n++) assert_int_equal(run("oneccl,flat", n, run_batch, &batch, 0), 0);
    free(batch.cases);
}

/* ---- choosing ---- */

static void named_in_calls(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint64_t words[WORDS];
    float f = 1;
    options.algorithm = "oneccl";
    RANK_CHECK(rank, rank->comm->library && !rank->comm->library_first);
    RANK_CHECK_OK(rank, sum_by(rank, NULL, 0, words));
    RANK_CHECK(rank, is_sum(words, (uint64_t)rank->n) && n_carried(rank) == 0);
    RANK_CHECK_OK(rank, sum_by(rank, "oneccl", 0, words));
    RANK_CHECK(rank, is_sum(words, (uint64_t)rank->n) && n_carried(rank) == 1);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "\"oneccl\" can not run this call",
                     tutti_all_reduce(&f, &f, 1, TUTTI_FLOAT32, TUTTI_MAX, rank->comm, &options, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "\"oneccl\" can not run this call",
                     tutti_barrier(rank->comm, &options, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK(rank, n_carried(rank) == 1);
}

static void not_there(struct rank *rank)
{
    uint64_t words[WORDS];
    RANK_CHECK(rank, !rank->comm->library);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "\"oneccl\" is not available here", sum_by(rank, "oneccl", 0, words));
    RANK_CHECK_OK(rank, sum_by(rank, NULL, 0, words));
    RANK_CHECK(rank, is_sum(words, (uint64_t)rank->n));
}

static void named(void **state)
{
    struct tutti_context *context = NULL;
    const struct tutti_option wrong = {"backends", "flat,flat"};
    (void)state;
    assert_int_equal(run("flat,oneccl", 2, named_in_calls, NULL, 0), 0);
    assert_int_equal(run("auto", 2, not_there, NULL, 0), 0);
    assert_int_equal(tutti_context_create(&wrong, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "as flat,oneccl"));
}

/* For which oneCCL would hang. */
static void two_of_one_process(void **state)
{
    const struct tutti_option options[] = {{"backends", "oneccl,flat"}, {"oneccl_library", library}};
    struct ranks_config config = {.n = 2, .options = options, .n_options = 2};
    (void)state;
    assert_int_equal(ranks_run(&config, not_there), 0);
}

static void by_two(struct rank *rank)
{
    struct tutti_comm *half = NULL, *whole = rank->comm;
    uint64_t words[WORDS];
    RANK_CHECK_OK(rank, sum_by(rank, NULL, 0, words));
    RANK_CHECK_OK(rank, tutti_comm_split(whole, rank->index % 2, rank->index, &half));
    rank->comm = half;
    const enum tutti_status status = sum_by(rank, "oneccl", 0, words);
    rank->comm = whole;
    tutti_comm_destroy(half);
    RANK_CHECK_OK(rank, status);
    RANK_CHECK(rank, words[0] == 2 * (uint64_t)(rank->index % 2) + 2);
    RANK_CHECK_OK(rank, sum_by(rank, NULL, 0, words));
    RANK_CHECK(rank, is_sum(words, 4) && n_carried(rank) == 2);
}

static void split(void **state)
{
    (void)state;
    assert_int_equal(run("oneccl", 4, by_two, NULL, 0), 0);
}

/* ---- what goes wrong ---- */

struct wrong {
    const char *variable, *value; /* for the stand-in, on all ranks */
    enum tutti_status status;
    const char *said;
    uint32_t odd; /* 1 + the rank that does something else */
    enum tutti_status (*does)(struct rank *rank, uint64_t *words);
};

static enum tutti_status nothing(struct rank *rank, uint64_t *words)
{
    (void)words;
    for (int i = 0; i < 20000 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK; i++) usleep(1000);
    return tutti_barrier(rank->comm, NULL, NULL);
}

static enum tutti_status shorter(struct rank *rank, uint64_t *words)
{
    return tutti_all_reduce(words, words, WORDS - 1, TUTTI_UINT64, TUTTI_SUM, rank->comm, NULL, NULL);
}

static enum tutti_status greatest(struct rank *rank, uint64_t *words)
{
    return tutti_all_reduce(words, words, WORDS, TUTTI_UINT64, TUTTI_MAX, rank->comm, NULL, NULL);
}

static enum tutti_status elsewhere(struct rank *rank, uint64_t *words)
{
    return sum_by(rank, "ring", 0, words);
}

static const struct wrong wrongs[] = {
    {NULL, NULL, TUTTI_ERR_TIMEOUT, "has not called it", 2, nothing},
    {NULL, NULL, TUTTI_ERR_MISMATCH, "999", 2, shorter},
    {NULL, NULL, TUTTI_ERR_MISMATCH, "max", 2, greatest},
    {NULL, NULL, TUTTI_ERR_MISMATCH, "rank 1", 2, elsewhere},
};
static const struct wrong wrongs_of_standin[] = {
    {"TUTTI_STANDIN_ONECCL_STUCK", "1:0", TUTTI_ERR_TIMEOUT, "timed out", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_STUCK", "1:2", TUTTI_ERR_TIMEOUT, "timed out", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_FAILS", "1:2", TUTTI_ERR_SYSTEM, "result 11: the stand-in refuses call 2", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_DIES", "1:2", TUTTI_ERR_PEER_DEAD, "rank 1", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_DIES", "1:0", TUTTI_ERR_PEER_DEAD, "rank 1", 0, NULL},
};

/* The rest of the ranks goes on by a communicator of its own; by oneCCL again, if no call was left behind. */
static void go_on(struct rank *rank)
{
    struct tutti_comm *fresh = NULL, *lost = rank->comm;
    uint64_t words[WORDS];
    unsetenv("TUTTI_STANDIN_ONECCL_STUCK");
    unsetenv("TUTTI_STANDIN_ONECCL_FAILS");
    unsetenv("TUTTI_STANDIN_ONECCL_DIES");
    RANK_CHECK_OK(rank, tutti_comm_shrink(lost, NULL, 0, &fresh));
    rank->comm = fresh;
    const enum tutti_status status = sum_by(rank, NULL, 0, words);
    const bool serves = fresh->library != NULL;
    rank->comm = lost;
    tutti_comm_destroy(fresh);
    RANK_CHECK_OK(rank, status);
    RANK_CHECK(rank, !(serves && oneccl_is_lost()));
}

/* The other member does not come to the end before this one has left, by its own deadline and not by a longer one. */
static void ends_alone(struct rank *rank)
{
    struct tutti_comm *pair = NULL, *whole = rank->comm;
    uint64_t words[WORDS];
    RANK_CHECK_OK(rank, tutti_comm_split(whole, 0, rank->index, &pair));
    rank->comm = pair;
    const enum tutti_status status = sum_by(rank, "oneccl", 0, words);
    rank->comm = whole;
    RANK_CHECK_OK(rank, status);
    tutti_comm_set_timeout(pair, 20 * TUTTI_NS_PER_MS);
    if (rank->index == 1) RANK_CHECK_OK(rank, tutti_barrier(whole, NULL, NULL));
    const uint64_t begun = tutti_now_ns();
    tutti_comm_destroy(pair);
    RANK_CHECK(rank, tutti_now_ns() - begun < 700 * TUTTI_NS_PER_MS);
    if (rank->index == 0) RANK_CHECK_OK(rank, tutti_barrier(whole, NULL, NULL));
}

static void end_has_a_deadline(void **state)
{
    (void)state;
    assert_int_equal(run("flat,oneccl", 2, ends_alone, NULL, 0), 0);
}

static void goes_wrong(struct rank *rank)
{
    const struct wrong *w = rank->arg;
    uint64_t words[WORDS];
    enum tutti_status status = TUTTI_OK;
    if (w->variable) setenv(w->variable, w->value, 1);
    if (!w->variable) status = sum_by(rank, NULL, 0, words);
    const uint64_t begin = tutti_now_ns();
    for (int i = 0; i < 3 && status == TUTTI_OK; i++)
        status = w->odd == 1 + (uint32_t)rank->index ? w->does(rank, words) : sum_by(rank, NULL, SECOND / 2, words);
    const char *text = tutti_last_error()->text;
    if (status != w->status || !strstr(text, w->said)) {
        rank_fail(rank, __FILE__, __LINE__, "%s %s: %s \"%s\"", w->said, w->value ? w->value : "",
                  tutti_status_name(status), text);
        return;
    }
    RANK_CHECK(rank, tutti_now_ns() - begin < 60 * SECOND);                    /* long before the default deadline */
    RANK_CHECK_STATUS(rank, w->status, tutti_barrier(rank->comm, NULL, NULL)); /* the communicator is lost */
    go_on(rank);
}

static void run_wrongs(const struct wrong *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct wrong w = list[i];
        const uint64_t may_die = w.status == TUTTI_ERR_PEER_DEAD ? 2 : 0;
        assert_int_equal(run("oneccl,flat", 2 + (uint32_t)(i % 2), goes_wrong, &w, may_die), 0);
    }
}

static void sentences(void **state)
{
    (void)state;
    run_wrongs(wrongs, TUTTI_ARRAY_LEN(wrongs));
    if (!real) run_wrongs(wrongs_of_standin, TUTTI_ARRAY_LEN(wrongs_of_standin));
}

/* ---- a death at any time ---- */

static void *kill_soon(void *arg)
{
    usleep(*(const unsigned *)arg);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void killed_at_work(struct rank *rank)
{
    static unsigned wait_us = 150000;
    const int32_t victim = *(const int32_t *)rank->arg;
    char said[16];
    uint64_t words[WORDS];
    pthread_t killer;
    RANK_CHECK_OK(rank, sum_by(rank, NULL, 0, words));
    snprintf(said, sizeof said, "rank %d", (int)victim);
    if (rank->index == victim) RANK_CHECK(rank, pthread_create(&killer, NULL, kill_soon, &wait_us) == 0);
    enum tutti_status status = TUTTI_OK;
    const uint64_t begin = tutti_now_ns();
    while (status == TUTTI_OK && tutti_now_ns() - begin < 20 * SECOND) status = sum_by(rank, NULL, 0, words);
    if (rank->index == victim) return;
    RANK_CHECK(rank, status == TUTTI_ERR_PEER_DEAD && strstr(tutti_last_error()->text, said));
    go_on(rank);
}

static void killed(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        int32_t victim = (int32_t)n - 2; /* rank 0 has what oneCCL's ranks meet by */
        assert_int_equal(run("oneccl,flat", n, killed_at_work, &victim, UINT64_C(1) << victim), 0);
    }
}

/* Rank 0, in whose process oneCCL's ranks have met, goes while nothing is called; the others end well. */
static void killed_at_rest(struct rank *rank)
{
    uint64_t words[WORDS];
    RANK_CHECK_OK(rank, sum_by(rank, NULL, 0, words));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == 0) raise(SIGKILL);
    usleep(300000);
    RANK_CHECK(rank, !oneccl_is_lost());
}

/* It ends long before the others. */
static void ends_early(struct rank *rank)
{
    uint64_t words[WORDS];
    RANK_CHECK_OK(rank, sum_by(rank, NULL, 0, words));
    RANK_CHECK(rank, is_sum(words, (uint64_t)rank->n));
    if (rank->index > 0) usleep(1200000);
}

static void left_alone(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++) assert_int_equal(run("oneccl,flat", n, killed_at_rest, NULL, 1), 0);
    assert_int_equal(run("oneccl,flat", 3, ends_early, NULL, 0), 0);
}

/* ---- the process ---- */

/* By two processes that talk to their parent through stdout: nothing else may come. */
static void speak(struct rank *rank)
{
    uint64_t words[WORDS];
    RANK_CHECK_OK(rank, sum_by(rank, "oneccl", 0, words));
    printf("%c", 'a' + rank->index);
    fflush(stdout);
}

static void stdout_is_the_users(void **state)
{
    char got[64];
    int ends[2], kept = dup(STDOUT_FILENO);
    (void)state;
    fflush(stdout);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    const unsigned failed = run("oneccl", 2, speak, NULL, 0);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(ends[1]);
    close(kept);
    const ssize_t n = read(ends[0], got, sizeof got);
    close(ends[0]);
    assert_int_equal(failed, 0);
    assert_int_equal(n, 2);
    assert_true((got[0] == 'a' && got[1] == 'b') || (got[0] == 'b' && got[1] == 'a'));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(named),
        cmocka_unit_test(split),
        cmocka_unit_test(sentences),
        cmocka_unit_test(killed),
        cmocka_unit_test(end_has_a_deadline),
        cmocka_unit_test(left_alone),
        cmocka_unit_test(stdout_is_the_users),
        cmocka_unit_test(two_of_one_process), /* last: on several hosts this process has oneCCL then, and forks no more
                                               */
    };
    if (!ranks_can_fork()) return 0;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (getenv("TUTTI_TEST_ONECCL")) library = getenv("TUTTI_TEST_ONECCL"), real = true;
    return cmocka_run_group_tests_name("oneccl", tests, NULL, NULL);
}
