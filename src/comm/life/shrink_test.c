/* SPDX-License-Identifier: BSD-3-Clause */
/* Shrinking to the survivors: after kills, after several at once, while others die, with ranks left out, with ranks
 * that disagree; late messages of the old communicator do no harm. */
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

static void nap_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000}, NULL);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static void *killer(void *arg)
{
    nap_us(*(const uint64_t *)arg);
    die();
    return NULL;
}

static void die_after(uint64_t us)
{
    static uint64_t when;
    pthread_t thread;
    when = us;
    if (pthread_create(&thread, NULL, killer, &when)) die();
}

/* The sum of ones is the size, whoever is left. */
static enum tutti_status count_ranks(struct tutti_comm *comm, int32_t *out)
{
    int32_t one = 1;
    return tutti_all_reduce(&one, out, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL);
}

/* Rank 2 dies between two calls of many; then, of the five that are left, the first. */
static void killed_twice(struct rank *rank)
{
    static int64_t in[20000], out[20000];
    enum tutti_status status = TUTTI_OK;
    for (int i = 0; status == TUTTI_OK && i < 100000; i++) {
        if (rank->index == 2 && i == 50) die();
        status = tutti_all_reduce(in, out, i % 2 ? 20000 : 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, NULL);
    }
    RANK_CHECK(rank, status == TUTTI_ERR_PEER_DEAD);
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "rank 2") != NULL);
    struct tutti_comm *first = NULL, *second = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &first));
    RANK_CHECK(rank, tutti_comm_size(first) == rank->n - 1);
    RANK_CHECK(rank, tutti_comm_rank(first) == rank->index - (rank->index > 2));
    RANK_CHECK(rank, tutti_comm_id(first) != tutti_comm_id(rank->comm));
    int32_t n = 0;
    for (int i = 0; i < 20; i++) RANK_CHECK_OK(rank, count_ranks(first, &n));
    RANK_CHECK(rank, n == rank->n - 1);
    tutti_comm_destroy(rank->comm);
    rank->comm = first;
    if (rank->index == 0) die();
    while ((status = count_ranks(first, &n)) == TUTTI_OK) {
    }
    RANK_CHECK(rank, status == TUTTI_ERR_PEER_DEAD);
    RANK_CHECK_OK(rank, tutti_comm_shrink(first, NULL, 0, &second));
    RANK_CHECK_OK(rank, count_ranks(second, &n));
    RANK_CHECK(rank, n == rank->n - 2 && tutti_comm_size(second) == n);
    struct tutti_comm *part = NULL; /* children of survivors */
    RANK_CHECK_OK(rank, tutti_comm_split(second, tutti_comm_rank(second) % 2, 0, &part));
    RANK_CHECK_OK(rank, count_ranks(part, &n));
    tutti_comm_destroy(part);
    tutti_comm_destroy(second);
}

static void after_kills(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* under ThreadSanitizer, as ranks.h says */
    struct ranks_config config = {.n = 6, .forked = true, .may_die = 1 << 2 | 1 << 0};
    assert_int_equal(ranks_run(&config, killed_twice), 0);
}

/* Ranks die at odd times of the agreement itself; whoever is left ends with one set, or calls again. */
static void killed_meanwhile(struct rank *rank)
{
    int32_t n = 0;
    uint64_t seed = *(const uint64_t *)rank->arg + (uint64_t)rank->index;
    uint64_t when = (seed * UINT64_C(0x9e3779b97f4a7c15) >> 40) % 60000;
    RANK_CHECK_OK(rank, count_ranks(rank->comm, &n));
    if (rank->index == 3) die();
    if (rank->index % 2 == 0 && rank->index < 6) die_after(when); /* in the middle of whatever it does then */
    struct tutti_comm *comm = rank->comm;
    for (int tries = 0; tries < 10; tries++) {
        struct tutti_comm *next = NULL;
        RANK_CHECK_OK(rank, tutti_comm_shrink(comm, NULL, 0, &next));
        tutti_comm_destroy(comm);
        rank->comm = comm = next;
        enum tutti_status status = TUTTI_OK;
        for (int i = 0; i < 400 && status == TUTTI_OK; i++) {
            status = count_ranks(comm, &n);
            if (status == TUTTI_OK) RANK_CHECK(rank, n == tutti_comm_size(comm));
            if (n == rank->n - 4 && i > 20) return; /* all that had to die are dead */
            nap_us(500);
        }
        RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, status);
    }
    rank_fail(rank, __FILE__, __LINE__, "the survivors never came to rest");
}

static void while_others_die(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* under ThreadSanitizer, as ranks.h says */
    for (uint64_t seed = 0; seed < 6; seed++) {
        uint64_t mixed = test_seed() + seed * 1000;
        struct ranks_config config = {.n = 8, .forked = true, .may_die = 0x1d, .arg = &mixed};
        assert_int_equal(ranks_run(&config, killed_meanwhile), 0);
    }
}

