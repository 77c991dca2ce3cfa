/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that the caller attends: no thread is made for them; and they end all the same when the caller tests, asks to
 * be told or leaves instead of waiting, also beside a thread that sleeps. */
#include "process.h"
#include "ranks.h"
#include "test.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

#define N 20000 /* several packets */

static const struct tutti_call_options attended = {.size = sizeof(attended), .premul_value = 1.0, .attended = true};
static const struct timespec pause = {.tv_nsec = 100000};

static void fill(const struct rank *rank, int32_t *x)
{
    for (int32_t i = 0; i < N; i++) x[i] = rank->index + i;
}

static bool is_sum(const struct rank *rank, const int32_t *x)
{
    for (int32_t i = 0; i < N; i++)
        if (x[i] != rank->n * (rank->n - 1) / 2 + rank->n * i) return false;
    return true;
}

static void start(struct rank *rank, int32_t *x, const struct tutti_call_options *options, struct tutti_work **work)
{
    fill(rank, x);
    RANK_CHECK_OK(rank, tutti_all_reduce(x, x, N, TUTTI_INT32, TUTTI_SUM, rank->comm, options, work));
}

/* Only in a process of one rank are its threads its own. */
static void no_thread(struct rank *rank)
{
    static int32_t x[N], y[N];
    size_t before = process_threads();
    struct tutti_work *work = NULL;
    start(rank, x, &attended, &work);
    RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
    tutti_work_free(work);
    RANK_CHECK(rank, is_sum(rank, x));
    fill(rank, x);
    fill(rank, y);
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_all_reduce(x, x, N, TUTTI_INT32, TUTTI_SUM, rank->comm, &attended, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(y, y, N, TUTTI_INT32, TUTTI_SUM, rank->comm, &attended, NULL));
    RANK_CHECK_OK(rank, tutti_group_end(&work));
    RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
    tutti_work_free(work);
    RANK_CHECK(rank, is_sum(rank, x) && is_sum(rank, y));
    RANK_CHECK(rank, process_threads() == before);
    start(rank, x, NULL, &work);
    RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
    tutti_work_free(work);
    RANK_CHECK(rank, process_threads() == before + 1);
}

static void count(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

/* The last rank waits; the others end their calls in the way that is tried, and look at the result alone. */
static void otherwise(struct rank *rank, void (*end)(struct rank *, struct tutti_work *, const int32_t *))
{
    int32_t x[N];
    struct tutti_work *work = NULL;
    start(rank, x, &attended, &work);
    if (!work) return;
    if (rank->index == rank->n - 1) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* the others' calls wait for this one */
        RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
    } else {
        end(rank, work, x);
    }
    RANK_CHECK(rank, is_sum(rank, x));
}

static void by_test(struct rank *rank, struct tutti_work *work, const int32_t *x)
{
    enum tutti_status status = TUTTI_PENDING;
    (void)x;
    for (int i = 0; i < 100000 && status == TUTTI_PENDING; i++) {
        status = tutti_work_test(work);
        if (status == TUTTI_PENDING) nanosleep(&pause, NULL);
    }
    RANK_CHECK_OK(rank, status);
    tutti_work_free(work);
}

static void by_notice(struct rank *rank, struct tutti_work *work, const int32_t *x)
{
    _Atomic uint32_t calls = 0;
    (void)x;
    RANK_CHECK_OK(rank, tutti_work_notify(work, count, &calls));
    tutti_work_free(work);
    for (int i = 0; i < 100000 && calls == 0; i++) nanosleep(&pause, NULL);
    RANK_CHECK(rank, calls == 1);
}

static void by_leaving(struct rank *rank, struct tutti_work *work, const int32_t *x)
{
    volatile const int32_t *last = &x[N - 1];
    int32_t sum = rank->n * (rank->n - 1) / 2 + rank->n * (N - 1);
    tutti_work_free(work);
    for (int i = 0; i < 100000 && *last != sum; i++) nanosleep(&pause, NULL);
    RANK_CHECK(rank, *last == sum);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* the last element is not the last to come */
}

static void barrier_of_last(struct rank *rank)
{
    if (rank->index == rank->n - 1) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void unattended(struct rank *rank)
{
    for (int helper = 0; helper < 2; helper++) {
        otherwise(rank, by_test);
        otherwise(rank, by_notice);
        if (ranks_can_fork()) { /* it reads the buffer while the library writes, which ThreadSanitizer would report */
            otherwise(rank, by_leaving);
            barrier_of_last(rank);
        }
        int32_t x[N]; /* makes the helper, which sleeps in the second round */
        struct tutti_work *work = NULL;
        start(rank, x, NULL, &work);
        RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
    }
}

/* A caller that was compiled before there was such a thing. */
static void older(struct rank *rank)
{
    int32_t x[N];
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.size = offsetof(struct tutti_call_options, attended);
    memset(&options.attended, 0xff, sizeof options.attended);
    size_t before = process_threads();
    struct tutti_work *work = NULL;
    start(rank, x, &options, &work);
    RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
    tutti_work_free(work);
    RANK_CHECK(rank, is_sum(rank, x));
    RANK_CHECK(rank, process_threads() == before + 1);
}

static void test_no_thread(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* under ThreadSanitizer, as ranks.h says */
    assert_int_equal(ranks_forked(2, no_thread, NULL), 0);
    assert_int_equal(ranks_forked(3, no_thread, NULL), 0);
}

static void test_unattended(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(3, unattended, NULL), 0);
    assert_int_equal(ranks_threads(3, unattended, NULL), 0);
}

static void test_older(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* under ThreadSanitizer, as ranks.h says */
    assert_int_equal(ranks_forked(2, older, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_thread),
        cmocka_unit_test(test_unattended),
        cmocka_unit_test(test_older),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
