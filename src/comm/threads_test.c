/* SPDX-License-Identifier: BSD-3-Clause */
/* Any thread, any call: several threads of each rank on communicators of their own, and on one together; point-to-point
 * from many threads; aborts, polls and destruction while others are inside. */
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

#define N_THREADS 4
#define N_CALLS 60

struct lane {
    struct rank *rank;
    struct tutti_comm *comm;
    int32_t number;
    char failure[RANK_TEXT];
};

static void run_lanes(struct rank *rank, struct lane *lanes, void *(*body)(void *))
{
    pthread_t threads[N_THREADS];
    for (int t = 0; t < N_THREADS; t++) pthread_create(&threads[t], NULL, body, &lanes[t]);
    for (int t = 0; t < N_THREADS; t++) pthread_join(threads[t], NULL);
    for (int t = 0; t < N_THREADS; t++)
        if (lanes[t].failure[0]) memcpy(rank->failure, lanes[t].failure, RANK_TEXT);
}

/* A lane's checks write into its own record. */
static void lane_calls(struct rank *view, const struct lane *lane)
{
    for (int i = 0; i < N_CALLS; i++) {
        int64_t in[700], sum[700];
        size_t n = i % 7 == 0 ? 700 : 3;
        for (size_t k = 0; k < n; k++) in[k] = (int64_t)k + i + lane->number;
        struct tutti_work *work = NULL;
        RANK_CHECK_OK(view,
                      tutti_all_reduce(in, sum, n, TUTTI_INT64, TUTTI_SUM, lane->comm, NULL, i % 2 ? &work : NULL));
        if (work) {
            enum tutti_status status = tutti_work_wait(work, 0);
            tutti_work_free(work);
            RANK_CHECK_OK(view, status);
        }
        for (size_t k = 0; k < n; k++) RANK_CHECK(view, sum[k] == view->n * ((int64_t)k + i + lane->number));
        if (i % 20 == 0) {
            struct tutti_comm *part = NULL;
            RANK_CHECK_OK(view, tutti_comm_split(lane->comm, view->index % 2, 0, &part));
            RANK_CHECK_OK(view, tutti_barrier(part, NULL, NULL));
            tutti_comm_destroy(part);
        }
    }
}

static void *own_comm(void *arg)
{
    struct lane *lane = arg;
    struct rank view = *lane->rank;
    view.failure[0] = '\0';
    lane_calls(&view, lane);
    memcpy(lane->failure, view.failure, RANK_TEXT);
    return NULL;
}

static void lanes_apart(struct rank *rank)
{
    struct lane lanes[N_THREADS] = {{0}};
    for (int t = 0; t < N_THREADS; t++) {
        lanes[t].rank = rank;
        lanes[t].number = t;
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &lanes[t].comm));
    }
    run_lanes(rank, lanes, own_comm);
    for (int t = 0; t < N_THREADS; t++) tutti_comm_destroy(lanes[t].comm);
}

static void threads_apart(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, lanes_apart, NULL), 0);
    assert_int_equal(ranks_forked(2, lanes_apart, NULL), 0);
}

/* On one communicator: messages by tag from every thread, and each thread's own barriers do not mix, for all are equal.
 */
static void lane_messages(struct rank *view, const struct lane *lane)
{
    int32_t next = (view->index + 1) % view->n, previous = (view->index + view->n - 1) % view->n;
    for (int i = 0; i < N_CALLS; i++) {
        int64_t out[600], in[600] = {0};
        size_t n = i % 5 == 0 ? 600 : 1;
        for (size_t k = 0; k < n; k++) out[k] = lane->number * 1000000 + i * 1000 + (int64_t)k + view->index;
        RANK_CHECK_OK(view, tutti_sendrecv(out, n, next, lane->number, in, n, previous, lane->number, TUTTI_INT64,
                                           lane->comm, NULL, NULL, NULL));
        for (size_t k = 0; k < n; k++)
            RANK_CHECK(view, in[k] == lane->number * 1000000 + i * 1000 + (int64_t)k + previous);
        if (i % 10 == 0) RANK_CHECK_OK(view, tutti_barrier(lane->comm, NULL, NULL));
    }
}