/* Everybody is well; ranks 1 and 4 are left out and do not call. */
static void left_out(struct rank *rank)
{
    const int32_t out[] = {4, 1};
    int32_t n = 0;
    if (rank->index == 1 || rank->index == 4) {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "the caller itself",
                         tutti_comm_shrink(rank->comm, out, 2, &rank->comm));
        RANK_CHECK_OK(rank, count_ranks(rank->comm, &n));
        return;
    }
    struct tutti_comm *rest = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, out, 2, &rest));
    RANK_CHECK(rank, tutti_comm_size(rest) == rank->n - 2);
    RANK_CHECK_OK(rank, count_ranks(rest, &n));
    RANK_CHECK(rank, n == rank->n - 2);
    RANK_CHECK_OK(rank, count_ranks(rank->comm, &n)); /* the old one is as it was */
    RANK_CHECK(rank, n == rank->n);
    tutti_comm_destroy(rest);
}

static void ranks_left_out(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(6, left_out, NULL), 0);
    assert_int_equal(ranks_forked(5, left_out, NULL), 0);
}

/* Rank 0 names another list: nobody gets a communicator, everybody a sentence. Then rank 1 does not call at all. */
static void disagreeing(struct rank *rank)
{
    const int32_t out = 2;
    struct tutti_comm *rest = NULL;
    if (rank->index == 2) return;
    enum tutti_status status = tutti_comm_shrink(rank->comm, &out, rank->index == 0 ? 1 : 0, &rest);
    RANK_CHECK(rank, status < 0 && !rest);
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "comm_shrink on rank") != NULL);
    if (rank->index == 1) return;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "rank ", tutti_comm_shrink(rank->comm, &out, 1, &rest));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_comm_shrink(rank->comm, NULL, 1, &rest));
    const int32_t wrong = 4;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "exclude[0] is 4", tutti_comm_shrink(rank->comm, &wrong, 1, &rest));
}

static void stays(struct rank *rank)
{
    disagreeing(rank);
    nap_us(1200000); /* nobody leaves before all have their sentence */
}

static void lists_that_differ(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 4, .timeout_ns = 400 * 1000000};
    assert_int_equal(ranks_run(&config, stays), 0);
}

/* Threads of a rank shrink several communicators at once, more than there are boards for agreements. */
struct one {
    struct rank *rank;
    struct tutti_comm *comm;
};

static void *shrink_one(void *arg)
{
    const struct one *one = arg;
    struct tutti_comm *rest = NULL;
    int32_t n = 0;
    const enum tutti_status status = tutti_comm_shrink(one->comm, NULL, 0, &rest);
    if (status < 0 || count_ranks(rest, &n) < 0 || n != one->rank->n)
        rank_fail(one->rank, __FILE__, __LINE__, "%d ranks: %s", (int)n, tutti_last_error()->text);
    tutti_comm_destroy(rest);
    return NULL;
}

static void at_once(struct rank *rank)
{
    enum { N = 12 };
    struct one each[N];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        each[i] = (struct one){.rank = rank};
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &each[i].comm));
    }
    for (int i = 0; i < N; i++) RANK_CHECK(rank, pthread_create(&threads[i], NULL, shrink_one, &each[i]) == 0);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) tutti_comm_destroy(each[i].comm);
}

static void several_at_once(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, at_once, NULL), 0);
    assert_int_equal(ranks_forked(3, at_once, NULL), 0);
}

/* Calls that were cut off leave packets behind; the new communicator of the same ranks must not see them. */
static void late_turn(struct rank *rank, struct tutti_comm *comm, int turn)
{
    struct tutti_work *works[16] = {NULL};
    int32_t ones[16], sums[16];
    int started = 0;
    for (; started < 8 + 2 * (rank->index % 3); started++) { /* not all ranks call the last ones */
        ones[started] = 1;
        if (tutti_all_reduce(&ones[started], &sums[started], 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &works[started]) <
            0)
            break;
    }
    if (rank->index == turn % rank->n) tutti_comm_abort(comm, "again");
    for (int i = 0; i < started; i++) {
        enum tutti_status status = tutti_work_wait(works[i], 0);
        if (status == TUTTI_OK) RANK_CHECK(rank, sums[i] == rank->n);
        if (status != TUTTI_OK) RANK_CHECK(rank, status == TUTTI_ERR_ABORTED);
        tutti_work_free(works[i]);
    }
}

static void late_messages(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    int32_t n = 0;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    for (int turn = 0; turn < 10; turn++) {
        struct tutti_comm *next = NULL;
        late_turn(rank, comm, turn);
        if (rank->failure[0]) return;
        RANK_CHECK_OK(rank, tutti_comm_shrink(comm, NULL, 0, &next));
        for (int i = 0; i < 3; i++) {
            RANK_CHECK_OK(rank, count_ranks(next, &n));
            RANK_CHECK(rank, n == rank->n);
        }
        tutti_comm_destroy(comm);
        comm = next;
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* before the next abort */
    }
    tutti_comm_destroy(comm);
}

static void old_messages(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(4, late_messages, NULL), 0);
    assert_int_equal(ranks_forked(4, late_messages, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_kills),       cmocka_unit_test(while_others_die), cmocka_unit_test(ranks_left_out),
        cmocka_unit_test(lists_that_differ), cmocka_unit_test(several_at_once),  cmocka_unit_test(old_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
