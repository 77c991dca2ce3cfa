/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: opposite orders on several communicators, sends and receives, works, nesting, a failing argument; and
 * persistent collectives, alone and inside groups. */
#include "ranks.h"
#include "test.h"

#include <string.h>
#include <tutti/tutti.h>

#define N_COMMS 4
#define COUNT 5000

struct comms {
    struct tutti_comm *comm[N_COMMS];
};

static void open_comms(struct rank *rank, struct comms *comms)
{
    memset(comms, 0, sizeof(*comms));
    for (int c = 0; c < N_COMMS; c++) RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comms->comm[c]));
}

static void close_comms(struct comms *comms)
{
    for (int c = 0; c < N_COMMS; c++) tutti_comm_destroy(comms->comm[c]);
}

/* Each rank calls the communicators in another order: without a group that would wait in a circle. */
static void orders(struct rank *rank)
{
    struct comms comms;
    static _Thread_local int64_t in[N_COMMS][COUNT], out[N_COMMS][COUNT];
    open_comms(rank, &comms);
    for (int turn = 0; turn < 6 && !rank->failure[0]; turn++) {
        for (int c = 0; c < N_COMMS; c++)
            for (size_t i = 0; i < COUNT; i++) in[c][i] = (int64_t)i * (c + 1) + rank->index + turn;
        memset(out, 0, sizeof(out));
        RANK_CHECK_OK(rank, tutti_group_start());
        for (int k = 0; k < N_COMMS; k++) {
            int c = (k + rank->index) % N_COMMS;
            RANK_CHECK_OK(rank,
                          tutti_all_reduce(in[c], out[c], COUNT, TUTTI_INT64, TUTTI_SUM, comms.comm[c], NULL, NULL));
        }
        RANK_CHECK(rank, out[0][1] == 0); /* nothing runs before the end */
        struct tutti_work *work = NULL;
        RANK_CHECK_OK(rank, tutti_group_end(turn % 2 ? &work : NULL));
        if (work) {
            RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
            RANK_CHECK_OK(rank, tutti_work_test(work));
            RANK_CHECK(rank, tutti_work_duration_ns(work) > 0);
            tutti_work_free(work);
        }
        int64_t n = rank->n, ranks = n * (n - 1) / 2;
        for (int c = 0; c < N_COMMS; c++)
            for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, out[c][i] == n * ((int64_t)i * (c + 1) + turn) + ranks);
    }
    close_comms(&comms);
}

static void opposite_orders(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) assert_int_equal(ranks_threads(n, orders, NULL), 0);
    assert_int_equal(ranks_forked(3, orders, NULL), 0);
}

/* Everybody receives from everybody, himself included, in one group; with nesting and a collective in between. */
static void exchange(struct rank *rank)
{
    enum { MANY = 40000 };
    int32_t n = rank->n;
    int32_t *send = calloc(MANY, sizeof(*send)), *recv = calloc((size_t)n * MANY, sizeof(*recv));
    struct tutti_message messages[8];
    int32_t one = 1, sum = 0;
    for (int i = 0; i < MANY; i++) send[i] = rank->index * MANY + i;
    enum tutti_status status = tutti_group_start();
    for (int32_t r = 0; r < n && status == TUTTI_OK; r++)
        status = tutti_send(send, MANY, TUTTI_INT32, r, 3, rank->comm, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_group_start();
    if (status == TUTTI_OK) status = tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_group_end(NULL);
    bool early = sum != 0;
    for (int32_t r = 0; r < n && status == TUTTI_OK; r++)
        status = tutti_recv(recv + (size_t)r * MANY, MANY, TUTTI_INT32, r, 3, rank->comm, NULL, &messages[r], NULL);
    if (status == TUTTI_OK) status = tutti_group_end(NULL);
    bool right = sum == n && !early;
    for (int32_t r = 0; r < n; r++) {
        right = right && messages[r].source == r && messages[r].bytes == MANY * sizeof(int32_t);
        for (int i = 0; i < MANY; i++) right = right && recv[(size_t)r * MANY + (size_t)i] == r * MANY + i;
    }
    free(send);
    free(recv);
    RANK_CHECK_OK(rank, status);
    RANK_CHECK(rank, right);
}

static void exchanges(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) assert_int_equal(ranks_threads(n, exchange, NULL), 0);
    assert_int_equal(ranks_forked(4, exchange, NULL), 0);
}

/* Calls with a work of their own get it at the end; the group's covers the others. */
static void works(struct rank *rank)
{
    int32_t in = 2, sum = 0, max = 0;
    struct tutti_work *own = NULL, *whole = NULL;
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, &own));
    RANK_CHECK(rank, own == NULL);
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &max, 1, TUTTI_INT32, TUTTI_MAX, rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_group_end(&whole));
    RANK_CHECK(rank, own && whole);
    RANK_CHECK_OK(rank, tutti_work_wait(whole, 0));
    RANK_CHECK(rank, max == 2);
    RANK_CHECK_OK(rank, tutti_work_wait(own, 0));
    RANK_CHECK(rank, sum == 2 * rank->n && tutti_work_sequence(own) == 1);
    tutti_work_free(own);
    tutti_work_free(whole);
}