static void *one_comm(void *arg)
{
    struct lane *lane = arg;
    struct rank view = *lane->rank;
    view.failure[0] = '\0';
    lane_messages(&view, lane);
    memcpy(lane->failure, view.failure, RANK_TEXT);
    return NULL;
}

static void lanes_together(struct rank *rank)
{
    struct lane lanes[N_THREADS] = {{0}};
    for (int t = 0; t < N_THREADS; t++) lanes[t].rank = rank, lanes[t].number = t, lanes[t].comm = rank->comm;
    run_lanes(rank, lanes, one_comm);
}

static void threads_together(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, lanes_together, NULL), 0);
    assert_int_equal(ranks_forked(3, lanes_together, NULL), 0);
}

/* ---- abort while many threads are inside ---- */

static void *waits(void *arg)
{
    struct lane *lane = arg;
    int32_t in = 1;
    struct tutti_message message;
    enum tutti_status status = TUTTI_OK; /* nobody sends this */
    while (status == TUTTI_OK)
        status = tutti_recv(&in, 1, TUTTI_INT32, TUTTI_ANY_SOURCE, 77, lane->comm, NULL, &message, NULL);
    struct tutti_error error;
    enum tutti_status state = tutti_comm_state(lane->comm, &error);
    if (status != TUTTI_ERR_ABORTED || state != TUTTI_ERR_ABORTED) strcpy(lane->failure, "not aborted");
    return NULL;
}

static void *aborts(void *arg)
{
    struct lane *lane = arg;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    if (lane->rank->index == 0) tutti_comm_abort(lane->comm, "one of two");
    if (lane->rank->index == 0) tutti_comm_abort(lane->comm, "two of two");
    return NULL;
}

static void *either(void *arg)
{
    struct lane *lane = arg;
    return lane->number == 0 ? aborts(arg) : waits(arg);
}

static void aborted_lanes(struct rank *rank)
{
    struct lane lanes[N_THREADS] = {{0}};
    for (int turn = 0; turn < 5; turn++) {
        struct tutti_comm *dup = NULL;
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &dup));
        for (int t = 0; t < N_THREADS; t++) lanes[t].rank = rank, lanes[t].number = t, lanes[t].comm = dup;
        run_lanes(rank, lanes, either);
        tutti_comm_destroy(dup);
        if (rank->failure[0]) return;
    }
}

static void abort_among_threads(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, aborted_lanes, NULL), 0);
    assert_int_equal(ranks_forked(2, aborted_lanes, NULL), 0);
}

/* ---- destroy waits for those inside ---- */

static void *destroys(void *arg)
{
    struct lane *lane = arg;
    nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
    tutti_comm_destroy(lane->comm);
    return NULL;
}

static void destroyed_meanwhile(struct rank *rank)
{
    struct lane lane = {.rank = rank};
    pthread_t thread;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &lane.comm));
    if (rank->index == 0) { /* rank 0 is late, so that the others are inside when destroy comes */
        nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
        RANK_CHECK_OK(rank, tutti_barrier(lane.comm, NULL, NULL));
        tutti_comm_destroy(lane.comm);
        return;
    }
    pthread_create(&thread, NULL, destroys, &lane);
    enum tutti_status status = tutti_barrier(lane.comm, NULL, NULL);
    pthread_join(thread, NULL);
    RANK_CHECK_OK(rank, status);
}

static void destroy_waits(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, destroyed_meanwhile, NULL), 0);
    assert_int_equal(ranks_forked(2, destroyed_meanwhile, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_apart),
        cmocka_unit_test(threads_together),
        cmocka_unit_test(abort_among_threads),
        cmocka_unit_test(destroy_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