static void works_of_a_group(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, works, NULL), 0);
}

static void refusals(struct rank *rank)
{
    int32_t in = 2, sum = 7;
    struct tutti_work *work = NULL;
    struct tutti_comm *comm = rank->comm, *made = NULL;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "group_start", tutti_group_end(NULL));
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "recv is NULL",
                     tutti_all_reduce(&in, NULL, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "recv is NULL", tutti_group_end(&work));
    RANK_CHECK(rank, sum == 7 && !work && tutti_comm_sequence(comm) == 0); /* nothing was started */
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "group", tutti_comm_dup(comm, &made));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "group", tutti_persistent_record());
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    /* What can only be found when the group is prepared starts nothing, either. */
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = "nonsense";
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL));
    (void)tutti_all_reduce(&in, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, &options, NULL);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "nonsense", tutti_group_end(NULL));
    RANK_CHECK(rank, sum == 7 && tutti_comm_sequence(comm) == 0);
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK(rank, sum == 2 * rank->n);
}

static void group_refusals(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, refusals, NULL), 0);
}

/* ---- persistent ---- */

static void repeated(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    size_t counts[8], total = 0, own = 0;
    for (int32_t r = 0; r < rank->n; r++) {
        counts[r] = (size_t)r + 1;
        if (r < rank->index) own += counts[r];
        total += counts[r];
    }
    int64_t in[8] = {0}, all[40] = {0}, sum[3] = {0}, part[3] = {0};
    struct tutti_persistent *gather = NULL, *reduce = NULL;
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, tutti_all_gather_v(in, all, counts, NULL, TUTTI_INT64, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_persistent_end(&gather));
    memset(counts, 0xff, sizeof(counts)); /* the table was read */
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, tutti_all_reduce(part, sum, 3, TUTTI_INT64, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_persistent_end(&reduce));
    RANK_CHECK(rank, tutti_comm_sequence(comm) == 0);
    for (int64_t turn = 0; turn < 20; turn++) {
        for (int i = 0; i <= rank->index; i++) in[i] = 100 * turn + rank->index;
        for (int i = 0; i < 3; i++) part[i] = turn + i;
        struct tutti_work *work = NULL;
        if (turn % 3 == 0) {
            RANK_CHECK_OK(rank, tutti_persistent_start(gather, NULL));
            RANK_CHECK_OK(rank, tutti_persistent_start(reduce, &work));
            RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
            tutti_work_free(work);
        } else {
            RANK_CHECK_OK(rank, tutti_group_start());
            RANK_CHECK_OK(rank, tutti_persistent_start(gather, NULL));
            RANK_CHECK_OK(rank, tutti_persistent_start(reduce, NULL));
            RANK_CHECK_OK(rank, tutti_group_end(NULL));
        }
        size_t at = 0;
        for (int32_t r = 0; r < rank->n; r++)
            for (int32_t i = 0; i <= r; i++) RANK_CHECK(rank, all[at++] == 100 * turn + r);
        RANK_CHECK(rank, at == total);
        for (int i = 0; i < 3; i++) RANK_CHECK(rank, sum[i] == rank->n * (turn + i));
    }
    RANK_CHECK(rank, tutti_comm_sequence(comm) == 40);
    tutti_persistent_destroy(gather);
    tutti_comm_destroy(comm);
    rank->comm = NULL;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "destroyed", tutti_persistent_start(reduce, NULL));
    tutti_persistent_destroy(reduce); /* after its communicator */
    tutti_persistent_destroy(NULL);
    (void)own;
}

static void persistent(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) assert_int_equal(ranks_threads(n, repeated, NULL), 0);
}

static void recordings(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    struct tutti_persistent *made = NULL;
    struct tutti_work *work = NULL;
    int32_t in = 1, out = 0;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "persistent_record", tutti_persistent_end(&made));
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "open", tutti_persistent_record());
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "no collective", tutti_persistent_end(&made));
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_group_start());
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "collective", tutti_send(&in, 1, TUTTI_INT32, 0, 0, comm, NULL, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_persistent_end(&made));
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "work",
                     tutti_all_reduce(&in, &out, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &work));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_persistent_end(&made));
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "already", tutti_barrier(comm, NULL, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_persistent_end(&made));
    RANK_CHECK(rank, !made);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_persistent_start(NULL, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
}

static void wrong_recordings(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, recordings, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opposite_orders), cmocka_unit_test(exchanges),  cmocka_unit_test(works_of_a_group),
        cmocka_unit_test(group_refusals),  cmocka_unit_test(persistent), cmocka_unit_test(wrong_recordings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
